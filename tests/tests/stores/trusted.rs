//! Every store keeps its guarantees on trusted experiments, which writers of disclosures rely on.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, ensure};
use bandana_aggregator::clock::{Clock, ManualClock};
use bandana_aggregator::disclosures::{Creation, DisclosureWriter, DisclosureWriterHandle, Step};
use bandana_aggregator::ingest::IngestMetrics;
use bandana_aggregator::ingest::{ExperimentChangeError, Ingest, IngestError, Writer, WriterError};
use bandana_aggregator::registry::Registry;
use bandana_aggregator::store::{
    AuditAction, DatabaseError, ExperimentState, Outcome, Store, StoreError, StoreRefusal,
    Transition, TrustedChange, TrustedCommit, TrustedRecord, TrustedRefusal, TrustedVersion,
};
use bandana_aggregator::trusted::{Disclosure, DisclosureVerdict, TrustedExperiment};
use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_shared::stored;
use bandana_tests::postgres::{Postgres, query};
use bandana_zcdp::adac_ucb::{Memory, UcbSettings};
use bandana_zcdp::state::{NoiseKey, SecretState};
use bandana_zcdp::{AlgorithmSettings, Played, Protection, RewardRange};
use futures_util::FutureExt as _;
use prost::Message as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use super::Case;
use super::crashes::{Fault, Faulty};
use super::places::{Place, WINDOW, create, entry, specification};
use super::replicas::Raw;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_trusted_change_is_made_from_the_version_it_names_or_not_at_all", versions),
    ("an_id_is_one_of_a_single_kind", ids),
    ("stopping_a_trusted_experiment_erases_its_rewards", erased),
    ("a_trusted_window_moves_forward_and_forgets_by_and_by", forgotten),
    ("a_crash_at_any_commit_of_a_keeper_loses_and_doubles_nothing", crash_at_every_commit),
    ("a_keeper_with_a_full_queue_takes_no_more", full),
    ("a_keeper_that_is_started_again_releases_what_is_due", due_at_the_start),
];

pub(crate) const OF_REPLICAS: &[(&str, super::replicas::Case)] = &[
    ("two_keepers_take_disclosures_to_one_experiment_at_once", at_once),
    ("a_database_that_has_gone_back_is_followed_by_keepers", gone_back),
    ("a_row_that_somebody_holds_turns_disclosures_away_and_nothing_else", held),
    ("a_clock_that_is_ahead_moves_no_trusted_window", clock_ahead),
];

/// Today, by the clock of the writers here.
const TODAY: Day = Day::new(100);

pub(super) fn name(text: &str) -> anyhow::Result<ExperimentId> {
    Ok(ExperimentId::new(text)?)
}

fn plan() -> anyhow::Result<AlgorithmSettings> {
    let protection = Protection::concentrated(0.5)?;
    let (exploration, memory) = (1.0, Memory::Forgetting);
    Ok(AlgorithmSettings::Ucb(UcbSettings { arms: 3, protection, exploration, memory }))
}

fn id(number: u128) -> UploadId {
    UploadId::new(number.to_be_bytes())
}

/// The stored record of a new experiment.
fn record(text: &str) -> anyhow::Result<TrustedRecord> {
    let secret = SecretState::new(plan()?, NoiseKey::insecure([1; 32]))?;
    Ok(TrustedRecord {
        is_archived: false,
        id: name(text)?,
        specification: plan()?.message(&name(text)?).encode_to_vec(),
        state: ExperimentState::Running,
        version: TrustedVersion { sequence: 0, stamp: 7 },
        oldest: Day::new(0),
        private: Some(stored::to_bytes(&secret)?),
        released: stored::to_bytes(&secret.released())?,
    })
}

pub(crate) fn add(store: &mut dyn Store, text: &str) -> anyhow::Result<TrustedRecord> {
    let record = record(text)?;
    store.apply_trusted_change(&TrustedChange::Create(
        record.clone(),
        entry(text, AuditAction::Create)?,
    ))?;
    Ok(record)
}

