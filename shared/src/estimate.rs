//! Estimates from private bits.
//!
//! An estimate is the mean of g(r) among the reports of an arm, where g is the curve of the
//! mechanism. It is the mean reward only for a linear curve, or for rewards at the two ends of
//! their range. [`Estimand`] says which of the two it is.

use crate::alphabet::Symbol;
use crate::channel::{Channel, Floor, KaryChannel, TWO_POW_64};
use crate::interval::Interval;
use crate::rewards::{RewardKind, RewardRange};
use crate::sample::Sample;
use crate::tally::Tally;

/// The quantity that the debiased estimates of an experiment estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimand {
    /// The mean reward, in the units of the range.
    MeanReward(RewardRange),
    /// The mean of g(r), where r is scaled to [0, 1]. It can order the arms in another way than the
    /// mean rewards do.
    MeanCurvedReward,
    /// The share of each category. Categories have no order, so arms are not compared.
    Frequencies,
}

impl Estimand {
    /// The estimand of a channel, given its curve and rewards.
    pub fn of(linear: bool, kind: RewardKind, range: RewardRange) -> Self {
        match kind {
            RewardKind::Categorical => Self::Frequencies,
            RewardKind::Binary => Self::MeanReward(range),
            RewardKind::Bounded if linear => Self::MeanReward(range),
            RewardKind::Bounded => Self::MeanCurvedReward,
        }
    }

    /// The estimand's name in reports: `mean reward`, `mean of g(reward)` or
    /// `shares of the categories`.
    pub fn name(self) -> &'static str {
        match self {
            Self::MeanReward(_) => "mean reward",
            Self::MeanCurvedReward => "mean of g(reward)",
            Self::Frequencies => "shares of the categories",
        }
    }

    /// The interval of the estimand's possible values.
    pub fn range(self) -> Interval {
        Interval::between(self.from_unit(0.0), self.from_unit(1.0))
    }

    /// A mean of g(r) in the units of the estimand.
    pub fn from_unit(self, mean: f64) -> f64 {
        match self {
            Self::MeanReward(range) => range.low() + mean * range.width(),
            Self::MeanCurvedReward | Self::Frequencies => mean,
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
            Self::MeanCurvedReward | Self::Frequencies => difference,
        }
    }
}

/// The debiased mean of g(r), `(ones/n - t0/2^64)/(1 - 2 t0/2^64)`, or `None` without reports.
///
/// The mean is not clamped to [0, 1], since clamping would bias it: see [`clamped_mean`]. It is
/// unbiased for a number of reports that is fixed in advance. When a learner decides how often an
/// arm is played, arms with unlucky first reports stay underestimated.
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

/// [`debiased_mean`] clamped to [0, 1]. It is nearer to the truth on average, but biased.
pub fn clamped_mean(floor: Floor, tally: Tally) -> Option<f64> {
    debiased_mean(floor, tally).map(|mean| mean.clamp(0.0, 1.0))
}

/// The standard error of [`debiased_mean`], `sqrt(q(1-q)/n)/(1 - 2 t0/2^64)`, or `None` without
/// reports.
///
/// `q` is the share of ones, clamped to the range of a private mean. So the error is never 0,
/// however few reports there are. It is valid for a sample of fixed size. For repeated looks use
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

/// The variance that one report adds to a debiased sum, `q(1-q)/(1 - 2 t0/2^64)^2`, for reports
/// with private mean `q` in [0, 1].
pub fn variance_per_report(floor: Floor, private_mean: f64) -> f64 {
    private_mean * (1.0 - private_mean) / floor.contrast().powi(2)
}

/// The private mean `q` of reports whose mean of g(r) is `mean`.
pub fn private_mean_of(floor: Floor, mean: f64) -> f64 {
    (floor.get() as f64 + mean * floor.width() as f64) / TWO_POW_64
}

/// Largest change of a debiased sum by one dishonest report: `1/(1 - 2 t0/2^64)` for a bit.
///
/// Stronger privacy gives every participant more weight (Cheu, Smith and Ullman, "Manipulation
/// Attacks in Local Differential Privacy", 2021).
pub fn manipulation_gain(channel: impl Into<Channel>) -> f64 {
    1.0 / channel.into().contrast()
}

