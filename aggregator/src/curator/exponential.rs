//! The exponential mechanism (McSherry and Talwar, "Mechanism design via differential
//! privacy", 2007), sampled exactly.

use rand::Rng;

use super::CuratorError;
use super::price::{PureLoss, check_beta};
use crate::noise::bernoulli_exp;

/// Chooses candidate r with probability proportional to w(r) exp(ε u(r)/(2 Δ)), for integer
/// utilities u and a base measure w.
///
/// By rejection: a candidate is drawn from the base measure and taken with probability
/// exp(-ε (max u - u(r))/(2 Δ)), by coins that are exact. No float is involved, and the
/// probabilities are those of the definition.
///
/// ```
/// use bandana_aggregator::curator::{exponential::ExponentialMechanism, price::PureLoss};
/// use bandana_aggregator::noise::secure_generator;
/// // Which colour is the most common? A changed row changes each count by at most 1.
/// let mechanism = ExponentialMechanism::new(1, PureLoss::new(0.5)?)?;
/// let chosen = mechanism.choose(&[900, 100, 120], None, &mut secure_generator()?)?;
/// assert_eq!(chosen, 0);
/// assert_eq!(mechanism.shortfall(3, 0.05)?, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// ε-differentially private (McSherry and Talwar 2007, theorem 6; Dwork and Roth 2014, theorem
/// 3.10): a neighbour changes each weight by a factor of at most exp(ε/2), and so their sum.
/// The base measure must not depend on the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExponentialMechanism {
    sensitivity: u64,
    loss: PureLoss,
}

/// Most attempts that an exact draw may be expected to take.
const ATTEMPTS_MAX: u128 = 1 << 26;

impl ExponentialMechanism {
    /// For utilities of which one person changes each by at most `sensitivity`.
    ///
    /// # Errors
    /// [`CuratorError::Insensitive`].
    pub fn new(sensitivity: u64, loss: PureLoss) -> Result<Self, CuratorError> {
        if sensitivity == 0 {
            return Err(CuratorError::Insensitive);
        }
        Ok(Self { sensitivity, loss })
    }

    /// The place of the chosen candidate. Without `weights` the base measure is uniform; a
    /// candidate of weight 0 is never chosen.
    ///
    /// # Errors
    /// [`CuratorError::NoCandidates`], [`CuratorError::Weights`], and
    /// [`CuratorError::Skewed`] when an exact draw could take too long; whether it could
    /// follows from the base measure alone.
    pub fn choose<R: Rng + ?Sized>(
        self,
        utilities: &[i64],
        weights: Option<&[u32]>,
        rng: &mut R,
    ) -> Result<usize, CuratorError> {
        let base = BaseMeasure::new(utilities.len(), weights)?;
        let best = utilities.iter().enumerate().filter(|(place, _)| base.weight(*place) > 0);
        let best = best.map(|(_, &utility)| i128::from(utility)).max();
        let best = best.ok_or(CuratorError::NoCandidates)?;
        // γ = ε (max u - u)/(2 Δ), with ε in billionths: below 2^35 2^65.
        let denominator = 2 * u128::from(self.sensitivity) * 1_000_000_000;
        loop {
            let place = base.draw(rng);
            let utility = utilities.get(place).map_or(i128::MIN, |&utility| utility.into());
            let gap = best.saturating_sub(utility).unsigned_abs();
            if bernoulli_exp(gap * u128::from(self.loss.nanos()), denominator, rng) {
                return Ok(place);
            }
        }
    }

    /// How far below the best a uniform choice among `candidates` is at most, with
    /// probability 1 - `beta`: (2 Δ/ε) ln(|R|/β), rounded up (Dwork and Roth 2014, corollary
    /// 3.12).
    ///
    /// # Errors
    /// [`CuratorError::NoCandidates`], [`CuratorError::Beta`].
    pub fn shortfall(self, candidates: u64, beta: f64) -> Result<u64, CuratorError> {
        if candidates == 0 {
            return Err(CuratorError::NoCandidates);
        }
        self.shortfall_of_share(1.0 / candidates as f64, beta)
    }

    /// The same for a base measure of which the best candidates have the share `best`.
    ///
    /// # Errors
    /// [`CuratorError::NoCandidates`] for a share that is not above 0 and at most 1,
    /// [`CuratorError::Beta`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range becomes its end"
    )]
    pub fn shortfall_of_share(self, best: f64, beta: f64) -> Result<u64, CuratorError> {
        if !(best > 0.0 && best <= 1.0) {
            return Err(CuratorError::NoCandidates);
        }
        let logs = -(libm::log(best) + libm::log(check_beta(beta)?));
        let scale = 2.0 * self.sensitivity as f64 / (self.loss.nanos() as f64 * 1e-9);
        Ok((scale * logs * (1.0 + 1e-12)).ceil() as u64)
    }
}

/// Where candidates are drawn from.
enum BaseMeasure<'a> {
    Uniform(usize),
    Weighted { weights: &'a [u32], sums: Vec<u64>, total: u64 },
}

impl<'a> BaseMeasure<'a> {
    fn new(candidates: usize, weights: Option<&'a [u32]>) -> Result<Self, CuratorError> {
        if candidates == 0 {
            return Err(CuratorError::NoCandidates);
        }
        let Some(weights) = weights else {
            let few = candidates as u128 <= ATTEMPTS_MAX;
            return if few { Ok(Self::Uniform(candidates)) } else { Err(CuratorError::Skewed) };
        };
        if weights.len() != candidates {
            return Err(CuratorError::Weights { candidates, weights: weights.len() });
        }
        let mut total = 0_u64;
        let add = |&weight: &u32| {
            total += u64::from(weight);
            total
        };
        let sums = weights.iter().map(add).collect();
        let least = weights.iter().copied().filter(|&weight| weight > 0).min();
        let least = least.ok_or(CuratorError::NoCandidates)?;
        if u128::from(total) > ATTEMPTS_MAX * u128::from(least) {
            return Err(CuratorError::Skewed);
        }
        Ok(Self::Weighted { weights, sums, total })
    }

    fn weight(&self, place: usize) -> u32 {
        match self {
            Self::Uniform(_) => 1,
            Self::Weighted { weights, .. } => weights.get(place).copied().unwrap_or(0),
        }
    }

    fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> usize {
        match self {
            Self::Uniform(candidates) => crate::noise::below_usize(*candidates, rng),
            Self::Weighted { sums, total, .. } => {
                let point = crate::noise::below(*total, rng);
                sums.partition_point(|&sum| sum <= point)
            }
        }
    }
}
