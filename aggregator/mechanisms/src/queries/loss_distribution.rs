//! Distributions of privacy losses, composed numerically and rounded up.
//!
//! The loss of an outcome o is ln(P(o)/Q(o)), for the laws P and Q of two neighbours, and δ(ε) is
//! the mean under P of max(0, 1 - exp(ε - loss)). Losses of independent releases add up, so their
//! distributions are convolved (Sommer, Meiser and Mohammadi, "Privacy loss classes", 2019). A
//! bound by ρ alone holds for the worst distribution of that ρ, which no release has. By its own
//! distribution, Gaussian noise within (1, 10^-6) may cost a sixth more ρ
//! ([`largest_gaussian_rho`]).
//!
//! # Rounding
//! Losses are put on a grid of steps h. A loss of k h + t becomes k h or (k + 1) h, so that both P
//! and Q keep their mass. That spreads the ratio P/Q under Q without moving its mean. δ is a convex
//! function of the ratio, so it does not fall. Nor does that of any composition, since the outcome
//! before is a function of the outcome after and of coins that P and Q share (Blackwell;
//! Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, "Connect the dots", 2022). The error is of
//! order h². Rounding each loss up would have one of order h. Tails below 10^-18 go to the nearest
//! loss above, and at the top to infinity. All terms are positive, and sums are raised by more than
//! the rounding of floats.
//!
//! # Budgets
//! For releases that are fixed beforehand, the composed distribution is exact up to rounding. A
//! data set with a budget of (ε, δ) could keep the number and noise of its debits, and admit
//! another if the δ of all of them is at most its own. ρ also covers noise that is chosen by
//! earlier answers, and this does not. The exception is Gaussian noise, whose ρ may add up in any
//! way below that of one Gaussian release (Smith and Thakurta, "Fully adaptive composition for
//! Gaussian differential privacy", 2022). Discrete noise is not quite Gaussian:
//! [`LossDistribution::discrete_gaussian`] shows the difference.

use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;

use super::QueryError;
use super::price::ConcentratedLoss;

/// More than the relative error of a sum of as many floats as a distribution has.
const RAISED: f64 = 1.0 + 1e-10;

/// Mass that a tail may have to be cut.
const TAIL: f64 = 1e-18;

/// Standard deviations of a Gaussian within which its mass is spread: 10^-19 is beyond.
const REACH: f64 = 9.0;

/// Maximum number of losses of a distribution.
pub const LOSSES_MAX: usize = 1 << 16;

