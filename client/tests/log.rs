//! The log of a client: it tells of fetches, refusals and uploads, and of no reward or arm.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bandana_client::{
    Acceptance, Bandana, Budget, Clock, Consent, Fetched, Task, Tasks, Timestamp, UploadOutcome,
};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};

type Failure = Box<dyn std::error::Error>;

/// Labels and rewards that would be found in the log if they were there.
const LABELS: [&str; 2] = ["vermilion", "turquoise"];
const REWARDS: [f64; 3] = [0.731_912, 0.283_645, 7.654_321];

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A logger that keeps all lines.
struct Kept;

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {} {}", record.level(), record.target(), record.args());
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn flush(&self) {}
}

#[derive(Debug)]
struct Hands(AtomicU64);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(1000 * self.0.load(Ordering::SeqCst))
    }

    fn boot_time(&self) -> Option<Duration> {
        None
    }
}

fn rewards() -> Result<Rewards, Failure> {
    Ok(Rewards::bounded(RewardRange::new(0.0, 1.0)?))
}

fn answer(id: &ExperimentId, epsilon: f64, now: Timestamp) -> Result<Fetched, Failure> {
    let specification = Specification::first(
        id.clone(),
        Epsilon::new(epsilon)?,
        rewards()?,
        Mechanism::Linear,
        LABELS.into_iter().map(Arm::new).collect::<Result<_, _>>()?,
        ReleaseTiming { attribution_window_seconds: 600, release_delay_seconds_max: 3600 },
    )?;
    let weights = Weights::uniform(&specification.active_arms())?;
    let policy = Policy { version: 1, weights, time_to_live_seconds: 60 };
    Ok(Fetched {
        specification,
        signatures: Vec::new(),
        policy,
        day: now.day(),
        store: None,
        view: None,
    })
}

/// Carries out all tasks that are due. Fetches of "greedy" are answered with too large an epsilon.
fn serve(tasks: &mut Tasks, clock: &Hands, outcome: &UploadOutcome) -> Result<u32, Failure> {
    let mut uploads = 0;
    loop {
        match tasks.next_task()? {
            Task::Fetch(task) => {
                let epsilon = if task.experiment_id.as_str() == "greedy" { 9.0 } else { 1.0 };
                tasks.on_fetched(&task, answer(&task.experiment_id, epsilon, clock.now())?).ok();
            }
            Task::Upload(task) => {
                tasks.on_upload_result(task.id(), outcome)?;
                uploads += 1;
            }
            Task::Shuffled(task) => return Err(format!("{task:?}").into()),
            Task::Wait(_) | Task::Done => return Ok(uploads),
        }
    }
}

#[test]
fn the_log_tells_of_calls_and_of_no_reward_or_arm() -> Result<(), Failure> {
    log::set_logger(&Kept).map_err(|error| error.to_string())?;
    log::set_max_level(log::LevelFilter::Trace);
    let clock = Arc::new(Hands(AtomicU64::new(1_700_000_000)));
    let nats = PrivacyLoss::new(20.0)?;
    let (bandana, mut tasks) = Bandana::builder()
        .host_transport()
        .in_memory()
        .accept(Acceptance::unsigned(Epsilon::new(1.0)?, rewards()?))
        .budget(Budget::new(nats, 7, nats)?)
        .consent(Consent::Given)
        .clock(Arc::<Hands>::clone(&clock))
        .build();
    let experiment = bandana.experiment("colours")?;
    let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    tasks.on_fetch_failed(&task, None)?;
    clock.0.fetch_add(60, Ordering::SeqCst);
    bandana.experiment("greedy")?;
    serve(&mut tasks, &clock, &UploadOutcome::Accepted)?;
    for reward in REWARDS {
        experiment.draw().reward(reward);
    }
    clock.0.fetch_add(600 + 3600, Ordering::SeqCst);
    // What a server says of an upload may name its arm.
    let message = format!("there is no arm {}", LABELS[0]);
    let uploads = serve(&mut tasks, &clock, &UploadOutcome::Refused { message })?;
    experiment.draw().reward(REWARDS[0]);
    clock.0.fetch_add(600 + 3600, Ordering::SeqCst);
    assert_eq!((uploads, serve(&mut tasks, &clock, &UploadOutcome::Accepted)?), (3, 1));

    let status = bandana.status();
    let refusal = status.last_refusal.ok_or("no refusal")?;
    assert_eq!(refusal.experiment().map(ExperimentId::as_str), Some("greedy"));
    assert!(refusal.what().contains("an epsilon of 9"), "{refusal}");
    assert!(refusal.advice().contains("less privacy loss"), "{refusal}");
    let error = status.last_error.ok_or("no error")?;
    assert!(error.what().contains("refused an upload for good"), "{error}");

    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let text = lines.join("\n");
    for told in [
        "INFO bandana experiment colours was not fetched: the host could not ask",
        "WARN bandana experiment greedy is refused",
        "DEBUG bandana experiment colours was fetched",
        "INFO bandana the server refused an upload for good",
        "DEBUG bandana an upload was counted",
    ] {
        assert!(text.contains(told), "{told:?} is not in\n{text}");
    }
    let digits = REWARDS.map(|reward| reward.to_string().replace("0.", ""));
    for secret in digits.iter().map(String::as_str).chain(LABELS).chain([" arm"]) {
        assert!(!text.contains(secret), "{secret:?} is in\n{text}");
    }
    Ok(())
}
