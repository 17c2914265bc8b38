//! Anytime-valid confidence sequences.
//!
//! A learner decides how often an arm is played, and people look at the figures at any time. An
//! interval for a fixed sample size is not valid then. A confidence sequence is: with probability
//! at least 1 - α it covers at every number of reports at once.
//!
//! It covers the mean of the private means of *the reports received*. Users may differ and drift.
//! The only assumption is that each bit, given all earlier bits, is 1 with some probability. Valid
//! for undiscounted tallies only.

use crate::alphabet::{Alphabet, Symbol};
use crate::channel::{Channel, Floor, KaryChannel};
use crate::interval::{ErrorLevel, Interval};
use crate::sample::Sample;
use crate::tally::Tally;

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

    /// The interval for the mean of the private means. Without reports it is
    /// unbounded; it is not cut to [0, 1].
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

    /// The interval for the mean of g(r) among the reports. Unbounded without
    /// reports; not cut to [0, 1].
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

    /// The interval for the share of a symbol among the true symbols of the reports. The event that
    /// a report has the symbol is a bit with mean `t/2^64` plus `1 - k t/2^64` times that share.
    /// Valid for each symbol separately; unbounded without reports, not cut to [0, 1].
    pub fn frequency(&self, channel: KaryChannel, tally: &Tally, symbol: Symbol) -> Interval {
        self.around(channel.frequency(tally, symbol), channel, tally)
    }

    fn around(&self, centre: Option<f64>, channel: KaryChannel, tally: &Tally) -> Interval {
        centre.map_or(Interval::UNBOUNDED, |centre| {
            let radius = self.radius(tally.reports() as f64) / channel.contrast();
            Interval::between(centre - radius, centre + radius)
        })
    }

    /// `ln` of the mixture martingale's normalisation, at most 0.
    fn log_normalisation(&self, n: f64) -> f64 {
        0.5 * libm::log(self.rho / (VARIANCE_PROXY * n + self.rho))
    }

    /// Evidence, as the logarithm of a likelihood ratio, that the mean of arm
    /// `a` exceeds that of arm `b`.
    ///
    /// The evidence is the product of both arms' martingales, minimised over a common mean. Reports
    /// of the two arms may be interleaved in any adaptive order.
    fn evidence_above(&self, a: Option<Sample>, b: Option<Sample>) -> f64 {
        let (Some(a), Some(b)) = (a, b) else {
            return f64::NEG_INFINITY;
        };
        let difference = a.mean() - b.mean();
        if difference <= 0.0 {
            return f64::NEG_INFINITY;
        }
        let distance = difference.powi(2) * self.joint_precision(a, b) / 2.0;
        distance + self.log_normalisation(a.reports()) + self.log_normalisation(b.reports())
    }

    /// The precision of the difference of two means, in the mixtures' exponent.
    fn joint_precision(&self, a: Sample, b: Sample) -> f64 {
        let precision = |n: f64| n * n / (VARIANCE_PROXY * n + self.rho);
        let (p_a, p_b) = (precision(a.reports()), precision(b.reports()));
        p_a * p_b / (p_a + p_b)
    }

    /// The interval for the difference of two arms' means, each scaled to 0..=1: the differences that
    /// the product of both arms' martingales, minimised over means that differ so, does not reject.
    /// That product is a martingale at the true means, so the interval holds at all times at once. It
    /// is above 0 where the verdict of this pair is reached.
    fn difference(&self, a: Sample, b: Sample) -> Interval {
        let logs = self.log_normalisation(a.reports()) + self.log_normalisation(b.reports());
        let needed = -libm::log(self.alpha) - logs;
        let radius = (2.0 * needed / self.joint_precision(a, b)).sqrt();
        let difference = a.mean() - b.mean();
        Interval::between(difference - radius, difference + radius)
    }
}

/// The arm whose mean among its reports exceeds that of every rival, if that is certain enough.
/// This stopping rule is wrong with probability at most α, at whatever time and however often it is
/// evaluated.
///
/// `tallies` are the tallies of bits of the arms to compare, all present from the start. `None`: no
/// verdict yet.
///
/// A false verdict names an arm *i* that some arm *j* equals or exceeds, and must pass the test of
/// that pair. These pairs can change as users drift, so each pair is tested at its part of α. The
/// martingale of a pair is the same for both of its orders.
pub fn best_arm(tallies: &[Tally], alpha: ErrorLevel) -> Option<usize> {
    best_active_arm(tallies, &vec![true; tallies.len()], tallies.len(), alpha)
}

