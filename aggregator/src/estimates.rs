//! What the committed reports say about the arms.

use bandana_shared::confidence::{NormalMixture, best_active_arm};
use bandana_shared::estimate::{debiased_mean, manipulation_gain, manipulation_shift};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1;

use crate::registry::Experiment;

/// What to say, beside the numbers of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct EstimatesSettings {
    /// Error level of the intervals.
    pub alpha: ErrorLevel,
    /// Assumed share of dishonest reports, 0 to 1.
    pub dishonest_share: f64,
}

/// Estimates of every arm, with anytime-valid intervals, in the units of the
/// estimand.
pub fn estimates(experiment: &Experiment, settings: EstimatesSettings) -> v1::Estimates {
    let serving = experiment.serving();
    let specification = &*serving.specification;
    let mut tallies = experiment.tallies();
    tallies.resize(specification.arms().len(), Tally::EMPTY);
    let floor = specification.floor();
    let estimand = specification.estimand();
    let sequence = NormalMixture::new(settings.alpha);
    let range = estimand.range();

    let (active, initial) = (specification.active_arms(), experiment.initial_arms());
    let best_arm = best_active_arm(&tallies, &active, initial, settings.alpha);
    let shift = manipulation_shift(floor, settings.dishonest_share);
    let arm = |((arm, tally), place): ((&bandana_shared::specification::Arm, &Tally), usize)| {
        let interval = estimand.interval_from_unit(sequence.mean(floor, *tally));
        let interval = interval.clamped(range.low(), range.high());
        v1::ArmEstimate {
            arm: u32::try_from(place).unwrap_or(u32::MAX),
            label: arm.label().to_owned(),
            retired: arm.is_retired(),
            reports: tally.reports(),
            ones: tally.ones(),
            estimate: debiased_mean(floor, *tally).map(|mean| estimand.from_unit(mean)),
            low: interval.low(),
            high: interval.high(),
            weight: serving.policy.weights.share(place),
            manipulation_shift: estimand.difference_from_unit(shift),
        }
    };
    v1::Estimates {
        experiment_id: experiment.id().to_string(),
        estimand: v1::Estimand::from(estimand).into(),
        arms: specification.arms().iter().zip(&tallies).zip(0..).map(arm).collect(),
        reports: tallies.iter().copied().sum::<Tally>().reports(),
        alpha: settings.alpha.get(),
        manipulation_gain: estimand.difference_from_unit(manipulation_gain(floor)),
        best_arm: best_arm.and_then(|arm| u32::try_from(arm).ok()),
        policy_version: serving.policy.version,
    }
}
