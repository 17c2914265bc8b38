//! Latency of product code: the time of `Experiment::draw` and of `Assignment::reward` through
//! the handle, while the driver's thread writes.
//!
//! `cargo bench -p bandana-client --bench handle`
//!
//! A round is a number of choices, each followed by its reward. Then months pass, so that every
//! assignment settles before the next round. Only choices that report are measured, and the program
//! ends with an error when one does not. A row appears as soon as it is measured, and the progress
//! on the standard error. No time is asserted.

#![allow(clippy::print_stdout, reason = "a program for people")]
#![allow(clippy::print_stderr, reason = "its progress, apart from the table")]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bandana_client::{
    Acceptance, Bandana, Budget, Builder, Choice, Clock, Consent, Experiment, Fetched, Task, Tasks,
    Timestamp, UploadOutcome, WantsAcceptance,
};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};

type Failure = Box<dyn std::error::Error>;

/// Experiments among which the choices rotate.
const EXPERIMENTS: usize = 10;

/// Longer than any report waits for a server.
const UNTIL_SETTLED: Duration = Duration::from_hours(24 * 62);

/// Interval between two checks of the driver's progress, outside the measured time.
const GLANCE: Duration = Duration::from_millis(1);

/// An address without a server.
const NOWHERE: &str = "http://127.0.0.1:1";

fn main() -> Result<(), Failure> {
    println!("{:48} {:>7} {:>9} {:>9} {:>9}", "microseconds", "calls", "median", "99%", "most");
    let burst = Load { rounds: 100, choices: 200, pause: None };
    let spaced = Load { rounds: 25, choices: 200, pause: Some(Duration::from_millis(1)) };
    let crowded = Load { rounds: 10, choices: 10_000, pause: None };
    // The quick ones first: a reader sees at once that it works.
    reference()?;
    in_memory(burst)?;
    stored("directory, at once", false, burst)?;
    stored("directory, 1 ms apart", false, spaced)?;
    stored("directory, at once, 10,000 open", false, crowded)?;
    stored("directory and rewards, at once", true, burst)?;
    stored("directory and rewards, 1 ms apart", true, spaced)
}

/// The load of an app.
#[derive(Clone, Copy)]
struct Load {
    rounds: usize,
    /// Choices in a round.
    choices: usize,
    /// Pause between two choices.
    pause: Option<Duration>,
}

/// Sorted durations.
struct Timings(Vec<Duration>);

impl Timings {
    fn show(mut self, name: &str) {
        self.0.sort_unstable();
        let quantile = |percent: usize| {
            let place = self.0.len() * percent / 100;
            let duration = self.0.get(place.min(self.0.len().saturating_sub(1)));
            duration.map_or(f64::NAN, |duration| duration.as_secs_f64() * 1e6)
        };
        let (median, high, most) = (quantile(50), quantile(99), quantile(100));
        println!("{name:48} {:>7} {median:>9.1} {high:>9.1} {most:>9.1}", self.0.len());
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn timed<T>(timings: &mut Timings, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = call();
    timings.0.push(start.elapsed());
    result
}

/// A clock that moves only when it is set.
#[derive(Debug, Default)]
struct TurnedClock(AtomicU64);

impl Clock for TurnedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
    }
}

