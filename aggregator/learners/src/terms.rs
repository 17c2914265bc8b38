//! Terms: prior knowledge of the arms, and their costs.
//!
//! Both are for the learner alone: no estimate, interval or verdict counts a prior.
//!
//! # Priors
//! A prior is a mean reward and its worth, the number of private reports that tell as much. The
//! learner begins as if it had a share of these reports, with that mean. The share is the discount,
//! since users and app may have changed. Segments divide the prior evenly. A learner that forgets
//! days forgets the prior as if it were of the day before the first.
//!
//! # Costs
//! A cost is subtracted from each reward of its arm, in the unit of the rewards. So the learner
//! weighs net rewards. Only differences between costs matter, so the arms that cost least stay as
//! they are. For any other arm, the difference, as a private mean, is subtracted from the
//! posterior's mean. The evidence is replaced by one with that mean and the posterior's variance.

use bandana_shared::channel::Channel;
use bandana_shared::rewards::RewardRange;
use thiserror::Error;

use super::input::Evidence;

/// A mean reward that is known beforehand, and its worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// The arm's mean reward, in the unit of the rewards.
    pub mean: f64,
    /// The number of private reports that tell as much.
    pub worth: f64,
}

/// The priors and the costs of the arms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmTerms {
    /// The prior of each arm; the arms beyond the end have none.
    priors: Vec<Option<Prior>>,
    /// The share of their worth that they count.
    discount: f64,
    /// The cost of each arm, in the unit of the rewards; the arms beyond the end cost nothing.
    costs: Vec<f64>,
}

impl ArmTerms {
    /// The default discount: the share of its worth that a prior counts.
    pub const DISCOUNT: f64 = 0.5;

    /// The largest worth of a prior.
    pub const WORTH_MAX: f64 = 1e12;

    /// Checks the terms of arms whose rewards are in a range.
    ///
    /// # Errors
    /// [`TermsError`] for a mean outside the range, a worth outside 0 to [`Self::WORTH_MAX`], a
    /// discount that is not above 0 and at most 1, or a cost that is negative or above the width of
    /// the range.
    pub fn new(
        priors: Vec<Option<Prior>>,
        discount: f64,
        costs: Vec<f64>,
        range: RewardRange,
    ) -> Result<Self, TermsError> {
        let (low, high) = (range.low(), range.high());
        for (arm, prior) in priors.iter().enumerate() {
            let Some(Prior { mean, worth }) = *prior else { continue };
            if !(low..=high).contains(&mean) {
                return Err(TermsError::Mean { arm, mean, low, high });
            }
            if !(0.0..=Self::WORTH_MAX).contains(&worth) {
                return Err(TermsError::Worth { arm, worth });
            }
        }
        if !(discount > 0.0 && discount <= 1.0) {
            return Err(TermsError::Discount { discount });
        }
        let width = high - low;
        let dear = costs.iter().position(|cost| !(0.0..=width).contains(cost));
        if let Some(arm) = dear {
            return Err(TermsError::Cost { arm, cost: costs[arm], width });
        }
        Ok(Self { priors, discount, costs })
    }

    /// Whether there are no priors and no costs.
    pub fn is_empty(&self) -> bool {
        self.priors.iter().all(Option::is_none) && self.costs.iter().all(|cost| *cost == 0.0)
    }

    /// The prior of an arm.
    pub fn prior(&self, arm: usize) -> Option<Prior> {
        self.priors.get(arm).copied().flatten()
    }

    /// The share of their worth that priors count, above 0 and at most 1.
    pub fn discount(&self) -> f64 {
        self.discount
    }

    /// The cost of an arm.
    pub fn cost(&self, arm: usize) -> f64 {
        self.costs.get(arm).copied().unwrap_or_default()
    }

    /// Adds the priors to the evidence of the arms, each multiplied by `share`, and subtracts the
    /// costs. `active` says which arms are in play.
    pub fn apply(
        &self,
        evidence: &mut [Evidence],
        active: &[bool],
        (channel, range): (Channel, RewardRange),
        share: f64,
    ) {
        let width = range.high() - range.low();
        let (lowest, contrast) = (channel.lowest_private_mean(), channel.contrast());
        for (arm, own) in evidence.iter_mut().enumerate() {
            if let Some(Prior { mean, worth }) = self.prior(arm) {
                let private = lowest + contrast * (mean - range.low()) / width;
                *own = own.with_prior(private, share * self.discount * worth);
            }
        }
        let in_play = active.iter().enumerate().filter(|(_, is_active)| **is_active);
        let least = in_play.map(|(arm, _)| self.cost(arm)).fold(f64::INFINITY, f64::min);
        for (arm, own) in evidence.iter_mut().enumerate() {
            let more = self.cost(arm) - least;
            if more > 0.0 && more.is_finite() {
                *own = own.lowered(contrast * more / width);
            }
        }
    }
}

