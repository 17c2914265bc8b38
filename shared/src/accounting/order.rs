//! Orders of Rényi divergences.

use thiserror::Error;

/// The order α of a Rényi divergence, above 1 and below 2^53.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Order(f64);

impl Order {
    /// The exclusive upper bound of all orders.
    pub const END: f64 = (1_u64 << 53) as f64;

    /// Checks the range.
    ///
    /// # Errors
    /// [`OrderError`] when `alpha` is not above 1 and below 2^53.
    pub fn new(alpha: f64) -> Result<Self, OrderError> {
        if alpha > 1.0 && alpha < Self::END { Ok(Self(alpha)) } else { Err(OrderError(alpha)) }
    }

    /// 1 + `excess`, rounded, if it is an order.
    pub(super) fn one_plus(excess: f64) -> Option<Self> {
        Self::new(1.0 + excess).ok()
    }

    /// α.
    pub fn get(self) -> f64 {
        self.0
    }

    /// α - 1, exactly: a multiple of the last place of α, and smaller.
    pub(super) fn excess(self) -> f64 {
        self.0 - 1.0
    }
}

/// An order out of range.
#[derive(Clone, Copy, Error, PartialEq)]
#[error("order {0} is not above 1 and below 2^53")]
pub struct OrderError(f64);

crate::debug_says!(OrderError);
