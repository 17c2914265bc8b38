//! The exponential mechanism (McSherry and Talwar, "Mechanism design via differential
//! privacy", 2007), sampled exactly.

use rand::Rng;

use super::QueryError;
use super::inverse::{Candidate, draw};
use super::price::{LossShape, PureLoss, check_beta};

/// Initial number of binary digits of the weights; further digits are computed on demand.
const PRECISION: u64 = 128;

/// Chooses candidate r with probability proportional to w(r) exp(ε u(r)/(2 Δ)), for integer
/// utilities u and a base measure w.
///
/// Sampling is by inversion, in integers: weights are known within bounds, which are refined until
/// they decide. No float is involved, so the probabilities are exactly those of the definition. The
/// time hardly depends on utilities and weights, so callers can't make it long.
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
///
/// The log of the ratio of two probabilities is ε/(2 Δ) times the difference of two utilities, which
/// a neighbour changes by at most 2 Δ, and so the mechanism has bounded range ε
/// ([`LossShape::BoundedRange`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExponentialMechanism {
    sensitivity: u64,
    loss: PureLoss,
}

impl ExponentialMechanism {
    /// The shape of its loss.
    pub const LOSS: LossShape = LossShape::BoundedRange;

    /// The mechanism for utilities that one person changes by at most `sensitivity` each.
    ///
    /// # Errors
    /// [`QueryError::Insensitive`].
    pub fn new(sensitivity: u64, loss: PureLoss) -> Result<Self, QueryError> {
        if sensitivity == 0 {
            return Err(QueryError::Insensitive);
        }
        Ok(Self { sensitivity, loss })
    }

    /// The index of the chosen candidate. Without `weights` the base measure is uniform; a
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
            // Candidates of weight 0 may have a better utility than the best eligible one.
            let gap = if utility < best { best.abs_diff(utility) } else { 0 };
            Candidate { weight: weight(place), gap }
        };
        // ε/(2 Δ), with ε in billionths.
        let denominator = 2 * u128::from(self.sensitivity) * 1_000_000_000;
        let step = (u128::from(self.loss.nanos()), denominator);
        Ok(draw(candidates, candidate, step, PRECISION, rng))
    }

    /// A bound on the shortfall of the chosen utility below the best one, with probability 1 -
    /// `beta`, for a uniform base measure on `candidates`: (2 Δ/ε) ln(|R|/β), rounded up (Dwork and
    /// Roth 2014, corollary 3.12).
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`], [`QueryError::Beta`].
    pub fn shortfall(self, candidates: u64, beta: f64) -> Result<u64, QueryError> {
        if candidates == 0 {
            return Err(QueryError::NoCandidates);
        }
        self.shortfall_of_share(1.0 / candidates as f64, beta)
    }

    /// The bound of [`Self::shortfall`] for a base measure in which the best candidates have the
    /// share `best`.
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
