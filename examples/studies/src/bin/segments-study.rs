//! Users in segments, in simulation: what a policy for each segment is worth, and what it costs.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use bandana_learners::Learner;
use bandana_shared::epsilon::Epsilon;
use bandana_studies::program::watched;
use bandana_studies::segments::{SegmentedArms, SegmentsStudy};
use clap::Parser;

/// Users in segments, in simulation: regret per user, by how a learner uses the reports of the other
/// segments.
///
/// Four arms in eight segments: where segments like other arms best, where they don't matter, and
/// where they like everything more or less. Ctrl-C ends it with what is finished.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Privacy loss bound of one report, in nats.
    #[arg(long, default_value_t = 1.0)]
    epsilon: f64,
    /// Who chooses the arms.
    #[arg(long, default_value = "ldp-ts")]
    learner: Learner,
    /// Number of users.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,
    /// Trials of each row.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
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
            eprintln!("segments-study: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let study = SegmentsStudy {
        instances: vec![
            SegmentedArms::interaction(),
            SegmentedArms::alike(),
            SegmentedArms::levels(),
        ],
        epsilon: Epsilon::new(arguments.epsilon)?,
        learner: arguments.learner,
        users: arguments.users as usize,
        trials: arguments.trials as usize,
        seed: arguments.seed,
        threads: usize::from(arguments.threads),
    };
    let outcome = watched(study.trial_count(), |stop, progress| study.run(stop, progress))?;
    ensure!(!outcome.rows.is_empty(), "interrupted before a trial was finished");
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
