//! Regret with a trusted curator, with and without privacy, in simulation.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use bandana_studies::curator::algorithm::Algorithm;
use bandana_studies::curator::outcome::CuratorOutcome;
use bandana_studies::curator::picture;
use bandana_studies::curator::runner::CuratorStudy;
use bandana_studies::curator::trial::Course;
use bandana_studies::program::watched;
use bandana_zcdp::Protection;
use clap::Parser;

/// Regret with a trusted curator, with and without privacy, in simulation.
///
/// The defaults are the settings of the published experiments. Ctrl-C ends it with what is
/// finished.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Algorithms with commas; ratios are to the first one of the same setting.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "adac-ucb")]
    algorithm: Vec<Algorithm>,
    /// What a reward may cost, with commas; by default those of the published experiments: .1, .5
    /// and 1, for adac-gope .01, .1 and 1.
    #[arg(long, value_delimiter = ',')]
    rho: Vec<f64>,
    /// Means of the Bernoulli arms, for the algorithms that have arms.
    #[arg(long, value_delimiter = ',', default_value = "0.75,0.625,0.5,0.375,0.25")]
    means: Vec<f64>,
    /// β of AdaC-UCB; the theory is for more than 3.
    #[arg(long, default_value_t = 1.0)]
    beta: f64,
    /// Number of actions, for the algorithms that have vectors.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..=1024))]
    actions: u16,
    /// Their coordinates.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=64))]
    dimension: u8,
    /// Rounds of a trial.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    horizon: u64,
    /// Trials of each.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// Everything random follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: u16,
    /// Where a plot goes, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Where the result goes as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("curator-study: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let study = study(arguments)?;
    let outcome = watched(study.trial_count(), |stop, progress| study.run(stop, progress))?;
    ensure!(!outcome.rows.is_empty(), "interrupted before a trial was finished");
    present(arguments, &outcome)?;
    if outcome.interrupted {
        eprintln!("interrupted; this is what was finished");
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}

/// Validates the options.
fn study(arguments: &Arguments) -> anyhow::Result<CuratorStudy> {
    for mean in &arguments.means {
        ensure!((0.0..=1.0).contains(mean), "a mean is {mean}; expected 0 to 1 for each arm");
    }
    ensure!(arguments.means.len() >= 2, "--means needs two arms or more");
    for rho in &arguments.rho {
        Protection::concentrated(*rho)?;
    }
    let rhos = |algorithm: Algorithm| match &arguments.rho[..] {
        [] => algorithm.published_rhos().to_vec(),
        rhos => rhos.to_vec(),
    };
    Ok(CuratorStudy {
        algorithms: arguments.algorithm.iter().map(|one| (*one, rhos(*one))).collect(),
        course: Course {
            means: arguments.means.clone(),
            exploration: arguments.beta,
            actions: usize::from(arguments.actions),
            dimension: usize::from(arguments.dimension),
            checkpoints: checkpoints(arguments.horizon),
        },
        trials: arguments.trials as usize,
        seed: arguments.seed,
        threads: usize::from(arguments.threads),
    })
}

/// Four checkpoints for each power of ten, from 1,000 on, and the horizon.
fn checkpoints(horizon: u64) -> Vec<u64> {
    let powers = (3..18).map(|power| 10_u64.pow(power));
    let grid =
        powers.flat_map(|power| [power, power * 178 / 100, power * 316 / 100, power * 562 / 100]);
    grid.take_while(|round| *round < horizon).chain([horizon]).collect()
}

/// Prints the result, and writes the files.
fn present(arguments: &Arguments, outcome: &CuratorOutcome) -> anyhow::Result<()> {
    print!("{}", outcome.table());
    if let Some(path) = &arguments.plot {
        picture::write(path, outcome)?;
        println!("plot: {}", path.display());
    }
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(outcome)? + "\n";
        std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
        println!("json: {}", path.display());
    }
    Ok(())
}