/// The only trusted experiment.
fn only(place: &Place) -> anyhow::Result<TrustedRecord> {
    place.reader()?.trusted(None)?.pop().context("there is none")
}

/// The next state after a reward of arm 0, or after the release that is due.
pub(crate) fn next(
    record: &TrustedRecord,
    disclosures: Vec<(Day, UploadId)>,
) -> anyhow::Result<TrustedCommit> {
    let experiment = TrustedExperiment::try_from(record)?;
    let mut secret = experiment.secret.context("it was stopped")?;
    for _ in &disclosures {
        secret.observe(&Played::Arm(2), RewardRange::Unit.reward(1.0)?)?;
    }
    Ok(TrustedCommit {
        id: record.id.clone(),
        from: record.version,
        to: record.version.next()?,
        private: stored::to_bytes(&secret)?,
        released: stored::to_bytes(&secret.released())?,
        disclosures,
    })
}

/// The reason for a refusal by the store, without any change.
fn refusal(outcome: Result<(), StoreError>) -> anyhow::Result<TrustedRefusal> {
    let error = outcome.err().context("the store made the change")?;
    ensure!(error.outcome() == Outcome::Declined, "{error}");
    match error {
        StoreError::Refused(StoreRefusal::Trusted(refusal)) => Ok(*refusal),
        other => Err(other.into()),
    }
}

fn versions(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = add(&mut *store, "headlines")?;
    ensure!(only(place)? == first);
    let names: Vec<(Day, UploadId)> = (0..3).map(|number| (TODAY, id(number))).collect();
    let commit = next(&first, names.clone())?;
    store.apply_trusted_change(&TrustedChange::Commit(commit.clone()))?;
    let second = only(place)?;
    ensure!(second.version == commit.to && second.private.as_ref() == Some(&commit.private));
    // From the old version, and from a version with the same number in a diverged store.
    let stamp = second.version.stamp ^ 1;
    for from in [first.version, TrustedVersion { stamp, ..second.version }] {
        let late = TrustedCommit { from, ..next(&second, vec![(TODAY, id(9))])? };
        ensure!(
            refusal(store.apply_trusted_change(&TrustedChange::Commit(late)))?
                == TrustedRefusal::Moved
        );
    }
    // Names that count already are reported, and nothing else changes.
    let again = next(&second, vec![(TODAY, id(9)), names[1], names[2], (Day::new(99), id(1))])?;
    let TrustedRefusal::Known(known) =
        refusal(store.apply_trusted_change(&TrustedChange::Commit(again)))?
    else {
        anyhow::bail!("it was not known")
    };
    let known: BTreeSet<_> = known.into_iter().collect();
    ensure!(known == BTreeSet::from([names[1], names[2]]), "{known:?}");
    ensure!(only(place)? == second);
    let looked_up = [names[0], (TODAY, id(9)), (Day::new(99), id(0))];
    ensure!(place.reader()?.disclosed(&first.id, &looked_up)? == [names[0]]);
    let unknown = TrustedCommit { id: name("nobody")?, ..next(&second, Vec::new())? };
    ensure!(
        refusal(store.apply_trusted_change(&TrustedChange::Commit(unknown)))?
            == TrustedRefusal::Moved
    );
    // A paused experiment accepts nothing.
    let (from, to) = (second.version, second.version.next()?);
    let (id, state) = (first.id.clone(), ExperimentState::Paused);
    let pause = entry("headlines", AuditAction::Pause)?;
    store.apply_trusted_change(&TrustedChange::Move {
        id,
        from,
        to,
        state,
        entry: pause.clone(),
    })?;
    let paused = only(place)?;
    let refused = store.apply_trusted_change(&TrustedChange::Commit(next(&paused, Vec::new())?));
    ensure!(refusal(refused)? == TrustedRefusal::Moved);
    drop(store);

    let store = place.open()?;
    ensure!(only(place)? == paused && paused.state == ExperimentState::Paused);
    let entries: Vec<_> = place.audit()?.into_iter().map(|record| record.entry).collect();
    ensure!(entries == [pause, entry("headlines", AuditAction::Create)?]);
    Ok(store.close()?)
}

