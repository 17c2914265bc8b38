//! Anytime-valid confidence sequences.
//!
//! A learner decides how often an arm is played, and people look at the figures at any time. An
//! interval for a fixed sample size is not valid then. A confidence sequence is valid: with
//! probability at least 1 - α it covers the mean at every number of reports at once.
//!
//! The sequence covers the mean of the private means of *the reports received*. Users may differ
//! and drift. The only assumption is that each bit, given all earlier bits, is 1 with some
//! probability. It is valid for undiscounted tallies only.

mod atoms;
mod contrast;
mod count;
mod grid;
mod log_odds;
mod strata;
mod verdict;

use crate::alphabet::Symbol;
use crate::channel::{Channel, Floor, KaryChannel};
use crate::interval::{ErrorLevel, Interval};
use crate::tally::Tally;

pub use count::Count;
pub use log_odds::LogOddsMixture;
pub use strata::Strata;
pub use verdict::{
    Comparison, Difference, Lead, Mean, arm_share, best_active_arm, best_arm, estimate_over_all,
    mean_over_all,
};

/// Variance proxy of one report: a variable in [0, 1], such as a bit or a symbol that is
/// scaled to it, is sub-Gaussian with σ = 1/2 (Hoeffding's lemma).
const VARIANCE_PROXY: f64 = 0.25;

/// The two-sided normal mixture of Robbins, as in Howard, Ramdas, McAuliffe and
/// Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences"
/// (2021), equation 14.
///
/// The martingale `sqrt(ρ/(V+ρ)) exp(S²/(2(V+ρ)))`, with S the sum of the
/// deviations and V = n/4, exceeds 1/α with probability at most α (Ville).
///
/// ```
/// use bandana_shared::{confidence::NormalMixture, interval::ErrorLevel, tally::Tally};
/// let sequence = NormalMixture::new(ErrorLevel::FIVE_PERCENT);
/// let interval = sequence.private_mean(Tally::new(10_000, 6_000)?);
/// assert!(interval.contains(0.6) && interval.width() < 0.04);
/// # Ok::<(), bandana_shared::tally::TallyError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NormalMixture {
    alpha: f64,
    rho: f64,
}

impl NormalMixture {
    /// The number of reports at which the default sequence is tightest.
    pub const TUNED_FOR: f64 = 1000.0;

    /// A sequence of level `alpha`, tightest at [`Self::TUNED_FOR`] reports. At a tenth of that
    /// number it is about a quarter wider than the optimal sequence there, and at twenty times that
    /// number about a tenth wider.
    pub fn new(alpha: ErrorLevel) -> Self {
        Self::tuned_for(alpha, Self::TUNED_FOR)
    }

    /// A sequence of level `alpha`, tightest at `reports` reports.
    pub fn tuned_for(alpha: ErrorLevel, reports: f64) -> Self {
        let alpha = alpha.get();
        // Howard et al. 2021, equation 15, with the branch W_{-1} of Lambert's
        // function replaced by its usual approximation; any ρ is valid.
        let log = -2.0 * libm::log(alpha);
        let rho = VARIANCE_PROXY * reports / (log + libm::log1p(log));
        Self { alpha, rho }
    }

    /// The interval for the mean of the private means. It is unbounded without reports, and it is
    /// not cut to [0, 1].
    pub fn private_mean(&self, tally: Tally) -> Interval {
        tally.private_mean().map_or(Interval::UNBOUNDED, |mean| {
            let radius = self.radius(tally.reports() as f64);
            Interval::between(mean - radius, mean + radius)
        })
    }

    /// Half the width of the interval at `n` reports, at least 1.
    fn radius(&self, n: f64) -> f64 {
        let v = VARIANCE_PROXY * n + self.rho;
        (v * libm::log(v / (self.rho * self.alpha * self.alpha))).sqrt() / n
    }

    /// The interval for the mean of g(r) among the reports. It is unbounded without reports, and it
    /// is not cut to [0, 1].
    pub fn mean(&self, floor: Floor, tally: Tally) -> Interval {
        self.private_mean(tally).debiased(floor)
    }

    /// [`Self::mean`] for a channel with any symbols.
    pub fn mean_through(&self, channel: Channel, tally: &Tally) -> Interval {
        match channel {
            Channel::Bit(floor) => self.mean(floor, *tally),
            Channel::Kary(kary) => self.around(channel.debiased_mean(tally), kary, tally),
        }
    }

    /// The interval for the share of a symbol among the true symbols of the reports. Whether a
    /// report has the symbol is a bit with mean `t/2^64` plus `1 - k t/2^64` times that share. The
    /// interval is valid for each symbol separately. It is unbounded without reports, and not cut
    /// to [0, 1].
    pub fn frequency(&self, channel: KaryChannel, tally: &Tally, symbol: Symbol) -> Interval {
        self.around(channel.frequency(tally, symbol), channel, tally)
    }

