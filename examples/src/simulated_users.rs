//! Simulated users against a real aggregator, over real gRPC: all of Bandana in one command.
//!
//! Each user has a separate client, which chooses an arm, adds the reward and sends one private
//! bit. `simulated-users serve ...` is the aggregator itself, which this program starts as a child
//! process, and `simulated-users relay ...` a relay to it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::AppKey;
use bandana_edge::operator_client::{TlsSource, TokenSource};
use bandana_lab::instance::Instance;
use bandana_lab::instance::largest;
use bandana_learners::Learner;
use bandana_shared::alphabet::Alphabet;
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::ExperimentId;
use bandana_shared::rewards::RewardKind;
use bandana_shared::shuffling::BatchSize;
use bandana_studies::picture::PictureFile;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tempfile::TempDir;

use crate::aggregator_process::AggregatorProcess;
use crate::impression_log::ImpressionLog;
use crate::plot;
use crate::population::Population;
use crate::relay_process::{AT_ONCE, RelayProcess, ShuffleFlags, gateway_key};
use crate::report::Report;
use crate::simulation::{self, Connections, Outcome, Progress, Server, Settings};
use crate::stop::Stop;

/// Simulate users of a real aggregator, over real gRPC.
#[derive(Debug, Parser)]
#[command(name = "simulated-users", version)]
struct Arguments {
    /// Number of users. Each makes one choice at each visit, and one report [default: 20000, or the
    /// impressions of the log].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    users: Option<u64>,
    /// Privacy loss bound of one report, in nats.
    #[arg(long, default_value_t = 2.0)]
    epsilon: f64,
    /// How a reward becomes a bit.
    #[arg(long, value_enum, default_value_t = MechanismName::Linear)]
    mechanism: MechanismName,
    /// Curvature of the quadratic mechanism, -1 to 1.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    curvature: f64,
    /// Levels of the k-level mechanism, 2 to 16.
    #[arg(long, value_name = "K", default_value_t = 6)]
    levels: u32,
    /// Visits of each user. From 2 on, users keep their arms and report once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=500),
          conflicts_with = "shuffle")]
    visits: u32,
    /// Number of groups of users: 2 to 16. Each group likes other arms best, and the server learns
    /// about each group apart.
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=16), conflicts_with = "shuffle")]
    segments: Option<u16>,
    /// Number of metrics beside the rewards. Half of the reports tell one of them.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=15), conflicts_with = "shuffle")]
    metrics: Option<u16>,
    /// Which learner chooses the arms.
    #[arg(long, value_parser = learner(), default_value_t = Learner::LdpTs)]
    learner: Learner,
    /// Rewards of the arms, as CSV with the columns arm, label, reward (0 to 1)
    /// and count. Without it: the 20 arms of the LDP bandit papers.
    #[arg(long)]
    arms_file: Option<PathBuf>,
    /// Replay a log of impressions: what would an experiment have learned from these users, and
    /// when? CSV with the columns arm (a label) and reward (0 to 1), and, if you have them, segment
    /// and timestamp. It has one row for each impression, in the order in which they came.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["arms_file", "segments", "metrics", "visits"])]
    log: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Users between two policies.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    refresh: u64,
    /// Connections that the users share.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// File for the plot. It is SVG or PNG, by the end of its name.
    #[arg(long, value_name = "FILE", default_value = "simulated-users.svg")]
    plot: PictureFile,
    /// File for the result as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Device service of a running aggregator. Without it, the program starts one.
    #[arg(long, requires = "operator_url")]
    server: Option<String>,
    /// Operator service of that aggregator.
    #[arg(long, requires = "server")]
    operator_url: Option<String>,
    /// Experiment of that aggregator to take part in, instead of a new one. It goes on after the
    /// run. Create it with --simulation, without an attribution window, and with the arms of the
    /// users.
    #[arg(
        long,
        value_name = "ID",
        value_parser = |id: &str| ExperimentId::new(id),
        requires = "server",
        conflicts_with_all = ["epsilon", "mechanism", "curvature", "levels", "learner"],
    )]
    experiment: Option<ExperimentId>,
    /// Let all users call through a relay in a third process, so that the aggregator learns no
    /// address.
    #[arg(long, conflicts_with = "server")]
    relay: bool,
    /// Let the relay shuffle the reports, and hand them on in batches of this many of one arm: 2 to
    /// 16384.
    #[arg(long, value_name = "REPORTS", requires = "relay")]
    shuffle: Option<u32>,
    #[command(flatten)]
    token: TokenSource,
    /// What both services of that aggregator are trusted by, where they are https.
    #[command(flatten)]
    tls: TlsSource,
    /// Key of the users' app, if the aggregator asks for one.
    #[arg(long, value_name = "KEY", value_parser = AppKey::new)]
    app_key: Option<AppKey>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MechanismName {
    Linear,
    Quadratic,
    Exponential,
    Rr,
    KLevel,
}

