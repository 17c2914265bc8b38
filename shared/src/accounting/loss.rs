//! A privacy loss bound of any size.

use thiserror::Error;

use crate::accounting::rounding::{add_up, after_library, count_up, div_up, mul_up};
use crate::epsilon::Epsilon;

/// A privacy loss bound ε in nats, from 0 to infinity.
///
/// [`Epsilon`] is the loss of one report and lies in a narrow range; this type is the loss of any
/// number of reports, or of none. An infinite loss is no bound.
///
/// ```
/// use bandana_shared::{accounting::loss::PrivacyLoss, epsilon::Epsilon};
/// let day = PrivacyLoss::from(Epsilon::new(2.0)?).times(20);
/// assert_eq!(day.get(), 40.0);
/// assert_eq!(day.alongside(PrivacyLoss::new(1.0)?), day);
/// assert!(PrivacyLoss::new(-1.0).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct PrivacyLoss(f64);

impl PrivacyLoss {
    /// No information is revealed.
    pub const ZERO: Self = Self(0.0);
    /// No bound.
    pub const UNBOUNDED: Self = Self(f64::INFINITY);

    /// Checks the range.
    ///
    /// # Errors
    /// [`PrivacyLossError`] when `nats` is negative or not a number.
    pub fn new(nats: f64) -> Result<Self, PrivacyLossError> {
        if nats >= 0.0 { Ok(Self(nats.abs())) } else { Err(PrivacyLossError(nats)) }
    }

    /// A bound, cut to at least 0.
    pub(super) fn at_most(nats: f64) -> Self {
        if nats > 0.0 { Self(nats) } else { Self::ZERO }
    }

    /// The bound in nats.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The loss of two mechanisms on the same data, rounded up: the sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(add_up(self.0, other.0))
    }

    /// The loss of `count` mechanisms on the same data, rounded up. Also the
    /// loss of a group of `count` people whose data all change, by a mechanism
    /// that loses this much on one of them (Dwork and Roth, "The algorithmic
    /// foundations of differential privacy", 2014, theorem 2.2).
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(mul_up(count_up(count), self.0))
    }

    /// The loss of two mechanisms on disjoint data: the larger one (McSherry, "Privacy integrated
    /// queries", 2009, theorem 4). Either the partition must not depend on the data, or neighbours
    /// must differ by adding or removing one person: otherwise a change of one person's data could
    /// move that person from one part to the other.
    #[must_use]
    pub fn alongside(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// The largest possible mean of the privacy loss of an ε-differentially private mechanism: ε
    /// tanh(ε/2), rounded up.
    ///
    /// The likelihood ratio lies in e^-ε..=e^ε and has mean 1 under the second distribution.
    /// `x ln x` is convex, so its mean is largest when the ratio takes only its two extreme values.
    /// Randomized response does so, and has this mean. It is below both ε and ε²/2.
    pub fn largest_mean(self) -> f64 {
        // tanh(ε/2) = m/(2 - m) with m = 1 - e^-ε; it grows with m.
        let m = after_library(-libm::expm1(-self.0)).min(1.0);
        let tanh = div_up(m, (2.0 - m).next_down()).min(1.0);
        if self == Self::ZERO { 0.0 } else { mul_up(self.0, tanh) }
    }
}

impl From<Epsilon> for PrivacyLoss {
    fn from(epsilon: Epsilon) -> Self {
        Self(epsilon.get())
    }
}

/// A number that is not a valid privacy loss.
#[derive(Clone, Copy, Error, PartialEq)]
#[error("the privacy loss is {0} nats; it must be 0 or more, and may be infinite")]
pub struct PrivacyLossError(f64);

crate::debug_says!(PrivacyLossError);
