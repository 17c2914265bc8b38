//! Privacy amplification by shuffling: the loss of a bit that is seen only among others.
//!
//! A device's private bit is 1 with a probability from t to 1 - t, whatever the reward, with
//! `t = t0/2^64` of the channel's [`Floor`]. A relay collects the bits of B people, permutes them
//! and hands them on. Whoever sees the result, and not who sent what, sees the number of ones
//! among B and nothing else. This module has the exact δ of that number.
//!
//! # The certificate
//! Neighbours differ in the reward of one person. Let θ be the probabilities of a one for the B - 1
//! others, N their number of ones, and a and b the probabilities of a one for that person's two
//! rewards. δ(ε) is the hockey-stick divergence between the two numbers of ones, at its largest
//! over θ, a and b in [t, 1 - t]. The divergence is jointly convex, and each of the probabilities
//! enters linearly, so it is largest where all are t or 1 - t. Randomized response is the worst
//! channel, and rewards at the ends of the range are the worst rewards. For a = b it is 0.
//! Exchanging zeros and ones turns a = t, b = 1 - t into the opposite, so with k of the others at 1
//! - t
//!
//! δ(ε) = max over k of Σ max(0, P(N + own = s | a = 1 - t) - e^ε P(N + own = s | b = t)) over s
//!
//! covers both directions. With f the probabilities of N, α = 1 - t - e^ε t and
//! β = e^ε (1 - t) - t, the difference at s is α f(s - 1) - β f(s). N is a sum of independent bits,
//! so f is log-concave and the differences are positive from some s = m + 1 on, and
//!
//! δ(ε) = max over k and m of α P(N = m) - (e^ε - 1) P(N > m), since β - α = e^ε - 1.
//!
//! # The largest k
//! The variance of N is the same for all k, so all are nearly equally bad and the worst one depends
//! on how N's mean lies between whole numbers. Every k is covered. A range of k from i to j is
//! bounded by the divergence with only what all of them share: i others at 1 - t and B - 1 - j at
//! t. The reason is that adding independent bits afterwards is post-processing. Ranges whose bound
//! is too large are split in two, down to single k.
//!
//! # Collusion
//! The observer knows the bits of people who collude, and can subtract them. All functions here
//! take the number of *honest* reports: B less the assumed number of colluders.
//!
//! # Several reports of one person
//! In different batches their guarantees compose ([`crate::accounting::guarantee`]). In one batch
//! they don't: m reports of one person are a group, and δ at m times ε is far above m times δ. A
//! [`Shuffling::of_group`] has m of one's own among B - m others, and is as exact:
//!
//! - Neighbours differ in all m. As above, the worst probabilities are t and 1 - t. Own reports
//!   whose two rewards agree count as others. A pair of own reports, one from t to 1 - t and one
//!   back, changes nothing. So a group has j <= m own reports that all go from t to 1 - t, and j =
//!   m is the worst. Let p and q be the numbers of ones with j of 1 - t and of t. Ones of p are
//!   likelier than those of q in the order of likelihood ratios (sums of independent bits are
//!   log-concave), so the divergence is P(p > c) - e^ε P(q > c) for some c. If one more of the
//!   others, at 1 - t in both, becomes one's own, q gets smaller and p stays; if it is at t, p gets
//!   larger and q stays.
//! - With `g_i = P(own >= i | 1 - t) - e^ε P(own >= i | t)` and N the ones among the B - m others, the
//!   divergence is the largest over c of `Σ g_i P(N = c + 1 - i) - (e^ε - 1) P(N > c)` over i from 1 to
//!   m, by summation by parts. For m = 1 that is the formula above.
//! - One more report of the same person costs at most the local ε, and no δ: change the m others
//!   first, and then this one.

use std::collections::BTreeMap;
use std::f64::consts::LN_2;

use thiserror::Error;

use crate::accounting::delta::Delta;
use crate::accounting::guarantee::Guarantee;
use crate::accounting::loss::PrivacyLoss;
use crate::accounting::ones::{Ones, Payoff};
use crate::accounting::rounding::{
    GuardedSum, add_up, after_library, count_up, div_up, exp_up, mul_up, sqrt_up,
};
use crate::channel::Floor;
use crate::epsilon::Epsilon;
use crate::limits::REPORTS_PER_UPLOAD_MAX;

