//! Arithmetic on non-negative numbers that never rounds down.
//!
//! Each elementary operation below returns a float that is not below the exact result: the least
//! such float for results above 2^-962, and infinity for a result beyond every float.

/// Above it, 2^-962, the error of a product or the remainder of a quotient is a
/// float: a multiple of 2^-106 of the product, and so of the least float.
const ERROR_IS_EXACT_ABOVE: f64 = f64::MIN_POSITIVE * (1_u64 << 60) as f64;

/// `a + b`, rounded up.
pub(super) fn add_up(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if sum.is_infinite() {
        return sum;
    }
    // The error of a rounded sum is a float, and these operations find it
    // (Knuth's TwoSum).
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    if error > 0.0 { sum.next_up() } else { sum }
}

/// `a b`, rounded up. Zero times infinity is zero.
pub(super) fn mul_up(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 {
        return 0.0;
    }
    let product = a * b;
    let enough = product > ERROR_IS_EXACT_ABOVE && libm::fma(a, b, -product) <= 0.0;
    if enough || product.is_infinite() { product } else { product.next_up() }
}

/// `a/b` for finite `b > 0`, rounded up.
pub(super) fn div_up(a: f64, b: f64) -> f64 {
    if a == 0.0 {
        return 0.0;
    }
    let quotient = a / b;
    let known = quotient > ERROR_IS_EXACT_ABOVE && a > ERROR_IS_EXACT_ABOVE;
    let enough = known && libm::fma(-quotient, b, a) <= 0.0;
    if enough || quotient.is_infinite() { quotient } else { quotient.next_up() }
}

/// The square root, rounded up.
pub(super) fn sqrt_up(x: f64) -> f64 {
    let root = x.sqrt();
    let enough = x > ERROR_IS_EXACT_ABOVE && libm::fma(-root, root, x) <= 0.0;
    if enough || x == 0.0 || x.is_infinite() { root } else { root.next_up() }
}

/// A whole number as a float, rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float that a whole number was rounded to is whole, and at most 2^64"
)]
pub(super) fn count_up(count: u64) -> f64 {
    let rounded = count as f64;
    if (rounded as u128) < u128::from(count) { rounded.next_up() } else { rounded }
}

/// An upper bound of an exact value that a library function computed to within one unit in the last
/// place.
pub(super) fn after_library(x: f64) -> f64 {
    x.next_up().next_up()
}

/// `e^x`, rounded up, and never 0 for a finite x.
pub(super) fn exp_up(x: f64) -> f64 {
    // The library's error is small relative to normal numbers only.
    let least = if x == f64::NEG_INFINITY { 0.0 } else { f64::MIN_POSITIVE };
    let value = libm::exp(x);
    if value < f64::MIN_POSITIVE { least } else { after_library(value) }
}

/// A sum of positive and negative terms with a bound of its error.
///
/// At most 8 terms, each within 8 units of 2^-53 of its exact value,
/// relatively. With M the sum of their magnitudes, the terms err by 8 M 2^-53
/// together, and 8 additions by as much again, to first order. A guard of
/// M 2^-48, twice that, is above all of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GuardedSum {
    value: f64,
    magnitude: f64,
}

impl GuardedSum {
    /// The guard in units of the sum of the magnitudes, 2^-48.
    const GUARD: f64 = 1.0 / (1_u64 << 48) as f64;

    /// The sum with one more term.
    pub(super) fn plus(self, term: f64) -> Self {
        Self { value: self.value + term, magnitude: self.magnitude + term.abs() }
    }

    /// The sum of the magnitudes.
    pub(super) fn magnitude(self) -> f64 {
        self.magnitude
    }

    /// The computed sum.
    pub(super) fn value(self) -> f64 {
        self.value
    }

    /// A bound above the exact sum.
    pub(super) fn upper(self) -> f64 {
        if self.magnitude == 0.0 {
            return self.value;
        }
        (self.value + self.magnitude * Self::GUARD).next_up()
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "directed rounding has exactly one result")]
mod tests {
    use super::*;

    #[test]
    fn exact_results_stay() {
        assert_eq!(add_up(0.5, 0.25), 0.75);
        assert_eq!(mul_up(3.0, 0.5), 1.5);
        assert_eq!(div_up(1.5, 0.5), 3.0);
        assert_eq!(sqrt_up(2.25), 1.5);
        assert_eq!(count_up(1 << 60), (1_u64 << 60) as f64);
    }

    #[test]
    fn inexact_results_go_up() {
        assert_eq!(add_up(1.0, 1e-30), 1.0_f64.next_up());
        assert_eq!(mul_up(f64::from_bits(1), 0.25), f64::from_bits(1));
        assert_eq!(div_up(f64::from_bits(1), 4.0), f64::from_bits(1));
        assert!(div_up(1.0, 3.0) > 1.0 / 3.0);
        assert!(sqrt_up(2.0) * sqrt_up(2.0) >= 2.0);
        assert!(count_up((1 << 60) + 1) > (1_u64 << 60) as f64);
        assert_eq!(exp_up(-1e6), f64::MIN_POSITIVE);
        assert_eq!(exp_up(f64::NEG_INFINITY), 0.0);
    }

    #[test]
    fn overflow_is_infinite() {
        assert!(add_up(f64::MAX, f64::MAX).is_infinite());
        assert!(mul_up(f64::MAX, 2.0).is_infinite());
        assert!(div_up(f64::MAX, 0.5).is_infinite());
        assert!(sqrt_up(f64::INFINITY).is_infinite());
        assert_eq!(mul_up(0.0, f64::INFINITY), 0.0);
    }
}