fn ids(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    create(&mut *store, "bits")?;
    add(&mut *store, "rewards")?;
    for taken in ["bits", "rewards"] {
        let change = TrustedChange::Create(record(taken)?, entry(taken, AuditAction::Create)?);
        let error = store.apply_trusted_change(&change).err().context("the id was taken")?;
        ensure!(matches!(error, StoreError::Refused(StoreRefusal::ExperimentExists(_))), "{error}");
    }
    let create = entry("rewards", AuditAction::Create)?;
    let state = ExperimentState::Draft;
    let config = super::places::CONFIG;
    let refused = store.create_experiment(&specification("rewards")?, config, state, &create);
    ensure!(
        matches!(refused, Err(StoreError::Refused(StoreRefusal::ExperimentExists(_)))),
        "{refused:?}"
    );
    ensure!(place.audit()?.len() == 2 && store.load()?.len() == 1);
    Ok(store.close()?)
}

/// Bytes that no file may contain after their erasure. The same holds for sums of rewards.
const KEY: &[u8; 32] = b"a key of a release that is due!!";

fn erased(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = add(&mut *store, "headlines")?;
    let secret = SecretState::new(plan()?, NoiseKey::insecure(*KEY))?;
    let mut commit = next(&first, Vec::new())?;
    commit.private = stored::to_bytes(&secret)?;
    store.apply_trusted_change(&TrustedChange::Commit(commit.clone()))?;
    let (id, from, to) = (first.id.clone(), commit.to, commit.to.next()?);
    let (state, stop) = (ExperimentState::Stopped, entry("headlines", AuditAction::Stop)?);
    // While a reader uses the old state, that state can't be erased.
    let readers: Vec<rusqlite::Connection> = match place {
        Place::Embedded(folder) => {
            let reader = rusqlite::Connection::open(folder.path().join("bandana.sqlite3"))?;
            reader.execute_batch("BEGIN; SELECT count(*) FROM trusted_experiment")?;
            vec![reader]
        }
        Place::Postgres(_) => Vec::new(),
    };
    store.apply_trusted_change(&TrustedChange::Move { id, from, to, state, entry: stop })?;
    drop(readers);
    // The next change erases it.
    add(&mut *store, "sidebar")?;
    let reader = place.reader()?;
    let stopped = reader.trusted(Some(&first.id))?.pop().context("it is gone")?;
    ensure!(stopped.private.is_none() && stopped.released == commit.released);
    let experiment = TrustedExperiment::try_from(&stopped)?;
    ensure!(experiment.secret.is_none());
    if let Place::Embedded(folder) = place {
        for file in ["bandana.sqlite3", "bandana.sqlite3-wal"] {
            let bytes = std::fs::read(folder.path().join(file)).unwrap_or_default();
            ensure!(!bytes.windows(KEY.len()).any(|part| part == KEY), "{file} has the key");
        }
    }
    Ok(store.close()?)
}

