//! The writer over a real store, on a clock under the test's control.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bandana_aggregator::ingest::IngestMetrics;
use bandana_aggregator::ingest::{
    ExperimentChange, ExperimentChangeError, ExperimentCommand, Ingest, IngestError, Writer,
    WriterError,
};
use bandana_aggregator::metrics::Metrics;
use bandana_aggregator::registry::{Experiment, Registry};
use bandana_edge::clock::{Clock, ManualClock};
use bandana_edge::memory::Budget;
use bandana_learners::Learner;
use bandana_learners::LearnerConfig;
use bandana_shared::identity::{CellIndex, Day, ExperimentId, Revision, UploadId};
use bandana_shared::tally::Tally;
use bandana_store::Verdict::{Accepted, Duplicate};
use bandana_store::{
    EmbeddedSettings, EmbeddedStore, ExperimentState, SqliteError, SqliteStore, StoreError,
    Transition, ValidUpload, Verdict,
};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tempfile::TempDir;

use crate::ingest::two_arms::orders::creation;
use crate::ingest::two_arms::{entry, specification};

type Failure = Box<dyn std::error::Error>;

const SETTINGS: EmbeddedSettings = EmbeddedSettings { replay_window_days: 3, ids_max: 10 };

const CONFIG: LearnerConfig = LearnerConfig::new(Learner::LdpTs);

/// A running writer, and the means to call it.
struct Running<C> {
    directory: TempDir,
    clock: Arc<C>,
    registry: Arc<Registry>,
    ingest: Ingest,
    due: mpsc::Receiver<Arc<Experiment>>,
    writer: std::thread::JoinHandle<Result<(), WriterError>>,
}

impl Running<ManualClock> {
    fn start(directory: TempDir, day: u32) -> Result<Running<ManualClock>, Failure> {
        Running::with_clock(directory, Arc::new(ManualClock::at_day(Day::new(day))))
    }
}

impl<C: Clock + 'static> Running<C> {
    fn with_clock(directory: TempDir, clock: Arc<C>) -> Result<Self, Failure> {
        let registry = Arc::new(Registry::new(1, clock.clone()));
        let store = Box::new(EmbeddedStore::open(directory.path(), SETTINGS)?);
        let (sender, due) = mpsc::channel();
        let metrics = IngestMetrics::new(clock.clone());
        let (writer, ingest) =
            Writer::open(store, Arc::clone(&registry), clock.clone(), sender, metrics)?;
        let writer = std::thread::spawn(move || writer.run());
        Ok(Self { directory, clock, registry, ingest, due, writer })
    }

    async fn create(&self, id: &str) -> Result<Arc<Experiment>, Failure> {
        Ok(self.ingest.administer(creation(specification(id)?, CONFIG)).await?)
    }

    async fn stop(self) -> Result<TempDir, Failure> {
        self.ingest.stop().await;
        self.writer.join().map_err(|_| "the writer panicked")??;
        Ok(self.directory)
    }
}

/// An upload of `reports` ones for the first arm.
fn upload(
    experiment: &Arc<Experiment>,
    id: u8,
    day: u32,
    reports: u64,
) -> Result<ValidUpload, Failure> {
    Ok(ValidUpload {
        id: UploadId::new([id; 16]),
        day: Day::new(day),
        experiment: Arc::<Experiment>::clone(experiment),
        revision: Revision::FIRST,
        tallies: vec![(CellIndex::new(0)?, Tally::new(reports, reports)?)],
        app: None,
    })
}

