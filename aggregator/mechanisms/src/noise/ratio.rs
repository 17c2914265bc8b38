//! Positive rational numbers, and conversion from floats.

use thiserror::Error;

/// A positive rational number in lowest terms, with numerator and denominator below 2^62.
///
/// ```
/// use bandana_mechanisms::noise::Ratio;
/// assert_eq!(Ratio::new(6, 4)?, Ratio::new(3, 2)?);
/// // 0.1 as a float is a little more than a tenth.
/// assert_eq!(Ratio::at_least(0.25)?, Ratio::new(1, 4)?);
/// assert!(Ratio::at_least(0.1)?.over(Ratio::new(1, 10)?)? > Ratio::ONE);
/// assert!(Ratio::new(1, 0).is_err());
/// # Ok::<(), bandana_mechanisms::noise::RatioError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    numerator: u64,
    denominator: u64,
}

/// Exclusive upper limit of numerators and denominators.
const LIMIT: u64 = 1 << 62;

impl Ratio {
    /// 1.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// `numerator`/`denominator`.
    ///
    /// # Errors
    /// [`RatioError`] when one of them is 0, or in lowest terms 2^62 or more.
    pub fn new(numerator: u64, denominator: u64) -> Result<Self, RatioError> {
        let divisor = greatest_divisor(numerator.into(), denominator.into());
        let divisor = u64::try_from(divisor).unwrap_or(1);
        let (numerator, denominator) = (numerator / divisor, denominator / divisor);
        if numerator == 0 || denominator == 0 {
            return Err(RatioError::NotPositive);
        }
        if numerator >= LIMIT || denominator >= LIMIT {
            return Err(RatioError::OutOfRange);
        }
        Ok(Self { numerator, denominator })
    }

    /// A whole number.
    ///
    /// # Errors
    /// [`RatioError`] for 0, and for 2^62 or more.
    pub fn whole(number: u64) -> Result<Self, RatioError> {
        Self::new(number, 1)
    }

    /// The least ratio at or above a float, and at least 2^-61.
    ///
    /// # Errors
    /// [`RatioError`] when it is not positive, not finite, or 2^61 or more.
    pub fn at_least(value: f64) -> Result<Self, RatioError> {
        Self::of_float(value, true)
    }

    /// The largest ratio at or below a float.
    ///
    /// # Errors
    /// [`RatioError`] when it is not positive, not finite, 2^61 or more, or below 2^-61.
    pub fn at_most(value: f64) -> Result<Self, RatioError> {
        Self::of_float(value, false)
    }

    fn of_float(value: f64, up: bool) -> Result<Self, RatioError> {
        if value.is_nan() || value <= 0.0 {
            return Err(RatioError::NotPositive);
        }
        if value >= (1_u64 << 61) as f64 {
            return Err(RatioError::OutOfRange);
        }
        // value = mantissa 2^exponent, exactly.
        let bits = value.to_bits();
        let (raw, fraction) = ((bits >> 52).cast_signed(), u128::from(bits & ((1 << 52) - 1)));
        let (mantissa, exponent) =
            if raw == 0 { (fraction, -1074) } else { (fraction | (1 << 52), raw - 1075) };
        let shift = u32::try_from(-exponent).unwrap_or(0);
        if exponent >= 0 {
            return Self::raised(mantissa << exponent.min(9), 1);
        }
        if shift <= 61 {
            return Self::raised(mantissa, 1 << shift);
        }
        let excess = (shift - 61).min(100);
        let (quotient, exact) = (mantissa >> excess, mantissa & ((1 << excess) - 1) == 0);
        let numerator = quotient + u128::from(up && !exact);
        if numerator == 0 { Err(RatioError::OutOfRange) } else { Self::raised(numerator, 1 << 61) }
    }

    /// The numerator, in lowest terms.
    pub fn numerator(self) -> u64 {
        self.numerator
    }

    /// The denominator, in lowest terms.
    pub fn denominator(self) -> u64 {
        self.denominator
    }

