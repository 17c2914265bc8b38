//! The studies, each by a subcommand.

mod context;
mod curator;
mod decision;
mod regret;
mod segments;
mod synthetic;
mod verdicts;
mod visits;

use std::process::ExitCode;

use bandana_studies::program::exit_code;
use clap::Parser;

/// Study learners and private mechanisms, in simulation.
#[derive(Debug, Parser)]
#[command(name = "study", version)]
enum Study {
    Context(context::Arguments),
    Curator(curator::Arguments),
    Decision(decision::Arguments),
    Regret(regret::Arguments),
    Segments(segments::Arguments),
    Synthetic(synthetic::Arguments),
    Verdicts(verdicts::Arguments),
    Visits(visits::Arguments),
}

fn main() -> ExitCode {
    let (name, result) = match Study::parse() {
        Study::Context(arguments) => ("context", context::run(&arguments)),
        Study::Curator(arguments) => ("curator", curator::run(&arguments)),
        Study::Decision(arguments) => ("decision", decision::run(&arguments)),
        Study::Regret(arguments) => ("regret", regret::run(&arguments)),
        Study::Segments(arguments) => ("segments", segments::run(&arguments)),
        Study::Synthetic(arguments) => ("synthetic", synthetic::run(&arguments)),
        Study::Verdicts(arguments) => ("verdicts", verdicts::run(&arguments)),
        Study::Visits(arguments) => ("visits", visits::run(&arguments)),
    };
    exit_code(&format!("study {name}"), result)
}
