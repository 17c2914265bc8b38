//! Users until a verdict which arm is best, in simulation.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bandana_lab::{Contestant, Instance, StandardLearner};
use bandana_learners::Learner;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::interval::ErrorLevel;
use bandana_studies::decision::runner::DecisionStudy;
use bandana_studies::decision::trial::Setting;
use bandana_studies::program::StudyOptions;
use clap::Args;

/// Simulate how many users it takes until a verdict which arm is best.
///
/// Policies are computed as often as a server does, and the verdict is that of `bandana estimate`.
/// Ctrl-C ends the study and shows what is finished.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The arms, several with commas: two-arms and the names that study regret has, or a CSV file
    /// as there.
    #[arg(long, value_delimiter = ',', default_value = "two-arms,paper-20,five-arms,close-arms")]
    instance: Vec<String>,
    /// Privacy loss bound of one report, in nats.
    #[arg(long, default_value_t = 1.0)]
    epsilon: f64,
    /// Learners of servers, with commas between them, or all.
    #[arg(long, value_delimiter = ',', default_value = "uniform,ldp-ts,top-two")]
    learners: Vec<String>,
    /// Probability that a verdict is right, at least.
    #[arg(long, default_value_t = 0.95)]
    confidence: f64,
    /// Number of users after whom a run ends without a verdict.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..))]
    horizon: u64,
    #[command(flatten)]
    options: StudyOptions,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let instance = |name: &String| Ok((name.clone(), Instance::named(name)?));
    let learner =
        |name: &str| Ok(Arc::new(name.parse::<StandardLearner>()?) as Arc<dyn Contestant>);
    let names: Vec<&str> = match &arguments.learners[..] {
        [all] if all == "all" => Learner::ALL.map(Learner::name).to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let study = DecisionStudy {
        instances: arguments.instance.iter().map(instance).collect::<anyhow::Result<_>>()?,
        learners: names.into_iter().map(learner).collect::<anyhow::Result<_>>()?,
        setting: Setting {
            epsilon: Epsilon::new(arguments.epsilon)?,
            alpha: ErrorLevel::new(1.0 - arguments.confidence)
                .context("--confidence must lie between 0 and 1")?,
            horizon: arguments.horizon,
        },
        trials: arguments.options.trials(),
        seed: arguments.options.seed,
        threads: arguments.options.threads(),
    };
    arguments.options.run(study.trial_count(), |stop, progress| study.run(stop, progress))
}
