//! The share: the integer that privacy rests on, for a channel with any number of symbols.
//!
//! Every symbol has at least the probability `t/2^64`, whatever the reward, and at most
//! `1 - (k-1) t/2^64`, k the number of symbols. So the loss is at most `ln((2^64 - (k-1) t)/t)`,
//! which is `ln(1 + (2^64 - k t)/t)`.

use thiserror::Error;

use super::growth::Growth;
use crate::epsilon::Epsilon;

/// Relative guard below `e^ε - 1` when a share is computed. It is wider than the error of any `expm1`, so
/// that every device accepts the share of any server.
const GUARD: f64 = 1.0 - 1.0 / (1_u64 << 48) as f64;

/// The integer `t`, with `1 <= t` and `k t < 2^64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(u64);

impl Share {
    /// `ceil(2^64/(e^ε + k - 1))`, with `e^ε - 1` taken `2^-48` too small.
    ///
    /// It is found in floating point, and leaves the function only if [`Self::verify`] accepts it. Should
    /// `expm1` ever err by more than the guard, the share is the largest one, with the least loss.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "x is positive, and rounding it down is meant"
    )]
    pub(super) fn for_epsilon(symbols: u8, epsilon: Epsilon) -> Self {
        // Let x = e^ε - 1 in (2^-20, 2^47). 2^64/(k + x) is taken in units of
        // 2^-62: numerator 2^126, denominator k 2^62 + floor(x 2^62) < 2^110.
        // Rounding x down and the quotient up both enlarge the share.
        let x = libm::expm1(epsilon.get()) * GUARD;
        let scaled = (x * (1_u64 << 62) as f64) as u128;
        let quotient = (1_u128 << 126).div_ceil((u128::from(symbols) << 62) + scaled);
        let largest = u64::MAX / u64::from(symbols);
        let share = u64::try_from(quotient).unwrap_or(u64::MAX).clamp(1, largest);
        Self::verify(share, symbols, epsilon).unwrap_or(Self(largest))
    }

    /// Accepts a share if and only if `(2^64 - (k-1) t)/t` is at most `1 + Growth::below(ε)`, which is at
    /// most `e^ε`. In integers.
    pub(super) fn verify(share: u64, symbols: u8, epsilon: Epsilon) -> Result<Self, FloorError> {
        if share == 0 || share > u64::MAX / u64::from(symbols) {
            return Err(FloorError::OutOfRange { floor: share, symbols });
        }
        // (2^64 - (k-1) t)/t <= 1 + x is 2^64 - k t <= t x.
        let width = Self::width(share, symbols);
        if Growth::below(epsilon).covers(width, share) {
            Ok(Self(share))
        } else {
            let loss = Self::loss(width, share);
            Err(FloorError::LossTooLarge { floor: share, loss, epsilon: epsilon.get() })
        }
    }

    pub(super) fn get(self) -> u64 {
        self.0
    }

    /// `2^64 - k t`.
    pub(super) fn width(share: u64, symbols: u8) -> u64 {
        0_u64.wrapping_sub(share.wrapping_mul(u64::from(symbols)))
    }

    /// `ln(1 + width/t)` in nats, rounded up: for people and estimates. No share is accepted for it.
    // Not inlined, so that the floating-point arithmetic stays out of `verify`.
    #[inline(never)]
    pub(super) fn loss(width: u64, share: u64) -> f64 {
        // The two conversions and the quotient err by at most 2^-53 each,
        // relatively, and ln_1p does not enlarge that: together at most three
        // units in the last place. ln_1p itself adds one at most.
        let loss = libm::log1p(width as f64 / share as f64);
        (0..4).fold(loss, |value, _| value.next_up())
    }
}

/// A floor that can't be used.
#[derive(Clone, Error, PartialEq)]
#[non_exhaustive]
pub enum FloorError {
    /// The floor is 0, or too large for the number of symbols.
    #[error("floor {floor} is not between 1 and (2^64 - 1)/{symbols}, for {symbols} symbols")]
    OutOfRange {
        /// The given floor.
        floor: u64,
        /// Number of symbols of the channel; a bit has 2.
        symbols: u8,
    },
    /// The floor is too low for the declared ε.
    #[error(
        "floor {floor} has a privacy loss of {loss}, above the epsilon of {epsilon} it comes with"
    )]
    LossTooLarge {
        /// The given floor.
        floor: u64,
        /// The loss of the floor in nats.
        loss: f64,
        /// The declared bound in nats.
        epsilon: f64,
    },
}

crate::debug_says!(FloorError);
