//! Sessions of multiplicative weights with many concurrent callers, through several server
//! processes that are killed.
//!
//! It fails when an answer is not in the transcript that the proof assumes: sequential rounds, each
//! compared once, with no more updates than were paid for. It also fails when a valid question
//! fails.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_mechanisms::queries::universe::Schema;
use bandana_mechanisms::queries::weights::{MultiplicativeWeights, SessionPlan, SessionSecret};
use bandana_shared::wire::v1::curator_client::CuratorClient;
use bandana_shared::wire::v1::{
    AskSessionRequest, AskSessionResponse, OpenSessionRequest, RegisterDataSetRequest,
    SessionChoice, open_session_request, register_data_set_request,
};
use bandana_store::{CuratorName, PostgresSettings, SessionUpdate, StoreReader};
use bandana_tests::postgres::{Postgres, Shared, query};
use bandana_tests::suite::Suite;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const COLUMNS: [&str; 2] = ["x:0..8", "y:0..8"];
const SIDE: usize = 9;
const QUESTIONS: usize = SIDE * SIDE;
const ROWS_OF_FULL_CELL: usize = 100;

/// Half of the cells are full and half are empty, so the hypothesis is initially off by about 50
/// rows on every cell: far beyond this threshold and the noise.
const THRESHOLD: u64 = 15;
const EPSILON: f64 = 32.0;

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// A test of replicas on one database.
type ReplicaCase = fn(&Postgres) -> anyhow::Result<()>;

