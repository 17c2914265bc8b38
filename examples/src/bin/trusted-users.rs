//! Simulated users who disclose their rewards to a real aggregator, over real gRPC.
//!
//! `trusted-users serve ...` is the aggregator itself, which this program starts as a child
//! process.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use bandana_edge::operator_client::{TlsSource, TokenSource};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::disclosing::outcome::DisclosedReport;
use bandana_examples::disclosing::world::{Algorithm, World};
use bandana_examples::disclosing::{self, Settings};
use bandana_examples::simulation::Server;
use bandana_examples::stop::Stop;
use bandana_shared::accounting::concentrated::Rho;
use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Simulate users who disclose their rewards to a real aggregator, over real gRPC.
///
/// Each user asks what to play, plays it, and discloses one reward. What the server says and shows
/// is differentially private for each of them.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Which algorithm recommends what to play.
    #[arg(long, value_enum, default_value_t = Algorithm::AdacUcb)]
    algorithm: Algorithm,
    /// Number of users. Each discloses one reward.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    users: u64,
    /// Users at the same time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    at_once: u16,
    /// What one reward costs at most in zero-concentrated differential privacy.
    #[arg(long, default_value_t = 0.5)]
    rho: f64,
    /// Seed of what there is to play and of how users react. The server's noise does not follow
    /// from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File for the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Device service of a running aggregator. Without it, the program starts one.
    #[arg(long, value_name = "URL", requires = "operator_url")]
    server: Option<String>,
    /// Operator service of that aggregator.
    #[arg(long, value_name = "URL", requires = "server")]
    operator_url: Option<String>,
    #[command(flatten)]
    token: TokenSource,
    /// What both services of that aggregator are trusted by, where they are https.
    #[command(flatten)]
    tls: TlsSource,
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "serve") {
        return bandana_aggregator::cli::main(std::env::args_os());
    }
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("trusted-users: {error:#}");
            ExitCode::FAILURE
        }
    }
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
    let settings = Settings {
        algorithm: arguments.algorithm,
        users: arguments.users,
        at_once: usize::from(arguments.at_once),
        rho: Rho::new(arguments.rho)?,
        seed: arguments.seed,
    };
    let world = World::new(settings.algorithm, settings.seed);
    let running = arguments.server.as_ref().zip(arguments.operator_url.as_ref());
    let (own, server) = if let Some((device, operator)) = running {
        (None, Server::at(device, operator, &arguments.token, &arguments.tls)?)
    } else {
        let program = std::env::current_exe().context("can't find this program")?;
        let data_dir = tempfile::tempdir().context("can't create a temporary directory")?;
        let process = AggregatorProcess::start(&program, data_dir.path()).await?;
        let server = process.server()?;
        (Some((process, data_dir)), server)
    };
    let bar = progress(settings.users)?;
    let start = Instant::now();
    let outcome =
        disclosing::run(&settings, &world, &server, |done| bar.set_position(done)).await?;
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    if let Some((process, _data_dir)) = own {
        process.stop().await?;
    }
    let report = DisclosedReport::new(&settings, &world, &outcome, seconds);
    print!("{}", report.table());
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
        println!("json: {}", path.display());
    }
    Ok(())
}

fn progress(users: u64) -> anyhow::Result<ProgressBar> {
    let is_seen = std::io::stderr().is_terminal();
    let target = if is_seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} users, {per_sec}, {eta} left")?;
    Ok(ProgressBar::with_draw_target(Some(users), target).with_style(style))
}
