//! The share: the integer that privacy rests on, for a channel with any number of symbols.
//!
//! Every symbol has at least the probability `t/2^64`, whatever the reward, and at most
//! `1 - (k-1) t/2^64`, k the number of symbols. So the loss is at most `ln((2^64 - (k-1) t)/t)`,
//! which is `ln(1 + (2^64 - k t)/t)`.

use thiserror::Error;

use crate::epsilon::Epsilon;

/// Relative guard below `exp(ε) - 1` when a share is computed.
const WIDE_GUARD: f64 = 1.0 - 1.0 / (1_u64 << 48) as f64;

/// Relative guard below `exp(ε) - 1` when a share is verified. Because of the distance to
/// [`WIDE_GUARD`], shares computed by two math libraries that differ by several units in the last
/// place are both accepted.
const NARROW_GUARD: f64 = 1.0 - 1.0 / (1_u64 << 50) as f64;

/// The integer `t`, with `1 <= t` and `k t < 2^64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(u64);

impl Share {
    /// `ceil(2^64/(e^ε + k - 1))`, with `e^ε - 1` taken `2^-48` too small.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "x is positive, and rounding it down is meant"
    )]
    pub(super) fn for_epsilon(symbols: u8, epsilon: Epsilon) -> Self {
        // Let x = e^ε - 1 in (2^-20, 2^47). 2^64/(k + x) is taken in units of
        // 2^-62: numerator 2^126, denominator k 2^62 + floor(x 2^62) < 2^110.
        // Rounding x down and the quotient up both enlarge the share.
        let x = libm::expm1(epsilon.get()) * WIDE_GUARD;
        let scaled = (x * (1_u64 << 62) as f64) as u128;
        let quotient = (1_u128 << 126).div_ceil((u128::from(symbols) << 62) + scaled);
        Self(u64::try_from(quotient).unwrap_or(u64::MAX).clamp(1, u64::MAX / u64::from(symbols)))
    }

    /// Accepts a share if `(2^64 - (k-1) t)/t <= e^ε`, checked in integers with `e^ε - 1`
    /// taken `2^-50` too small.
    pub(super) fn verify(share: u64, symbols: u8, epsilon: Epsilon) -> Result<Self, FloorError> {
        if share == 0 || share > u64::MAX / u64::from(symbols) {
            return Err(FloorError::OutOfRange { floor: share, symbols });
        }
        // (2^64 - (k-1) t)/t <= 1 + x is (2^64 - k t) <= t x, and x = m 2^-j.
        let (mantissa, shift) = decompose(libm::expm1(epsilon.get()) * NARROW_GUARD);
        let width = u128::from(Self::width(share, symbols));
        let fits = shift <= width.leading_zeros()
            && (width << shift) <= u128::from(share) * u128::from(mantissa);
        if fits {
            Ok(Self(share))
        } else {
            Err(FloorError::LossTooLarge {
                floor: share,
                loss: Self::loss(Self::width(share, symbols), share),
                epsilon: epsilon.get(),
            })
        }
    }

    pub(super) fn get(self) -> u64 {
        self.0
    }

    /// `2^64 - k t`.
    pub(super) fn width(share: u64, symbols: u8) -> u64 {
        0_u64.wrapping_sub(share.wrapping_mul(u64::from(symbols)))
    }

    /// `ln(1 + width/t)` in nats, rounded up.
    pub(super) fn loss(width: u64, share: u64) -> f64 {
        // The two conversions and the quotient err by at most 2^-53 each,
        // relatively, and ln_1p does not enlarge that: together at most three
        // units in the last place. ln_1p itself adds one at most.
        let loss = libm::log1p(width as f64 / share as f64);
        (0..4).fold(loss, |value, _| value.next_up())
    }
}

/// Splits a finite `x >= 2^-20` into `(m, k)` with `x = m 2^-k` rounded down
/// and `k >= 0`.
fn decompose(x: f64) -> (u64, u32) {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as u32;
    let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
    // x = mantissa 2^(exponent - 1075); x < 2^53 for every ε in range.
    (mantissa, 1075_u32.saturating_sub(exponent))
}

/// A floor that can't be used.
#[derive(Clone, Debug, Error, PartialEq)]
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