/// The number of users, unless another one is asked for or a log has theirs.
const USERS: u64 = 20_000;

/// The commands of `bandana` that this program starts itself with.
const COMMANDS: [&str; 3] = ["gateway-key", "relay", "serve"];

/// The program; its arguments are those of this process.
pub fn main() -> ExitCode {
    let command = std::env::args_os().nth(1);
    if command.is_some_and(|command| COMMANDS.iter().any(|known| command == *known)) {
        return bandana_aggregator::cli::main(std::env::args_os());
    }
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("simulated-users: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Parser of a learner's name.
fn learner() -> impl TypedValueParser<Value = Learner> {
    PossibleValuesParser::new(Learner::ALL.map(Learner::name)).try_map(|name| name.parse())
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        // The first to finish decides; the aggregator ends with this program.
        tokio::select! {
            outcome = simulate(arguments) => return outcome.map(|()| ExitCode::SUCCESS),
            () = stop.wanted() => {}
        }
        eprintln!("interrupted");
        Ok(ExitCode::from(130))
    })
}

#[expect(clippy::disallowed_methods, reason = "a program that tells how long it took")]
async fn simulate(arguments: &Arguments) -> anyhow::Result<()> {
    let (mut settings, instance) = prepare(arguments)?;
    let (own, server) = if let Some(server) = running(arguments)? {
        (None, server)
    } else {
        let own = Own::start(arguments.relay, settings.batch.is_some()).await?;
        let server = own.server()?;
        (Some(own), server)
    };
    let mut connections = Connections::open(&server, settings.connections).await?;
    if let Some(key) = &arguments.app_key {
        connections = connections.with_app_key(key);
    }
    let visits = settings.users * u64::from(settings.population.visits);
    let display = Display::new(visits, &instance);
    let show = |round: &Progress| display.show(round);
    let start = Instant::now();
    let outcome = if let Some(id) = &arguments.experiment {
        let (specification, learner) = connections.find(id, &instance).await?;
        settings.check(&specification)?;
        settings.epsilon = specification.epsilon();
        settings.mechanism = specification.mechanism();
        settings.learner = learner;
        simulation::run_in(specification, &settings, &instance, &mut connections, show).await?
    } else {
        simulation::run(&settings, &instance, &mut connections, show).await?
    };
    let seconds = start.elapsed().as_secs_f64();
    display.bar.finish_and_clear();
    drop(connections);
    if let Some(own) = own {
        own.stop().await?;
    }
    present(arguments, &settings, &instance, &outcome, seconds)
}

/// Processes of this program's own.
struct Own {
    aggregator: AggregatorProcess,
    relay: Option<RelayProcess>,
    /// The relay's key, if it shuffles.
    shuffler: Option<GatewayKeys>,
    /// The stores and the keys.
    _folder: TempDir,
}

impl Own {
    async fn start(with_relay: bool, shuffles: bool) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("can't find this program")?;
        let folder = tempfile::tempdir().context("can't create a temporary directory")?;
        let data_dir = folder.path().join("data");
        if !with_relay {
            let aggregator = AggregatorProcess::start(&program, &data_dir).await?;
            return Ok(Self { aggregator, relay: None, shuffler: None, _folder: folder });
        }
        let key = gateway_key(&program, folder.path()).await?.display().to_string();
        let flags = ["--gateway-key-file", &key];
        let aggregator = AggregatorProcess::start_with(&flags, &program, &data_dir).await?;
        // Users are simulated one after the other: a delay would hide nothing, and take long.
        let (gateway, operators) = (&aggregator.device_url, &aggregator.operator_url);
        let (relay, shuffler) = if shuffles {
            let shuffle = ShuffleFlags::new(&program, folder.path(), operators).await?;
            let flags = shuffle.after(&AT_ONCE);
            (RelayProcess::start(&flags, &program, gateway).await?, Some(shuffle.keys))
        } else {
            (RelayProcess::start(&AT_ONCE, &program, gateway).await?, None)
        };
        Ok(Self { aggregator, relay: Some(relay), shuffler, _folder: folder })
    }

    fn server(&self) -> anyhow::Result<Server> {
        let relay = self.relay.as_ref().map(|relay| relay.url.clone());
        let shuffler = self.shuffler.clone();
        Ok(Server { relay, shuffler, ..self.aggregator.server()? })
    }

    async fn stop(self) -> anyhow::Result<()> {
        if let Some(relay) = self.relay {
            relay.stop().await?;
        }
        self.aggregator.stop().await
    }
}