/// [`best_arm`] among the arms that are `active`, one flag for each tally. The first `initial` arms
/// were present from the start; the others have been added since.
///
/// The part of α of a pair is fixed before its first report and stays, so a verdict holds whichever
/// arms are retired or added, and whenever: no test starts again. Three quarters are divided
/// equally among the pairs of the first arms, and the rest is for added arms. That takes 2% to 5%
/// more reports than without the possibility of adding arms. Parts that do not depend on `initial`
/// would take 20% or more.
pub fn best_active_arm(
    tallies: &[Tally],
    active: &[bool],
    initial: usize,
    alpha: ErrorLevel,
) -> Option<usize> {
    best_among(tallies, Alphabet::BITS, active, initial, alpha)
}

/// [`best_active_arm`] for reports with any symbols, by their means.
pub fn best_among(
    tallies: &[Tally],
    alphabet: Alphabet,
    active: &[bool],
    initial: usize,
    alpha: ErrorLevel,
) -> Option<usize> {
    let samples: Vec<Option<Sample>> =
        tallies.iter().map(|tally| Sample::of(tally, alphabet)).collect();
    let contenders = || samples.iter().enumerate().zip(active).filter(|(_, active)| **active);
    let mean = |sample: &Option<Sample>| sample.map_or(f64::NEG_INFINITY, Sample::mean);
    let ((best, leader), _) =
        contenders().max_by(|((_, a), _), ((_, b), _)| mean(a).total_cmp(&mean(b)))?;
    let ahead = |((rival, sample), _): ((usize, &Option<Sample>), &bool)| {
        let alpha = alpha.part(pair_share(initial, best.max(rival)));
        let sequence = NormalMixture::new(alpha);
        rival == best || sequence.evidence_above(*leader, *sample) >= -libm::log(alpha.get())
    };
    contenders().all(ahead).then_some(best)
}

/// The lead of an arm over the rival that is most in the way of a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lead {
    /// The arm with the largest mean of its reports.
    pub leader: usize,
    /// Of the others, the one whose distance from it has the lowest bound.
    pub rival: usize,
    /// The difference of the two means, each scaled to 0..=1, before it is debiased.
    pub difference: f64,
    /// An interval for it.
    pub interval: Interval,
}

/// The lead among the active arms, as [`best_among`] compares them. `None` unless two of them have
/// reports.
///
/// With probability at least 1 - α the intervals of all pairs hold, at whatever times and whichever
/// pairs are looked at. [`best_among`] has a verdict exactly when the interval is above 0 and every
/// active arm has reports.
pub fn lead_among(
    tallies: &[Tally],
    alphabet: Alphabet,
    active: &[bool],
    initial: usize,
    alpha: ErrorLevel,
) -> Option<Lead> {
    let samples = samples(tallies, alphabet, active);
    let reported =
        || samples.iter().enumerate().filter_map(|(arm, sample)| Some((arm, (*sample)?)));
    let (leader, best) = reported().max_by(|(_, a), (_, b)| a.mean().total_cmp(&b.mean()))?;
    let against = |(rival, sample): (usize, Sample)| {
        let sequence = NormalMixture::new(alpha.part(pair_share(initial, leader.max(rival))));
        let (difference, interval) =
            (best.mean() - sample.mean(), sequence.difference(best, sample));
        Lead { leader, rival, difference, interval }
    };
    let leads = reported().filter(|(rival, _)| *rival != leader).map(against);
    leads.min_by(|a, b| a.interval.low().total_cmp(&b.interval.low()))
}

/// The difference between an arm and the one that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The arm.
    pub arm: usize,
    /// Its mean less that of the other, each scaled to 0..=1, before it is debiased.
    pub difference: f64,
    /// An interval for it.
    pub interval: Interval,
}

/// The differences of all other active arms with reports from the arm `control`, in their order;
/// none if that arm has no reports.
///
/// The intervals are those of [`lead_among`]: each pair of arms has its own part of α, so with
/// probability at least 1 - α those of all pairs hold, at whatever times and with whichever arm as
/// the control, also one that is chosen after a look at the reports.
pub fn differences_from(
    control: usize,
    tallies: &[Tally],
    alphabet: Alphabet,
    active: &[bool],
    initial: usize,
    alpha: ErrorLevel,
) -> Vec<Difference> {
    let base = tallies.get(control).and_then(|tally| Sample::of(tally, alphabet));
    let Some(base) = base else { return Vec::new() };
    let samples = samples(tallies, alphabet, active);
    let reported = samples.iter().enumerate().filter_map(|(arm, sample)| Some((arm, (*sample)?)));
    let others = reported.filter(|(arm, _)| *arm != control);
    let against = |(arm, sample): (usize, Sample)| {
        let sequence = NormalMixture::new(alpha.part(pair_share(initial, control.max(arm))));
        let difference = sample.mean() - base.mean();
        Difference { arm, difference, interval: sequence.difference(sample, base) }
    };
    others.map(against).collect()
}