impl TurnedClock {
    fn until_settled(&self) {
        let milliseconds = u64::try_from(UNTIL_SETTLED.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..EXPERIMENTS).map(|number| format!("experiment-{number}"))
}

fn experiments(bandana: &Bandana) -> Result<Vec<Experiment>, Failure> {
    Ok(names().map(|name| bandana.experiment(&name)).collect::<Result<_, _>>()?)
}

/// Completes the remaining steps of a builder.
fn ready<T>(
    builder: Builder<WantsAcceptance<T>>,
    clock: &Arc<TurnedClock>,
) -> Result<Builder<bandana_client::Ready<T>>, Failure> {
    let builder = builder
        .accept(
            Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
                .least_attribution_window(Duration::ZERO)
                .least_release_delay(Duration::ZERO),
        )
        .budget(Budget::UNLIMITED)
        .consent(Consent::Given);
    Ok(builder.clock(Arc::<TurnedClock>::clone(clock)))
}

/// Answers every fetch, and accepts every upload.
fn serve(tasks: &mut Tasks, clock: &TurnedClock) -> Result<(), Failure> {
    loop {
        match tasks.next_task()? {
            Task::Fetch(task) => {
                let specification = Specification::first(
                    task.experiment_id.clone(),
                    Epsilon::new(1.0)?,
                    Rewards::binary(),
                    Mechanism::RandomizedResponse,
                    vec![Arm::new("red")?, Arm::new("green")?],
                    ReleaseTiming {
                        attribution_window_seconds: 3600,
                        release_delay_seconds_max: 3600,
                    },
                )?;
                let weights = Weights::uniform(&specification.active_arms())?;
                let policy = Policy { version: 1, weights, time_to_live_seconds: u32::MAX };
                let (signatures, day) = (Vec::new(), clock.now().day());
                let fetched =
                    Fetched { specification, signatures, policy, day, store: None, view: None };
                tasks.on_fetched(&task, fetched)?;
            }
            Task::Upload(task) => tasks.on_upload_result(task.id(), &UploadOutcome::Accepted)?,
            Task::Shuffled(task) => tasks.on_upload_result(task.id(), &UploadOutcome::NoRelay)?,
            Task::Wait(_) | Task::Done => return Ok(()),
        }
    }
}

/// Measures a client with its own directory and driver.
fn stored(name: &str, keeps_rewards: bool, load: Load) -> Result<(), Failure> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let clock = Arc::new(TurnedClock::default());
    let host = Bandana::builder().host_transport().directory(directory.path());
    let (bandana, mut tasks) = ready(host, &clock)?.build();
    experiments(&bandana)?;
    serve(&mut tasks, &clock)?;
    drop((bandana, tasks));

    let driven = Bandana::builder().endpoint(NOWHERE)?.directory(directory.path());
    let driven = ready(driven, &clock)?.keep_pending_rewards(keeps_rewards);
    let bandana = driven.start()?;
    let settle = || {
        clock.until_settled();
        loop {
            bandana.wake();
            let status = bandana.status();
            if status.open_assignments + status.waiting_reports == 0 {
                return Ok(());
            }
            std::thread::sleep(GLANCE);
        }
    };
    measure(name, &experiments(&bandana)?, load, settle)
}

/// Measures a client without a directory, whose tasks are carried out between rounds.
fn in_memory(load: Load) -> Result<(), Failure> {
    let clock = Arc::new(TurnedClock::default());
    let (bandana, mut tasks) =
        ready(Bandana::builder().host_transport().in_memory(), &clock)?.build();
    let experiments = experiments(&bandana)?;
    serve(&mut tasks, &clock)?;
    measure("in memory", &experiments, load, || {
        clock.until_settled();
        serve(&mut tasks, &clock)
    })
}

fn measure(
    name: &str,
    experiments: &[Experiment],
    load: Load,
    mut settle: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut choosing, mut rewarding) = (Timings(Vec::new()), Timings(Vec::new()));
    for round in 0..load.rounds {
        if round.is_multiple_of(load.rounds.div_ceil(5)) {
            eprintln!("{name}: round {} of {}", round + 1, load.rounds);
        }
        for experiment in experiments.iter().cycle().take(load.choices) {
            let choice = timed(&mut choosing, || experiment.draw());
            let Choice::Arm(assignment) = choice else {
                return Err(format!("{choice:?} instead of an arm").into());
            };
            if let Some(reason) = assignment.unreported() {
                return Err(format!("a choice without report: {reason:?}").into());
            }
            timed(&mut rewarding, || assignment.reward(1.0));
            if let Some(pause) = load.pause {
                std::thread::sleep(pause);
            }
        }
        settle()?;
    }
    choosing.show(&format!("draw: {name}"));
    rewarding.show(&format!("reward: {name}"));
    Ok(())
}

/// Measures a durable write and a word of randomness on the same machine.
fn reference() -> Result<(), Failure> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let (mut syncs, mut words) = (Timings(Vec::new()), Timings(Vec::new()));
    let mut file = File::create(Path::join(directory.path(), "reference"))?;
    for _ in 0..500 {
        file.write_all(&[0; 4096])?;
        timed(&mut syncs, || file.sync_all())?;
    }
    for _ in 0..20_000 {
        timed(&mut words, getrandom::u64)?;
    }
    syncs.show("reference: fsync of 4 KiB appended there");
    words.show("reference: getrandom::u64");
    Ok(())
}
