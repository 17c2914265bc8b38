//! Regret of learners on private bits, in simulation.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use bandana_lab::{Attack, Contestant, Course, Instance, KeptTrials, StandardLearner, Study};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::shuffling::{REPORTS_MAX, largest_local_loss};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::curve::{Curvature, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::rewards::RewardKind;
use bandana_studies::program::StudyOptions;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

/// Simulate the regret of learners on private bits.
///
/// Rewards are the same for all learners of a study, and so is the noise for those with the same
/// channel. Ctrl-C ends the study and shows what is finished.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The arms: paper-20, close-arms, variance-trap, exponential-trap, power-near-one,
    /// power-near-zero, wide-best, rare-reward, two-arms, five-arms, or a CSV file with the columns
    /// arm, label, reward (0 to 1) and count.
    #[arg(long, default_value = "paper-20")]
    instance: String,
    /// How a reward becomes a report; several with commas: linear, quadratic, exponential, rr,
    /// k-level.
    #[arg(long, value_delimiter = ',', default_value = "linear")]
    mechanism: Vec<String>,
    /// Levels of the k-level mechanism, 2 to 16.
    #[arg(long, value_name = "K", default_value_t = 6)]
    levels: u32,
    /// Curvature of the quadratic mechanism, -1 to 1.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    curvature: f64,
    /// Privacy loss bounds of one report, in nats, with commas.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    epsilon: Vec<f64>,
    /// Number of reports of an arm that are shuffled and seen only together: 1 to 16384.
    #[arg(long, value_name = "B", conflicts_with = "batch")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(REPORTS_MAX)))]
    shuffle: Option<u32>,
    /// Privacy loss bounds of one report after shuffling, with commas between them. The study takes
    /// the largest epsilon that keeps each.
    #[arg(long, value_delimiter = ',', requires = "shuffle", conflicts_with = "epsilon")]
    central_epsilon: Vec<f64>,
    /// The delta that comes with a privacy loss after shuffling.
    #[arg(long, requires = "shuffle", default_value_t = 1e-6)]
    delta: f64,
    /// Learners, with commas between them, or all. Ratios are to the first.
    #[arg(long, value_delimiter = ',', default_value = "ldp-ts,rand-ada-kl,ldp-ucb")]
    learners: Vec<String>,
    /// Rounds of a trial.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..))]
    horizon: u64,
    /// Reports that arrive together.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Draw the arms of a batch from the weights that a server would serve at its start. It knows
    /// nothing of what is pending.
    #[arg(long)]
    served: bool,
    /// Draw the pulls and the reports of a batch as counts, which makes horizons of 10^8 rounds cheap:
    /// learners that servers have, by their policies. Without a --batch, batches grow as those of a
    /// server.
    #[arg(long, conflicts_with_all = ["served", "shuffle", "dishonest"])]
    by_batches: bool,
    /// Share of dishonest people.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    dishonest: f64,
    /// What dishonest people do.
    #[arg(long, default_value = "flip",
          value_parser = PossibleValuesParser::new(["flip", "stuff"]).try_map(|name| name.parse::<Attack>()))]
    attack: Attack,
    /// Where finished trials are kept, a line of JSON for each: its learner and the regret at every
    /// checkpoint. Those that the file has are not run again.
    #[arg(long, value_name = "FILE")]
    trials_file: Option<PathBuf>,
    #[command(flatten)]
    options: StudyOptions,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let study = study(arguments)?;
    let Some(path) = &arguments.trials_file else {
        return arguments
            .options
            .run(study.trial_count(), |stop, progress| study.run(stop, progress));
    };
    let kept = KeptTrials::open(path)?;
    arguments.options.run(study.trial_count(), |stop, progress| kept.run(&study, stop, progress))
}

/// Validates the options.
fn study(arguments: &Arguments) -> anyhow::Result<Study> {
    let instance = Instance::named(&arguments.instance)?;
    let mechanism = |name: &String| {
        Ok(match name.as_str() {
            "linear" => Mechanism::Linear,
            "quadratic" => Mechanism::Quadratic(Curvature::new(arguments.curvature)?),
            "exponential" => Mechanism::Exponential,
            "rr" if instance.rewards().kind() == RewardKind::Binary => {
                Mechanism::RandomizedResponse
            }
            "rr" => bail!("randomized response takes rewards of 0 and 1 only; use linear"),
            "k-level" => Mechanism::Kary(Alphabet::new(arguments.levels)?),
            _ => bail!(
                "there is no mechanism {name:?}: linear, quadratic, exponential, rr or k-level"
            ),
        })
    };
    let mut contestants = Vec::new();
    match &arguments.learners[..] {
        [all] if all == "all" => contestants.extend(StandardLearner::all()),
        names => {
            for name in names {
                let learner: StandardLearner = name.parse()?;
                // A learner may be given under two names.
                if !contestants.contains(&learner) {
                    contestants.push(learner);
                }
            }
        }
    }
    let contestant = |learner| Arc::new(learner) as Arc<dyn Contestant>;
    ensure!((0.0..=1.0).contains(&arguments.dishonest), "--dishonest is a share, 0 to 1");
    let delta = Delta::new(arguments.delta)?;
    Ok(Study {
        first_trial: 0,
        name: arguments.instance.clone(),
        mechanisms: arguments.mechanism.iter().map(mechanism).collect::<anyhow::Result<_>>()?,
        epsilons: epsilons(arguments, delta)?,
        bandit: Arc::new(instance),
        contestants: contestants.into_iter().map(contestant).collect(),
        trials: arguments.options.trials(),
        course: Course {
            checkpoints: Course::checkpoints_to(arguments.horizon),
            batch: arguments.batch as usize,
            shuffle: arguments.shuffle,
            dishonest: arguments.dishonest,
            attack: arguments.attack,
            by_batches: arguments.by_batches,
        },
        delta,
        served: arguments.served,
        seed: arguments.options.seed,
        threads: arguments.options.threads(),
        host: |work| work(),
    })
}

/// The losses of single reports: as given, or the largest for losses after shuffling.
fn epsilons(arguments: &Arguments, delta: Delta) -> anyhow::Result<Vec<Epsilon>> {
    let Some(reports) = arguments.shuffle.filter(|_| !arguments.central_epsilon.is_empty()) else {
        let local = arguments.epsilon.iter().map(|epsilon| Epsilon::new(*epsilon));
        return Ok(local.collect::<Result<_, _>>()?);
    };
    ensure!(
        !arguments.mechanism.iter().any(|name| name == "k-level"),
        "only bits have a certified loss after shuffling; give k-level an --epsilon"
    );
    let local = |nats: &f64| {
        let central = Guarantee::new(PrivacyLoss::new(*nats)?, delta);
        largest_local_loss(reports, central)?
            .with_context(|| format!("no channel is as private as {nats} nats; give 1e-6 or more"))
    };
    arguments.central_epsilon.iter().map(local).collect()
}
