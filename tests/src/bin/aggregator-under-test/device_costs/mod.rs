//! Costs of an embedded client on a phone: wake-ups, connections, bytes, files and time.
//!
//! `device-costs idle|absent|dead SECONDS` and `device-costs choose|wire` print rows of a table;
//! `device-costs files|kept DIRECTORY` makes 50 assignments, ten minutes of its clock apart, in a
//! process that is traced from outside; with `kept` the app keeps pending rewards. Called by
//! `.ci/device`.

#![allow(clippy::print_stdout, reason = "its output is the table")]

mod assignments;
mod network;
mod post;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use bandana_client::grpc::Transport;
use bandana_client::{
    Acceptance, Bandana, Budget, Builder, Clock, Consent, Ready, SystemClock, Timestamp,
};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_tests::fake_server::Recorder;
use tokio::time::Instant;

use network::{Answers, Network};

/// Maximum time for an app to have what it waits for.
const PATIENCE: Duration = Duration::from_mins(20);

/// Number of assignments of `files`.
const ASSIGNMENTS: u32 = 50;

/// The system's clock, moved ahead.
#[derive(Debug, Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock.now().after(Duration::from_secs(self.0.load(Ordering::SeqCst)))
    }
}

/// Serves an experiment with these seconds of its window, and of the delay after it.
fn serve(recorder: &Recorder, name: &str, (window, delay): (u32, u32)) -> anyhow::Result<()> {
    let specification = Specification::first(
        ExperimentId::new(name)?,
        Epsilon::new(1.0)?,
        Rewards::binary(),
        Mechanism::Linear,
        vec![Arm::new("red")?, Arm::new("green")?],
        ReleaseTiming { attribution_window_seconds: window, release_delay_seconds_max: delay },
    )?;
    let weights = Weights::uniform(&[true, true])?;
    let policy = Policy { version: 1, weights, time_to_live_seconds: 86_400 };
    recorder.serve(&specification, &policy);
    Ok(())
}

/// A server of `experiments` experiments.
fn server(experiments: u32) -> anyhow::Result<Recorder> {
    let recorder = Recorder::start(SystemClock.now().day())?;
    for number in 0..experiments {
        serve(&recorder, &format!("costs-{number}"), (3600, 3600))?;
    }
    Ok(recorder)
}

fn agreed(
    transport: Transport,
    directory: &Path,
    clock: &Arc<Ahead>,
) -> anyhow::Result<Builder<Ready<Transport>>> {
    let nats = PrivacyLoss::new;
    let terms = Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary());
    Ok(Bandana::builder()
        .transport(transport)
        .directory(directory)
        .accept(terms.least_release_delay(Duration::from_mins(1)))
        .budget(Budget::new(nats(10_000.0)?, 7, nats(10_000.0)?)?)
        .consent(Consent::Given)
        .clock(Arc::<Ahead>::clone(clock)))
}

fn app(url: &str, directory: &Path, clock: &Arc<Ahead>) -> anyhow::Result<Bandana> {
    Ok(agreed(Transport::to(url)?, directory, clock)?.start()?)
}

fn wait_for(what: &str, mut reached: impl FnMut() -> bool) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    while !reached() {
        anyhow::ensure!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(begin.elapsed())
}

/// Makes `each` assignments in each of `experiments`, once these were fetched.
fn choose(bandana: &Bandana, experiments: u32, each: u32) -> anyhow::Result<()> {
    for number in 0..experiments {
        let experiment = bandana.experiment(&format!("costs-{number}"))?;
        wait_for("a policy", || experiment.draw().assignment().is_some())?;
        for _ in 1..each {
            drop(experiment.draw());
        }
    }
    Ok(())
}

/// The folders of the client's threads in `/proc`.
fn client_tasks() -> anyhow::Result<Vec<PathBuf>> {
    let mut tasks = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // A thread may end meanwhile.
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if name.starts_with("bandana") {
            tasks.push(task);
        }
    }
    Ok(tasks)
}

/// Voluntary context switches of the client's threads so far.
fn wake_ups() -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in client_tasks()? {
        let status = fs::read_to_string(task.join("status"))?;
        let number = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        sum += number.context("no switches")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}

fn per_hour(count: impl Into<f64>, seconds: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "seconds of a measurement")]
    let hours = seconds as f64 / 3600.0;
    count.into() / hours
}

