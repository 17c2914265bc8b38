//! Lifts: by how much each arm's mean, less what the arm costs, is above that of the control arm.

use bandana_shared::channel::Channel;
use bandana_shared::confidence::{Comparison, Difference, Strata};
use bandana_shared::estimate::{Estimand, manipulation_gain};
use bandana_shared::specification::Specification;

use super::ArmTable;

impl ArmTable<'_> {
    /// The lift of each other arm in play over the control arm, among the users of these strata, debiased
    /// and in the units of the estimand.
    pub(super) fn lifts(self, control_arm: usize, strata: &Strata) -> Vec<Difference> {
        let specification = &*self.serving.specification;
        let (estimand, channel) = (specification.estimand(), specification.channel());
        if estimand == Estimand::Frequencies {
            return Vec::new();
        }
        let (active, alpha) = (&specification.active_arms()[..], self.settings.alpha);
        let Self { initial, costs, .. } = self;
        let comparison = Comparison { strata, active, initial, alpha, costs };
        let lift = |found: Difference| {
            let dearer = self.dearer(found.arm, control_arm);
            let debiased = |scaled| difference_in_units((channel, estimand), scaled, dearer);
            let (difference, interval) = (debiased(found.difference), found.interval.map(debiased));
            Difference { difference, interval, ..found }
        };
        let differences = comparison.differences_from(control_arm, zero(specification));
        differences.into_iter().map(lift).collect()
    }

    /// By how much more the first arm costs, scaled as the reports are.
    pub(super) fn dearer(self, first: usize, second: usize) -> f64 {
        let cost = |arm: usize| self.costs.get(arm).copied().unwrap_or_default();
        cost(first) - cost(second)
    }
}

/// A difference of two arms, debiased, in the units of the estimand: what of it are rewards is cut to
/// their range. `dearer` is by how much more the first one costs, which was taken from it.
pub(super) fn difference_in_units(
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