/// The largest number of reports in a batch, that of one upload: 16,384.
pub const REPORTS_MAX: u32 = 16_384;
const _: () = assert!(REPORTS_MAX as usize == REPORTS_PER_UPLOAD_MAX);

/// Probabilities below this fraction of δ are left out of sums, and counted as lost.
const NEGLIGIBLE: f64 = 1.0 / (1_u64 << 56) as f64;

/// The range of what may be left out at either end of a distribution: 2^-60, up to which the
/// error analysis holds, and 2^-900, below which products underflow.
const CUTS: (f64, f64) = (1.0 / (1_u64 << 60) as f64, f64::MIN_POSITIVE * 1e36);

/// A range of k is not split to lower δ by less than this fraction, 2^-36.
const FINE_ENOUGH: f64 = 1.0 / (1_u64 << 36) as f64;

/// A batch of shuffled private bits, one from each honest person.
///
/// ```
/// use bandana_shared::accounting::delta::Delta;
/// use bandana_shared::accounting::shuffling::Shuffling;
/// use bandana_shared::{channel::Floor, epsilon::Epsilon};
/// let shuffled = Shuffling::new(Floor::for_epsilon(Epsilon::new(1.0)?), 1000)?;
/// let central = shuffled.loss(Delta::new(1e-6)?);
/// assert!((0.126..0.127).contains(&central.get()), "{central:?}");
/// assert!(shuffled.delta(central).get() <= 1e-6 * (1.0 + 1e-9));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shuffling {
    floor: Floor,
    reports: u32,
    /// How many of the reports are of the person who is protected.
    own: u32,
}

/// Largest number of reports of one person in a batch that are certified together.
pub const OWN_MAX: u32 = 16;

impl Shuffling {
    /// A batch of `reports` honest reports of a channel with this floor: 1 to [`REPORTS_MAX`].
    ///
    /// # Errors
    /// [`ShufflingError`] for any other number.
    pub fn new(floor: Floor, reports: u32) -> Result<Self, ShufflingError> {
        if (1..=REPORTS_MAX).contains(&reports) {
            Ok(Self { floor, reports, own: 1 })
        } else {
            Err(ShufflingError(reports))
        }
    }

