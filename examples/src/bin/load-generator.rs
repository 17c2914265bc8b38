//! Measures the maximum rate of uploads, and the latency of acknowledgements.
//!
//! Without `--server` it starts its own server: `load-generator serve ...` is the aggregator
//! itself.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bandana_edge::operator_client::{Connection, TlsSource, TokenSource};
use bandana_examples::load::reference::{self, Kind, Plan};
use bandana_examples::load::stalls::{self, Work};
use bandana_examples::load::{
    Figures, Latencies, Load, Manners, Servers, Target, syncs_per_second,
};
use bandana_examples::stop::Stop;
use bandana_shared::limits::REPORTS_PER_UPLOAD_MAX;
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

/// Time limit for answers to uploads under way at the end.
const GRACE: Duration = Duration::from_secs(30);

/// Uploads a second beside other work of the server.
const STALLS_RATE: f64 = 2000.0;

/// Make as many uploads as servers take, and measure how long each takes until it is acknowledged.
#[derive(Debug, Parser)]
#[command(version)]
#[expect(clippy::struct_excessive_bools, reason = "options of a command line")]
struct Arguments {
    /// Device services of running servers that share a store. Without them, the program starts a
    /// server of its own.
    #[arg(long, num_args = 1.., value_name = "URL", requires = "operator_url",
          conflicts_with_all = ["store", "data_dir"])]
    server: Vec<String>,
    /// Operator service of one of them. The program creates the experiment there.
    #[arg(long, value_name = "URL", requires = "server")]
    operator_url: Option<String>,
    /// Database for the servers that the program starts.
    #[arg(long, value_name = "URL", conflicts_with = "data_dir")]
    store: Option<String>,
    /// How many servers the program starts.
    #[arg(long, default_value_t = 1, requires = "store", value_parser = clap::value_parser!(u16).range(1..=64))]
    replicas: u16,
    /// Directory for the server that the program starts. It stays. Without it, a temporary one.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// Call through a relay. The program starts both the relay and the server.
    #[arg(long, conflicts_with_all = ["server", "store", "data_dir"])]
    relay: bool,
    /// The program to start as server, such as the installed `bandana`. Without it, this program,
    /// which has another allocator.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    program: Option<PathBuf>,
    /// Number of connections, over all servers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Calls at the same time, over all connections.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    in_flight: u16,
    /// Reports in each upload.
    #[arg(long, default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=REPORTS_PER_UPLOAD_MAX as i64))]
    reports_per_upload: u32,
    /// How long to make uploads. Ctrl-C ends it earlier and shows the result so far.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Share of the calls whose answer gets lost, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    lose: f64,
    /// Share of the acknowledged uploads to send again, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    repeat: f64,
    /// Pick the connection of every call at random.
    #[arg(long)]
    wander: bool,
    /// Compare kinds of calls with those of a bare server, in turns. The result is the ratio of
    /// their rates, for each second of the processor, within a round. The program starts the
    /// server.
    #[arg(long, group = "in_rounds",
          conflicts_with_all = ["server", "store", "relay", "lose", "repeat", "wander"])]
    reference: bool,
    /// The kinds of calls to compare, with commas between them [default: all].
    #[arg(long, value_name = "CALLS", requires = "reference", value_delimiter = ',')]
    calls: Vec<Call>,
    /// Rounds of a comparison, or of other work.
    #[arg(long, default_value_t = 5, requires = "in_rounds", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Make this kind of call at a fixed rate, whether or not others are answered. Latencies count
    /// from the times at which calls were due. The program starts the server, unless you name a
    /// running one and `--rate`.
    #[arg(long, value_name = "CALL", group = "at_a_rate",
          conflicts_with_all = ["reference", "store", "relay"])]
    open_loop: Option<Call>,
    /// Make uploads at a fixed rate while the server does something else: backups, exports,
    /// policies and designs, one round of each in turn. The program starts the server.
    #[arg(long, groups = ["at_a_rate", "in_rounds"], conflicts_with_all = ["server", "store", "relay"])]
    stalls: bool,
    /// Calls per second [default: half of what the server takes from one thread; beside other work:
    /// 2,000].
    #[arg(long, value_name = "CALLS", requires = "at_a_rate")]
    rate: Option<f64>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory on the disk of the store, for the reference. Without it, that of the server that
    /// the program starts, or the one for temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
    /// File for the result as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    token: TokenSource,
    /// What both services of running servers are trusted by, where they are https.
    #[command(flatten)]
    tls: TlsSource,
}

