//! Lifts: by how much each arm's mean, less what the arm costs, is above that of the control arm.

use bandana_shared::channel::Channel;
use bandana_shared::confidence::{Comparison, Difference};
use bandana_shared::estimate::{Estimand, manipulation_gain};
use bandana_shared::interval::{ErrorLevel, Interval};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{Estimates, Lift};

use crate::registry::Experiment;

/// Estimates with the lift of each other arm in play over the control arm.
pub(crate) fn with_lifts(
    estimates: Estimates,
    control_arm: u32,
    experiment: &Experiment,
) -> Estimates {
    let lifts = ErrorLevel::new(estimates.alpha)
        .map_or_else(|_| Vec::new(), |alpha| lifts(experiment, control_arm, alpha));
    Estimates { control_arm, lifts, ..estimates }
}

fn lifts(experiment: &Experiment, control_arm: u32, alpha: ErrorLevel) -> Vec<Lift> {
    let serving = experiment.serving();
    let specification = &*serving.specification;
    let (estimand, channel) = (specification.estimand(), specification.channel());
    if estimand == Estimand::Frequencies {
        return Vec::new();
    }
    let snapshot = experiment.snapshot();
    let strata = snapshot.strata(specification, 0, |_| true);
    let (active, initial) = (specification.active_arms(), experiment.initial_arms());
    let costs = serving.costs();
    let comparison = Comparison { strata: &strata, active: &active, initial, alpha, costs: &costs };
    let cost = |arm: usize| costs.get(arm).copied().unwrap_or_default();
    let lift = |found: Difference| {
        let dearer = cost(found.arm) - cost(control_arm as usize);
        let debiased = |scaled| difference_in_units((channel, estimand), scaled, dearer);
        Lift {
            arm: u32::try_from(found.arm).unwrap_or(u32::MAX),
            difference: debiased(found.difference),
            low: debiased(found.interval.low()),
            high: debiased(found.interval.high()),
            relative: found.relative,
            relative_low: found.relative_interval.map(Interval::low),
            relative_high: found.relative_interval.map(Interval::high),
            coverage: found.coverage,
        }
    };
    let zero = zero(specification);
    let differences = comparison.differences_from(control_arm as usize, zero);
    differences.into_iter().map(lift).collect()
}

/// A difference of two arms, debiased, in the units of the estimand: what of it are rewards is cut to
/// their range. `dearer` is by how much more the first one costs, which was taken from it.
pub(crate) fn difference_in_units(
    (channel, estimand): (Channel, Estimand),
    scaled: f64,
    dearer: f64,
) -> f64 {
    let widest = estimand.range().high() - estimand.range().low();
    // One report moves a debiased sum by the reciprocal of the channel's contrast.
    let debiased = |scaled: f64| estimand.difference_from_unit(scaled * manipulation_gain(channel));
    debiased(scaled + dearer).clamp(-widest, widest) - debiased(dearer)
}

/// The scaled mean of what is sent that stands for a mean reward of 0; `None` where rewards may be
/// negative: a share of a mean says little then.
fn zero(specification: &Specification) -> Option<f64> {
    let range = specification.estimand().range();
    let level = (range.low() >= 0.0).then(|| -range.low() / (range.high() - range.low()))?;
    let contrast = specification.channel().contrast();
    Some(match specification.channel() {
        Channel::Bit(floor) => floor.lowest_private_mean() + level * contrast,
        Channel::Kary(_) => 0.5 + (level - 0.5) * contrast,
    })
}