/// Nodes and weights of Gauss and Legendre's rule of five points on -1 to 1.
const NODES: [(f64, f64); 5] = [
    (-0.906_179_845_938_664, 0.236_926_885_056_189_1),
    (-0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (0.0, 0.568_888_888_888_888_9),
    (0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (0.906_179_845_938_664, 0.236_926_885_056_189_1),
];

/// The probability of each privacy loss on a grid, for a pair of neighbours.
///
/// A release has two distributions, one for each of the neighbours as P. You must take δ of both.
/// They are equal for all constructors here except [`Self::of_losses`].
///
/// ```
/// use bandana_mechanisms::queries::loss_distribution::LossDistribution;
/// use bandana_shared::accounting::{delta::Delta, loss::PrivacyLoss};
/// // A hundred releases with Gaussian noise of ρ = 0.0002 each, and a choice by ε = 0.1.
/// let noise = LossDistribution::gaussian(0.0002, 0.001)?.times(100)?;
/// let all = noise.compose(&LossDistribution::pure(0.1, 0.001)?)?;
/// assert!(all.delta(PrivacyLoss::new(1.0)?).get() < 1e-6);
/// assert!(all.loss(Delta::new(1e-6)?).get() < 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LossDistribution {
    step: f64,
    /// The loss of the first mass, in steps.
    lowest: i64,
    masses: Vec<f64>,
    /// The mass of an infinite loss.
    infinite: f64,
}

impl LossDistribution {
    /// The distribution of these losses, each with its probability under P. They must be finite.
    ///
    /// # Errors
    /// [`QueryError::LossGrid`] for a step that is not above 0, no losses, or too many steps.
    pub fn of_losses(losses: &[(f64, f64)], step: f64) -> Result<Self, QueryError> {
        if !(step > 0.0 && step.is_finite()) || losses.iter().any(|(loss, _)| !loss.is_finite()) {
            return Err(QueryError::LossGrid);
        }
        let least = losses.iter().map(|(loss, _)| *loss).fold(f64::INFINITY, f64::min);
        let most = losses.iter().map(|(loss, _)| *loss).fold(f64::NEG_INFINITY, f64::max);
        let steps = (most - least) / step;
        if !(0.0..(LOSSES_MAX - 3) as f64).contains(&steps) || (least / step).abs() > 1e12 {
            return Err(QueryError::LossGrid);
        }
        let lowest = floor(least / step);
        let length = usize::try_from(floor(most / step) - lowest).unwrap_or(0) + 2;
        let mut masses = vec![0.0; length];
        for &(loss, mass) in losses {
            let below = floor(loss / step);
            let past = (loss - below as f64 * step).clamp(0.0, step);
            let stays = mass * (libm::expm1(step - past) / libm::expm1(step));
            let place = usize::try_from(below - lowest).unwrap_or(0);
            // What stays and what rises have the mass of Q together: Q is P exp(-loss).
            for (place, part) in [(place, stays), (place + 1, mass - stays)] {
                if let Some(sum) = masses.get_mut(place) {
                    *sum += part.max(0.0) * RAISED;
                }
            }
        }
        Ok(Self { step, lowest, masses, infinite: 0.0 })
    }

    /// The distribution for any ε-differentially private release: that of randomized response,
    /// which is the worst.
    ///
    /// # Errors
    /// As [`Self::of_losses`].
    pub fn pure(epsilon: f64, step: f64) -> Result<Self, QueryError> {
        let likely = 1.0 / (1.0 + libm::exp(-epsilon));
        Self::of_losses(&[(epsilon, likely), (-epsilon, likely * libm::exp(-epsilon))], step)
    }

    /// The distribution of exact real Gaussian noise: the loss has mean ρ and variance 2 ρ.
    ///
    /// # Errors
    /// [`QueryError::Rho`], and as [`Self::of_losses`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of cells; of_losses refuses too many"
    )]
    pub fn gaussian(rho: f64, step: f64) -> Result<Self, QueryError> {
        if !(rho > 0.0 && rho.is_finite()) {
            return Err(QueryError::Rho(rho));
        }
        let deviation = (2.0 * rho).sqrt();
        // Cells of an eighth of the deviation, where the rule is off by less than 10^-12.
        let cells = (2.0 * REACH * (deviation / step).max(8.0)).ceil();
        if cells > LOSSES_MAX as f64 {
            return Err(QueryError::LossGrid);
        }
        let half = REACH * deviation / cells;
        let mut losses = Vec::with_capacity(5 * cells as usize);
        for cell in 0..cells as u32 {
            let middle = -REACH * deviation + (2.0 * f64::from(cell) + 1.0) * half;
            for (node, weight) in NODES {
                let from_mean = middle + node * half;
                let density = libm::exp(-from_mean * from_mean / (4.0 * rho));
                let norm = deviation * (2.0 * std::f64::consts::PI).sqrt();
                losses.push((rho + from_mean, weight * half * density / norm));
            }
        }
        let mut made = Self::of_losses(&losses, step)?;
        // Both tails.
        made.infinite = libm::erfc(REACH / std::f64::consts::SQRT_2) * RAISED;
        Ok(made)
    }

    /// The distribution of discrete Gaussian noise of this variance on a number that is changed by
    /// `shift` steps of its lattice, at least 1.
    ///
    /// # Errors
    /// [`QueryError::Insensitive`], [`QueryError::LossGrid`] for a variance that is not positive or
    /// too large.
    #[expect(clippy::cast_possible_truncation, reason = "checked to be small")]
    pub fn discrete_gaussian(variance: f64, shift: u32, step: f64) -> Result<Self, QueryError> {
        if shift == 0 {
            return Err(QueryError::Insensitive);
        }
        let reach = (variance.sqrt() * 10.0).ceil() + 4.0;
        if !(variance > 0.0 && reach < LOSSES_MAX as f64) {
            return Err(QueryError::LossGrid);
        }
        let weight = |k: i64| libm::exp(-((k * k) as f64) / (2.0 * variance));
        let reach = reach as i64;
        let total: f64 = (-reach..=reach).map(weight).sum();
        let shift = f64::from(shift);
        let losses: Vec<(f64, f64)> = (-reach..=reach)
            .map(|k| {
                let loss = shift * (shift - 2.0 * k as f64) / (2.0 * variance);
                (loss, weight(k) / total)
            })
            .collect();
        let mut made = Self::of_losses(&losses, step)?;
        // Beyond ten deviations, with room.
        made.infinite = 1e-22;
        Ok(made)
    }

    /// The distribution of two independent releases, with the same step.
    ///
    /// # Errors
    /// [`QueryError::LossGrid`] for different steps, or too many losses.
    pub fn compose(&self, other: &Self) -> Result<Self, QueryError> {
        let length = self.masses.len() + other.masses.len() - 1;
        if self.step.to_bits() != other.step.to_bits() || length > LOSSES_MAX {
            return Err(QueryError::LossGrid);
        }
        let mut masses = vec![0.0; length];
        for (place, mass) in self.masses.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
            let sums = masses.iter_mut().skip(place);
            for (sum, more) in sums.zip(&other.masses) {
                *sum += mass * more;
            }
        }
        for sum in &mut masses {
            *sum *= RAISED;
        }
        let infinite = (self.infinite + other.infinite) * RAISED;
        let lowest = self.lowest + other.lowest;
        let mut both = Self { step: self.step, lowest, masses, infinite };
        both.cut();
        Ok(both)
    }

    /// The distribution of this number of such releases, at least 1.
    ///
    /// # Errors
    /// As [`Self::compose`].
    pub fn times(&self, count: u32) -> Result<Self, QueryError> {
        let mut all = self.clone();
        for bit in (0..count.max(1).ilog2()).rev() {
            all = all.compose(&all)?;
            if count >> bit & 1 == 1 {
                all = all.compose(self)?;
            }
        }
        Ok(all)
    }

    /// Moves small tails to higher losses.
    fn cut(&mut self) {
        let mut above = 0.0;
        while let Some(&last) = self.masses.last()
            && above + last < TAIL
            && self.masses.len() > 1
        {
            above += last;
            self.masses.pop();
        }
        self.infinite += above * RAISED;
        let mut below = 0.0;
        let is_small = |mass: &&f64| {
            below += **mass;
            below < TAIL
        };
        let first = self.masses.iter().take_while(is_small).count().min(self.masses.len() - 1);
        let moved: f64 = self.masses.drain(..first).sum();
        if let Some(mass) = self.masses.first_mut() {
            *mass += moved * RAISED;
        }
        self.lowest += i64::try_from(first).unwrap_or(0);
    }

    /// The δ of this distribution for this ε, rounded up.
    pub fn delta(&self, epsilon: PrivacyLoss) -> Delta {
        let part = |(place, mass): (usize, &f64)| {
            let loss = (self.lowest as f64 + place as f64) * self.step;
            let excess = loss - epsilon.get();
            if excess > 0.0 { -libm::expm1(-excess) * mass } else { 0.0 }
        };
        let sum: f64 = self.masses.iter().enumerate().map(part).sum();
        Delta::new((sum * RAISED + self.infinite).min(1.0)).unwrap_or(Delta::VACUOUS)
    }

    /// The ε of this distribution for this δ, to within 2^-40 of the range of losses; unbounded if
    /// the mass of an infinite loss is above δ.
    pub fn loss(&self, delta: Delta) -> PrivacyLoss {
        let highest = (self.lowest as f64 + self.masses.len() as f64) * self.step;
        let loss = |loss: f64| PrivacyLoss::new(loss.max(0.0)).unwrap_or(PrivacyLoss::UNBOUNDED);
        if self.infinite > delta.get() {
            return PrivacyLoss::UNBOUNDED;
        }
        let (mut below, mut enough) = (0.0, highest.max(0.0));
        if self.delta(PrivacyLoss::ZERO) <= delta {
            return PrivacyLoss::ZERO;
        }
        for _ in 0..40 {
            let middle = f64::midpoint(below, enough);
            if self.delta(loss(middle)) <= delta { enough = middle } else { below = middle }
        }
        loss(enough)
    }
}

