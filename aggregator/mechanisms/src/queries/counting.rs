//! Counting queries: the number of rows that satisfy a predicate.
//!
//! A changed row changes a count by at most 1. So k counts change by at most k in the sum of
//! magnitudes, and by at most sqrt(k) in Euclidean distance; counts are whole numbers, and
//! the lattice is the integers.

use super::QueryError;
use super::gaussian::GaussianMechanism;
use super::laplace::LaplaceMechanism;
use super::price::{Price, check_beta};
use crate::noise::Ratio;

/// The mechanism that answers `queries` counting queries together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountingMechanism {
    /// Laplace noise of scale k/ε.
    Laplace(LaplaceMechanism),
    /// Gaussian noise of variance k/(2 ρ).
    Gaussian(GaussianMechanism),
}

impl CountingMechanism {
    /// The mechanism for `queries` queries at this total price.
    ///
    /// # Errors
    /// [`QueryError::NoQueries`], or [`QueryError::Noise`] when the noise is too large.
    pub fn new(queries: u64, price: Price) -> Result<Self, QueryError> {
        if queries == 0 {
            return Err(QueryError::NoQueries);
        }
        match price {
            Price::Pure(loss) => LaplaceMechanism::new(queries, loss).map(Self::Laplace),
            Price::Concentrated(loss) => {
                GaussianMechanism::new(Ratio::whole(queries)?, loss).map(Self::Gaussian)
            }
        }
    }

    /// The counts plus noise.
    pub fn release<R: rand::Rng + ?Sized>(self, counts: &[i64], rng: &mut R) -> Vec<i64> {
        match self {
            Self::Laplace(mechanism) => mechanism.release(counts, rng),
            Self::Gaussian(mechanism) => mechanism.release(counts, rng),
        }
    }

    /// The α of (α, β)-accuracy, in rows: with probability 1 - `beta` every one of `queries`
    /// answers is within α of its count.
    ///
    /// # Errors
    /// [`QueryError::Beta`], [`QueryError::NoQueries`].
    pub fn accuracy(self, queries: u64, beta: f64) -> Result<u64, QueryError> {
        match self {
            Self::Laplace(mechanism) => mechanism.accuracy(queries, beta),
            Self::Gaussian(mechanism) => mechanism.accuracy(queries, beta),
        }
    }
}

/// The α, in rows, for `queries` queries at the total price `price`.
///
/// ```
/// use bandana_mechanisms::queries::{counting, price::{Price, PureLoss}};
/// let price = Price::Pure(PureLoss::new(1.0)?);
/// assert_eq!(counting::accuracy(1, price, 0.05)?, 3);
/// assert_eq!(counting::accuracy(100, price, 0.05)?, 758);
/// # Ok::<(), bandana_mechanisms::queries::QueryError>(())
/// ```
///
/// # Errors
/// As [`CountingMechanism::new`] and [`CountingMechanism::accuracy`].
pub fn accuracy(queries: u64, price: Price, beta: f64) -> Result<u64, QueryError> {
    CountingMechanism::new(queries, price)?.accuracy(queries, beta)
}

/// The largest number of queries whose answers are, with probability 1 - `beta`, all within
/// `alpha_rows` of the counts; 0 if even one query is too many.
///
/// ```
/// use bandana_mechanisms::queries::{counting, price::{Price, PureLoss}};
/// let price = Price::Pure(PureLoss::new(1.0)?);
/// assert_eq!(counting::queries_within(758.0, price, 0.05)?, 100);
/// # Ok::<(), bandana_mechanisms::queries::QueryError>(())
/// ```
///
/// # Errors
/// [`QueryError::Beta`].
pub fn queries_within(alpha_rows: f64, price: Price, beta: f64) -> Result<u64, QueryError> {
    check_beta(beta)?;
    // The error grows with the number of queries.
    let fits =
        |queries| accuracy(queries, price, beta).is_ok_and(|error| error as f64 <= alpha_rows);
    let (mut fitting, mut beyond) = (0, 1_u64);
    while beyond < 1 << 40 && fits(beyond) {
        (fitting, beyond) = (beyond, 2 * beyond);
    }
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    Ok(fitting)
}
