//! Besieges servers for a given time, and prints the results.
//!
//! It exits with 1 on a failure, and prints the command that replays the round.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is what it is for")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bandana_tests::siege::{Figures, Group, Plan, Store, besiege};
use clap::{Parser, ValueEnum};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;
use tokio::time::Instant;

/// Interval of progress lines.
const TELL: Duration = Duration::from_secs(10);

/// Besieges servers for a given time, by a schedule from a seed.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long, all rounds together, without what they check at their ends.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// All choices follow from it. Each round has the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What is durable. Both: one after the other.
    #[arg(long, value_enum, default_value_t = Stores::Both)]
    store: Stores,
    /// How long each round is; by default one to five minutes, by its seed.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    round_seconds: Option<u64>,
    /// Where to write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where logs of servers go, of rounds in which something was wrong.
    #[arg(long, value_name = "FOLDER", default_value = "target/siege")]
    logs: PathBuf,
    /// The server's program; by default `aggregator-under-test` beside this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stores {
    Sqlite,
    Postgres,
    Both,
}

impl Arguments {
    fn store(&self, round: u64) -> Store {
        match (self.store, round % 2) {
            (Stores::Sqlite, _) | (Stores::Both, 0) => Store::Sqlite,
            (Stores::Postgres | Stores::Both, _) => Store::Postgres,
        }
    }

    fn round_time(&self, seed: u64) -> Duration {
        let by_seed = || ChaCha8Rng::seed_from_u64(seed).random_range(60..=300);
        Duration::from_secs(self.round_seconds.unwrap_or_else(by_seed))
    }
}

#[tokio::main]
pub(super) async fn run(arguments: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse_from([vec!["siege".into()], arguments].concat());
    let beside = std::env::current_exe()?.with_file_name("aggregator-under-test");
    let program = arguments.program.clone().unwrap_or(beside);
    let (enough, is_enough) = watch::channel(false);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            eprintln!("this round ends in order; once more ends at once");
            enough.send_replace(true);
            tokio::signal::ctrl_c().await.ok();
            std::process::exit(130);
        }
    });
    let all = Figures::default();
    let mut left = Duration::from_secs(arguments.seconds);
    for round in 0.. {
        if left.is_zero() || *is_enough.borrow() {
            break;
        }
        let seed = arguments.seed.wrapping_add(round);
        let time = arguments.round_time(seed).min(left);
        left -= time;
        let store = arguments.store(round);
        let plan =
            Plan { store, seed, time, program: program.clone(), logs: arguments.logs.clone() };
        let figures = Arc::new(Figures::default());
        let began = Instant::now();
        let telling = tokio::spawn(tell(plan.clone(), Arc::clone(&figures)));
        if let Err(error) = besiege(&plan, &figures, is_enough.clone()).await {
            figures.wrong(format!("{error:?}"));
        }
        telling.abort();
        let seconds = time.min(began.elapsed()).as_secs();
        figures.add(Group::Trouble, format!("seconds of siege, {store}"), seconds);
        figures.add(Group::Trouble, format!("rounds, {store}"), 1);
        let wrong = figures.all_wrong();
        for what in &wrong {
            println!("WRONG: {what}");
        }
        if !wrong.is_empty() {
            let whole = time.as_secs();
            println!(
                "round failed; once more: .ci/siege --seed {seed} --store {store} --seconds \
                 {whole} --round-seconds {whole}"
            );
        }
        all.merge(&figures);
    }
    print!("\n{all}");
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&all.json())?;
        std::fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    Ok(if all.all_wrong().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a progress line at intervals.
async fn tell(plan: Plan, figures: Arc<Figures>) {
    let Plan { store, seed, time, .. } = plan;
    println!("round of {} s, {store}, seed {seed}", time.as_secs());
    let begin = Instant::now();
    loop {
        tokio::time::sleep(TELL).await;
        let honest = |name| figures.count(Group::Honest, name);
        println!(
            "{:4} s, {store}, seed {seed}: {} uploads and {} rewards acknowledged, {} repeated, {} \
             questions answered, {} attacks, {} times trouble, {} wrong",
            begin.elapsed().as_secs(),
            honest("uploads acknowledged"),
            honest("rewards acknowledged"),
            honest("uploads repeated"),
            honest("questions answered") + honest("questions of sessions answered"),
            figures.sum(Group::Attack)
                - figures.count(Group::Attack, "ids that attackers had stored"),
            figures.sum(Group::Trouble),
            figures.all_wrong().len(),
        );
    }
}