#[tokio::test]
async fn days_come_into_the_window_and_leave_it() -> Result<(), Failure> {
    let running = Running::start(tempfile::tempdir()?, 100)?;
    let experiment = running.create("window").await?;
    let submit = async |id, day| {
        let upload = upload(&experiment, id, day, 1)?;
        Ok::<Verdict, Failure>(running.ingest.submit(upload).await?)
    };
    let oldest = |day| Verdict::Expired { oldest: Day::new(day) };
    assert_eq!(submit(1, 97).await?, oldest(98));
    assert_eq!(submit(1, 98).await?, Accepted);
    assert_eq!(submit(1, 100).await?, Accepted);
    assert_eq!(submit(1, 101).await?, Verdict::FutureDay { today: Day::new(100) });
    assert_eq!(submit(1, 98).await?, Duplicate);

    running.clock.set_day(Day::new(101));
    // The id's day has left the window, so duplicates are undetectable, and the upload is refused
    // rather than counted twice.
    assert_eq!(submit(1, 98).await?, oldest(99));
    assert_eq!(submit(1, 100).await?, Duplicate);
    assert_eq!(submit(1, 101).await?, Accepted);

    // A clock set back reopens no day, and does not withdraw a day that devices may know; also
    // after a restart.
    running.clock.set_day(Day::new(99));
    assert_eq!(submit(2, 98).await?, oldest(99));
    assert_eq!(submit(2, 101).await?, Accepted);
    let running = Running::start(running.stop().await?, 99)?;
    let id = ExperimentId::new("window")?;
    let experiment = running.registry.by_id(&id).ok_or("the experiment is gone")?;
    assert_eq!(experiment.tallies()[0].reports(), 4);
    let stale = upload(&experiment, 2, 98, 1)?;
    assert_eq!(running.ingest.submit(stale).await?, oldest(99));
    running.stop().await?;
    Ok(())
}

/// A clock whose calendar can jump while its monotonic time advances normally.
#[derive(Debug, Default)]
struct JumpingClock {
    day: AtomicU64,
    passed_days: AtomicU64,
}

