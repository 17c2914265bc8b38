//! Costs of an embedded client on a phone: wake-ups, connections, recovery of a connection, files.
//!
//! `device-costs idle|absent|dead SECONDS` prints one row of a table, `device-costs files
//! DIRECTORY` makes 50 assignments, ten minutes of its clock apart, in a process that is traced
//! from outside. Called by `.ci/device`.

#![allow(clippy::print_stdout, reason = "its output is the table")]

use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use bandana_client::{Acceptance, Bandana, Budget, Clock, Consent, SystemClock, Timestamp};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_tests::fake_server::Recorder;
use tokio::time::Instant;

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

/// The behaviour of a proxy towards new connections.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Answers {
    Open,
    Closed,
    SilentOnce,
}

/// A network between app and server.
struct Network {
    url: String,
    connections: Arc<AtomicU32>,
    mode: Arc<AtomicU8>,
}

impl Network {
    fn to(server: &str) -> anyhow::Result<Self> {
        let server: SocketAddr =
            server.strip_prefix("http://").context("not in the clear")?.parse()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let (connections, mode) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU8::new(0)));
        let (counted, followed) = (Arc::clone(&connections), Arc::clone(&mode));
        thread::spawn(move || {
            let mut silent = Vec::new();
            for device in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                match followed.load(Ordering::SeqCst) {
                    mode if mode == Answers::Closed as u8 => drop(device),
                    mode if mode == Answers::SilentOnce as u8 => {
                        followed.store(Answers::Open as u8, Ordering::SeqCst);
                        silent.push(device);
                    }
                    _ => drop(forward(&device, server)),
                }
            }
        });
        Ok(Self { url, connections, mode })
    }

    fn change(&self, mode: Answers) {
        self.mode.store(mode as u8, Ordering::SeqCst);
    }

    fn connections(&self) -> u32 {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Copies bytes both ways.
fn forward(device: &TcpStream, server: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for (mut from, mut to) in
        [(device.try_clone()?, server.try_clone()?), (server.try_clone()?, device.try_clone()?)]
    {
        thread::spawn(move || {
            drop(io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
    }
    Ok(())
}

/// A server of `experiments` experiments.
fn server(experiments: u32) -> anyhow::Result<Recorder> {
    let recorder = Recorder::start(SystemClock.now().day())?;
    for number in 0..experiments {
        let specification = Specification::first(
            ExperimentId::new(format!("costs-{number}"))?,
            Epsilon::new(1.0)?,
            Rewards::binary(),
            Mechanism::Linear,
            vec![Arm::new("red")?, Arm::new("green")?],
            ReleaseTiming { attribution_window_seconds: 3600, release_delay_seconds_max: 3600 },
        )?;
        let weights = Weights::uniform(&[true, true])?;
        let policy = Policy { version: 1, weights, time_to_live_seconds: 86_400 };
        recorder.serve(&specification, &policy);
    }
    Ok(recorder)
}

fn app(url: &str, directory: &Path, clock: &Arc<Ahead>) -> anyhow::Result<Bandana> {
    let nats = PrivacyLoss::new;
    Ok(Bandana::builder()
        .endpoint(url)?
        .directory(directory)
        .accept(Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary()))
        .budget(Budget::new(nats(1000.0)?, 7, nats(1000.0)?)?)
        .consent(Consent::Given)
        .clock(Arc::<Ahead>::clone(clock))
        .start()?)
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

/// Voluntary context switches of the client's threads so far.
fn wake_ups() -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.starts_with("bandana") {
            let status = fs::read_to_string(task.join("status"))?;
            let number = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            sum += number.context("no switches")?.trim().parse::<u64>()?;
        }
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
fn files(directory: &Path) -> anyhow::Result<()> {
    let server = server(1)?;
    let clock = Arc::new(Ahead::default());
    let bandana = app(&server.url(), directory, &clock)?;
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

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, argument] = &arguments[..] else {
        anyhow::bail!("usage: device-costs idle|absent|dead SECONDS, or files DIRECTORY");
    };
    if what == "files" {
        return files(Path::new(argument));
    }
    let (seconds, directory) = (argument.parse()?, tempfile::tempdir()?);
    match what.as_str() {
        "idle" => idle(seconds, directory.path()),
        "absent" => absent(seconds, directory.path()),
        "dead" => dead(seconds, directory.path()),
        other => anyhow::bail!("nothing to measure is called {other}"),
    }
}
