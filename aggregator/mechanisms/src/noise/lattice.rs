//! Lattices: granularities, and the effect of rounding on a sensitivity.

use thiserror::Error;

use super::{Ratio, RatioError, STEPS_MAX};

/// The multiples of 2^-bits: the granularity of noise and of the values that it is added to.
///
/// Counts need granularity 1 only. For values in a known range of width W, a spacing of W/2^16 to
/// W/2^20 loses nothing against the noise, and leaves room for 2^42 values in a sum. The
/// granularity is chosen before the data are seen, and never from them.
///
/// Real values are rounded to the nearest point, halves up: floor(x/s + 1/2). Two values that are Δ
/// apart are then at most ceil(Δ/s) steps apart, since floor(y + z) - floor(y) is at most ceil(z).
/// So rounding raises the sensitivity of a value only if Δ is not a multiple of s.
///
/// ```
/// use bandana_mechanisms::noise::{Lattice, Ratio};
/// let lattice = Lattice::new(10)?;
/// assert_eq!(lattice.round(0.75)?, 768);
/// assert_eq!(lattice.value(768), 0.75);
/// assert_eq!(lattice.steps(Ratio::new(3, 4)?)?, 768);
/// assert_eq!(lattice.steps(Ratio::new(1, 3)?)?, 342);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lattice {
    bits: u32,
}

impl Lattice {
    /// The integers.
    pub const INTEGERS: Self = Self { bits: 0 };
    /// The largest `bits`: multiples of 2^-40.
    pub const BITS_MAX: u32 = 40;

    /// The multiples of 2^-`bits`.
    ///
    /// # Errors
    /// [`LatticeError::Bits`] above [`Self::BITS_MAX`].
    pub fn new(bits: u32) -> Result<Self, LatticeError> {
        if bits <= Self::BITS_MAX { Ok(Self { bits }) } else { Err(LatticeError::Bits(bits)) }
    }

    /// The distance between neighbouring points.
    pub fn spacing(self) -> f64 {
        self.value(1)
    }

    /// The nearest point, in steps; halves go up.
    ///
    /// # Errors
    /// [`LatticeError::Value`] when `value` is not a number, or lies 2^62 steps or more from
    /// 0. It does not name the value.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^62")]
    pub fn round(self, value: f64) -> Result<i64, LatticeError> {
        // A power of two changes the exponent alone.
        let steps = value * (1_u64 << self.bits) as f64;
        if steps.is_nan() || steps.abs() >= STEPS_MAX as f64 {
            return Err(LatticeError::Value);
        }
        // The difference is exact: above 2^52 it is 0, and below the floats are dense.
        let floor = steps.floor();
        Ok(floor as i64 + i64::from(steps - floor >= 0.5))
    }

    /// The value at a number of steps: the nearest float.
    pub fn value(self, steps: i64) -> f64 {
        steps as f64 / (1_u64 << self.bits) as f64
    }

    /// The sensitivity in steps of one value that one person changes by at most `change`,
    /// rounded to the lattice: ceil(Δ/s).
    ///
    /// # Errors
    /// [`RatioError`] when it is 2^61 or more.
    pub fn steps(self, change: Ratio) -> Result<u64, RatioError> {
        Ok(change.times(Ratio::whole(1 << self.bits)?)?.ceiling())
    }

    /// The sensitivity in steps of a vector of `dimension` values, in L1 norm: Δ_1/s + d, since
    /// rounding adds less than one step per coordinate.
    ///
    /// # Errors
    /// [`RatioError`] when it is 2^61 or more.
    pub fn steps_sum(self, change: Ratio, dimension: u32) -> Result<u64, RatioError> {
        let exact = self.steps(change)?;
        Ok(if dimension == 1 { exact } else { exact + u64::from(dimension) })
    }

    /// The squared sensitivity in steps of such a vector, in L2 norm: (Δ_2/s + sqrt(d))^2, rounded
    /// up, by the triangle inequality.
    ///
    /// # Errors
    /// [`RatioError`] when it is 2^61 or more.
    pub fn steps_squared(self, change: Ratio, dimension: u32) -> Result<Ratio, RatioError> {
        let mut sum = Ratio::whole(self.steps(change)?)?;
        if dimension != 1 {
            // sqrt(d) in units of 2^-14, rounded up.
            let root = (u64::from(dimension) << 28).isqrt() + 1;
            let parts = (u128::from(sum.numerator()) << 14) + u128::from(root);
            let parts = u64::try_from(parts).map_err(|_| RatioError::OutOfRange)?;
            sum = Ratio::new(parts, 1 << 14)?;
        }
        sum.times(sum)
    }
}

/// The reason why a value or a granularity has no lattice form.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LatticeError {
    /// The granularity is too fine.
    #[error("the lattice is 2^-{0}; the finest is 2^-40")]
    Bits(u32),
    /// The value is not a number, or too large.
    #[error("a value is not a number, or lies 2^62 or more lattice steps from 0; clamp it first")]
    Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_up_and_nothing_is_rounded_twice() {
        let lattice = Lattice::INTEGERS;
        let cases = [(0.5, 1), (-0.5, 0), (0.499_999_999_999_999_94, 0), (-1.5, -1), (2.5, 3)];
        for (value, steps) in cases {
            assert_eq!(lattice.round(value), Ok(steps), "{value}");
        }
        assert_eq!(lattice.round(9_007_199_254_740_994.0), Ok(9_007_199_254_740_994));
        for wrong in [f64::NAN, f64::INFINITY, 1e19] {
            assert_eq!(lattice.round(wrong), Err(LatticeError::Value));
        }
        assert!(Lattice::new(41).is_err());
    }

    #[test]
    fn rounding_moves_neighbours_by_no_more_than_was_counted() {
        let lattice = Lattice::new(3).unwrap();
        let change = Ratio::new(3, 10).unwrap();
        let counted = i64::try_from(lattice.steps(change).unwrap()).unwrap();
        let largest = (0..10_000)
            .map(|i| f64::from(i) / 1_000.0)
            .map(|x| lattice.round(x + 0.3).unwrap() - lattice.round(x).unwrap())
            .max();
        assert_eq!(largest, Some(counted));
    }

    #[test]
    fn vectors_pay_for_the_rounding_of_every_coordinate() {
        let lattice = Lattice::new(10).unwrap();
        assert_eq!(lattice.steps_squared(Ratio::ONE, 1), Ratio::whole(1 << 20));
        let squared = lattice.steps_squared(Ratio::ONE, 9).unwrap().to_f64();
        assert!((squared.sqrt() - 1_027.0).abs() < 1e-3 && squared.sqrt() >= 1_027.0);
        assert_eq!(lattice.steps_sum(Ratio::ONE, 9), Ok(1_033));
    }
}