/// A kind of call.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Call {
    Health,
    SelectArm,
    Upload,
    Stream,
    Connect,
}

impl Call {
    fn kind(self) -> Kind {
        match self {
            Self::Health => Kind::Health,
            Self::SelectArm => Kind::SelectArm,
            Self::Upload => Kind::Upload,
            Self::Stream => Kind::Stream,
            Self::Connect => Kind::Connect,
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is a number from 0 to 1".to_owned())
}

/// The commands of `bandana` that this program starts itself with.
const COMMANDS: [&str; 6] = ["backup", "experiment", "gateway-key", "relay", "serve", "trusted"];

fn main() -> ExitCode {
    let command = std::env::args_os().nth(1);
    if command.as_ref().is_some_and(|command| command == "bare") {
        return ended(bare());
    }
    if command.is_some_and(|command| COMMANDS.iter().any(|known| command == *known)) {
        return bandana_aggregator::cli::main(std::env::args_os());
    }
    ended(run(&Arguments::parse()))
}

fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load-generator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Is a bare server, for a comparison.
fn bare() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(reference::serve())
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut runtime = if arguments.open_loop.is_some() || arguments.stalls {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    runtime.enable_all().build()?.block_on(async {
        let program = std::env::current_exe().context("can't find this program")?;
        let of_servers = arguments.program.as_deref().unwrap_or(&program);
        let mut servers = Servers::open(target(arguments)?, of_servers).await?;
        let outcome = if arguments.reference {
            compare(arguments, &servers, &program).await
        } else if arguments.stalls {
            stalls(arguments, &servers, of_servers).await
        } else if let Some(call) = arguments.open_loop {
            open_loop(arguments, &servers, (&program, call.kind())).await
        } else {
            judge(arguments, &mut servers).await
        };
        let closed = servers.close().await;
        // The first error is the one to report.
        outcome.and(closed)
    })
}

fn plan(arguments: &Arguments) -> Plan {
    Plan {
        connections: arguments.connections.into(),
        in_flight: arguments.in_flight.into(),
        time: Duration::from_secs(arguments.seconds.into()),
        rounds: arguments.rounds.into(),
    }
}

/// Compares kinds of calls with those of a bare server.
async fn compare(arguments: &Arguments, servers: &Servers, program: &Path) -> anyhow::Result<()> {
    let show = |round: usize, kind: Kind| eprintln!("round {}: {}", round + 1, kind.name());
    let kinds: Vec<Kind> = match &arguments.calls[..] {
        [] => Kind::ALL.to_vec(),
        asked => [Kind::Bare].into_iter().chain(asked.iter().map(|call| call.kind())).collect(),
    };
    let compared = reference::compare(servers, program, (&kinds, plan(arguments)), show);
    let comparison = unless_stopped(compared).await?;
    print!("{}", comparison.table());
    arguments.json.as_ref().map_or(Ok(()), |path| write_json(path, &comparison))
}

/// Makes calls at a rate, and prints how long they took.
async fn open_loop(
    arguments: &Arguments,
    servers: &Servers,
    (program, kind): (&Path, Kind),
) -> anyhow::Result<()> {
    anyhow::ensure!(
        arguments.server.is_empty() || arguments.rate.is_some(),
        "this program does not know how many calls a running server takes; give the calls in a \
         second with --rate"
    );
    let asked = (kind, arguments.rate);
    let measured = reference::open_loop(servers, program, asked, plan(arguments));
    let (rate, measured) = unless_stopped(measured).await?;
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| measured.quantile_ms(share));
    let answered = measured.calls_per_second();
    println!(
        "{} at {rate:.0} a second, {answered:.0} answered: {p50:.2} ms median, {p99:.2} ms p99, \
         {p999:.2} ms p99.9, from the time at which each was due",
        kind.name()
    );
    let json = serde_json::json!({
        "call": kind.name(),
        "rate": rate,
        "answered_per_second": answered,
        "p50_ms": p50,
        "p99_ms": p99,
        "p999_ms": p999,
    });
    arguments.json.as_ref().map_or(Ok(()), |path| write_json(path, &json))
}

/// Makes uploads at a rate while the server has other work, and prints how long they took.
async fn stalls(arguments: &Arguments, servers: &Servers, program: &Path) -> anyhow::Result<()> {
    let load = (
        arguments.rate.unwrap_or(STALLS_RATE),
        usize::from(arguments.connections),
        Duration::from_secs(arguments.seconds.into()),
    );
    let mut rows = Vec::new();
    for round in 0..arguments.rounds {
        for work in Work::ALL {
            eprintln!("round {}: {}", round + 1, work.name());
            rows.push(unless_stopped(stalls::beside(work, servers, program, load)).await?);
        }
    }
    print!("{}", stalls::table(&rows));
    arguments.json.as_ref().map_or(Ok(()), |path| write_json(path, &rows))
}

/// Measures, prints the result, and checks it.
async fn judge(arguments: &Arguments, servers: &mut Servers) -> anyhow::Result<()> {
    let (figures, load) = measure(arguments, servers).await?;
    print!("{}", figures.table());
    if let Some(path) = &arguments.json {
        write_json(path, &figures)?;
    }
    let counted = servers.counted().await.context("the servers do not tell what they counted")?;
    check(arguments, &figures, &load, counted)
}

fn target(arguments: &Arguments) -> anyhow::Result<Target> {
    if let Some(url) = &arguments.store {
        return Ok(Target::Replicas(url.clone(), usize::from(arguments.replicas)));
    }
    if arguments.relay {
        return Ok(Target::Relayed);
    }
    let Some(operator_url) = &arguments.operator_url else {
        return Ok(Target::Embedded(arguments.data_dir.clone()));
    };
    let is_secure = |url: &String| url.starts_with("https://");
    let tls = if arguments.server.iter().any(is_secure) {
        arguments.tls.without_identity()
    } else {
        TlsSource::default()
    };
    let operator_tls =
        if is_secure(operator_url) { arguments.tls.clone() } else { TlsSource::default() };
    let operator = Connection::new(operator_url, arguments.token.clone(), operator_tls)?;
    Ok(Target::Running {
        devices: arguments.server.clone(),
        operator_url: operator_url.clone(),
        operator: Box::new(operator),
        tls,
    })
}

async fn measure(
    arguments: &Arguments,
    servers: &mut Servers,
) -> anyhow::Result<(Figures, Arc<Load>)> {
    let disk = arguments.disk.as_deref().or_else(|| servers.directory());
    let disk = disk.map_or_else(std::env::temp_dir, Path::to_owned);
    let syncs = tokio::task::spawn_blocking(move || syncs_per_second(&disk)).await??;
    let devices = servers.connect(usize::from(arguments.connections)).await?;
    let first = devices.first().context("at least one connection is needed")?;
    let make = servers.uploads(first, arguments.reports_per_upload as usize).await?;
    let manners = Manners {
        lose: arguments.lose,
        repeat: arguments.repeat,
        wander: arguments.wander,
        seed: arguments.seed,
    };
    let load = match servers.connect_relay(usize::from(arguments.connections)).await? {
        Some(devices) => Load::new(devices, u64::MAX, manners, make),
        None => Load::new(devices, u64::MAX, manners, make),
    };
    let before = servers.processor_times().await;
    let start = Instant::now();
    let latencies = work(arguments, &load, start).await?;
    let took = start.elapsed();
    let used = servers.processor_times().await.since(before);
    let reports = u64::from(arguments.reports_per_upload);
    Ok((Figures::new(&load, reports, took, &latencies, used, syncs), load))
}

/// Runs the load until its time is over or a signal ends it.
async fn work(
    arguments: &Arguments,
    load: &Arc<Load>,
    start: Instant,
) -> anyhow::Result<Latencies> {
    let mut workers = load.start(usize::from(arguments.in_flight));
    let display = Display::new(arguments.seconds);
    let end = start + Duration::from_secs(arguments.seconds.into());
    let mut stop = Stop::new()?;
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            _ = ticks.tick() => display.show(start.elapsed(), load),
            () = tokio::time::sleep_until(end) => break,
            () = stop.wanted() => {
                eprintln!("ended early");
                break;
            }
        }
    }
    load.stop();
    let mut latencies = Latencies::new(3)?;
    let give_up = tokio::time::sleep(GRACE);
    tokio::pin!(give_up);
    loop {
        tokio::select! {
            ended = workers.join_next() => match ended {
                Some(worker) => latencies.add(worker??)?,
                None => break,
            },
            () = &mut give_up, if !give_up.is_elapsed() => load.give_up(),
            () = stop.wanted() => load.give_up(),
        }
    }
    display.bar.finish_and_clear();
    Ok(latencies)
}