/// Adds the tests.
pub(crate) fn add(suite: &mut Suite, postgres: &Shared) {
    suite.add("query_sessions::no_more_is_told_in_parallel_than_was_paid_for", || parallel(60));
    suite.add("query_sessions::no_honest_question_fails_for_others", || parallel(100));
    let replicas: [(&str, ReplicaCase); 2] = [
        ("replicas_that_die_tell_no_more_than_was_paid_for", deaths),
        ("what_can_not_be_stored_is_not_told_whichever_way_it_went", read_only),
    ];
    for (name, case) in replicas {
        let server = postgres.clone();
        suite.add(format!("query_sessions::replicas::{name}"), move || case(server.server()?));
    }
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

/// A directory with a data set.
fn data_sets() -> anyhow::Result<TempDir> {
    let directory = tempfile::tempdir()?;
    let mut text = "x,y\n".to_owned();
    for cell in (0..QUESTIONS).filter(|cell| cell % 2 == 0) {
        for _ in 0..ROWS_OF_FULL_CELL {
            writeln!(text, "{},{}", cell / SIDE, cell % SIDE)?;
        }
    }
    std::fs::write(directory.path().join("cells.csv"), text)?;
    Ok(directory)
}

/// The question about one cell.
fn predicate(cell: usize) -> String {
    format!("x={},y={}", cell / SIDE, cell % SIDE)
}

fn flags(sets: &Path) -> anyhow::Result<[&str; 2]> {
    Ok(["--data-sets", sets.to_str().context("an odd name")?])
}

async fn connect(process: &AggregatorProcess) -> anyhow::Result<CuratorClient<Channel>> {
    let endpoint = Endpoint::from_shared(process.operator_url.clone())?.timeout(PATIENCE);
    Ok(CuratorClient::new(endpoint.connect().await?))
}

async fn open(mut curator: CuratorClient<Channel>, updates: u32) -> anyhow::Result<()> {
    let request = RegisterDataSetRequest {
        name: "cells".to_owned(),
        file: "cells.csv".to_owned(),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        budget: Some(register_data_set_request::Budget::Epsilon(EPSILON)),
        find: None,
    };
    curator.register_data_set(request).await?;
    let choice = SessionChoice { updates, threshold: THRESHOLD };
    let request = OpenSessionRequest {
        session: "cells".to_owned(),
        data_set: "cells".to_owned(),
        columns: Vec::new(),
        price: Some(open_session_request::Price::Epsilon(EPSILON)),
        plan: Some(open_session_request::Plan::Choice(choice)),
    };
    curator.open_session(request).await?;
    Ok(())
}

type Told = (usize, Result<AskSessionResponse, Status>);

async fn ask(mut curator: CuratorClient<Channel>, cell: usize) -> Told {
    let (session, predicate) = ("cells".to_owned(), predicate(cell));
    // A retry must get the lost answer, and not a new one.
    let question_id = vec![u8::try_from(cell).unwrap_or(u8::MAX); 16].into();
    let request = AskSessionRequest { session, predicate, question_id };
    (cell, curator.ask_session(request).await.map(tonic::Response::into_inner))
}

/// Asks all questions at once, over these connections in turn.
fn ask_all(ways: &[CuratorClient<Channel>]) -> JoinSet<Told> {
    let mut asked = JoinSet::new();
    for (cell, way) in (0..QUESTIONS).zip(ways.iter().cycle()) {
        asked.spawn(ask(way.clone(), cell));
    }
    asked
}

/// The weights before the first update and after each stored one.
fn states(
    reader: &StoreReader,
) -> anyhow::Result<(Vec<MultiplicativeWeights>, Vec<SessionUpdate>)> {
    let name = CuratorName::new("cells")?;
    let session = reader.session(&name)?.context("no session")?;
    let updates = reader.session_updates(&name, 0, 1000)?;
    let data_set = reader.data_sets(Some(&name))?.pop().context("no data set")?;
    let plan: SessionPlan = serde_json::from_str(&session.plan)?;
    let universe = Schema::parse(&COLUMNS)?.universe::<&str>(&[])?;
    let mut weights = MultiplicativeWeights::new(
        plan,
        data_set.rows,
        universe.cells(),
        SessionSecret::Threshold(0),
    )?;
    let mut states = vec![weights.clone()];
    for update in &updates {
        weights.update(&universe.select(&update.predicate)?, update.answer)?;
        states.push(weights.clone());
    }
    Ok((states, updates))
}

/// Checks that all answers belong to the store's one transcript, and that this has no more updates
/// than were paid for. Returns the failed questions.
fn check(reader: &StoreReader, told: &[Told], most: u32) -> anyhow::Result<Vec<Status>> {
    let universe = Schema::parse(&COLUMNS)?.universe::<&str>(&[])?;
    let (states, updates) = states(reader)?;
    ensure!(updates.len() <= usize::try_from(most)?, "{} updates of {most}", updates.len());
    let (mut numbers, mut failed) = (BTreeSet::new(), Vec::new());
    for (cell, outcome) in told {
        let asked = predicate(*cell);
        match outcome {
            Ok(answer) if answer.updated => {
                let number = usize::try_from(most - answer.updates_left - 1)?;
                let update = updates.get(number).context("an update that is not in the store")?;
                let is_stored = (update.answer as f64).to_bits() == answer.answer.to_bits();
                ensure!(update.predicate == asked && is_stored);
                ensure!(numbers.insert(number), "update {number} was told twice");
            }
            Ok(answer) => {
                let state = usize::try_from(most - answer.updates_left)?;
                let weights = states.get(state).context("an answer from a state that never was")?;
                let expected = weights.expected(&universe.select(&asked)?);
                let is_same = (expected - answer.answer).abs() < 1e-6;
                ensure!(is_same, "{asked}: {answer:?}, but {expected} in state {state}");
            }
            Err(status) => failed.push(status.clone()),
        }
    }
    Ok(failed)
}

/// Fails when a question failed for another reason than exhausted updates.
fn check_failures(failed: &[Status], told: &[Told], most: u32) -> anyhow::Result<()> {
    let is_end = |status: &&Status| {
        status.code() == Code::FailedPrecondition && status.message().contains("used all of its")
    };
    let others: Vec<&Status> = failed.iter().filter(|status| !is_end(status)).collect();
    // A server that makes losers retry would have compared each of them in vain.
    let positive = told.iter().filter(|(_, told)| told.as_ref().is_ok_and(|told| told.updated));
    ensure!(
        others.is_empty(),
        "{} of {} questions failed, {} updates were told of {most}: {}",
        others.len(),
        told.len(),
        positive.count(),
        others[0]
    );
    ensure!(failed.is_empty() || usize::try_from(most)? < QUESTIONS, "an end before the updates'");
    Ok(())
}

fn parallel(updates: u32) -> anyhow::Result<()> {
    block_on(async {
        let sets = data_sets()?;
        let store = tempfile::tempdir()?;
        let flags = flags(sets.path())?;
        let process = AggregatorProcess::start_with(&flags, PROGRAM.as_ref(), store.path()).await?;
        let curator = connect(&process).await?;
        open(curator.clone(), updates).await?;
        let told = ask_all(&[curator]).join_all().await;
        let failed = check(&StoreReader::new(store.path()), &told, updates)?;
        check_failures(&failed, &told, updates)?;
        process.stop().await
    })
}

/// One of several replicas is killed while it works on questions. Its unanswered questions are sent
/// to another one.
fn deaths(server: &Postgres) -> anyhow::Result<()> {
    const UPDATES: u32 = 60;
    let url = server.database()?;
    block_on(async {
        let sets = data_sets()?;
        let flags = flags(sets.path())?;
        let start = || AggregatorProcess::start_replica_with(&flags, PROGRAM.as_ref(), &url);
        let (mortal, survivor) = (start().await?, start().await?);
        let ways = [connect(&mortal).await?, connect(&survivor).await?];
        open(ways[0].clone(), UPDATES).await?;
        let mut asked = ask_all(&ways);
        let mut told = Vec::new();
        while told.len() < QUESTIONS / 4 {
            told.push(asked.join_next().await.context("all were answered")??);
        }
        mortal.kill().await?;
        told.extend(asked.join_all().await);
        let is_of_dead = |(cell, told): &Told| {
            let is_end = |status: &Status| status.code() == Code::FailedPrecondition;
            cell % 2 == 0 && told.as_ref().is_err_and(|status| !is_end(status))
        };
        let (lost, mut told): (Vec<_>, Vec<_>) = told.into_iter().partition(is_of_dead);
        for (cell, _) in lost {
            told.push(ask(ways[1].clone(), cell).await);
        }
        survivor.stop().await?;
        let checked = tokio::task::spawn_blocking(move || {
            let settings = settings(&url)?;
            let failed = check(&StoreReader::of_postgres(&settings)?, &told, UPDATES)?;
            check_failures(&failed, &told, UPDATES)
        });
        checked.await?
    })
}

fn settings(url: &str) -> anyhow::Result<PostgresSettings> {
    let url = url.parse()?;
    let (ca, password_file) = (None, None);
    Ok(PostgresSettings {
        url,
        ca,
        password_file,
        replay_window_days: 3,
        id_partitions: 1,
        cells: Vec::new(),
    })
}

async fn order(url: &str, sql: String) -> anyhow::Result<()> {
    let url = url.to_owned();
    tokio::task::spawn_blocking(move || query(&url, &sql)).await?.map(drop)
}

/// A caller who can prevent storage must not learn the outcome of comparisons from failures.
fn read_only(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let sets = data_sets()?;
        let flags = flags(sets.path())?;
        let replica = AggregatorProcess::start_replica_with(&flags, PROGRAM.as_ref(), &url).await?;
        let way = connect(&replica).await?;
        // With one update there is almost no noise, so updates are predictable.
        open(way.clone(), 1).await?;
        // A query of all rows, on which no hypothesis is ever wrong; and a query of one cell, whose
        // first round is an update.
        let mut all = way.clone();
        let all_rows = || AskSessionRequest {
            session: "cells".to_owned(),
            predicate: "*".to_owned(),
            ..AskSessionRequest::default()
        };
        let answer = all.ask_session(all_rows()).await?.into_inner();
        ensure!(!answer.updated, "{answer:?}");
        let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'not now'; END $$";
        order(&url, refuse.to_owned()).await?;
        for table in ["curator_session", "curator_update"] {
            let sql = format!(
                "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table}
                FOR EACH STATEMENT EXECUTE FUNCTION refuse()"
            );
            order(&url, sql).await?;
        }
        let lazy = all.ask_session(all_rows()).await;
        let (_, update) = ask(way, 0).await;
        let status = update.err().context("an update that is not stored was told")?;
        let same = lazy.err().context("a comparison was told that is not stored")?;
        ensure!(status.code() == Code::Unavailable, "{status}");
        ensure!((status.code(), status.message()) == (same.code(), same.message()), "{same}");
        replica.stop().await
    })
}