fn forgotten(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let mut current = add(&mut *store, "headlines")?;
    for group in 0..5_u128 {
        // Buffers of an arm that is not played in the episode can grow without a release.
        let names = (0..1000).map(|number| (Day::new(50), id(group * 1000 + number))).collect();
        store.apply_trusted_change(&TrustedChange::Commit(next(&current, names)?))?;
        current = only(place)?;
    }
    let mut moved = |today: u32| -> anyhow::Result<TrustedRecord> {
        let (id, from) = (current.id.clone(), current.version);
        let (to, today, back) = (from.next()?, Day::new(today), WINDOW - 1);
        store.apply_trusted_change(&TrustedChange::Window { id, from, to, today, back })?;
        current = only(place)?;
        Ok(current.clone())
    };
    let left = || {
        place
            .reader()?
            .disclosed(&name("headlines")?, &all_of_day_50())
            .map_err(anyhow::Error::from)
    };
    ensure!(left()?.len() == 5000);
    let first = moved(100)?;
    ensure!(first.oldest == Day::new(98) && left()?.len() == 2952);
    // A window that already begins there is unchanged, but expired names are removed.
    ensure!(moved(60)? == first && left()?.len() == 904);
    let late = next(&first, Vec::new())?;
    store.apply_trusted_change(&TrustedChange::Commit(late.clone()))?;
    ensure!(left()?.is_empty());
    // Expired names are also removed at the end and during a pause.
    current = only(place)?;
    for number in 0..3 {
        let names = (0..1000).map(|n| (Day::new(99), id(number * 1000 + n))).collect();
        store.apply_trusted_change(&TrustedChange::Commit(next(&current, names)?))?;
        current = only(place)?;
    }
    let (id, from) = (current.id.clone(), current.version);
    let (to, today, back) = (from.next()?, Day::new(102), WINDOW - 1);
    store.apply_trusted_change(&TrustedChange::Window { id, from, to, today, back })?;
    current = only(place)?;
    let of_day_99: Vec<_> = (0..3000).map(|number| (Day::new(99), self::id(number))).collect();
    let left = || place.reader()?.disclosed(&first.id, &of_day_99).map_err(anyhow::Error::from);
    ensure!(left()?.len() == 952);
    let (id, from, to) = (current.id.clone(), current.version, current.version.next()?);
    let (state, pause) = (ExperimentState::Paused, entry("headlines", AuditAction::Pause)?);
    store.apply_trusted_change(&TrustedChange::Move { id, from, to, state, entry: pause })?;
    ensure!(left()?.is_empty());
    let again = TrustedChange::Window {
        id: first.id.clone(),
        from: first.version,
        to: first.version.next()?,
        today,
        back,
    };
    ensure!(refusal(store.apply_trusted_change(&again))? == TrustedRefusal::Moved);
    Ok(store.close()?)
}

fn all_of_day_50() -> Vec<(Day, UploadId)> {
    (0..5000).map(|number| (Day::new(50), id(number))).collect()
}

/// A server's disclosure writer and upload writer.
struct Office {
    registry: Arc<Registry>,
    keeper: DisclosureWriterHandle,
    ingest: Ingest,
    writer: JoinHandle<Result<(), WriterError>>,
    keeping: JoinHandle<()>,
}

impl Office {
    fn open(place: &Place, store: Box<dyn Store>) -> anyhow::Result<Self> {
        let (keeper, mut office) = Self::without_keeper(place, store)?;
        office.keeping = thread::spawn(move || keeper.run());
        Ok(office)
    }

