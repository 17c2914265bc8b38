//! Report noisy max (Dwork and Roth 2014, section 3.3).

use rand::Rng;

use super::QueryError;
use super::price::{LossShape, PureLoss, check_beta};
use crate::noise::{DiscreteLaplace, Ratio};

/// The candidate with the largest utility after discrete Laplace noise of scale 2 Δ/ε on
/// each; the first of those that are equal.
///
/// ```
/// use bandana_mechanisms::queries::{noisy_max::NoisyMax, price::PureLoss};
/// use bandana_mechanisms::noise::secure_generator;
/// let mechanism = NoisyMax::new(1, PureLoss::new(0.5)?)?;
/// assert_eq!(mechanism.choose(&[900, 100, 120], &mut secure_generator()?)?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// ε-differentially private. Fix the noise of all candidates but i: i is chosen if its noise
/// is at least some threshold. A neighbour lowers u(i) by at most Δ and raises the others by
/// at most Δ, so the threshold rises by at most 2 Δ, also under the rule for ties; and
/// P(noise >= t + 2 Δ) is at least exp(-ε) P(noise >= t).
///
/// From a budget of ρ it costs up to four times what the exponential mechanism costs: with Laplace
/// noise its range is not bounded by ε. Of four candidates, two of which rise while two fall, the
/// choice has a larger divergence than ε²/8 allows (`tests/prices.rs`). With Gumbel noise it would be
/// the exponential mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoisyMax {
    noise: DiscreteLaplace,
}

impl NoisyMax {
    /// The shape of its loss.
    pub const LOSS: LossShape = LossShape::Symmetric;

    /// The mechanism for utilities that one person changes by at most `sensitivity` each.
    ///
    /// # Errors
    /// [`QueryError::Insensitive`], or [`QueryError::Noise`] when the scale is too large.
    pub fn new(sensitivity: u64, loss: PureLoss) -> Result<Self, QueryError> {
        if sensitivity == 0 {
            return Err(QueryError::Insensitive);
        }
        let two = Ratio::whole(2)?;
        let scale = Ratio::whole(sensitivity)?.times(two)?.over(loss.ratio()?)?;
        Ok(Self { noise: DiscreteLaplace::new(scale) })
    }

    /// The index of the chosen candidate.
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`].
    pub fn choose<R: Rng + ?Sized>(
        self,
        utilities: &[i64],
        rng: &mut R,
    ) -> Result<usize, QueryError> {
        let mut best: Option<(usize, i128)> = None;
        for (place, &utility) in utilities.iter().enumerate() {
            let noisy = i128::from(utility) + i128::from(self.noise.sample(rng));
            if best.is_none_or(|(_, most)| noisy > most) {
                best = Some((place, noisy));
            }
        }
        best.map(|(place, _)| place).ok_or(QueryError::NoCandidates)
    }

    /// A bound on the shortfall of the chosen utility below the best one, with probability 1 -
    /// `beta`: twice the bound on the noise of all `candidates`.
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`], [`QueryError::Beta`].
    pub fn shortfall(self, candidates: u64, beta: f64) -> Result<u64, QueryError> {
        if candidates == 0 {
            return Err(QueryError::NoCandidates);
        }
        Ok(self.noise.quantile(check_beta(beta)? / candidates as f64).saturating_mul(2))
    }
}
