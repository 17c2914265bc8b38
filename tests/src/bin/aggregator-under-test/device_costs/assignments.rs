//! Costs of a single assignment: time of its choice, processor time, and bytes of the network.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use bandana_client::grpc::Transport;
use bandana_client::{Clock as _, SystemClock};
use bandana_tests::fake_server::Recorder;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use super::network::{Network, Traffic};
use super::post::{Collector, post};
use super::{Ahead, agreed, app, client_tasks, serve, server, wait_for};

/// Experiments of `choose`, and arms that it draws in each: fewer than a client keeps in all.
const EXPERIMENTS: u32 = 8;
const DRAWS: u32 = 1000;

/// Syncs of a file, to compare with.
const SYNCS: u32 = 200;

/// Assignments, and posts, one after the other.
const ROUNDS: usize = 50;

/// Seconds from an assignment to the next, when its report is due.
const APART: u64 = 130;

/// Prints median and 99th percentile.
fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let of = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    for (name, share) in [("median", 50), ("99th percentile", 99)] {
        println!("{what}, {name} in us\t{:.2}", of(share).as_secs_f64() * 1e6);
    }
}

fn timed<T>(times: &mut Vec<Duration>, call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let made = call();
    times.push(begin.elapsed());
    made
}

/// The times of choices, beside those of nothing and of a sync of the same disk.
pub(crate) fn choose(directory: &Path) -> anyhow::Result<()> {
    let server = server(EXPERIMENTS)?;
    let bandana = app(&server.url(), &directory.join("app"), &Arc::default())?;
    let (mut again, mut anew) = (Vec::new(), Vec::new());
    for number in 0..EXPERIMENTS {
        let experiment = bandana.experiment(&format!("costs-{number}"))?;
        experiment.wait_until_ready(Duration::from_mins(1))?;
        drop(experiment.choose());
        for _ in 0..DRAWS {
            drop(timed(&mut again, || black_box(experiment.choose())));
        }
        for _ in 0..DRAWS {
            let drawn = timed(&mut anew, || black_box(experiment.draw()));
            anyhow::ensure!(drawn.assignment().is_some(), "{:?}", bandana.status());
        }
    }
    let (mut nothing, mut syncs) = (Vec::new(), Vec::new());
    for _ in 0..EXPERIMENTS * DRAWS {
        timed(&mut nothing, || black_box(()));
    }
    let mut file = File::create(directory.join("reference"))?;
    for _ in 0..SYNCS {
        file.write_all(&[1; 1024])?;
        timed(&mut syncs, || file.sync_data())?;
    }
    print_times("a choice of the arm that is shown already", again);
    print_times("a choice of a new arm, with its debit", anew);
    print_times("beside it: nothing", nothing);
    print_times("beside it: a sync of a file of this disk", syncs);
    Ok(())
}

/// Processor time of the client's threads so far.
fn of_client() -> anyhow::Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in client_tasks()? {
        let line = fs::read_to_string(task.join("schedstat"))?;
        let nanoseconds = line.split(' ').next().context("no time")?.parse()?;
        sum += Duration::from_nanos(nanoseconds);
    }
    Ok(sum)
}

/// Processor time of this thread so far.
fn of_this_thread() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// Prints bytes and processor time of what was repeated.
fn print_costs(what: &str, mut rounds: Vec<Traffic>, time: Duration) {
    let all = rounds.len() as f64;
    let sum = rounds.iter().map(|round| round.up + round.down).sum::<u64>() as f64;
    let connections = rounds.iter().map(|round| round.connections).sum::<u32>();
    rounds.sort_unstable_by_key(|round| round.up + round.down);
    let median = rounds[rounds.len() / 2];
    println!("{what}, connections\t{:.2}", f64::from(connections) / all);
    println!("{what}, bytes sent, median\t{}", median.up);
    println!("{what}, bytes received, median\t{}", median.down);
    println!("{what}, bytes both ways, mean\t{:.0}", sum / all);
    println!("{what}, processor time in us\t{:.0}", time.as_secs_f64() * 1e6 / all);
}

/// Bytes and processor time of assignments over TLS, each with its report, beside plain posts.
pub(crate) fn wire(directory: &Path) -> anyhow::Result<()> {
    let server = Recorder::start_with_tls(SystemClock.now().day())?;
    serve(&server, "costs-0", (60, 60))?;
    let network = Network::to(&server.url())?;
    let roots = server.certificate().context("no certificate")?;
    let (transport, clock) =
        (Transport::with_roots(&network.url, roots.as_bytes())?, Arc::<Ahead>::default());
    let bandana = agreed(transport, directory, &clock)?.start()?;
    let experiment = bandana.experiment("costs-0")?;
    experiment.wait_until_ready(Duration::from_mins(1))?;
    wait_for("the end of the first contact", || network.is_quiet())?;
    let first = network.traffic();
    println!("first contact, bytes sent\t{}", first.up);
    println!("first contact, bytes received\t{}", first.down);
    let (mut rounds, mut own, client) = (Vec::new(), Duration::ZERO, of_client()?);
    for round in 1..=ROUNDS {
        let (before, begin) = (network.traffic(), of_this_thread());
        experiment.draw().reward(1.0);
        own += of_this_thread().saturating_sub(begin);
        clock.0.fetch_add(APART, Ordering::SeqCst);
        bandana.wake();
        wait_for("a report", || server.uploads().len() >= round && network.is_quiet())?;
        rounds.push(network.traffic() - before);
    }
    let time = own + of_client()?.saturating_sub(client);
    print_costs("an assignment with its report", rounds, time);

    let collector = Collector::start()?;
    let (network, client) = (Network::to(&collector.url)?, collector.client()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut rounds, mut own) = (Vec::new(), Duration::ZERO);
    for _ in 0..ROUNDS {
        let (before, begin) = (network.traffic(), of_this_thread());
        runtime.block_on(post(&client, &network.url))?;
        own += of_this_thread().saturating_sub(begin);
        wait_for("the end of a post", || network.is_quiet())?;
        rounds.push(network.traffic() - before);
    }
    print_costs("beside it: a plain HTTPS post", rounds, own);
    Ok(())
}