    fn without_keeper(
        place: &Place,
        store: Box<dyn Store>,
    ) -> anyhow::Result<(DisclosureWriter, Self)> {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_day(TODAY));
        let registry = Arc::new(Registry::new(1, Arc::clone(&clock)));
        let metrics = IngestMetrics::new(Arc::clone(&clock));
        let (due, _) = mpsc::channel();
        let (writer, ingest) =
            Writer::open(store, Arc::clone(&registry), Arc::clone(&clock), due, metrics)?;
        let reader = place.reader()?;
        for record in reader.trusted(None)? {
            registry.trusted().publish_record(&record)?;
        }
        let (keeper, handle) =
            DisclosureWriter::new(Arc::clone(&registry), ingest.clone(), reader, clock, WINDOW);
        let writer = thread::spawn(move || writer.run());
        let keeping = thread::spawn(|| ());
        Ok((keeper, Self { registry, keeper: handle, ingest, writer, keeping }))
    }

    async fn create(&self, text: &str) -> anyhow::Result<()> {
        let secret = SecretState::new(plan()?, NoiseKey::insecure([1; 32]))?;
        let (caller, id, plan) = ("anna".to_owned(), name(text)?, plan()?);
        self.keeper.create(Creation { caller, id, plan, secret }).await?;
        Ok(())
    }

    /// Plays the recommended arm and discloses the reward; arm 1 pays.
    async fn disclose(&self, text: &str, number: u128) -> anyhow::Result<DisclosureVerdict> {
        let shown = self.registry.trusted().get(&name(text)?).context("there is none")?;
        let arm = shown.released.recommend(&[], &mut ChaCha8Rng::seed_from_u64(0))?;
        let reward = RewardRange::Unit.reward(f64::from(u8::from(arm == 1)))?;
        let (id, played) = (id(number), Played::Arm(arm));
        let disclosure = Disclosure { id, day: TODAY, played, reward };
        Ok(self.keeper.disclose(name(text)?, disclosure).await?)
    }

    async fn close(self) -> anyhow::Result<()> {
        let Self { keeper, ingest, writer, keeping, .. } = self;
        drop(keeper);
        keeping.join().map_err(|_| anyhow::anyhow!("the keeper panicked"))?;
        ingest.stop().await;
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        Ok(())
    }
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn crash_at_every_commit(place: &Place) -> anyhow::Result<()> {
    // It is created, its window is moved, and six disclosures lead to at least three releases.
    const COMMITS: usize = 10;
    for number in 1..=COMMITS {
        for fault in [Fault::Before(number), Fault::After(number)] {
            let text = format!("{fault:?}").to_lowercase().replace(['(', ')'], "-");
            let faulty = Box::new(Faulty::new(place.open()?, fault));
            let office = Office::open(place, faulty)?;
            block_on(async {
                if office.create(&text).await.is_err() {
                    ensure!(number == 1 && matches!(fault, Fault::Before(_)), "{fault:?}");
                    office.create(&text).await?;
                }
                for number in 0..6 {
                    // An unknown outcome is resolved, and no disclosure is lost.
                    let told = office.disclose(&text, number).await?;
                    ensure!(told == DisclosureVerdict::Counted, "{fault:?}: {told:?}");
                    let told = office.disclose(&text, number).await?;
                    ensure!(told == DisclosureVerdict::Duplicate, "{fault:?}: {told:?}");
                }
                office.close().await
            })?;
            let stored = place.reader()?.trusted(Some(&name(&text)?))?;
            let stored = TrustedExperiment::try_from(stored.first().context("it is gone")?)?;
            let (rewards, releases) = (stored.released.rewards(), stored.released.releases());
            ensure!(rewards == 6 && releases >= 3, "{fault:?}: {rewards}, {releases}");
        }
    }
    Ok(())
}

fn full(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    add(&mut *store, "headlines")?;
    let (keeper, mut office) = Office::without_keeper(place, store)?;
    let reward = RewardRange::Unit.reward(0.5)?;
    let mut waiting = Vec::new();
    let refused = loop {
        let (id, played) = (id(waiting.len() as u128), Played::Arm(2));
        let disclosure = Disclosure { id, day: TODAY, played, reward };
        let mut call = Box::pin(office.keeper.disclose(name("headlines")?, disclosure));
        match call.as_mut().now_or_never() {
            None => waiting.push(call),
            Some(told) => break told,
        }
        ensure!(waiting.len() < 100_000, "it takes without end");
    };
    ensure!(refused == Err(IngestError::QueueFull), "{refused:?}");
    // Once the store works, all waiting disclosures are answered, in groups.
    office.keeping = thread::spawn(move || keeper.run());
    let told = block_on(async { Ok(futures_util::future::try_join_all(waiting).await?) })?;
    ensure!(told.iter().all(|told| *told == DisclosureVerdict::Counted));
    let groups = only(place)?.version.sequence;
    ensure!(groups < 20, "{} disclosures were {groups} commits", told.len());
    block_on(office.close())
}

