//! Signatures in the aggregator, and stores of versions without signatures.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bandana_aggregator::api::{DeviceService, Exports, OperatorService};
use bandana_aggregator::ingest::IngestMetrics;
use bandana_aggregator::ingest::Writer;
use bandana_aggregator::registry::Registry;
use bandana_edge::clock::ManualClock;
use bandana_edge::memory::Budget;
use bandana_edge::shutdown::shutdown_signal;
use bandana_learners::Learner;
use bandana_learners::LearnerConfig;
use bandana_learners::guardrails::Guardrails;
use bandana_shared::identity::{Day, UnixSeconds};
use bandana_shared::limits::SIGNATURES_MAX;
use bandana_shared::signing::{Signature, SigningKey};
use bandana_shared::specification::Arm;
use bandana_shared::stored;
use bandana_shared::tally::Tally;
use bandana_shared::wire::signatures;
use bandana_shared::wire::v1::operator_server::Operator as _;
use bandana_shared::wire::v1::{
    AddSignatureRequest, ExperimentName, GetExperimentRequest, GetExperimentResponse,
};
use bandana_store::{
    DamageError, EmbeddedSettings, EmbeddedStore, ExperimentRecord, ExperimentState, SqliteError,
    SqliteStore, StoreError, StoreReader, StoreRefusal, seal_directory, verify_directory,
};
use prost::Message as _;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use tonic::Request;

use crate::ingest::two_arms::orders::creation;
use crate::ingest::two_arms::{add_revision, add_signature, entry, specification};

type Failure = Box<dyn std::error::Error>;

const RUNNING: ExperimentState = ExperimentState::Running;

const CONFIG: LearnerConfig = LearnerConfig::new(Learner::LdpTs);

/// The tables of version 1, as its program wrote them.
const SCHEMA_1: &str = include_str!("../schema-1.sql");

fn key(number: u8) -> SigningKey {
    SigningKey::from_secret(&[number; 32])
}

fn at(seconds: u64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

fn only(store: &SqliteStore) -> Result<ExperimentRecord, Failure> {
    Ok(store.experiments()?.pop().ok_or("no experiment")?)
}

/// Executes statements on the database, as another program could.
fn meddle(directory: &Path, statements: &str) -> Result<(), Failure> {
    Ok(Connection::open(directory.join("bandana.sqlite3"))?.execute_batch(statements)?)
}

/// As in version 1.
#[derive(Serialize, Deserialize)]
struct Deltas(Vec<(i64, u32, u64, u64)>);

impl stored::Stored for Deltas {
    const MAGIC: [u8; 4] = *b"BDdl";
    const VERSION: u16 = 1;
}

#[test]
fn a_store_of_version_1_is_brought_up_to_date_with_all_it_holds() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let first = specification("old")?;
    let old = Connection::open(directory.path().join("bandana.sqlite3"))?;
    old.execute_batch(SCHEMA_1)?;
    old.execute_batch(
        "INSERT INTO experiment VALUES (1, 'old', 'paused', 'ldp-ts', 0.25);
         INSERT INTO tally VALUES (1, 20000, 0, 3, 2);
         UPDATE watermark SET oldest_day = 19999;",
    )?;
    let (digest, bytes) = (first.digest(), first.canonical_bytes());
    let insert = "INSERT INTO specification VALUES (?, 1, 1, ?)";
    old.execute(insert, params![digest.as_bytes(), bytes])?;
    let deltas = stored::to_bytes(&Deltas(vec![(1, 0, 3, 2)]))?;
    old.execute("INSERT INTO upload_group VALUES (1, 20000, ?, ?)", params![[7_u8; 16], deltas])?;
    drop(old);

    let mut store = SqliteStore::open(directory.path())?;
    let record = only(&store)?;
    assert_eq!((record.state.name(), record.config.floor_weight), ("paused", 0.25));
    assert_eq!(record.config.guardrails, Guardrails::OFF);
    assert_eq!((record.revisions, record.signatures), (vec![first.clone()], vec![]));
    assert_eq!(record.tallies, [Tally::new(3, 2)?, Tally::EMPTY]);
    assert_eq!((store.oldest_day()?, store.seen_ids()?.len()), (Day::new(19_999), 1));
    let signature = key(1).sign(&first, at(100));
    add_signature(&mut store, (record.key, &first), &signature, at(0), &entry("any")?)?;
    drop(store);
    assert_eq!(verify_directory(directory.path())?.findings, []);
    // The second migration has nothing to do.
    assert_eq!(only(&SqliteStore::open(directory.path())?)?.signatures, [signature]);
    Ok(())
}

