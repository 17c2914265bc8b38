//! Regret with a trusted curator, with and without privacy, in simulation.

use std::process::ExitCode;

use anyhow::ensure;
use bandana_studies::curator::algorithm::Algorithm;
use bandana_studies::curator::runner::CuratorStudy;
use bandana_studies::curator::trial::Course;
use bandana_studies::program::StudyOptions;
use bandana_zcdp::Protection;
use clap::Args;

/// Simulate regret with a trusted curator, with and without privacy.
///
/// The defaults are the settings of the published experiments. Ctrl-C ends the study and shows what
/// is finished.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Algorithms, with commas between them. Ratios are to the first one of the same setting.
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
    #[command(flatten)]
    options: StudyOptions,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let study = study(arguments)?;
    arguments.options.run(study.trial_count(), |stop, progress| study.run(stop, progress))
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
        trials: arguments.options.trials(),
        seed: arguments.options.seed,
        threads: arguments.options.threads(),
    })
}

/// Four checkpoints for each power of ten, from 1,000 on, and the horizon.
fn checkpoints(horizon: u64) -> Vec<u64> {
    let powers = (3..18).map(|power| 10_u64.pow(power));
    let grid =
        powers.flat_map(|power| [power, power * 178 / 100, power * 316 / 100, power * 562 / 100]);
    grid.take_while(|round| *round < horizon).chain([horizon]).collect()
}
