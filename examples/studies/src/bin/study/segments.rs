//! Users in segments, in simulation: what a policy for each segment is worth, and what it costs.

use std::process::ExitCode;
use std::sync::Arc;

use bandana_lab::StandardLearner;
use bandana_shared::epsilon::Epsilon;
use bandana_studies::program::StudyOptions;
use bandana_studies::segments::{SegmentedArms, SegmentsStudy};
use clap::Args;

/// Simulate users in segments: regret per user, by how a learner uses the reports of the other
/// segments.
///
/// There are four arms in eight segments: where segments like other arms best, where they don't
/// matter, and where they like everything more or less. Ctrl-C ends the study and shows what is
/// finished.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Privacy loss bound of one report, in nats.
    #[arg(long, default_value_t = 1.0)]
    epsilon: f64,
    /// Which learner chooses the arms.
    #[arg(long, default_value = "ldp-ts")]
    learner: StandardLearner,
    /// Number of users.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,
    #[command(flatten)]
    options: StudyOptions,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let study = SegmentsStudy {
        instances: vec![
            SegmentedArms::three_features(),
            SegmentedArms::seven_features(),
            SegmentedArms::product(),
            SegmentedArms::alike(),
            SegmentedArms::levels(),
        ],
        epsilon: Epsilon::new(arguments.epsilon)?,
        learner: Arc::new(arguments.learner),
        users: arguments.users as usize,
        trials: arguments.options.trials(),
        seed: arguments.options.seed,
        threads: arguments.options.threads(),
    };
    arguments.options.run(study.trial_count(), |stop, progress| study.run(stop, progress))
}
