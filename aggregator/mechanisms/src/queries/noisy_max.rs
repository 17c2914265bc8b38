//! Report noisy max with exponential noise, as permute-and-flip (McKenna and Sheldon, "Permute-and-flip:
//! a new mechanism for differentially private selection", 2020).

use rand::Rng;

use super::QueryError;
use super::price::{LossShape, PureLoss, check_beta};
use crate::noise::bernoulli_exp;
use crate::noise::coin::below;

/// Chooses a candidate of large utility by coins. Every candidate tosses a coin, which shows heads
/// with probability exp(-ε g/(2 Δ)) if its utility falls short of the best one by g. One of the
/// candidates with heads is chosen, each with the same probability.
///
/// The best candidate always shows heads. This is permute-and-flip: the first head in a random order is
/// any of the heads. It has the distribution of the candidate with the largest utility after exponential
/// noise of scale 2 Δ/ε on each (Ding, Kifer, Saghaian, Steinke, Wang, Xiao and Zhang 2021). Coins are
/// exact, from integers.
///
/// ```
/// use bandana_mechanisms::queries::{noisy_max::NoisyMax, price::PureLoss};
/// use bandana_mechanisms::noise::secure_generator;
/// let mechanism = NoisyMax::new(1, PureLoss::new(0.5)?)?;
/// assert_eq!(mechanism.choose(&[900, 100, 120], &mut secure_generator()?)?, 0);
/// assert_eq!(mechanism.shortfall(3, 0.05)?, 11);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// ε-differentially private (McKenna and Sheldon 2020, theorem 1). Whatever the utilities are, its
/// mean shortfall is at most that of the exponential mechanism at the same ε (theorem 3).
///
/// From a budget of ρ it costs as much as any ε-differentially private release. That is up to four
/// times as much as the exponential mechanism, since no bound on its range by ε is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoisyMax {
    sensitivity: u64,
    loss: PureLoss,
}

impl NoisyMax {
    /// The shape of its loss.
    pub const LOSS: LossShape = LossShape::Symmetric;

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

    /// The index of the chosen candidate.
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`].
    pub fn choose<R: Rng + ?Sized>(
        self,
        utilities: &[i64],
        rng: &mut R,
    ) -> Result<usize, QueryError> {
        let best = utilities.iter().max().ok_or(QueryError::NoCandidates)?;
        // ε/(2 Δ), with ε in billionths.
        let denominator = 2 * u128::from(self.sensitivity) * 1_000_000_000;
        let step = u128::from(self.loss.nanos());
        let tossed = |utility: &i64, rng: &mut R| {
            bernoulli_exp(u128::from(best.abs_diff(*utility)) * step, denominator, rng)
        };
        // All coins are tossed, so that their number tells nothing.
        let heads: Vec<bool> = utilities.iter().map(|utility| tossed(utility, rng)).collect();
        let number = heads.iter().filter(|head| **head).count();
        let chosen = usize::try_from(below(number as u128, rng)).unwrap_or(0);
        let mut shown = heads.iter().enumerate().filter(|(_, head)| **head).map(|(place, _)| place);
        shown.nth(chosen).ok_or(QueryError::NoCandidates)
    }

    /// A bound on the shortfall of the chosen utility below the best one, with probability 1 -
    /// `beta`. It is the least bound that holds whatever the utilities are.
    ///
    /// A shortfall of more than g is most likely if all candidates but the best fall short by the
    /// least amount above g. If these k - 1 show heads with probability p, the best is chosen with
    /// probability (1 - (1 - p)^k)/(k p), the mean of 1/(1 + heads).
    ///
    /// # Errors
    /// [`QueryError::NoCandidates`], [`QueryError::Beta`].
    pub fn shortfall(self, candidates: u64, beta: f64) -> Result<u64, QueryError> {
        if candidates == 0 {
            return Err(QueryError::NoCandidates);
        }
        let beta = check_beta(beta)?;
        let (k, step) = (candidates as f64, self.loss.nanos() as f64 * 1e-9 / 2.0);
        let is_enough = |shortfall: u64| {
            let p = libm::exp(-(shortfall as f64 + 1.0) * step / self.sensitivity as f64);
            let best = -libm::expm1(k * libm::log1p(-p)) / (k * p);
            // b heads take at most b/2 of the probability from the best. Where both are close to 0, the
            // difference to 1 is not known well enough.
            let worse = (1.0 - best + 1e-12).min((k - 1.0) * p / 2.0);
            candidates == 1 || p == 0.0 || worse * (1.0 + 1e-9) <= beta
        };
        let (mut low, mut high) = (0, 1 << 62);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_enough(middle) { high = middle } else { low = middle + 1 }
        }
        Ok(low)
    }
}
