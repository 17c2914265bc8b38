//! The Gaussian mechanism (Bun and Steinke 2016; Canonne, Kamath and Steinke 2020).

use rand::Rng;

use super::QueryError;
use super::price::{ConcentratedLoss, of_each};
use crate::noise::{DiscreteGaussian, Ratio};

/// Independent discrete Gaussian noise with σ² = Δ²/(2 ρ) on every value of a vector, in
/// lattice steps.
///
/// ```
/// use bandana_mechanisms::queries::{gaussian::GaussianMechanism, price::ConcentratedLoss};
/// use bandana_mechanisms::noise::{Ratio, secure_generator};
/// // A histogram: a changed row moves it by sqrt(1 + 1), in Euclidean distance.
/// let mechanism = GaussianMechanism::new(Ratio::whole(2)?, ConcentratedLoss::new(0.01)?)?;
/// assert_eq!(mechanism.noise().variance(), Ratio::whole(100)?);
/// let released = mechanism.release(&[120, 80, 300], &mut secure_generator()?);
/// assert_eq!(released.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// ρ-zero-concentrated differentially private (Canonne, Kamath and Steinke 2020, theorem 14,
/// for equal variances). ε for a δ, and Rényi divergences, follow from
/// [`ConcentratedLoss::rho`] and [`ConcentratedLoss::renyi`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaussianMechanism {
    noise: DiscreteGaussian,
}

impl GaussianMechanism {
    /// The mechanism for vectors that one person moves by at most the root of
    /// `squared_sensitivity`, in squared lattice steps and Euclidean distance.
    ///
    /// # Errors
    /// [`QueryError::Noise`] when the variance is too large.
    pub fn new(squared_sensitivity: Ratio, loss: ConcentratedLoss) -> Result<Self, QueryError> {
        let half = Ratio::new(1, 2)?;
        let variance = squared_sensitivity.times(half)?.over(loss.ratio()?)?;
        Ok(Self { noise: DiscreteGaussian::new(variance) })
    }

    /// The noise on each value.
    pub fn noise(self) -> DiscreteGaussian {
        self.noise
    }

    /// The vector plus noise.
    pub fn release<R: Rng + ?Sized>(self, values: &[i64], rng: &mut R) -> Vec<i64> {
        values.iter().map(|&value| self.noise.release(value, rng)).collect()
    }

    /// A bound on the errors of all `values` values together, with probability 1 - `beta`, in
    /// steps: the noise of each is independent, so all are within m with probability (1 - P(|noise| >
    /// m))^k.
    ///
    /// # Errors
    /// [`QueryError::Beta`], and [`QueryError::NoQueries`] without values.
    pub fn accuracy(self, values: u64, beta: f64) -> Result<u64, QueryError> {
        if values == 0 {
            return Err(QueryError::NoQueries);
        }
        Ok(self.noise.quantile(of_each(beta, values)?))
    }
}