/// The largest ρ of a Gaussian release that is (ε, δ)-differentially private, rounded down by at
/// most a billionth. It is above that of [`ConcentratedLoss::within`], which holds for every
/// release of that ρ.
///
/// δ is P(L > ε) - e^ε Q(L > ε), for a loss L that is normal with mean ρ under P and -ρ under Q,
/// and variance 2 ρ (Balle and Wang, "Improving the Gaussian mechanism for differential privacy",
/// 2018, theorem 8).
///
/// # Errors
/// [`QueryError::Delta`] for a δ of 0 or 1, [`QueryError::NoRho`].
pub fn largest_gaussian_rho(
    epsilon: PrivacyLoss,
    delta: Delta,
) -> Result<ConcentratedLoss, QueryError> {
    let least = ConcentratedLoss::within(epsilon, delta)?;
    let fits = |nanos: u64| gaussian_delta(nanos as f64 * 1e-9, epsilon.get()) <= delta.get();
    let (mut fitting, mut beyond) = (least.nanos(), 4 * least.nanos() + 4);
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    ConcentratedLoss::new(fitting as f64 * 1e-9)
}

/// δ(ε) of a Gaussian release, rounded up by 10^-12 of its larger part.
fn gaussian_delta(rho: f64, epsilon: f64) -> f64 {
    let upper = |x: f64| libm::erfc(x / std::f64::consts::SQRT_2) / 2.0;
    let deviation = (2.0 * rho).sqrt();
    let (p, q) = (upper((epsilon - rho) / deviation), upper((epsilon + rho) / deviation));
    let subtracted = libm::exp(epsilon) * q;
    p - subtracted + p.max(subtracted) * 1e-12
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be below 2^62")]
fn floor(steps: f64) -> i64 {
    steps.floor() as i64
}
