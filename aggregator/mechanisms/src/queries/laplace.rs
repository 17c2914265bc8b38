//! The Laplace mechanism (Dwork, McSherry, Nissim and Smith, "Calibrating noise to
//! sensitivity in private data analysis", 2006; Dwork and Roth 2014, section 3.3).

use rand::Rng;

use super::QueryError;
use super::price::{PureLoss, of_each};
use crate::noise::{DiscreteLaplace, Ratio};

/// Independent discrete Laplace noise of scale Δ/ε on every value of a vector, in lattice
/// steps.
///
/// ```
/// use bandana_mechanisms::queries::{laplace::LaplaceMechanism, price::PureLoss};
/// use bandana_mechanisms::noise::secure_generator;
/// // A histogram: whoever changes a row takes 1 from one cell and gives it to another.
/// let mechanism = LaplaceMechanism::new(2, PureLoss::new(0.5)?)?;
/// let released = mechanism.release(&[120, 80, 300], &mut secure_generator()?);
/// assert_eq!(released.len(), 3);
/// // With probability 95 % all three errors are at most:
/// assert_eq!(mechanism.accuracy(3, 0.05)?, 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// ε-differentially private: the probability of a vector k of noise is proportional to exp(-|k|_1
/// ε/Δ), and for a neighbour the noise that leads to the same release differs by at most Δ in L1
/// norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaplaceMechanism {
    noise: DiscreteLaplace,
}

impl LaplaceMechanism {
    /// The mechanism for vectors that one person moves by at most `sensitivity` lattice steps in L1
    /// norm.
    ///
    /// # Errors
    /// [`QueryError::Insensitive`], or [`QueryError::Noise`] when the scale is too large.
    pub fn new(sensitivity: u64, loss: PureLoss) -> Result<Self, QueryError> {
        if sensitivity == 0 {
            return Err(QueryError::Insensitive);
        }
        let scale = Ratio::whole(sensitivity)?.over(loss.ratio()?)?;
        Ok(Self { noise: DiscreteLaplace::new(scale) })
    }

    /// The noise on each value.
    pub fn noise(self) -> DiscreteLaplace {
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