/// The running aggregator named by the options, if any.
fn running(arguments: &Arguments) -> anyhow::Result<Option<Server>> {
    let (Some(device), Some(operator)) = (&arguments.server, &arguments.operator_url) else {
        return Ok(None);
    };
    Server::at(device, operator, &arguments.token, &arguments.tls).map(Some)
}

/// Validates the options together.
fn prepare(arguments: &Arguments) -> anyhow::Result<(Settings, Instance)> {
    let log = arguments.log.as_deref().map(ImpressionLog::from_csv).transpose()?;
    let instance = match (&log, &arguments.arms_file) {
        (Some(log), _) => log.instance(),
        (None, Some(path)) => Instance::from_csv(path)?,
        (None, None) => Instance::paper_20(),
    };
    let users = log.as_ref().map_or(USERS, |log| log.len() as u64);
    let mechanism = match arguments.mechanism {
        MechanismName::Linear => Mechanism::Linear,
        MechanismName::Quadratic => Mechanism::Quadratic(Curvature::new(arguments.curvature)?),
        MechanismName::Exponential => Mechanism::Exponential,
        MechanismName::Rr => Mechanism::RandomizedResponse,
        MechanismName::KLevel => Mechanism::Kary(Alphabet::new(arguments.levels)?),
    };
    ensure!(
        mechanism != Mechanism::RandomizedResponse
            || instance.rewards().kind() == RewardKind::Binary,
        "randomized response takes rewards of 0 and 1 only, and these arms have others; use \
         --mechanism linear"
    );
    ensure!(
        !matches!(mechanism, Mechanism::Kary(_))
            || instance.rewards().kind() == RewardKind::Bounded,
        "levels are for rewards between 0 and 1, and these are 0 or 1 only; use --mechanism rr"
    );
    let settings = Settings {
        users: arguments.users.unwrap_or(users),
        refresh: arguments.refresh,
        connections: usize::from(arguments.connections),
        epsilon: Epsilon::new(arguments.epsilon)?,
        mechanism,
        learner: arguments.learner.to_wire(),
        batch: arguments.shuffle.map(BatchSize::new).transpose()?,
        population: Population {
            visits: arguments.visits,
            segments: arguments.segments.unwrap_or(0),
            metrics: arguments.metrics.unwrap_or(0),
        },
        log: log.map(Arc::new),
        seed: arguments.seed,
    };
    Ok((settings, instance))
}

/// Prints the result, and writes the files.
fn present(
    arguments: &Arguments,
    settings: &Settings,
    instance: &Instance,
    outcome: &Outcome,
    seconds: f64,
) -> anyhow::Result<()> {
    let report = Report::new(settings, instance, outcome, seconds);
    print!("{}\n{}", report.table(), report.summary());
    let title = format!(
        "{} users, epsilon {}, {} mechanism, {}",
        report.users, report.epsilon, report.mechanism, report.learner
    );
    plot::write(&arguments.plot, &title, instance, &outcome.rounds)?;
    println!("plot: {}", arguments.plot);
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
        println!("json: {}", path.display());
    }
    Ok(())
}

/// A progress bar on a terminal; elsewhere one line for every tenth.
struct Display {
    bar: ProgressBar,
    labels: Vec<String>,
    plain: bool,
}

impl Display {
    fn new(users: u64, instance: &Instance) -> Self {
        let plain = !std::io::stderr().is_terminal();
        let target =
            if plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let template = "{bar:30} {pos}/{len} visits, {per_sec}, {eta} left  {msg}";
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(users), target).with_style(style);
        let labels = instance.arms.iter().map(|arm| arm.label.clone()).collect();
        Self { bar, labels, plain }
    }

    fn show(&self, round: &Progress) {
        let before = self.bar.position();
        let plays: Vec<f64> = round.plays.iter().map(|&count| count as f64).collect();
        let favourite = &self.labels[largest(&plays)];
        self.bar.set_position(round.users);
        self.bar.set_message(format!("favourite: {favourite}"));
        let users = self.bar.length().unwrap_or(1).max(1);
        let tenth = |position: u64| position * 10 / users;
        if self.plain && tenth(before) != tenth(round.users) {
            eprintln!(
                "{} of {users} visits, regret {:.0}, favourite: {favourite}",
                round.users, round.regret
            );
        }
    }
}
