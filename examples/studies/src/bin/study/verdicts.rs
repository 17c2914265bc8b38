//! Wrong verdicts and users until a verdict, in simulation.

use std::process::ExitCode;

use bandana_studies::program::StudyOptions;
use bandana_studies::verdicts::VerdictStudy;
use bandana_studies::verdicts::instance::VerdictInstance;
use clap::Args;

/// Simulate wrong verdicts where a learner moves traffic between groups and over time, and count
/// users until a verdict with even traffic.
///
/// Policies are computed as often as a server does, and after each of them there is a look at
/// verdict, lifts and guardrails as `bandana estimate` has them. The plot shows how the interval of
/// an arm narrows. Ctrl-C ends the study and shows what is finished.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Play only the instances whose names begin with this [default: all].
    #[arg(long, default_value = "")]
    instance: String,
    #[command(flatten)]
    options: StudyOptions,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut instances = VerdictInstance::all();
    instances.retain(|one| one.name.starts_with(&arguments.instance));
    anyhow::ensure!(
        !instances.is_empty(),
        "no instance has a name that begins with {:?}; the names are: {}",
        arguments.instance,
        VerdictInstance::all().iter().map(|one| one.name).collect::<Vec<_>>().join(", ")
    );
    let study = VerdictStudy {
        instances,
        trials: arguments.options.trials(),
        seed: arguments.options.seed,
        threads: arguments.options.threads(),
    };
    arguments.options.run(study.trial_count(), |stop, progress| study.run(stop, progress))
}