fn write_json(path: &Path, figures: &impl serde::Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(figures)? + "\n";
    std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
    println!("json: {}", path.display());
    Ok(())
}

/// Checks that every acknowledged upload counts, and none twice.
fn check(
    arguments: &Arguments,
    figures: &Figures,
    load: &Load,
    counted: u64,
) -> anyhow::Result<()> {
    for (complaint, times) in load.complaints().into_iter().take(3) {
        eprintln!("{times} times: {complaint}");
    }
    let unanswered = figures.uploads - figures.acknowledged - figures.refused;
    if unanswered > 0 {
        eprintln!("{unanswered} uploads were not answered; they may be counted or not");
    }
    figures.check(counted, arguments.reports_per_upload.into())?;
    println!("counted: {counted} reports, {} of them acknowledged", figures.reports);
    Ok(())
}

/// The outcome of work that a signal ends with an error.
async fn unless_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut stop = Stop::new()?;
    tokio::select! {
        outcome = work => outcome,
        () = stop.wanted() => anyhow::bail!("ended early, without a result"),
    }
}

/// A progress bar on a terminal; elsewhere one line at the beginning and one for every tenth.
struct Display {
    bar: ProgressBar,
    is_plain: bool,
    has_begun: Cell<bool>,
}

impl Display {
    fn new(seconds: u32) -> Self {
        let is_plain = !std::io::stderr().is_terminal();
        let target =
            if is_plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let template = "{bar:30} {elapsed}, {eta} left  {msg}";
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(u64::from(seconds) * 10), target);
        Self { bar: bar.with_style(style), is_plain, has_begun: Cell::new(false) }
    }

    fn show(&self, passed: Duration, load: &Load) {
        let seconds = passed.as_secs_f64().max(0.1);
        let acknowledged = load.acknowledged();
        let rate = acknowledged as f64 / seconds;
        let (before, length) = (self.bar.position(), self.bar.length().unwrap_or(1).max(1));
        let now = u64::try_from(passed.as_millis() / 100).unwrap_or(length).min(length);
        self.bar.set_position(now);
        self.bar.set_message(format!("{acknowledged} acknowledged, {rate:.0} a second"));
        let is_first = acknowledged > 0 && !self.has_begun.replace(true);
        if self.is_plain && (is_first || before * 10 / length != now * 10 / length) {
            eprintln!("{seconds:.1} s: {acknowledged} acknowledged, {rate:.0} a second");
        }
    }
}