    /// The product, exact if representable, and otherwise rounded up.
    ///
    /// # Errors
    /// [`RatioError`] when it is 2^61 or more.
    pub fn times(self, other: Self) -> Result<Self, RatioError> {
        let (a, b) = (u128::from(self.numerator), u128::from(self.denominator));
        Self::raised(a * u128::from(other.numerator), b * u128::from(other.denominator))
    }

    /// The quotient, exact if representable, and otherwise rounded up.
    ///
    /// # Errors
    /// [`RatioError`] when it is 2^61 or more.
    pub fn over(self, other: Self) -> Result<Self, RatioError> {
        let (a, b) = (u128::from(self.numerator), u128::from(self.denominator));
        Self::raised(a * u128::from(other.denominator), b * u128::from(other.numerator))
    }

    /// The ratio rounded up to a whole number.
    pub fn ceiling(self) -> u64 {
        self.numerator.div_ceil(self.denominator)
    }

    /// The nearest float.
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// `numerator`/`denominator`, both positive, in lowest terms. If these are too large, both are
    /// cut to 61 bits so that the result is rounded up.
    fn raised(numerator: u128, denominator: u128) -> Result<Self, RatioError> {
        let divisor = greatest_divisor(numerator, denominator);
        let (mut n, mut d) = (numerator / divisor, denominator / divisor);
        let bits = 128 - n.max(d).leading_zeros();
        if bits > 62 {
            let shift = bits - 61;
            n = (n >> shift) + u128::from(n & ((1 << shift) - 1) != 0);
            d >>= shift;
            let divisor = greatest_divisor(n, d);
            (n, d) = (n / divisor, d / divisor);
        }
        match (u64::try_from(n), u64::try_from(d)) {
            (Ok(numerator), Ok(denominator)) if denominator > 0 => {
                Ok(Self { numerator, denominator })
            }
            _ => Err(RatioError::OutOfRange),
        }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let side = |a: &Self, b: &Self| u128::from(a.numerator) * u128::from(b.denominator);
        side(self, other).cmp(&side(other, self))
    }
}

fn greatest_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// The error for a number that is no ratio.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RatioError {
    /// Zero, negative or not a number.
    #[error("a scale or a variance must be a number above 0")]
    NotPositive,
    /// Too large or too small.
    #[error("a scale or a variance must lie between 2^-61 and 2^61")]
    OutOfRange,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_rounded_to_the_side_that_was_asked_for() {
        for value in [0.1, 1.0 / 3.0, 1e-9, 1e-17, 3.7e-18, 12_345.678, 1e18] {
            let (low, high) = (Ratio::at_most(value).unwrap(), Ratio::at_least(value).unwrap());
            assert!(low <= high);
            assert!((low.to_f64() - value).abs() <= value * 1e-15 + 5e-19, "{value}");
            assert!((high.to_f64() - value).abs() <= value * 1e-15 + 5e-19, "{value}");
        }
        assert!(Ratio::at_most(1e-30).is_err());
        assert_eq!(Ratio::at_least(1e-30).unwrap(), Ratio::new(1, 1 << 61).unwrap());
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e19] {
            assert!(Ratio::at_least(wrong).is_err() && Ratio::at_most(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn products_that_do_not_fit_are_rounded_up() {
        let third = Ratio::new((1 << 61) + 1, (3 << 60) + 1).unwrap();
        let square = third.times(third).unwrap();
        assert!(square.numerator() < 1 << 62 && square.denominator() < 1 << 62);
        assert!(square.over(third).unwrap() >= third);
        assert!((square.to_f64() / third.to_f64().powi(2) - 1.0).abs() < 1e-15);
        let (two_thirds, inverse) = (Ratio::new(2, 3).unwrap(), Ratio::new(3, 2).unwrap());
        assert_eq!(two_thirds.times(inverse), Ok(Ratio::ONE));
        assert_eq!(Ratio::new(1, 1 << 63), Err(RatioError::OutOfRange));
        // A scale that is too large is refused and never reduced, which would add less noise.
        let most = Ratio::whole((1 << 62) - 1).unwrap();
        assert_eq!(most.times(most), Err(RatioError::OutOfRange));
        assert_eq!(most.over(Ratio::new(1, 1 << 40).unwrap()), Err(RatioError::OutOfRange));
    }
}