    /// The same batch, with `own` reports of one person, who is protected as a whole. `None` unless
    /// `own` is 1 to [`OWN_MAX`] and at most the number of reports.
    ///
    /// ```
    /// use bandana_shared::accounting::{delta::Delta, loss::PrivacyLoss, shuffling::Shuffling};
    /// use bandana_shared::{channel::Floor, epsilon::Epsilon};
    /// let one = Shuffling::new(Floor::for_epsilon(Epsilon::new(2.0)?), 1000)?;
    /// let ten = one.of_group(10).ok_or("too many")?;
    /// let central = one.loss(Delta::new(1e-6)?).get();
    /// // Basic composition promises 1e-5.
    /// assert!(ten.delta(PrivacyLoss::new(10.0 * central)?).get() > 3.9e-5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_group(self, own: u32) -> Option<Self> {
        (1..=OWN_MAX.min(self.reports)).contains(&own).then_some(Self { own, ..self })
    }

    /// The least δ with which a report is (`loss`, δ)-differentially private, rounded up by at most
    /// a relative 1e-9, or 1e-250 where that is more; 0 from the local loss on.
    ///
    /// # Privacy
    /// Protects the reward of one person against an observer who sees all tallies of full batches
    /// and controls all reports of a batch but the honest ones. Against an observer who sees a
    /// report before it is shuffled, only the local loss protects.
    pub fn delta(self, loss: PrivacyLoss) -> Delta {
        let Some(payoff) = self.payoff(loss) else { return Delta::ZERO };
        // All others at 1 - t are one of the cases, so δ is not below it. It tells what is
        // negligible.
        let mut cut = CUTS.0;
        let near = loop {
            let near = Ones::binomial(self.reports - self.own, self.odds(), cut).mirrored();
            let near = near.advantage(&payoff);
            if cut <= near * NEGLIGIBLE || cut <= CUTS.1 {
                break near;
            }
            cut = (cut * CUTS.0).max(CUTS.1);
        };
        let (mut largest, mut bound) = (near, near);
        self.search(near, |others, is_single| {
            let advantage = others.advantage(&payoff);
            if !is_single && advantage > largest * (1.0 + FINE_ENOUGH) {
                return Verdict::Split;
            }
            bound = bound.max(advantage);
            if is_single {
                largest = largest.max(advantage);
            }
            Verdict::Done
        });
        Delta::at_most(bound)
    }

    /// The least ε with which a report is (ε, `delta`)-differentially private, rounded up by at
    /// most 1e-9, and that of a group by at most a thousandth; never above the local loss.
    pub fn loss(self, delta: Delta) -> PrivacyLoss {
        let (mut needed, mut of_single) = (0.0, 0.0);
        let (local, near) = (self.local_loss(), 1.001);
        self.search(delta.get(), |others, is_single| {
            let fits = |nats: f64| {
                self.payoff(PrivacyLoss::at_most(nats))
                    .is_none_or(|payoff| others.advantage(&payoff) <= delta.get())
            };
            if fits(needed) {
                return Verdict::Done;
            }
            // A bound that is good enough stands for all its k.
            if !is_single && (self.own == 1 || !fits(of_single * near)) {
                return Verdict::Split;
            }
            let (mut low, mut high) =
                (needed, if is_single { local } else { (of_single * near).min(local) });
            // Halves the interval to 2^-50 of the local loss.
            for _ in 0..50 {
                let middle = f64::midpoint(low, high);
                if fits(middle) {
                    high = middle;
                } else {
                    low = middle;
                }
            }
            needed = high;
            if is_single {
                of_single = high;
            }
            if needed >= local { Verdict::Stop } else { Verdict::Done }
        });
        PrivacyLoss::at_most(needed)
    }

    /// Whether a report is shown to have this guarantee.
    pub fn admits(self, central: Guarantee) -> bool {
        let Some(payoff) = self.payoff(central.loss()) else { return true };
        let delta = central.delta().get();
        let mut fits = true;
        self.search(delta, |others, is_single| {
            if others.advantage(&payoff) <= delta {
                return Verdict::Done;
            }
            fits &= !is_single;
            if fits { Verdict::Split } else { Verdict::Stop }
        });
        fits
    }

    /// The loss of all own reports together, if nothing hides them.
    fn local_loss(self) -> f64 {
        mul_up(self.own.into(), self.floor.certified_epsilon())
    }

    /// The payoff of an observer, of which δ is the largest; `None` from the local loss on.
    fn payoff(self, loss: PrivacyLoss) -> Option<Payoff> {
        if loss.get() >= self.local_loss() {
            return None;
        }
        let growth = libm::expm1(loss.get());
        let charge = growth.next_down().next_down().max(0.0);
        let gains = if self.own == 1 {
            // α = (1 - 2t) - t (e^ε - 1). A term is within 4 units: t, the product and `expm1`.
            let alpha = GuardedSum::default()
                .plus(self.floor.contrast())
                .plus(-self.floor.lowest_private_mean() * growth);
            vec![alpha.upper()]
        } else {
            self.gains(growth)
        };
        gains.iter().any(|gain| *gain > 0.0).then_some(Payoff { gains, charge })
    }

    /// For i from 1 on, an upper bound of P(own >= i) at 1 - t, less e^ε times that at t; `growth` is
    /// e^ε - 1.
    ///
    /// A probability of exactly j ones errs by at most 2 m + 4 units: one of t and of 1 - t for each
    /// factor, as many products, and one for the binomial coefficient, which is exact. Their sum adds m.
    /// For m = [`OWN_MAX`] that and `growth` are below 64 units; the guard is 128.
    fn gains(self, growth: f64) -> Vec<f64> {
        const GUARD: f64 = 1.0 / (1_u64 << 46) as f64;
        let (low, high) = (self.floor.lowest_private_mean(), self.highest_private_mean());
        let power = |base: f64, times: u32| (0..times).fold(1.0, |power, _| power * base);
        let (mut likelier, mut less) = (0.0, 0.0);
        let mut choices = 1_u64;
        let mut gains: Vec<f64> = (1..=self.own)
            .rev()
            .map(|ones| {
                let zeros = self.own - ones;
                likelier += choices as f64 * power(high, ones) * power(low, zeros);
                less += choices as f64 * power(low, ones) * power(high, zeros);
                choices = choices * u64::from(ones) / u64::from(zeros + 1);
                let value = likelier - less - growth * less;
                (value + (likelier + less + growth * less) * GUARD).next_up().min(1.0)
            })
            .collect();
        gains.reverse();
        gains
    }

    /// 1 - t, within a unit.
    fn highest_private_mean(self) -> f64 {
        0_u64.wrapping_sub(self.floor.get()) as f64 / 2.0_f64.powi(64)
    }

    /// t/(1 - t), within 3 units of 2^-53: two conversions and a quotient.
    fn odds(self) -> f64 {
        self.floor.get() as f64 / 0_u64.wrapping_sub(self.floor.get()) as f64
    }

    /// Looks at the others of all k, from the largest on. `judge` gets what a range of k has in
    /// common, and whether the range is a single k. What is far below `delta` is left out.
    fn search(self, delta: f64, judge: impl FnMut(&Ones, bool) -> Verdict) {
        let cut = (delta * NEGLIGIBLE).clamp(CUTS.1, CUTS.0);
        let mut search = Search { odds: self.odds(), cut, low: BTreeMap::new(), judge };
        search.visit(&Ones::none(), self.reports - self.own);
    }
}