fn due_at_the_start(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let first = record("headlines")?;
    store.apply_trusted_change(&TrustedChange::Create(
        first.clone(),
        entry("headlines", AuditAction::Create)?,
    ))?;
    let mut commit = next(&first, Vec::new())?;
    let mut secret = SecretState::new(plan()?, NoiseKey::insecure([1; 32]))?;
    secret.observe(&Played::Arm(0), RewardRange::Unit.reward(0.5)?)?;
    ensure!(secret.is_due());
    commit.private = stored::to_bytes(&secret)?;
    commit.released = stored::to_bytes(&secret.released())?;
    commit.disclosures = vec![(TODAY, id(1))];
    store.apply_trusted_change(&TrustedChange::Commit(commit))?;
    drop(store);
    let mut expected = secret.clone();
    expected.release(NoiseKey::insecure([2; 32]))?;

    let office = Office::open(place, place.open()?)?;
    block_on(async {
        let told = office.disclose("headlines", 1).await?;
        ensure!(told == DisclosureVerdict::Duplicate, "{told:?}");
        let shown = office.registry.trusted().get(&name("headlines")?).context("it is gone")?;
        // With the noise from the key that was durable before the crash.
        ensure!(shown.released.shown() == expected.released().shown());
        let moved = office.keeper.change(
            "anna".to_owned(),
            name("headlines")?,
            Step::Move(Transition::Stop),
        );
        ensure!(moved.await?.is_some_and(|moved| moved.secret.is_none()));
        // A counted disclosure is a success, and a new one is finally refused.
        let told = [office.disclose("headlines", 1).await?, office.disclose("headlines", 2).await?];
        ensure!(told == [DisclosureVerdict::Duplicate, DisclosureVerdict::Stopped], "{told:?}");
        office.close().await
    })
}

/// Discloses as devices do, which retry when a server was too slow to store; also returns the
/// number of retries.
async fn disclose_until_decided(
    office: &Office,
    number: u128,
) -> anyhow::Result<(DisclosureVerdict, u128)> {
    for unanswered in 0..100 {
        match office.disclose("headlines", number).await {
            Err(error) if error.downcast_ref() == Some(&IngestError::Store) => {}
            told => return Ok((told?, unanswered)),
        }
    }
    anyhow::bail!("nobody decides about {number}")
}

fn at_once(server: &Postgres) -> anyhow::Result<()> {
    const EACH: u128 = 150;
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let offices = [Office::open(&place, place.open()?)?, Office::open(&place, place.open()?)?];
    block_on(offices[0].create("headlines"))?;
    offices[1].registry.trusted().publish_record(&only(&place)?)?;
    block_on(async {
        // Each disclosure is sent to both replicas.
        let (one, two) = (&offices[0], &offices[1]);
        let numbers: Vec<u128> = (0..EACH).collect();
        let mut told = Vec::new();
        for part in numbers.chunks(30) {
            let calls = part.iter().flat_map(|number| {
                [one, two].map(|office| disclose_until_decided(office, *number))
            });
            told.extend(futures_util::future::try_join_all(calls).await?);
        }
        let count = |verdict| told.iter().filter(|(told, _)| *told == verdict).count() as u128;
        let (counted, duplicates) =
            (count(DisclosureVerdict::Counted), count(DisclosureVerdict::Duplicate));
        // Unanswered disclosures may have been counted.
        let unanswered: u128 = told.iter().map(|(_, unanswered)| unanswered).sum();
        ensure!(counted <= EACH && counted + unanswered >= EACH, "{told:?}");
        ensure!(counted + duplicates == 2 * EACH, "{told:?}");
        let [one, two] = offices;
        one.close().await?;
        two.close().await
    })?;
    let stored = TrustedExperiment::try_from(&only(&place)?)?;
    ensure!(u128::from(stored.released.rewards()) == EACH);
    let rows = query(url, "SELECT count(*) FROM trusted_disclosure")?;
    ensure!(rows == [[EACH.to_string()]], "{rows:?}");
    ensure!(place.verify()?.is_sound());
    Ok(())
}

