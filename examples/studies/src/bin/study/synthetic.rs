//! Synthetic tables of invented people: how far their marginals are off.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use bandana_mechanisms::queries::price::ConcentratedLoss;
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_studies::synthetic::{Trial, csv, distances, from_csv, people, stays, trial};
use clap::Args;

/// Make synthetic tables of a census of fifteen columns, and measure how far their marginals are
/// off.
///
/// With `--wide`, of stays in hospitals: eleven columns of up to 2,000 values, few of which occur.
///
/// The study compares single columns alone with marginals of two columns, at one price.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Stays in hospitals, in place of the census.
    #[arg(long)]
    wide: bool,
    /// Number of people.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// The price: the largest rho that keeps this epsilon.
    #[arg(long, default_value_t = 1.0)]
    epsilon: f64,
    /// And this delta.
    #[arg(long, default_value_t = 1e-6)]
    delta: f64,
    /// Columns of the marginals, with commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    ways: Vec<u32>,
    /// Tables of each kind.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File for the people as CSV, for other programs.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// File with synthetic people of other programs, as CSV, to compare instead.
    #[arg(long, value_name = "FILE")]
    compare: Vec<PathBuf>,
    /// File for the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let make = if arguments.wide { stays } else { people };
    let data = make(arguments.rows as usize, arguments.seed)?;
    if let Some(path) = &arguments.write {
        let bytes = csv(&data)?;
        std::fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))?;
    }
    for path in &arguments.compare {
        let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let found = distances(&data, &from_csv(data.schema(), &bytes)?)?;
        println!("{}: largest {:.4}, mean {:.4}", path.display(), found.largest, found.mean);
    }
    if !arguments.compare.is_empty() || arguments.write.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    let (epsilon, delta) = (PrivacyLoss::new(arguments.epsilon)?, Delta::new(arguments.delta)?);
    let rho = ConcentratedLoss::within(epsilon, delta)?;
    let mut trials: Vec<Trial> = Vec::new();
    println!("ways  largest   mean  reported largest      reported mean     chosen  seconds");
    for &ways in &arguments.ways {
        for number in 0..arguments.trials {
            let seed = arguments.seed * 1_000 + u64::from(number);
            let trial = trial(&data, ways, rho, seed)?;
            let [(largest, most), (mean, bound)] = trial.reported;
            println!(
                "{ways:4}  {:7.4} {:6.4}  {largest:7.4} +- {most:.4}  {mean:7.4} +- {bound:.4}  \
                 {:6}  {:7.1}",
                trial.distances.largest, trial.distances.mean, trial.chosen, trial.seconds
            );
            trials.push(trial);
        }
    }
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&trials)? + "\n";
        std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