/// What becomes of a range of k.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// Its bound is good enough, or it is a single k.
    Done,
    /// Its halves are looked at.
    Split,
    /// Nothing more is looked at.
    Stop,
}

struct Search<J> {
    odds: f64,
    cut: f64,
    /// The ones among so many bits at t.
    low: BTreeMap<u32, Ones>,
    judge: J,
}

impl<J: FnMut(&Ones, bool) -> Verdict> Search<J> {
    /// Looks at a range: `shared` are the others that all its k have in common, `open` the number
    /// of those that are at t for the smallest k and at 1 - t for the largest. Returns whether to
    /// go on.
    fn visit(&mut self, shared: &Ones, open: u32) -> bool {
        match (self.judge)(shared, open == 0) {
            Verdict::Stop => false,
            Verdict::Done => true,
            Verdict::Split if open == 0 => true,
            Verdict::Split => {
                let high = open.div_ceil(2);
                let low = open + 1 - high;
                let upper = shared.beside(&self.low(high).mirrored(), self.cut);
                if !self.visit(&upper, open - high) {
                    return false;
                }
                drop(upper);
                let lower = shared.beside(&self.low(low), self.cut);
                self.visit(&lower, open - low)
            }
        }
    }

    /// The ones among this many bits at t.
    fn low(&mut self, bits: u32) -> Ones {
        let (odds, cut) = (self.odds, self.cut);
        self.low.entry(bits).or_insert_with(|| Ones::binomial(bits, odds, cut)).clone()
    }
}

