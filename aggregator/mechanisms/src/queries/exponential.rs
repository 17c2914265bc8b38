//! The exponential mechanism (McSherry and Talwar, "Mechanism design via differential
//! privacy", 2007), sampled exactly.

use rand::Rng;

use super::QueryError;
use super::inverse::{Candidate, draw};
use super::price::{PureLoss, check_beta};

/// Binary digits to which weights are known at first; more are had when they are needed.
const PRECISION: u64 = 128;

/// Chooses candidate r with probability proportional to w(r) exp(ε u(r)/(2 Δ)), for integer
/// utilities u and a base measure w.
///
/// By inversion, in whole numbers: weights are known within bounds, which are made closer until
/// they decide. No float is involved, and the probabilities are those of the definition. How
/// long it takes hardly depends on utilities and weights, so nobody can make it long.
///
/// ```
/// use bandana_mechanisms::queries::{exponential::ExponentialMechanism, price::PureLoss};
/// use bandana_mechanisms::noise::secure_generator;
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

impl ExponentialMechanism {
    /// For utilities of which one person changes each by at most `sensitivity`.
    ///
    /// # Errors
    /// [`QueryError::Insensitive`].
    pub fn new(sensitivity: u64, loss: PureLoss) -> Result<Self, QueryError> {
        if sensitivity == 0 {
            return Err(QueryError::Insensitive);
        }
        Ok(Self { sensitivity, loss })
    }

    /// The place of the chosen candidate. Without `weights` the base measure is uniform; a
    /// candidate of weight 0 is never chosen.
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`], [`QueryError::Weights`].
    pub fn choose<R: Rng + ?Sized>(
        self,
        utilities: &[i64],
        weights: Option<&[u32]>,
        rng: &mut R,
    ) -> Result<usize, QueryError> {
        let candidates = utilities.len();
        if let Some(weights) = weights.filter(|weights| weights.len() != candidates) {
            return Err(QueryError::Weights { candidates, weights: weights.len() });
        }
        let weight =
            |place| weights.map_or(1, |weights: &[u32]| weights.get(place).copied().unwrap_or(0));
        let possible = utilities.iter().enumerate().filter(|(place, _)| weight(*place) > 0);
        let best = possible.map(|(_, &utility)| utility).max();
        let best = best.ok_or(QueryError::NoCandidates)?;
        let candidate = |place: usize| {
            let utility = utilities[place];
            // What can't be chosen may have a better utility.
            let gap = if utility < best { best.abs_diff(utility) } else { 0 };
            Candidate { weight: weight(place), gap }
        };
        // ε/(2 Δ), with ε in billionths.
        let denominator = 2 * u128::from(self.sensitivity) * 1_000_000_000;
        let step = (u128::from(self.loss.nanos()), denominator);
        Ok(draw(candidates, candidate, step, PRECISION, rng))
    }

    /// How far below the best a uniform choice among `candidates` is at most, with
    /// probability 1 - `beta`: (2 Δ/ε) ln(|R|/β), rounded up (Dwork and Roth 2014, corollary
    /// 3.12).
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`], [`QueryError::Beta`].
    pub fn shortfall(self, candidates: u64, beta: f64) -> Result<u64, QueryError> {
        if candidates == 0 {
            return Err(QueryError::NoCandidates);
        }
        self.shortfall_of_share(1.0 / candidates as f64, beta)
    }

    /// The same for a base measure of which the best candidates have the share `best`.
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`] for a share that is not above 0 and at most 1,
    /// [`QueryError::Beta`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float beyond the range becomes its end"
    )]
    pub fn shortfall_of_share(self, best: f64, beta: f64) -> Result<u64, QueryError> {
        if !(best > 0.0 && best <= 1.0) {
            return Err(QueryError::NoCandidates);
        }
        let logs = -(libm::log(best) + libm::log(check_beta(beta)?));
        let scale = 2.0 * self.sensitivity as f64 / (self.loss.nanos() as f64 * 1e-9);
        Ok((scale * logs * (1.0 + 1e-12)).ceil() as u64)
    }
}
