//! The δ of approximate differential privacy.

use thiserror::Error;

use crate::accounting::rounding::{add_up, after_library};

/// A probability δ in 0..=1.
///
/// A mechanism is (ε, δ)-differentially private if for every pair of neighbouring inputs and every
/// set S of outputs, P(S) is at most e^ε times the probability for the neighbour, plus δ. A δ of 0
/// is pure differential privacy; a δ of 1 holds for every mechanism.
///
/// ```
/// use bandana_shared::accounting::delta::Delta;
/// assert_eq!(Delta::new(1e-9)?.get(), 1e-9);
/// assert!(Delta::new(1.5).is_err());
/// # Ok::<(), bandana_shared::accounting::delta::DeltaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Delta(f64);

impl Delta {
    /// Pure differential privacy.
    pub const ZERO: Self = Self(0.0);
    /// The trivial δ, which every mechanism satisfies.
    pub const VACUOUS: Self = Self(1.0);

    /// Checks the range.
    ///
    /// # Errors
    /// [`DeltaError`] when `probability` is not a number in 0..=1.
    pub fn new(probability: f64) -> Result<Self, DeltaError> {
        if (0.0..=1.0).contains(&probability) {
            Ok(Self(probability.abs()))
        } else {
            Err(DeltaError(probability))
        }
    }

    /// A bound on a probability, cut to 1.
    pub(super) fn at_most(bound: f64) -> Self {
        Self(bound.clamp(0.0, 1.0))
    }

    /// δ.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The δ of two mechanisms under basic composition, rounded up: the sum,
    /// at most 1.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self::at_most(add_up(self.0, other.0))
    }

    /// ln(1/δ), rounded up; infinite for 0.
    pub(super) fn log_reciprocal(self) -> f64 {
        if self == Self::VACUOUS { 0.0 } else { after_library(-libm::log(self.0)) }
    }
}

/// A number that is not a probability.
#[derive(Clone, Copy, Error, PartialEq)]
#[error("delta is {0}; it must be a number from 0 (pure privacy) to 1 (no promise)")]
pub struct DeltaError(f64);

crate::debug_says!(DeltaError);