/// Largest change of a debiased mean by a share of dishonest reports, 0 to 1.
pub fn manipulation_shift(channel: impl Into<Channel>, dishonest_share: f64) -> f64 {
    dishonest_share * manipulation_gain(channel)
}

impl Channel {
    /// The mean of g(r) for this mean of the sent symbols, scaled to 0..=1.
    pub fn debiased(self, scaled: f64) -> f64 {
        match self {
            Self::Bit(floor) => (scaled - floor.lowest_private_mean()) / floor.contrast(),
            Self::Kary(channel) => 0.5 + (scaled - 0.5) / channel.contrast(),
        }
    }

    /// The debiased mean of g(r) for any symbols, or `None` without reports. For bits it is
    /// [`debiased_mean`]. For levels it is `1/2 + (m - 1/2)/(1 - k t/2^64)`, where m is the mean of
    /// the sent symbols, scaled to 0..=1. It is not clamped.
    pub fn debiased_mean(self, tally: &Tally) -> Option<f64> {
        let channel = match self {
            Self::Bit(floor) => return debiased_mean(floor, *tally),
            Self::Kary(channel) => channel,
        };
        // In units of half a step the deviation from the middle is a whole number.
        let last = i128::from(channel.alphabet().last().get());
        let deviation = |(symbol, count): (Symbol, u64)| {
            (2 * i128::from(symbol.get()) - last) * i128::from(count)
        };
        let symbols = channel.alphabet().symbols();
        let sum: i128 = symbols.zip(tally.counts(channel.alphabet())).map(deviation).sum();
        let scale = 2.0 * last as f64 * channel.contrast();
        let reports = tally.reports() as f64;
        (tally.reports() > 0).then(|| 0.5 + sum as f64 / reports / scale)
    }

    /// The standard error of [`Self::debiased_mean`] for a sample of fixed size. For bits it is
    /// that of [`standard_error`]. For levels it follows from the variance of the sent symbols, or
    /// from the least variance that randomized response can have, if that is larger.
    pub fn standard_error(self, tally: &Tally) -> Option<f64> {
        let channel = match self {
            Self::Bit(floor) => return standard_error(floor, *tally),
            Self::Kary(channel) => channel,
        };
        let sample = Sample::of(tally, channel.alphabet())?;
        let variance = (sample.squares() / sample.reports()).max(channel.variance_min());
        Some(libm::sqrt(variance / sample.reports()) / self.contrast())
    }
}

impl KaryChannel {
    /// The least variance that a scaled symbol can have: `c (k + 1)/(12 (k - 1))`, with c =
    /// `k t/2^64`.
    ///
    /// The sent symbol is, with probability c, uniform over all symbols, and otherwise the true
    /// one, at x between 0 and 1. The variance is `c V + c (1 - c) (x - 1/2)^2` for a fixed x, with
    /// `V = (k + 1)/(12 (k - 1))` that of the evenly spaced symbols, and larger for a random x.
    pub fn variance_min(self) -> f64 {
        let symbols = f64::from(self.alphabet().len());
        (1.0 - self.contrast()) * (symbols + 1.0) / (12.0 * (symbols - 1.0))
    }

    /// The debiased share of a symbol among the true symbols, `(n_s/n - t/2^64)/(1 - k t/2^64)`, or
    /// `None` without reports. It is not clamped, and it is unbiased like [`debiased_mean`].
    ///
    /// ```
    /// use bandana_shared::alphabet::{Alphabet, Symbol};
    /// use bandana_shared::{channel::KaryChannel, epsilon::Epsilon, tally::Tally};
    /// let channel = KaryChannel::for_epsilon(Alphabet::new(3)?, Epsilon::new(2.0)?);
    /// let red = Symbol::new(2).unwrap();
    /// // Were all truths red, e^2/(e^2 + 2) = 78.7% of the reports would say so.
    /// let tally = Tally::with_symbols(1000, [(red, 787)])?;
    /// assert!((channel.frequency(&tally, red).unwrap() - 1.0).abs() < 0.001);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn frequency(self, tally: &Tally, symbol: Symbol) -> Option<f64> {
        // In integers up to the last division, as for bits.
        let said = i128::from(tally.count(symbol)) << 64;
        let noise = i128::from(tally.reports()) * i128::from(self.share());
        let signal = (said - noise) as f64 / tally.reports() as f64;
        (tally.reports() > 0).then_some(signal / self.width() as f64)
    }
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