/// Invalid terms.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum TermsError {
    /// A mean that rewards can't have.
    #[error(
        "the prior mean of arm {arm} is {mean}; it must lie between {low} and {high}, the ends of \
         the rewards"
    )]
    Mean {
        /// The arm.
        arm: usize,
        /// Its mean.
        mean: f64,
        /// The least reward.
        low: f64,
        /// The largest reward.
        high: f64,
    },
    /// A worth that is not a number of reports, or too large.
    #[error(
        "the prior of arm {arm} has the worth {worth}; it must be a number of reports from 0 to \
         {:e}",
        ArmTerms::WORTH_MAX
    )]
    Worth {
        /// The arm.
        arm: usize,
        /// Its worth.
        worth: f64,
    },
    /// A discount that is not a share above 0.
    #[error("the prior discount is {discount}; it must be above 0 and at most 1")]
    Discount {
        /// The share.
        discount: f64,
    },
    /// A cost that no reward can outweigh, or that is negative.
    #[error(
        "the cost {cost} of arm {arm} must lie between 0 and {width}, the width of the range of \
         rewards; give costs in the unit of the rewards"
    )]
    Cost {
        /// The arm.
        arm: usize,
        /// Its cost.
        cost: f64,
        /// The width of the range.
        width: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;

    fn channel() -> Channel {
        Floor::for_epsilon(Epsilon::new(2.0).unwrap()).into()
    }

    fn terms(priors: &[Option<(f64, f64)>], costs: &[f64]) -> ArmTerms {
        let priors = priors.iter().map(|one| one.map(|(mean, worth)| Prior { mean, worth }));
        ArmTerms::new(priors.collect(), 0.5, costs.to_vec(), RewardRange::UNIT).unwrap()
    }

    #[test]
    fn priors_count_as_half_as_many_reports_of_their_mean() {
        let mut evidence = [Evidence::new(10.0, 30.0), Evidence::default(), Evidence::default()];
        let terms = terms(&[None, Some((0.8, 600.0))], &[]);
        terms.apply(&mut evidence, &[true; 3], (channel(), RewardRange::UNIT), 1.0);
        assert_eq!(evidence[0], Evidence::new(10.0, 30.0));
        assert!((evidence[1].reports() - 300.0).abs() < 1e-9);
        let mean = channel().lowest_private_mean() + 0.8 * channel().contrast();
        assert!((evidence[1].mean().unwrap() - mean).abs() < 1e-9);
        assert_eq!(evidence[2], Evidence::default());
    }

    #[test]
    fn costs_lower_the_dearer_arms_by_the_difference_and_keep_what_is_known_of_them() {
        let before = [Evidence::new(600.0, 400.0); 3];
        let mut after = before;
        let terms = terms(&[], &[0.3, 0.1, 0.05]);
        // The cheapest arm is retired.
        terms.apply(&mut after, &[true, true, false], (channel(), RewardRange::UNIT), 1.0);
        assert_eq!(after[1], before[1]);
        // Posteriors are Beta(1 + ones, 1 + zeros).
        let moments = |one: Evidence| {
            let (a, b) = (1.0 + one.ones(), 1.0 + one.zeros());
            let mean = a / (a + b);
            (mean, mean * (1.0 - mean) / (a + b + 1.0))
        };
        let ((mean, variance), (lowered, kept)) = (moments(before[0]), moments(after[0]));
        assert!((mean - lowered - 0.2 * channel().contrast()).abs() < 1e-9);
        assert!((variance - kept).abs() < 1e-12);
    }

    #[test]
    fn senseless_terms_are_refused() {
        let new = |prior, discount, cost| {
            let (mean, worth) = prior;
            let priors = vec![Some(Prior { mean, worth })];
            ArmTerms::new(priors, discount, vec![cost], RewardRange::UNIT).unwrap_err()
        };
        let text = |error: TermsError| error.to_string();
        assert!(text(new((1.5, 10.0), 0.5, 0.0)).contains("between 0 and 1"));
        assert!(text(new((0.5, -1.0), 0.5, 0.0)).contains("must be a number of reports"));
        assert!(text(new((0.5, f64::NAN), 0.5, 0.0)).contains("must be a number of reports"));
        assert!(text(new((0.5, 1.0), 0.0, 0.0)).contains("at most 1"));
        for cost in [-0.1, 1.1, f64::NAN] {
            assert!(text(new((0.5, 1.0), 0.5, cost)).contains("unit of the rewards"));
        }
        assert!(ArmTerms::default().is_empty());
    }
}
