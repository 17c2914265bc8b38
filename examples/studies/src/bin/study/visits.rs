//! Users who come back, in simulation: what keeping their arm costs, and what it saves.

use std::process::ExitCode;
use std::sync::Arc;

use bandana_lab::{Instance, StandardLearner};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::participation::Millionths;
use bandana_studies::program::StudyOptions;
use bandana_studies::visits::{Assignment, VisitsStudy};
use clap::Args;

/// Simulate users who come back: regret, changes of arm and privacy loss, by how devices assign
/// arms.
///
/// Devices draw an arm anew for each visit, and report each visit or only the first one. Or they
/// keep their arm, and report once. Ctrl-C ends the study and shows what is finished.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The arms, as `study regret` has them.
    #[arg(long, default_value = "paper-20")]
    instance: String,
    /// Privacy loss bounds of one report, in nats, with commas.
    #[arg(long, value_delimiter = ',', default_value = "0.5")]
    epsilon: Vec<f64>,
    /// Weights below which an arm is no longer kept, 0 to 1, with commas between them. With 0, it
    /// is always kept.
    #[arg(long, value_delimiter = ',', default_value = "0,0.01")]
    until_weight_below: Vec<f64>,
    /// Which learner chooses the arms.
    #[arg(long, default_value = "ldp-ts")]
    learner: StandardLearner,
    /// Number of users.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,
    /// Visits of each user.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    visits: u32,
    /// Visits between two policies.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    #[command(flatten)]
    options: StudyOptions,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let kept = arguments.until_weight_below.iter();
    let kept = kept.map(|weight| Ok(Assignment::Sticky(Millionths::from_share(*weight)?)));
    let mut assignments = vec![Assignment::Redrawn, Assignment::RedrawnReportedOnce];
    assignments.extend(kept.collect::<anyhow::Result<Vec<_>>>()?);
    let epsilons = arguments.epsilon.iter().map(|epsilon| Epsilon::new(*epsilon));
    let study = VisitsStudy {
        name: arguments.instance.clone(),
        instance: Instance::named(&arguments.instance)?,
        epsilons: epsilons.collect::<Result<_, _>>()?,
        assignments,
        learner: Arc::new(arguments.learner),
        users: arguments.users as usize,
        visits: arguments.visits as usize,
        batch: arguments.batch as usize,
        trials: arguments.options.trials(),
        seed: arguments.options.seed,
        threads: arguments.options.threads(),
    };
    arguments.options.run(study.trial_count(), |stop, progress| study.run(stop, progress))
}