/// Most further reports that [`reports_left`] counts.
const REPORTS_LEFT_MAX: f64 = 1e15;

/// Further reports of all arms until [`best_among`] has a verdict, if means stay as they are and each arm
/// has its share of `shares`, to within a hundredth. 0 with a verdict; `None` if there will be none.
pub fn reports_left(
    tallies: &[Tally],
    alphabet: Alphabet,
    (active, shares): (&[bool], &[f64]),
    initial: usize,
    alpha: ErrorLevel,
) -> Option<u64> {
    let samples = samples(tallies, alphabet, active);
    let now: Vec<(usize, Sample)> = (samples.iter().enumerate().zip(active))
        .filter(|(_, active)| **active)
        .map(|((arm, sample), _)| sample.map(|sample| (arm, sample)))
        .collect::<Option<_>>()?;
    let (leader, best) = *now.iter().max_by(|(_, a), (_, b)| a.mean().total_cmp(&b.mean()))?;
    first_certain(|more| {
        let grown = |arm: usize, sample: Sample| {
            let share = shares.get(arm).copied().unwrap_or(0.0);
            Some(sample.grown_to(sample.reports() + more * share))
        };
        now.iter().filter(|(rival, _)| *rival != leader).all(|(rival, sample)| {
            let alpha = alpha.part(pair_share(initial, leader.max(*rival)));
            let (best, sample) = (grown(leader, best), grown(*rival, *sample));
            let evidence = NormalMixture::new(alpha).evidence_above(best, sample);
            evidence >= -libm::log(alpha.get())
        })
    })
}

/// The samples of the active arms; `None` for the others, and without reports.
fn samples(tallies: &[Tally], alphabet: Alphabet, active: &[bool]) -> Vec<Option<Sample>> {
    let of = |(tally, active): (&Tally, &bool)| Sample::of(tally, alphabet).filter(|_| *active);
    tallies.iter().zip(active).map(of).collect()
}

/// The least number for which `is_certain` holds, to within a hundredth.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number from 0 to 1e15"
)]
fn first_certain(is_certain: impl Fn(f64) -> bool) -> Option<u64> {
    if is_certain(0.0) {
        return Some(0);
    }
    let mut high = 1.0;
    while !is_certain(high) {
        high *= 2.0;
        if high > REPORTS_LEFT_MAX {
            return None;
        }
    }
    let mut low = high / 2.0;
    while high - low > (0.01 * high).max(1.0) {
        let middle = f64::midpoint(low, high);
        if is_certain(middle) { high = middle } else { low = middle }
    }
    Some(high.ceil() as u64)
}

/// The total share of α of the pairs of the first arms.
const INITIAL_SHARE: f64 = 0.75;

/// The share of α for a pair of arms, of which `later` is the larger index. Over all possible pairs
/// the shares sum to at most 1: of the a-th added arm, all pairs with earlier arms have
/// `1/(a (a+1))` of the share of added arms.
fn pair_share(initial: usize, later: usize) -> f64 {
    if later < initial {
        let pairs = initial as f64 * (initial as f64 - 1.0) / 2.0;
        return INITIAL_SHARE / pairs.max(1.0);
    }
    let added = (later - initial + 1) as f64;
    (1.0 - INITIAL_SHARE) / (added * (added + 1.0) * later.max(1) as f64)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ARMS_MAX;

    #[test]
    fn the_shares_of_all_pairs_are_no_more_than_the_whole() {
        for initial in [1, 2, 3, 20, ARMS_MAX - 1, ARMS_MAX] {
            let pairs = (0..ARMS_MAX).map(|later| later as f64 * pair_share(initial, later));
            let sum: f64 = pairs.sum();
            assert!(sum <= 1.0 + 1e-12, "{initial}: {sum}");
            let first: f64 = (0..initial).map(|j| j as f64 * pair_share(initial, j)).sum();
            let expected = if initial > 1 { INITIAL_SHARE } else { 0.0 };
            assert!((first - expected).abs() < 1e-9, "{initial}: {first}");
        }
    }
}