#[test]
fn an_upgrade_that_fails_leaves_the_old_version() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    meddle(directory.path(), SCHEMA_1)?;
    // The migration to version 2 will find that its table exists.
    meddle(directory.path(), "CREATE TABLE signature (x);")?;
    let opened = SqliteStore::open(directory.path());
    assert!(matches!(opened, Err(StoreError::Sqlite(SqliteError::Failed { .. }))), "{opened:?}");
    meddle(directory.path(), "DROP TABLE signature;")?;
    assert!(SqliteStore::open(directory.path())?.experiments()?.is_empty());
    Ok(())
}

#[test]
fn one_signature_per_key_and_revision_is_kept() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    let first = specification("signed")?;
    let experiment = store.create_experiment(&first, CONFIG, RUNNING, &entry("any")?)?;
    let old = key(1).sign(&first, at(300));
    add_signature(&mut store, (experiment, &first), &old, at(0), &entry("any")?)?;
    assert_eq!(only(&store)?.signatures, [old]);
    let second = first.with_arm(Arm::new("c")?)?;
    add_revision(&mut store, experiment, &second, &entry("any")?)?;
    assert_eq!(only(&store)?.signatures, []);
    let early = key(1).sign(&second, at(100));
    let late = key(1).sign(&second, at(200));
    let witness = key(2).sign(&second, at(150));
    let mut both = [late, witness];
    both.sort_by_key(Signature::key);
    let newest = (experiment, &second);
    add_signature(&mut store, newest, &early, at(0), &entry("any")?)?;
    add_signature(&mut store, newest, &witness, at(0), &entry("any")?)?;
    for _ in 0..2 {
        add_signature(&mut store, newest, &late, at(0), &entry("any")?)?;
        assert_eq!(only(&store)?.signatures, both);
    }
    // As after a crash: nothing is closed.
    drop(store);
    let mut store = SqliteStore::open(directory.path())?;
    assert_eq!(only(&store)?.signatures, both, "those of the newest revision");
    // Expired signatures are removed when another one is added.
    add_signature(&mut store, newest, &late, at(150), &entry("any")?)?;
    assert_eq!(only(&store)?.signatures, [late]);
    Ok(())
}

#[test]
fn a_revision_has_so_many_signatures_and_no_more() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    let first = specification("full")?;
    let experiment = store.create_experiment(&first, CONFIG, RUNNING, &entry("any")?)?;
    let revision = (experiment, &first);
    let keys = 0..=u8::try_from(SIGNATURES_MAX)?;
    let signatures: Vec<_> =
        keys.map(|number| key(number).sign(&first, at(100 + u64::from(number)))).collect();
    let (one_more, fitting) = signatures.split_last().ok_or("no signatures")?;
    for signature in fitting {
        add_signature(&mut store, revision, signature, at(0), &entry("any")?)?;
    }
    let refused = add_signature(&mut store, revision, one_more, at(0), &entry("any")?);
    assert!(
        matches!(refused, Err(StoreError::Refused(StoreRefusal::TooManySignatures))),
        "{refused:?}"
    );
    assert_eq!(only(&store)?.signatures.len(), SIGNATURES_MAX, "nothing is lost");
    add_signature(&mut store, revision, &fitting[3], at(0), &entry("any")?)?;
    // Once the first has expired, there is room.
    add_signature(&mut store, revision, one_more, at(100), &entry("any")?)?;
    let now = only(&store)?.signatures;
    assert!(now.contains(one_more) && !now.contains(&fitting[0]));
    assert_eq!(now.len(), SIGNATURES_MAX);
    Ok(())
}