/// An app that has fetched its policies, and has nothing to send.
fn idle(seconds: u64, directory: &Path) -> anyhow::Result<()> {
    let server = server(8)?;
    let network = Network::to(&server.url())?;
    let bandana = app(&network.url, directory, &Arc::default())?;
    for number in 0..8 {
        bandana.experiment(&format!("costs-{number}"))?;
    }
    wait_for("fetches", || server.questions().len() >= 8)?;
    thread::sleep(Duration::from_secs(15));
    let (before, connected) = (wake_ups()?, network.connections());
    thread::sleep(Duration::from_secs(seconds));
    let (after, connections) = (wake_ups()?, network.connections() - connected);
    let woken = u32::try_from(after - before)?;
    println!("wake-ups per idle hour\t{:.0}", per_hour(woken, seconds));
    println!("connections per idle hour\t{:.0}", per_hour(connections, seconds));
    Ok(())
}

/// Eight experiments with 40 reports each that are due while nobody answers.
fn absent(seconds: u64, directory: &Path) -> anyhow::Result<()> {
    let server = server(8)?;
    let (network, clock) = (Network::to(&server.url())?, Arc::new(Ahead::default()));
    let bandana = app(&network.url, directory, &clock)?;
    choose(&bandana, 8, 40)?;
    network.change(Answers::Closed);
    let before = network.connections();
    clock.0.store(3 * 3600, Ordering::SeqCst);
    bandana.wake();
    thread::sleep(Duration::from_secs(seconds));
    let during = network.connections() - before;
    network.change(Answers::Open);
    let recovered = wait_for("all uploads", || server.uploads().len() >= 320)?;
    println!("connections in {seconds} s of absence, 320 reports due\t{during}");
    println!("seconds from the server's return to the last upload\t{:.1}", recovered.as_secs_f64());
    Ok(())
}

/// A report that is due when the network has silently swallowed the connection.
fn dead(_: u64, directory: &Path) -> anyhow::Result<()> {
    for wake in [false, true] {
        let directory = directory.join(if wake { "woken" } else { "alone" });
        let server = server(1)?;
        let (network, clock) = (Network::to(&server.url())?, Arc::new(Ahead::default()));
        let bandana = app(&network.url, &directory, &clock)?;
        choose(&bandana, 1, 1)?;
        let before = network.connections();
        network.change(Answers::SilentOnce);
        clock.0.store(3 * 3600, Ordering::SeqCst);
        bandana.wake();
        wait_for("a connection", || network.connections() > before)?;
        if wake {
            thread::sleep(Duration::from_secs(1));
            bandana.wake();
        }
        let recovered = wait_for("the upload", || !server.uploads().is_empty())?;
        let how = if wake { ", with a wake after one second" } else { "" };
        println!("seconds to recover from a dead connection{how}\t{:.1}", recovered.as_secs_f64());
    }
    Ok(())
}

/// Assignments that are spaced, for a tracer.
fn files(directory: &Path, keeps_rewards: bool) -> anyhow::Result<()> {
    let server = server(1)?;
    let clock = Arc::new(Ahead::default());
    let builder = agreed(Transport::to(&server.url())?, directory, &clock)?;
    let builder = builder.keep_pending_rewards(keeps_rewards);
    let bandana = builder.start()?;
    choose(&bandana, 1, 1)?;
    let experiment = bandana.experiment("costs-0")?;
    thread::sleep(Duration::from_millis(500));
    // Seen by the tracer as the beginning and the end.
    drop(fs::metadata("/begin"));
    for _ in 0..ASSIGNMENTS {
        experiment.draw().reward(1.0);
        thread::sleep(Duration::from_millis(100));
        // The report of a past assignment is due.
        clock.0.fetch_add(600, Ordering::SeqCst);
        bandana.wake();
        thread::sleep(Duration::from_millis(100));
    }
    anyhow::ensure!(server.uploads().len() > 20, "few reports were sent");
    drop(fs::metadata("/end"));
    Ok(())
}

pub(super) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let directory = tempfile::tempdir()?;
    match arguments[..] {
        ["files", traced] => files(Path::new(traced), false),
        ["kept", traced] => files(Path::new(traced), true),
        ["choose"] => assignments::choose(directory.path()),
        ["wire"] => assignments::wire(directory.path()),
        ["idle", seconds] => idle(seconds.parse()?, directory.path()),
        ["absent", seconds] => absent(seconds.parse()?, directory.path()),
        ["dead", seconds] => dead(seconds.parse()?, directory.path()),
        _ => anyhow::bail!(
            "usage: device-costs idle|absent|dead SECONDS, choose|wire, or files|kept DIRECTORY"
        ),
    }
}