fn gone_back(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let office = Office::open(&place, place.open()?)?;
    let counted = |numbers: std::ops::Range<u128>| {
        block_on(async {
            for number in numbers {
                let told = office.disclose("headlines", number).await?;
                ensure!(told == DisclosureVerdict::Counted, "{number}: {told:?}");
            }
            Ok(())
        })
    };
    block_on(office.create("headlines"))?;
    counted(0..5)?;
    // The state of a standby that lags behind by three disclosures when it takes over.
    query(url, "CREATE TABLE saved AS SELECT * FROM trusted_experiment")?;
    query(url, "CREATE TABLE saved_names AS SELECT * FROM trusted_disclosure")?;
    counted(5..8)?;
    let back = "UPDATE trusted_experiment e SET private = s.private, released = s.released,
        sequence = s.sequence, stamp = s.stamp FROM saved s";
    query(url, back)?;
    query(url, "DELETE FROM trusted_disclosure")?;
    query(
        url,
        "INSERT INTO trusted_disclosure (experiment, day, id)
        SELECT experiment, day, id FROM saved_names",
    )?;
    // Stored disclosures count once, and lost ones count anew.
    counted(5..9)?;
    let told = block_on(office.disclose("headlines", 4))?;
    ensure!(told == DisclosureVerdict::Duplicate, "{told:?}");
    block_on(office.close())?;
    ensure!(TrustedExperiment::try_from(&only(&place)?)?.released.rewards() == 9);
    Ok(())
}

fn held(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let mut store = place.open()?;
    let current = add(&mut *store, "headlines")?;
    let office = Office::open(&place, store)?;
    let frozen = Raw::connect(&place)?;
    frozen.run("BEGIN; SELECT FROM trusted_experiment FOR UPDATE")?;
    // The commit is known to have failed, and is not retried repeatedly.
    let refused =
        place.open()?.apply_trusted_change(&TrustedChange::Commit(next(&current, Vec::new())?));
    let outcome = refused.err().map(|error| error.outcome());
    ensure!(outcome == Some(Outcome::Unmade), "{outcome:?}");
    block_on(async {
        let told = office.disclose("headlines", 1).await;
        let error = told.err().context("the row is held")?;
        ensure!(error.downcast_ref() == Some(&IngestError::Store), "{error}");
        let stop = office.keeper.change(
            "anna".to_owned(),
            name("headlines")?,
            Step::Move(Transition::Stop),
        );
        let error = stop.await.err().context("the row is held")?;
        ensure!(
            matches!(
                error,
                ExperimentChangeError::Store(StoreError::Database(DatabaseError::Unmade { .. }))
            ),
            "{error}"
        );
        Ok(())
    })?;
    frozen.run("ROLLBACK")?;
    let told = block_on(office.disclose("headlines", 1))?;
    ensure!(told == DisclosureVerdict::Counted, "{told:?}");
    block_on(office.close())
}

fn clock_ahead(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let mut store = place.open()?;
    let mut current = add(&mut *store, "headlines")?;
    let day = "SELECT floor(extract(epoch FROM now()) / 86400)::integer::text";
    let day: u32 = query(url, day)?[0][0].parse()?;
    // A replica whose clock is a year ahead neither accepts such days nor moves the window there.
    let ahead = Day::new(day + 365);
    let names = vec![(Day::new(day), id(1)), (ahead, id(2))];
    let refused =
        refusal(store.apply_trusted_change(&TrustedChange::Commit(next(&current, names)?)))?;
    let TrustedRefusal::Future { latest } = refused else { anyhow::bail!("{refused}") };
    ensure!((day + 1..=day + 2).contains(&latest.get()), "{latest}");
    ensure!(only(&place)? == current);
    let (id, from, to) = (current.id.clone(), current.version, current.version.next()?);
    store.apply_trusted_change(&TrustedChange::Window {
        id,
        from,
        to,
        today: ahead,
        back: WINDOW - 1,
    })?;
    current = only(&place)?;
    let begin = day + 1 - WINDOW;
    ensure!((begin..=begin + 1).contains(&current.oldest.get()), "{}", current.oldest);
    Ok(store.close()?)
}