#[test]
fn a_stored_signature_that_does_not_fit_is_noticed() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let first = specification("damaged")?;
    let mut store = SqliteStore::open(directory.path())?;
    let experiment = store.create_experiment(&first, CONFIG, RUNNING, &entry("any")?)?;
    let signature = key(1).sign(&first, at(100));
    add_signature(&mut store, (experiment, &first), &signature, at(0), &entry("any")?)?;
    store.close()?;
    for statement in [
        "UPDATE signature SET expires = 101",
        "UPDATE signature SET signature = zeroblob(64)",
        "UPDATE signature SET public_key = zeroblob(32)",
    ] {
        let copy = tempfile::tempdir()?;
        let name = "bandana.sqlite3";
        std::fs::copy(directory.path().join(name), copy.path().join(name))?;
        meddle(copy.path(), statement)?;
        seal_directory(copy.path())?;
        let read = SqliteStore::open(copy.path())?.experiments();
        assert!(
            matches!(read, Err(StoreError::Damage(DamageError::Data { .. }))),
            "{statement}: {read:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn devices_get_what_has_not_expired_and_operators_see_all() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Arc::new(ManualClock::at_day(Day::new(100)));
    let registry = Arc::new(Registry::new(1, clock.clone()));
    let settings = EmbeddedSettings { replay_window_days: 3, ids_max: 10 };
    let store = Box::new(EmbeddedStore::open(directory.path(), settings)?);
    let id = store.id();
    let (sender, _due) = mpsc::channel();
    let metrics = IngestMetrics::new(clock.clone());
    let (writer, ingest) =
        Writer::open(store, Arc::clone(&registry), clock.clone(), sender, metrics)?;
    let writer = std::thread::spawn(move || writer.run());
    let reader = StoreReader::new(directory.path());
    let (_notifier, ending) = shutdown_signal();
    let exports = Exports::new(reader.clone(), Budget::new(1 << 24));
    let device = DeviceService::new(
        Arc::clone(&registry),
        ingest.clone(),
        clock.clone(),
        ending.clone(),
        Duration::from_mins(5),
        id,
        Budget::new(usize::MAX),
    );
    let operator =
        OperatorService::new(registry, ingest.clone(), reader, exports, clock.clone(), ending);

    let first = specification("expiring")?;
    ingest.administer(creation(first.clone(), CONFIG)).await?;
    let noon = |day: u64| at(day * 86_400 + 43_200);
    let [short, long] =
        [(1, 100), (2, 101)].map(|(number, day)| key(number).sign(&first, noon(day)));
    for signature in [short, long] {
        let request = AddSignatureRequest {
            experiment_id: "expiring".to_owned(),
            digest: first.digest().as_bytes().to_vec().into(),
            signature: Some((&signature).into()),
        };
        operator.add_signature(Request::new(request)).await?;
    }
    for (day, expected) in [(100, 2), (101, 1), (102, 0)] {
        clock.set_day(Day::new(day));
        let request = GetExperimentRequest { experiment_id: "expiring".to_owned() };
        let answer = device.get_experiment(request).await?;
        let answer = GetExperimentResponse::decode(answer.message())?;
        let sent = signatures(&answer.experiment.ok_or("no experiment")?.signatures);
        assert_eq!(sent.len(), expected, "{day}");
        let midnight = at(u64::from(day) * 86_400);
        assert!(sent.iter().all(|signature| signature.verify(&first, midnight).is_ok()));
        let name = ExperimentName { experiment_id: "expiring".to_owned() };
        let status = operator.get_experiment_status(Request::new(name)).await?.into_inner();
        assert_eq!(status.signatures.len(), 2);
    }
    ingest.stop().await;
    writer.join().map_err(|_| "the writer panicked")??;
    Ok(())
}
