//! The client as an app holds it: one handle, a directory, and a clock that tests set.

mod calls;
mod choose;
mod consent;
mod contexts;
mod damage;
#[cfg(feature = "grpc")]
mod driver;
mod handle;
mod holdout;
mod host_storage;
mod idle;
mod life;
mod measuring;
mod once;
mod refusals;
mod segmentations;
mod sticky;
mod time;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bandana_client::{
    Acceptance, Bandana, Budget, Builder, Clock, Consent, Fetched, HostTransport, Ready, Task,
    Tasks, Timestamp, UploadOutcome,
};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::upload::Upload;
use bandana_shared::wire::v1::UploadRequest;
use prost::Message as _;

type Failure = Box<dyn std::error::Error>;

const NAME: &str = "button-colour";

/// Seconds since 1970 when a test begins.
const BEGIN: u64 = 1_700_000_000;

/// Sends what is due, and returns the uploads. Fetches fail.
fn send(tasks: &mut Tasks) -> Result<Vec<Upload>, Failure> {
    let mut sent = Vec::new();
    loop {
        match tasks.next_task()? {
            Task::Fetch(task) => tasks.on_fetch_failed(&task, None)?,
            Task::Upload(task) => {
                tasks.on_upload_result(task.id(), &UploadOutcome::Accepted)?;
                sent.push(Upload::try_from(&UploadRequest::decode(task.bytes())?)?);
            }
            _ => return Ok(sent),
        }
    }
}

/// A clock that tests set, and the time that has truly passed.
#[derive(Debug)]
struct Hands {
    passed: AtomicU64,
    /// By how many seconds the device's clock is wrong.
    wrong: AtomicI64,
    /// Whether the device knows how long it has been on.
    has_boot_time: bool,
}

impl Hands {
    fn new() -> Arc<Self> {
        Self::with_boot_time(true)
    }

    fn with_boot_time(has_boot_time: bool) -> Arc<Self> {
        Arc::new(Self { passed: AtomicU64::new(0), wrong: AtomicI64::new(0), has_boot_time })
    }

    /// Lets time pass.
    fn forward(&self, seconds: u64) {
        self.passed.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Sets the device's clock so many seconds off the truth.
    fn set_wrong(&self, seconds: i64) {
        self.wrong.store(seconds, Ordering::SeqCst);
    }

    /// The time of a server, which is right.
    fn truth(&self) -> Timestamp {
        Timestamp::from_unix_ms((BEGIN + self.passed.load(Ordering::SeqCst)) * 1000)
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        let wrong = self.wrong.load(Ordering::SeqCst) * 1000;
        Timestamp::from_unix_ms(self.truth().unix_ms().saturating_add_signed(wrong))
    }

    fn boot_time(&self) -> Option<Duration> {
        let on = Duration::from_secs(1000 + self.passed.load(Ordering::SeqCst));
        self.has_boot_time.then_some(on)
    }
}

/// Two arms, an attribution window of ten minutes, a release delay of up to an hour.
fn specification() -> Result<Specification, Failure> {
    Ok(Specification::first(
        ExperimentId::new(NAME)?,
        Epsilon::new(1.0)?,
        Rewards::binary(),
        Mechanism::RandomizedResponse,
        vec![Arm::new("red")?, Arm::new("green")?],
        ReleaseTiming { attribution_window_seconds: 600, release_delay_seconds_max: 3600 },
    )?)
}

fn acceptance() -> Result<Acceptance, Failure> {
    Ok(Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary()))
}

/// A budget of `window` reports in a week and ten times as many in all.
fn budget(window: u32) -> Result<Budget, Failure> {
    let nats = |count: u32| PrivacyLoss::new(f64::from(count));
    Ok(Budget::new(nats(window)?, 7, nats(10 * window)?)?)
}

fn builder(
    directory: &Path,
    clock: &Arc<Hands>,
    window: u32,
) -> Result<Builder<Ready<HostTransport>>, Failure> {
    builder_accepting(directory, clock, acceptance()?, window)
}

fn builder_accepting(
    directory: &Path,
    clock: &Arc<Hands>,
    acceptance: Acceptance,
    window: u32,
) -> Result<Builder<Ready<HostTransport>>, Failure> {
    Ok(Bandana::builder()
        .host_transport()
        .directory(directory)
        .accept(acceptance)
        .budget(budget(window)?)
        .consent(Consent::Given)
        .clock(Arc::<Hands>::clone(clock)))
}

fn fetched(specification: &Specification, now: Timestamp) -> Result<Fetched, Failure> {
    let weights = Weights::uniform(&specification.active_arms())?;
    let policy = Policy { version: 1, weights, time_to_live_seconds: 60 };
    let specification = specification.clone();
    Ok(Fetched {
        specification,
        signatures: Vec::new(),
        policy,
        day: now.day(),
        store: None,
        view: None,
    })
}

/// Answers every fetch, accepts every upload, and returns the uploads.
fn serve(tasks: &mut Tasks, clock: &Hands) -> Result<Vec<Upload>, Failure> {
    let mut uploads = Vec::new();
    loop {
        match tasks.next_task()? {
            Task::Fetch(task) => {
                tasks.on_fetched(&task, fetched(&specification()?, clock.truth())?)?;
            }
            Task::Upload(task) => {
                uploads.push(Upload::try_from(&UploadRequest::decode(task.bytes())?)?);
                tasks.on_upload_result(task.id(), &UploadOutcome::Accepted)?;
            }
            Task::Shuffled(task) => return Err(format!("{task:?}").into()),
            Task::Wait(_) | Task::Done => return Ok(uploads),
        }
    }
}

/// An app that has received the experiment.
fn started(directory: &Path, clock: &Arc<Hands>, window: u32) -> Result<(Bandana, Tasks), Failure> {
    let (bandana, mut tasks) = builder(directory, clock, window)?.build();
    bandana.experiment(NAME)?;
    serve(&mut tasks, clock)?;
    Ok((bandana, tasks))
}

/// Makes `times` choices, and writes them.
fn choose(bandana: &Bandana, tasks: &mut Tasks, times: u32) -> Result<(), Failure> {
    for _ in 0..times {
        let choice = bandana.experiment(NAME)?.draw();
        assert!(choice.assignment().is_some_and(|a| a.unreported().is_none()), "{choice:?}");
    }
    tasks.write();
    Ok(())
}
