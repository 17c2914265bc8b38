//! The mixture over fixed log-odds: a martingale that adapts to the variance of reports, under drift.
//!
//! For a log-odds ratio l and reports X in [0, 1] with conditional means `q_i`, the product of
//! `exp(l X_i)/(1 + q_i (e^l - 1))` is a supermartingale, since `exp(l x) <= 1 + x (e^l - 1)` on [0, 1].
//! The logarithm of the denominator is concave in q. So `exp(l S - n ln(1 + q (e^l - 1)))` is at
//! most that product at q, the running mean of the `q_i`, and exceeds 1/α with probability at most α
//! (Ville), however users drift and whoever decides which arm is played. A mixture over fixed l of both
//! signs keeps that. No variance is assumed: at a q near 0 the normaliser is small by itself.
//!
//! See `docs/inference.md` for who proved what, and for the cost.

use super::atoms::Mixture;
use super::boundary;
use super::count::Count;
use crate::alphabet::{Alphabet, Symbol};
use crate::channel::{Channel, Floor, KaryChannel, TWO_POW_64};
use crate::interval::{ErrorLevel, Interval};
use crate::tally::Tally;

/// The anytime-valid interval of the mixture over fixed log-odds.
///
/// ```
/// use bandana_shared::{confidence::LogOddsMixture, interval::ErrorLevel, tally::Tally};
/// let sequence = LogOddsMixture::new(ErrorLevel::FIVE_PERCENT);
/// let even = sequence.private_mean(Tally::new(10_000, 5_000)?);
/// let rare = sequence.private_mean(Tally::new(10_000, 100)?);
/// assert!(even.contains(0.5) && even.width() < 0.04);
/// assert!(rare.contains(0.01) && rare.width() < 0.009);
/// # Ok::<(), bandana_shared::tally::TallyError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LogOddsMixture {
    log_threshold: f64,
}

impl LogOddsMixture {
    /// A sequence of level `alpha`.
    pub fn new(alpha: ErrorLevel) -> Self {
        Self { log_threshold: -libm::log(alpha.get()) }
    }

    /// The interval for the mean of the private means, within 0..=1.
    pub fn private_mean(&self, tally: Tally) -> Interval {
        self.scaled_mean(Count::of(&tally, Alphabet::BITS))
    }

    /// The interval for the mean of reports that are scaled to 0..=1.
    pub fn scaled_mean(&self, count: Count) -> Interval {
        if count.reports <= 0.0 {
            return Interval::between(0.0, 1.0);
        }
        let mixture = Mixture::of_arm(count);
        let inside = |q: f64| mixture.value((q, 0.5)) < self.log_threshold;
        let mean = count.mean();
        Interval::between(boundary(&inside, mean, 0.0), boundary(&inside, mean, 1.0))
    }

    /// The interval for the mean of g(r) among the reports; not cut to [0, 1].
    pub fn mean(&self, floor: Floor, tally: Tally) -> Interval {
        self.private_mean(tally).debiased(floor)
    }

    /// [`Self::mean`] for a channel with any symbols.
    pub fn mean_through(&self, channel: Channel, tally: &Tally) -> Interval {
        let scaled = self.scaled_mean(Count::of(tally, channel.alphabet()));
        Interval::between(channel.debiased(scaled.low()), channel.debiased(scaled.high()))
    }

    /// The interval for the share of a symbol among the true symbols of the reports. Valid for each
    /// symbol separately; not cut to [0, 1].
    pub fn frequency(&self, channel: KaryChannel, tally: &Tally, symbol: Symbol) -> Interval {
        let said = Count { reports: tally.reports() as f64, sum: tally.count(symbol) as f64 };
        let scaled = self.scaled_mean(said);
        let noise = channel.share() as f64 / TWO_POW_64;
        let debiased = |share: f64| (share - noise) / channel.contrast();
        Interval::between(debiased(scaled.low()), debiased(scaled.high()))
    }
}
