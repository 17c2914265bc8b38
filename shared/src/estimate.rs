//! From private bits to estimates.
//!
//! An estimate is the mean of g(r) among the reports of an arm, g the curve of
//! the mechanism. Only for a linear curve, or for rewards at the two ends of
//! their range, is that the mean reward; [`Estimand`] says which it is, so that
//! no number goes without its meaning.

use crate::channel::{Floor, TWO_POW_64};
use crate::interval::Interval;
use crate::rewards::{RewardKind, RewardRange};
use crate::tally::Tally;

/// What the debiased estimates of an experiment estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimand {
    /// The mean reward, in the units of the range.
    MeanReward(RewardRange),
    /// The mean of g(r), r scaled to [0, 1]. Its order of the arms can differ
    /// from that of the mean rewards.
    MeanCurvedReward,
}

impl Estimand {
    /// What a channel with such a curve lets a server estimate.
    pub fn of(linear: bool, kind: RewardKind, range: RewardRange) -> Self {
        if linear || kind == RewardKind::Binary {
            Self::MeanReward(range)
        } else {
            Self::MeanCurvedReward
        }
    }

    /// Its name in reports: `mean reward` or `mean of g(reward)`.
    pub fn name(self) -> &'static str {
        match self {
            Self::MeanReward(_) => "mean reward",
            Self::MeanCurvedReward => "mean of g(reward)",
        }
    }

    /// The values that the estimand can take.
    pub fn range(self) -> Interval {
        Interval::between(self.from_unit(0.0), self.from_unit(1.0))
    }

    /// A mean of g(r) in the units of the estimand.
    pub fn from_unit(self, mean: f64) -> f64 {
        match self {
            Self::MeanReward(range) => range.low() + mean * range.width(),
            Self::MeanCurvedReward => mean,
        }
    }

    /// An interval for a mean of g(r) in the units of the estimand.
    pub fn interval_from_unit(self, interval: Interval) -> Interval {
        Interval::between(self.from_unit(interval.low()), self.from_unit(interval.high()))
    }

    /// A difference between two means of g(r) in the units of the estimand.
    pub fn difference_from_unit(self, difference: f64) -> f64 {
        match self {
            Self::MeanReward(range) => difference * range.width(),
            Self::MeanCurvedReward => difference,
        }
    }
}

/// The debiased mean of g(r), `(ones/n - t0/2^64)/(1 - 2 t0/2^64)`; `None`
/// without reports.
///
/// Not clamped to [0, 1]: clamping would bias it, see [`clamped_mean`]. Unbiased
/// for a number of reports fixed in advance; when a learner decides how often
/// an arm is played, arms that started unluckily stay underestimated.
///
/// ```
/// use bandana_shared::{channel::Floor, epsilon::Epsilon, estimate::debiased_mean, tally::Tally};
/// let floor = Floor::for_epsilon(Epsilon::new(2.0)?);
/// let mean = debiased_mean(floor, Tally::new(1000, 690)?).unwrap();
/// assert!((mean - 0.749).abs() < 0.001);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn debiased_mean(floor: Floor, tally: Tally) -> Option<f64> {
    // In integers up to the last division: a tally has at most 2^62 reports
    // and t0 is below 2^63, so both products are below 2^126.
    let scaled_ones = i128::from(tally.ones()) << 64;
    let scaled_noise = i128::from(tally.reports()) * i128::from(floor.get());
    let signal = (scaled_ones - scaled_noise) as f64 / tally.reports() as f64;
    (tally.reports() > 0).then_some(signal / floor.width() as f64)
}

/// [`debiased_mean`] moved into [0, 1]: nearer to the truth on average, and
/// biased.
pub fn clamped_mean(floor: Floor, tally: Tally) -> Option<f64> {
    debiased_mean(floor, tally).map(|mean| mean.clamp(0.0, 1.0))
}

