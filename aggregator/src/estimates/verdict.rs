//! The verdict on the arms: which is best, and how far the first is ahead.

use bandana_shared::channel::Channel;
use bandana_shared::confidence::{Comparison, Lead, Strata};
use bandana_shared::estimate::Estimand;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;

use super::ArmTable;
use super::lifts::difference_in_units;

/// A verdict with the lead that it follows from.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArmVerdict {
    /// The arm in play that is best; `None` if that is not certain yet.
    pub best_arm: Option<usize>,
    /// The lead of the arm with the largest estimate, debiased, in the units of the estimand; `None` if
    /// fewer than two arms in play can be compared, or there is no order.
    pub lead: Option<Lead>,
    /// Further reports, of rewards and metrics, until the lead is certain; `None` if it will not be.
    pub reports_left: Option<u64>,
}

/// The reports of rewards and metrics among which so many are of rewards, about.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rounded number from 0 up; too large a one is cut"
)]
fn of_all(rewards: u64, specification: &Specification) -> u64 {
    // With a private context, one coordinate of all are the rewards.
    let of_one = rewards as f64 * specification.cells().coordinates() as f64;
    (of_one / specification.measurement().share(0)).ceil() as u64
}

/// Further reports until a lead is certain, of which so many were forecast after `reports`, if the arms
/// are as far apart as rewards can be: noise alone shows them further apart.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number from 0 up; too large a one is cut"
)]
fn at_the_widest(lead: &Lead, channel: Channel, left: u64, reports: f64) -> u64 {
    let beyond = (lead.difference / channel.contrast()).max(1.0);
    if left == 0 || beyond <= 1.0 {
        return left;
    }
    ((reports + left as f64) * beyond * beyond - reports).ceil() as u64
}

impl ArmTable<'_> {
    /// The verdict of this level among the users of these strata. `shares` are those of the traffic.
    pub(super) fn verdict(self, strata: &Strata, alpha: ErrorLevel, shares: &[f64]) -> ArmVerdict {
        let specification = &*self.serving.specification;
        let (channel, estimand) = (specification.channel(), specification.estimand());
        if estimand == Estimand::Frequencies {
            return ArmVerdict::default();
        }
        let Self { active, initial, costs, .. } = self;
        let comparison = Comparison { strata, active, initial, alpha, costs };
        let Some(lead) = comparison.lead() else {
            return ArmVerdict { best_arm: comparison.best(), ..ArmVerdict::default() };
        };
        let widest = |left| at_the_widest(&lead, channel, left, strata.users());
        let left = comparison.reports_left(shares).map(|left| left.max(widest(left)));
        let dearer = self.dearer(lead.leader, lead.rival);
        let in_units = |scaled| difference_in_units((channel, estimand), scaled, dearer);
        let (difference, interval) = (in_units(lead.difference), lead.interval.map(in_units));
        ArmVerdict {
            best_arm: comparison.best(),
            lead: Some(Lead { difference, interval, ..lead }),
            reports_left: left.map(|left| of_all(left, specification)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::interval::Interval;

    use super::*;

    #[test]
    fn a_forecast_believes_in_no_difference_that_there_can_not_be() {
        let channel = Channel::Bit(Floor::for_epsilon(Epsilon::new(0.01).unwrap()));
        let lead = |difference| Lead {
            leader: 0,
            rival: 1,
            difference,
            interval: Interval::between(-1.0, 1.0),
            coverage: 1.0,
        };
        let widest = channel.contrast();
        assert_eq!(at_the_widest(&lead(0.5 * widest), channel, 700, 100.0), 700);
        // Ten times too far apart, it takes a hundred times the reports.
        assert_eq!(at_the_widest(&lead(10.0 * widest), channel, 900, 100.0), 99_900);
        assert_eq!(at_the_widest(&lead(10.0 * widest), channel, 0, 100.0), 0);
    }
}