impl Clock for JumpingClock {
    fn unix_seconds(&self) -> u64 {
        self.day.load(Ordering::SeqCst) * 86_400
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.passed_days.load(Ordering::SeqCst) * 86_400)
    }
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_does_not_take_the_window_with_it() -> Result<(), Failure> {
    let clock = Arc::new(JumpingClock::default());
    clock.day.store(100, Ordering::SeqCst);
    let running = Running::with_clock(tempfile::tempdir()?, clock.clone())?;
    let experiment = running.create("jumps").await?;
    let submit = async |id, day| {
        let upload = upload(&experiment, id, day, 1)?;
        Ok::<Verdict, Failure>(running.ingest.submit(upload).await?)
    };
    clock.day.store(5000, Ordering::SeqCst);
    assert_eq!(submit(1, 100).await?, Accepted);
    assert_eq!(submit(2, 5000).await?, Verdict::FutureDay { today: Day::new(101) });
    clock.day.store(102, Ordering::SeqCst);
    clock.passed_days.store(2, Ordering::SeqCst);
    assert_eq!(submit(1, 100).await?, Duplicate);
    assert_eq!(submit(2, 102).await?, Accepted);
    running.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_window_in_the_future_refuses_nothing_for_good() -> Result<(), Failure> {
    // The clock was wrong when the process started, and has been corrected since.
    let running = Running::start(tempfile::tempdir()?, 5000)?;
    let experiment = running.create("mended").await?;
    running.ingest.submit(upload(&experiment, 1, 5000, 1)?).await?;
    let running = Running::start(running.stop().await?, 100)?;
    let id = ExperimentId::new("mended")?;
    let experiment = running.registry.by_id(&id).ok_or("the experiment is gone")?;
    for day in [99, 100, 101, 5000] {
        let upload = upload(&experiment, 2, day, 1)?;
        assert_eq!(running.ingest.submit(upload).await?, Verdict::ClockBehind);
    }
    assert_eq!(experiment.tallies()[0].reports(), 1);
    running.stop().await?;
    Ok(())
}

#[test]
fn a_full_queue_turns_away_at_once() -> Result<(), Failure> {
    // A writer that is not running.
    let directory = tempfile::tempdir()?;
    let mut store = SqliteStore::open(directory.path())?;
    store.create_experiment(
        &specification("queue")?,
        CONFIG,
        ExperimentState::Running,
        &entry("any")?,
    )?;
    let clock = Arc::new(ManualClock::at_day(Day::new(100)));
    let registry = Arc::new(Registry::new(1, clock.clone()));
    let (sender, _due) = mpsc::channel();
    let shared: Arc<dyn Clock> = clock.clone();
    let metrics = Metrics::new(&shared, Budget::new(0));
    store.close()?;
    let store = Box::new(EmbeddedStore::open(directory.path(), SETTINGS)?);
    let (writer, ingest) =
        Writer::open(store, registry.clone(), clock, sender, metrics.ingest.clone())?;
    let experiment = registry.by_id(&ExperimentId::new("queue")?).ok_or("no experiment")?;
    let submit = || -> Result<_, Failure> {
        Ok(ingest.submit(upload(&experiment, 1, 100, 1)?).now_or_never())
    };
    let mut waiting = 0;
    while submit()?.is_none() {
        waiting += 1;
    }
    assert_eq!(waiting, 8192);
    assert_eq!(submit()?, Some(Err(IngestError::QueueFull)));
    drop(writer);
    for _ in 0..2 {
        assert_eq!(submit()?, Some(Err(IngestError::Ended)));
    }
    let shown = metrics.text()?;
    for (reason, uploads) in [("queue_full", 2), ("going_down", 2), ("clock_behind", 0)] {
        let line = format!("bandana_uploads_turned_away_total{{reason=\"{reason}\"}} {uploads}\n");
        assert!(shown.contains(&line), "no {line} in {shown}");
    }
    Ok(())
}

#[tokio::test]
async fn uploads_that_arrive_together_are_told_apart() -> Result<(), Failure> {
    let running = Running::start(tempfile::tempdir()?, 100)?;
    let (one, two) = (running.create("one").await?, running.create("two").await?);
    let arrivals = [
        upload(&one, 1, 100, 5)?,
        upload(&one, 1, 100, 5)?,
        upload(&two, 2, 100, 7)?,
        upload(&one, 1, 99, 11)?,
        upload(&two, 1, 100, 13)?,
    ];
    let verdicts = join_all(arrivals.map(|upload| running.ingest.submit(upload))).await;
    let verdicts: Vec<Verdict> = verdicts.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(verdicts, [Accepted, Duplicate, Accepted, Accepted, Duplicate]);
    assert_eq!((one.tallies()[0].reports(), two.tallies()[0].reports()), (16, 7));
    running.stop().await?;
    Ok(())
}

#[tokio::test]
async fn no_more_ids_than_may_be_remembered_are_taken() -> Result<(), Failure> {
    let running = Running::start(tempfile::tempdir()?, 100)?;
    let experiment = running.create("full").await?;
    for id in 0..10 {
        let verdict = running.ingest.submit(upload(&experiment, id, 100, 1)?).await?;
        assert_eq!(verdict, Accepted);
    }
    for (id, verdict) in [(10, Verdict::Full), (9, Duplicate)] {
        assert_eq!(running.ingest.submit(upload(&experiment, id, 100, 1)?).await?, verdict);
    }
    running.clock.set_day(Day::new(103));
    let verdict = running.ingest.submit(upload(&experiment, 10, 103, 1)?).await?;
    assert_eq!(verdict, Accepted, "a new day makes room");
    running.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_policy_is_due_after_a_hundred_reports_or_one_percent() -> Result<(), Failure> {
    let running = Running::start(tempfile::tempdir()?, 100)?;
    let experiment = running.create("due").await?;
    let mut due = Vec::new();
    for (id, reports) in [(1, 99), (2, 1), (3, 19_900), (4, 199), (5, 1)] {
        running.ingest.submit(upload(&experiment, id, 100, reports)?).await?;
        let is_due = running.due.try_recv().is_ok();
        if is_due {
            experiment.recompute()?;
        }
        due.push(is_due);
    }
    assert_eq!(due, [false, true, true, false, true]);
    let serving = experiment.serving();
    assert_eq!(serving.policy_reports, 20_200);
    let again = experiment.recompute()?;
    assert_eq!(again.policy.version, serving.policy.version, "without news the policy stays");
    running.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_cancelled_call_harms_nobody() -> Result<(), Failure> {
    let running = Running::start(tempfile::tempdir()?, 100)?;
    let experiment = running.create("cancelled").await?;
    for id in 0..5 {
        // Queued, and abandoned after the first poll for an answer.
        let answer = running.ingest.submit(upload(&experiment, id, 100, 1)?).now_or_never();
        assert!(answer.is_none_or(|verdict| verdict == Ok(Accepted)));
    }
    let verdict = running.ingest.submit(upload(&experiment, 9, 100, 1)?).await?;
    assert_eq!(verdict, Accepted);
    assert_eq!(experiment.tallies()[0].reports(), 6);
    running.stop().await?;
    Ok(())
}

#[tokio::test]
async fn changes_that_do_not_fit_change_nothing() -> Result<(), Failure> {
    let running = Running::start(tempfile::tempdir()?, 100)?;
    let experiment = running.create("states").await?;
    let step = async |transition| {
        let experiment = Arc::clone(&experiment);
        let administration = ExperimentChange::Move { experiment, transition };
        running
            .ingest
            .administer(ExperimentCommand { caller: "anna".to_owned(), administration })
            .await
    };
    let refused = step(Transition::Resume).await;
    assert!(matches!(refused, Err(ExperimentChangeError::State { .. })), "{refused:?}");
    let again = running.create("states").await;
    let message = again.err().ok_or("created twice")?.to_string();
    assert!(message.contains("exists already"), "{message}");
    step(Transition::Stop).await?;
    let verdict = running.ingest.submit(upload(&experiment, 1, 100, 1)?).await?;
    assert_eq!(verdict, Verdict::Stopped);
    running.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_table_that_another_program_has_dropped_is_damage() -> Result<(), Failure> {
    let running = Running::start(tempfile::tempdir()?, 100)?;
    let experiment = running.create("dropped").await?;
    let file = running.directory.path().join("bandana.sqlite3");
    rusqlite::Connection::open(file)?.execute_batch("DROP TABLE upload_group")?;
    let verdict = running.ingest.submit(upload(&experiment, 1, 100, 1)?).await;
    assert_eq!(verdict, Err(IngestError::Ended));
    let ended = running.writer.join().map_err(|_| "the writer panicked")?;
    let Err(WriterError::Store(error)) = ended else { return Err("it goes on".into()) };
    assert!(error.is_damage(), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_failed_commit_acknowledges_nobody_and_ends_the_writer() -> Result<(), Failure> {
    let running = Running::start(tempfile::tempdir()?, 100)?;
    let experiment = running.create("failing").await?;
    let verdict = running.ingest.submit(upload(&experiment, 0, 100, 1)?).await?;
    assert_eq!(verdict, Accepted);
    // Another program violates the rule that only the owner writes.
    let file = running.directory.path().join("bandana.sqlite3");
    rusqlite::Connection::open(file)?.execute_batch(
        "CREATE TRIGGER no BEFORE INSERT ON upload_group BEGIN SELECT RAISE(ABORT, 'no'); END",
    )?;
    let calls = [upload(&experiment, 1, 100, 1)?, upload(&experiment, 2, 100, 1)?];
    let verdicts = join_all(calls.map(|upload| running.ingest.submit(upload))).await;
    assert_eq!(verdicts, [Err(IngestError::Ended), Err(IngestError::Ended)]);
    assert_eq!(experiment.tallies()[0].reports(), 1, "published before the commit");
    let ended = running.writer.join().map_err(|_| "the writer panicked")?;
    assert!(matches!(
        ended,
        Err(WriterError::Store(StoreError::Sqlite(SqliteError::Failed {
            doing: "committing",
            ..
        })))
    ));
    Ok(())
}