/// The standard error of [`debiased_mean`], `sqrt(q(1-q)/n)/(1 - 2 t0/2^64)`;
/// `None` without reports.
///
/// For `q` stands the share of ones, moved into the range that a private mean can
/// have; so the error is never 0, however few reports there are. It belongs to a
/// sample of fixed size: for looking at any time there is
/// [`NormalMixture`](crate::confidence::NormalMixture).
///
/// ```
/// use bandana_shared::{channel::Floor, epsilon::Epsilon, estimate::standard_error, tally::Tally};
/// let floor = Floor::for_epsilon(Epsilon::new(2.0)?);
/// let error = standard_error(floor, Tally::new(1000, 690)?).unwrap();
/// assert!((error - 0.0192).abs() < 0.0001);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn standard_error(floor: Floor, tally: Tally) -> Option<f64> {
    let reports = tally.reports() as f64;
    let lowest = floor.lowest_private_mean();
    let private_mean = (tally.ones() as f64 / reports).clamp(lowest, 1.0 - lowest);
    let error = (variance_per_report(floor, private_mean) / reports).sqrt();
    (tally.reports() > 0).then_some(error)
}

/// The variance that one report adds to a debiased sum,
/// `q(1-q)/(1 - 2 t0/2^64)^2`, for reports with private mean `q` in [0, 1].
pub fn variance_per_report(floor: Floor, private_mean: f64) -> f64 {
    private_mean * (1.0 - private_mean) / floor.contrast().powi(2)
}

/// The private mean `q` of reports whose mean of g(r) is `mean`.
pub fn private_mean_of(floor: Floor, mean: f64) -> f64 {
    (floor.get() as f64 + mean * floor.width() as f64) / TWO_POW_64
}

/// How far one dishonest bit can move a debiased sum: `1/(1 - 2 t0/2^64)`.
///
/// Stronger privacy gives every single participant more weight (Cheu, Smith and
/// Ullman, "Manipulation Attacks in Local Differential Privacy", 2021).
pub fn manipulation_gain(floor: Floor) -> f64 {
    1.0 / floor.contrast()
}

/// How far a share of dishonest reports, 0 to 1, can move a debiased mean.
pub fn manipulation_shift(floor: Floor, dishonest_share: f64) -> f64 {
    dishonest_share * manipulation_gain(floor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epsilon::Epsilon;

    #[test]
    fn debiasing_inverts_the_channel() {
        for epsilon in [Epsilon::MIN, 0.5, 1.0, 8.0, Epsilon::MAX] {
            let floor = Floor::for_epsilon(Epsilon::new(epsilon).unwrap());
            for mean in [0.0, 0.25, 0.6, 1.0] {
                let q = private_mean_of(floor, mean);
                let back = (q - floor.lowest_private_mean()) / floor.contrast();
                assert!((back - mean).abs() < 1e-15 / floor.contrast(), "{epsilon} {mean} {back}");
            }
        }
    }

    #[test]
    fn debiased_means_are_exact_at_the_largest_counts() {
        // Half of the bits are ones: exactly 1/2 whatever the floor.
        for epsilon in [Epsilon::MIN, 1.0, Epsilon::MAX] {
            let floor = Floor::for_epsilon(Epsilon::new(epsilon).unwrap());
            let tally = Tally::new(Tally::REPORTS_MAX, Tally::REPORTS_MAX / 2).unwrap();
            assert_eq!(debiased_mean(floor, tally), Some(0.5), "{epsilon}");
        }
    }

    #[test]
    fn a_dishonest_bit_moves_the_sum_by_the_gain() {
        let floor = Floor::for_epsilon(Epsilon::new(0.5).unwrap());
        let sum = |ones| 100.0 * debiased_mean(floor, Tally::new(100, ones).unwrap()).unwrap();
        assert!((sum(51) - sum(50) - manipulation_gain(floor)).abs() < 1e-9);
        let shift = manipulation_shift(floor, 0.01);
        assert!((shift - manipulation_gain(floor) / 100.0).abs() < 1e-15);
    }

    #[test]
    fn means_out_of_range_are_clamped_only_on_request() {
        let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
        let tally = Tally::new(10, 10).unwrap();
        assert!(debiased_mean(floor, tally).unwrap() > 1.3);
        assert_eq!(clamped_mean(floor, tally), Some(1.0));
        assert_eq!(debiased_mean(floor, Tally::EMPTY), None);
    }
}
