//! Measures what a server costs as what it serves grows, one number at a time.
//!
//! It starts its own servers: `growth-study serve ...` is the aggregator itself.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bandana_examples::growth::{Size, Stores, measure, table};
use bandana_examples::stop::Stop;
use clap::Parser;

/// The allocator of the program `bandana`, whose memory is measured.
#[global_allocator]
static ALLOCATOR: bandana_aggregator::Allocator = bandana_aggregator::Allocator;

/// Measure what a server costs, by what it serves.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Database through which the databases of the sizes are made and removed. Its user must be
    /// allowed to do that. Replicas need it. Without it, temporary directories.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Numbers of experiments.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1_000, 10_000])]
    experiments: Vec<usize>,
    /// Numbers of arms of an experiment.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 16, 128, 1_024])]
    arms: Vec<usize>,
    /// Numbers of ids in the window.
    #[arg(long, value_delimiter = ',', default_values_t = [100_000, 1_000_000, 10_000_000])]
    ids: Vec<u64>,
    /// Numbers of days in the window, with the middle one of the numbers of ids.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 7, 30, 90, 365],
          value_parser = clap::value_parser!(u32).range(1..=365))]
    days: Vec<u32>,
    /// Numbers of devices that stay connected during the load.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000, 8_000])]
    devices: Vec<usize>,
    /// Numbers of replicas on the database.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3, 4], requires = "store")]
    replicas: Vec<usize>,
    /// How long the program makes uploads for each size, and how long it rests before.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// File for the costs as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The commands of `bandana` that this program runs itself with.
const COMMANDS: [&str; 2] = ["experiment", "serve"];

fn main() -> ExitCode {
    let command = std::env::args_os().nth(1);
    if command.is_some_and(|command| COMMANDS.iter().any(|known| command == *known)) {
        return bandana_aggregator::cli::main(std::env::args_os());
    }
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("growth-study: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The sizes: one number grows, the others stay as they are in the first.
fn sizes(arguments: &Arguments) -> Vec<Size> {
    let base = Size { experiments: 1, arms: 2, days: 7, ids: 0, devices: 0, replicas: 1 };
    let mut sizes = vec![base];
    sizes.extend(arguments.experiments.iter().map(|&experiments| Size { experiments, ..base }));
    sizes.extend(arguments.arms.iter().map(|&arms| Size { arms, ..base }));
    sizes.extend(arguments.ids.iter().map(|&ids| Size { ids, ..base }));
    if let Some(&ids) = arguments.ids.get(arguments.ids.len() / 2) {
        sizes.extend(arguments.days.iter().map(|&days| Size { days, ids, ..base }));
    }
    sizes.extend(arguments.devices.iter().map(|&devices| Size { devices, ..base }));
    if arguments.store.is_some() {
        sizes.extend(arguments.replicas.iter().map(|&replicas| Size { replicas, ..base }));
    }
    let mut kept = Vec::new();
    for size in sizes {
        if !kept.contains(&size) {
            kept.push(size);
        }
    }
    kept
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("can't find this program")?;
    let stores = arguments.store.clone().map_or(Stores::Directories, Stores::Database);
    let time = Duration::from_secs(arguments.seconds.into());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut costs = Vec::new();
    let mut code = ExitCode::SUCCESS;
    runtime.block_on(async {
        let mut stop = Stop::new()?;
        let sizes = sizes(arguments);
        for (place, &size) in sizes.iter().enumerate() {
            eprintln!("{} of {}: {size:?}", place + 1, sizes.len());
            let Some(cost) = measure(&program, &stores, size, time, &mut stop).await? else {
                eprintln!("interrupted");
                code = ExitCode::from(130);
                break;
            };
            costs.push(cost);
            // What is measured so far is kept if a later size fails.
            if let Some(path) = &arguments.json {
                let json = serde_json::to_string_pretty(&costs)? + "\n";
                std::fs::write(path, json)
                    .with_context(|| format!("writing {}", path.display()))?;
            }
        }
        anyhow::Ok(())
    })?;
    // A store that was being filled is not waited for.
    runtime.shutdown_background();
    print!("{}", table(&costs));
    Ok(code)
}
