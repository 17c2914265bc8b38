//! Private contexts, in simulation: which share of what contexts are worth is recovered.

use std::process::ExitCode;

use bandana_shared::epsilon::Epsilon;
use bandana_shared::participation::Millionths;
use bandana_studies::contexts::{ContextStudy, ContextualArms};
use bandana_studies::program::StudyOptions;
use clap::Args;

/// Simulate private contexts: devices choose by them without telling, and recover a share of what
/// contexts are worth.
///
/// There are four arms, with 3 features and with 15: independent ones, most of which matter little;
/// correlated ones; seldom ones; and ones that don't matter. 0 is as good as the best arm for
/// everybody, and 100% is the best arm in each context. Ctrl-C ends the study and shows what is
/// finished.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Privacy loss bounds of one report, in nats.
    #[arg(long, value_delimiter = ',', default_values_t = [1.0, 2.0, 4.0])]
    epsilon: Vec<f64>,
    /// Share of the assignments that explore.
    #[arg(long, default_value_t = 0.1)]
    exploration: f64,
    /// Number of users.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,
    #[command(flatten)]
    options: StudyOptions,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let epsilons = arguments.epsilon.iter().map(|epsilon| Epsilon::new(*epsilon));
    let study = ContextStudy {
        instances: ContextualArms::all(),
        epsilons: epsilons.collect::<Result<_, _>>()?,
        exploration: Millionths::from_share(arguments.exploration)?,
        users: arguments.users as usize,
        trials: arguments.options.trials(),
        seed: arguments.options.seed,
        threads: arguments.options.threads(),
    };
    arguments.options.run(study.trial_count(), |stop, progress| study.run(stop, progress))
}