    fn around(&self, centre: Option<f64>, channel: KaryChannel, tally: &Tally) -> Interval {
        centre.map_or(Interval::UNBOUNDED, |centre| {
            let radius = self.radius(tally.reports() as f64) / channel.contrast();
            Interval::between(centre - radius, centre + radius)
        })
    }
}

/// The beta-binomial mixture: `{q : B(ones+a, n-ones+b) / (B(a,b) q^ones
/// (1-q)^(n-ones)) < 1/α}`, with the uniform prior a = b = 1.
///
/// For independent bits with one common mean only: the mixture adapts to their variance, and loses
/// its level when users differ or drift.
#[derive(Clone, Copy, Debug)]
pub struct BetaBinomialMixture {
    log_threshold: f64,
}

impl BetaBinomialMixture {
    /// A sequence of level `alpha`.
    pub fn new(alpha: ErrorLevel) -> Self {
        Self { log_threshold: -libm::log(alpha.get()) }
    }

    /// The interval for the private mean, within 0..=1.
    pub fn private_mean(&self, tally: Tally) -> Interval {
        if tally.reports() == 0 {
            return Interval::between(0.0, 1.0);
        }
        // In terms of the rarer bit, whose share a floating-point number represents precisely
        // however small it is.
        let few = tally.ones().min(tally.zeros()) as f64;
        let many = tally.ones().max(tally.zeros()) as f64;
        let share = few / tally.reports() as f64;
        // The ratio of the mixture to the likelihood at q is the ratio of the mixture to the
        // greatest likelihood, times the ratio of the latter to the likelihood at q. Each factor
        // keeps its precision up to the largest tallies, where the logarithm of the mixture alone
        // would be off by thousands.
        let at_best = log_mixture_at_best(few, many);
        let inside = |q: f64| {
            let gap = share - q;
            // Where gap/q is close to -1, share/q is the more precise of the two.
            let log_few = if 2.0 * share < q { libm::log(share / q) } else { libm::log1p(gap / q) };
            let log_many = libm::log1p(-gap / (1.0 - q));
            let divergence = weighted(few, log_few) + weighted(many, log_many);
            at_best + divergence < self.log_threshold
        };
        let (low, high) = (boundary(&inside, share, 0.0), boundary(&inside, share, 1.0));
        if tally.ones() <= tally.zeros() {
            Interval::between(low, high)
        } else {
            Interval::between(1.0 - high, 1.0 - low)
        }
    }

    /// The interval for the mean of g(r), not cut to [0, 1].
    pub fn mean(&self, floor: Floor, tally: Tally) -> Interval {
        self.private_mean(tally).debiased(floor)
    }
}

/// `ln (B(few+1, many+1) / (p^few (1-p)^many))` at `p = few/(few+many)`, where
/// the likelihood is greatest.
///
/// `ln k! = k ln k - k + c(k)` for each of the three factorials in the beta
/// function; all but the corrections `c` cancels.
fn log_mixture_at_best(few: f64, many: f64) -> f64 {
    let total = few + many;
    stirling_correction(few) + stirling_correction(many)
        - stirling_correction(total)
        - libm::log1p(total)
}

/// `ln k! - (k ln k - k)` for a whole number `k`, the middle term 0 at `k = 0`.
fn stirling_correction(k: f64) -> f64 {
    if k < 1.0 {
        return 0.0;
    }
    if k < 32.0 {
        return libm::lgamma(k + 1.0) - (k * libm::log(k) - k);
    }
    // Stirling's series; the next term is below 2^-54 from 32 on.
    let square = k * k;
    let tail = (1.0 / 12.0
        - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square)
        / k;
    0.5 * libm::log(2.0 * std::f64::consts::PI * k) + tail
}

/// `count x`, and 0 for a count of 0 whatever `x`.
fn weighted(count: f64, x: f64) -> f64 {
    if count > 0.0 { count * x } else { 0.0 }
}

/// The point between `inside` and `outside` where the convex set `contains`
/// ends, rounded outwards; `outside` itself when it belongs to the set.
fn boundary(contains: &impl Fn(f64) -> bool, inside: f64, outside: f64) -> f64 {
    if contains(outside) {
        return outside;
    }
    let halve = |(inside, outside): (f64, f64), _| {
        let middle = f64::midpoint(inside, outside);
        if contains(middle) { (middle, outside) } else { (inside, middle) }
    };
    (0..64).fold((inside, outside), halve).1
}
