//! Users until a verdict which arm is best, in simulation.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use bandana_learners::Learner;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::interval::ErrorLevel;
use bandana_studies::decision::runner::DecisionStudy;
use bandana_studies::decision::trial::Setting;
use bandana_studies::instance::Instance;
use bandana_studies::program::watched;
use clap::Parser;

/// Users until a verdict which arm is best, in simulation.
///
/// Policies are computed as often as a server does, and the verdict is that of `bandana estimate`.
/// Ctrl-C ends it with what is finished.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The arms, several with commas: two-arms and the names that regret-study has, or a CSV file
    /// as there.
    #[arg(long, value_delimiter = ',', default_value = "two-arms,paper-20,five-arms,close-arms")]
    instance: Vec<String>,
    /// Privacy loss bound of one report, in nats.
    #[arg(long, default_value_t = 1.0)]
    epsilon: f64,
    /// Learners of servers, with commas.
    #[arg(long, value_delimiter = ',', default_value = "uniform,ldp-ts,top-two")]
    learners: Vec<Learner>,
    /// Probability that a verdict is right, at least.
    #[arg(long, default_value_t = 0.95)]
    confidence: f64,
    /// Users after whom a run ends without a verdict.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..))]
    horizon: u64,
    /// Runs of each learner on each instance.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// Everything random follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: u16,
    /// Where the result goes as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("decision-study: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let instance = |name: &String| Ok((name.clone(), Instance::named(name)?));
    let study = DecisionStudy {
        instances: arguments.instance.iter().map(instance).collect::<anyhow::Result<_>>()?,
        learners: arguments.learners.clone(),
        setting: Setting {
            epsilon: Epsilon::new(arguments.epsilon)?,
            alpha: ErrorLevel::new(1.0 - arguments.confidence)
                .context("--confidence must lie between 0 and 1")?,
            horizon: arguments.horizon,
        },
        trials: arguments.trials as usize,
        seed: arguments.seed,
        threads: usize::from(arguments.threads),
    };
    let outcome = watched(study.trial_count(), |stop, progress| study.run(stop, progress))?;
    ensure!(!outcome.rows.is_empty(), "interrupted before a run was finished");
    print!("{}", outcome.table());
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&outcome)? + "\n";
        std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
        println!("json: {}", path.display());
    }
    if outcome.interrupted {
        eprintln!("interrupted; this is what was finished");
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::SUCCESS)
}