/// The greatest local ε at which bits, shuffled in a batch of `reports` honest ones, are shown to
/// have the `central` guarantee. The channel has the floor of [`Floor::for_epsilon`] for that ε.
/// The result is rounded down by at most 1e-12. `None` if `central` has a loss below
/// [`Epsilon::MIN`] that no channel meets.
///
/// # Errors
/// [`ShufflingError`] for a number of reports out of 1 to [`REPORTS_MAX`].
///
/// ```
/// use bandana_shared::accounting::{delta::Delta, guarantee::Guarantee, loss::PrivacyLoss};
/// use bandana_shared::accounting::shuffling;
/// let central = Guarantee::new(PrivacyLoss::new(0.2)?, Delta::new(1e-6)?);
/// let local = shuffling::largest_local_loss(1000, central)?.unwrap();
/// assert!((1.43..1.44).contains(&local.get()), "{local:?}");
/// // Alone, a report has no more than its own noise.
/// let alone = shuffling::largest_local_loss(1, central)?.unwrap();
/// assert!((alone.get() - 0.2).abs() < 1e-5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn largest_local_loss(
    reports: u32,
    central: Guarantee,
) -> Result<Option<Epsilon>, ShufflingError> {
    let fits = |nats: f64| -> Result<Option<Epsilon>, ShufflingError> {
        let Ok(local) = Epsilon::new(nats) else { return Ok(None) };
        let shuffled = Shuffling::new(Floor::for_epsilon(local), reports)?;
        Ok(shuffled.admits(central).then_some(local))
    };
    // A local loss that is already low enough always fits.
    let mut low = central.loss().get().clamp(Epsilon::MIN, Epsilon::MAX);
    let Some(mut largest) = fits(low)? else { return Ok(None) };
    if let Some(local) = fits(Epsilon::MAX)? {
        return Ok(Some(local));
    }
    let mut high = Epsilon::MAX;
    // Most are refused by the first k looked at, so that the interval is narrowed from above.
    for _ in 0..46 {
        let middle = f64::midpoint(low, high);
        if let Some(local) = fits(middle)? {
            (low, largest) = (middle, local);
        } else {
            high = middle;
        }
    }
    Ok(Some(largest))
}

/// The closed form of Feldman, McMillan and Talwar, "Hiding among the clones", 2021, theorem 3.1,
/// for any channel with local loss ε0, rounded up; for comparison with [`Shuffling::loss`]:
///
/// ln(1 + (e^ε0 - 1)/(e^ε0 + 1) (8 sqrt(e^ε0 ln(4/δ)/n) + 8 e^ε0/n))
///
/// `None` unless `ε0 <= ln(n/(16 ln(2/δ)))`, since it does not hold otherwise.
pub fn clones(local: Epsilon, reports: u32, delta: Delta) -> Option<PrivacyLoss> {
    let (n, growth) = (f64::from(reports), exp_up(local.get()));
    if mul_up(mul_up(16.0, growth), log_multiple(1.0, delta)) > n {
        return None;
    }
    let excess = libm::expm1(local.get());
    let contrast = div_up(after_library(excess), (2.0 + excess.next_down()).next_down());
    let spread = sqrt_up(div_up(mul_up(growth, log_multiple(2.0, delta)), n));
    let sum = mul_up(8.0, add_up(spread, div_up(growth, n)));
    Some(PrivacyLoss::at_most(after_library(libm::log1p(mul_up(contrast, sum)))))
}

/// The closed form of Feldman, McMillan and Talwar, "Stronger privacy amplification by shuffling for
/// Rényi and approximate differential privacy", 2023, theorem 3.2, rounded up. The proof covers
/// randomized response of two values (see the paper's erratum), and so, by the convexity above, every
/// channel of one bit:
///
/// ln(1 + (e^ε0 - 1) (4 sqrt(2 ln(4/δ)/((e^ε0 + 1) n)) + 4/n))
///
/// `None` unless `ε0 <= ln(n/(8 ln(2/δ)) - 1)`, since it does not hold otherwise.
pub fn stronger_clones(local: Epsilon, reports: u32, delta: Delta) -> Option<PrivacyLoss> {
    let (n, growth) = (count_up(reports.into()), exp_up(local.get()));
    if mul_up(mul_up(8.0, add_up(growth, 1.0)), log_multiple(1.0, delta)) > n {
        return None;
    }
    let excess = libm::expm1(local.get());
    let divisor = ((2.0 + excess.next_down()).next_down() * n).next_down();
    let spread = sqrt_up(div_up(mul_up(2.0, log_multiple(2.0, delta)), divisor));
    let sum = mul_up(4.0, add_up(spread, div_up(1.0, n)));
    Some(PrivacyLoss::at_most(after_library(libm::log1p(mul_up(after_library(excess), sum)))))
}

/// ln(2^`power`/δ), rounded up.
fn log_multiple(power: f64, delta: Delta) -> f64 {
    add_up(mul_up(power, LN_2.next_up()), delta.log_reciprocal())
}

/// A number of reports for which there is no certificate.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("the batch has {0} honest reports; it must have 1 to {REPORTS_MAX}")]
pub struct ShufflingError(u32);

crate::debug_says!(ShufflingError);
