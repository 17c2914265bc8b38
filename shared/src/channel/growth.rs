//! `e^ε - 1` from below, in integers.
//!
//! A device refuses a floor whose loss exceeds ε. So it needs a number that is surely not above
//! `e^ε - 1`. No floating-point arithmetic is involved: ε is taken apart into integers, and every
//! later step is rounded down. [`Growth::below`] says why no step is above its exact value.

use crate::epsilon::Epsilon;

/// 1, in units of `2^-64`.
const ONE: u128 = 1 << 64;

/// Bits behind the point of ε in the series.
const EPSILON_BITS: u32 = 58;

/// The last number that the series divides by. What it leaves out is below `2^-70` of `e^ε - 1`, for ε
/// up to 32.
const STEPS: u8 = 100;

/// A lower bound of `e^ε - 1`, too small by at most a relative `2^-58`: `mantissa 2^-shift`.
///
/// ```
/// use bandana_shared::{channel::Growth, epsilon::Epsilon};
/// let growth = Growth::below(Epsilon::new(1.0)?);
/// let found = growth.mantissa() as f64 / (1_u64 << growth.shift()) as f64;
/// assert!((found - 1_f64.exp_m1()).abs() < 1e-15);
/// # Ok::<(), bandana_shared::epsilon::EpsilonError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    mantissa: u64,
    shift: u32,
}

impl Growth {
    /// The bound for `epsilon`.
    ///
    /// Let `H_n = 1 + ε/n (1 + ε/(n+1) (1 + ...))`, so that `H_n = 1 + ε/n H_(n+1)` and
    /// `ε H_2 = ε + ε^2/2! + ε^3/3! + ... = e^ε - 1`.
    ///
    /// 1. `digits 2^-scale` is ε, exactly. `rounded 2^-58` is at most that.
    /// 2. `sum` starts with 1, at most `H_101`. With a `sum` of at most `H_(n+1)` and `rounded 2^-58` of at
    ///    most ε, `step` gives at most `1 + ε/n H_(n+1) = H_n`. So the last `sum` is at most `H_2`.
    /// 3. `kept 2^drop` is at most `sum` in units of `2^-64`. So `digits kept 2^(drop - scale - 64)` is at
    ///    most `ε H_2`, and so is `mantissa 2^-shift`.
    // Not inlined, so that proofs are about it and about its callers one by one.
    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "of ε up to 32 nothing is cut off")]
    pub fn below(epsilon: Epsilon) -> Self {
        // In 2^52..2^53, and in 47..=72.
        let bits = epsilon.get().to_bits();
        let digits = (bits & ((1 << 52) - 1)) | (1 << 52);
        let scale = 1075_u32.saturating_sub((bits >> 52) as u32);
        let rounded = ((u128::from(digits) << EPSILON_BITS) >> scale.min(127)) as u64;
        let sum = (2..=STEPS).rev().fold(ONE, |sum, n| Self::step(rounded, sum, n));
        // From 2^64 up, and below 2^106: e^32/32 is 2^41.2.
        let drop = 64 - sum.leading_zeros();
        let kept = (sum >> drop) as u64;
        // 2^63 <= kept < 2^64, so the product is in 2^115..2^117.
        let product = u128::from(digits) * u128::from(kept);
        // ε sum is product 2^(drop - scale - 64).
        Self { mantissa: (product >> 53) as u64, shift: (scale + 11).saturating_sub(drop) }
    }

    /// `1 + ε sum/n` rounded down, for ε in units of `2^-58` and a sum in units of `2^-64`. `n` is 2 or
    /// more.
    ///
    /// It is `2^64 + floor(ε sum/(2^58 n))` for a sum below `2^122`. From there on the sum is taken
    /// modulo `2^122`, which is less. So the step is never above its exact value, and never
    /// overflows.
    #[doc(hidden)]
    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "a smaller sum is on the private side")]
    pub fn step(epsilon: u64, sum: u128, n: u8) -> u128 {
        let (high, low) = ((sum >> EPSILON_BITS) as u64, sum as u64 & ((1 << EPSILON_BITS) - 1));
        let product = |part: u64| u128::from(epsilon) * u128::from(part);
        // At most (2^64 - 1)^2 + 2^64 - 1, half of which and 2^64 are below 2^128.
        ONE + (product(high) + (product(low) >> EPSILON_BITS)) / u128::from(n)
    }

    /// Whether `width <= share mantissa 2^-shift`, exactly.
    pub(super) fn covers(self, width: u64, share: u64) -> bool {
        // Both sides times 2^shift are integers, and the right one is below 2^128.
        let width = u128::from(width);
        self.shift <= width.leading_zeros()
            && (width << self.shift) <= u128::from(share) * u128::from(self.mantissa)
    }

    /// The integer of `mantissa 2^-shift`.
    pub fn mantissa(self) -> u64 {
        self.mantissa
    }

    /// The number of its binary places.
    pub fn shift(self) -> u32 {
        self.shift
    }
}
