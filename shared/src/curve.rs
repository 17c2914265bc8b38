//! The curves that turn randomized response into the Bernoulli mechanisms.
//!
//! The mechanisms are those of Jiang, Zhao and Li, "Thompson Sampling under Bernoulli Rewards with
//! Local Differential Privacy" (arXiv 2307.00863). Each sends 1 with a probability that depends on
//! the reward r in [0, 1]. First a monotone curve g with g(0) = 0 and g(1) = 1 is applied to r,
//! then Warner's randomized response. The channel does the second step, and this module does the
//! first. It works in fixed point, with the same result on every platform. No branch and no table
//! look-up depends on the reward.

use thiserror::Error;

use crate::alphabet::Alphabet;
use crate::epsilon::Epsilon;

/// `2^53`, the level of the highest reward.
const ONE: u64 = 1 << 53;

/// A number in [0, 1] in units of `2^-53`: a scaled reward, or its curved value. It is as secret as
/// the reward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u64);

impl Level {
    /// The lowest reward.
    pub const ZERO: Self = Self(0);
    /// The highest reward.
    pub const ONE: Self = Self(ONE);
    /// The middle of the range.
    pub const HALF: Self = Self(ONE / 2);

    /// `x` rounded down to a multiple of `2^-53`.
    ///
    /// # Errors
    /// [`LevelError`] when `x` is not a number in 0..=1.
    #[inline]
    pub fn from_unit(x: f64) -> Result<Self, LevelError> {
        if !(0.0..=1.0).contains(&x) {
            return Err(LevelError);
        }
        Ok(Self::of_checked_unit(x))
    }

    /// [`Self::from_unit`] for an `x` that is known to be in 0..=1. Of anything else it is some level.
    #[inline]
    pub(crate) fn of_checked_unit(x: f64) -> Self {
        // x = m 2^(e - 1075) for normal numbers. Smaller exponents, subnormal
        // numbers and zero among them, are shifted out.
        let bits = x.to_bits();
        let exponent = (bits >> 52) & 0x7ff;
        let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
        let shift = 1023_u64.saturating_sub(exponent).min(63);
        Self(((mantissa << 1) >> shift).min(ONE))
    }

    /// The number of units of `2^-53`, 0 to `2^53`.
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The exact value.
    pub fn to_unit(self) -> f64 {
        self.0 as f64 / ONE as f64
    }

    /// One minus the value, exactly.
    ///
    /// ```
    /// use bandana_shared::curve::Level;
    /// assert_eq!(Level::from_unit(0.25)?.mirrored(), Level::from_unit(0.75)?);
    /// # Ok::<(), bandana_shared::curve::LevelError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn mirrored(self) -> Self {
        Self(ONE.wrapping_sub(self.0))
    }
}

impl std::fmt::Debug for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Level(<private>)")
    }
}

/// A number outside 0..=1. The error omits the number, which may be a reward.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("a scaled reward must be a number from 0 to 1")]
pub struct LevelError;

crate::debug_says!(LevelError);

/// The curvature k of the quadratic mechanism, -1 to 1 in steps of `2^-20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curvature(i32);

impl Curvature {
    /// `2^20`, the units of k = 1.
    pub const UNITS_MAX: i32 = 1 << 20;

    /// `k` rounded to the nearest multiple of `2^-20`.
    ///
    /// # Errors
    /// [`CurvatureError`] when `k` is not a number in -1..=1.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 2^20")]
    pub fn new(k: f64) -> Result<Self, CurvatureError> {
        if !(-1.0..=1.0).contains(&k) {
            return Err(CurvatureError);
        }
        Ok(Self((k * f64::from(Self::UNITS_MAX)).round() as i32))
    }

    /// k in units of `2^-20`.
    ///
    /// # Errors
    /// [`CurvatureError`] beyond ±[`Self::UNITS_MAX`].
    pub fn from_units(units: i32) -> Result<Self, CurvatureError> {
        if units.unsigned_abs() <= Self::UNITS_MAX.unsigned_abs() {
            Ok(Self(units))
        } else {
            Err(CurvatureError)
        }
    }

    /// k in units of `2^-20`.
    pub fn units(self) -> i32 {
        self.0
    }

    /// k.
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(Self::UNITS_MAX)
    }
}

/// A curvature outside -1..=1.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("the curvature of a quadratic mechanism must be a number from -1 to 1")]
pub struct CurvatureError;

crate::debug_says!(CurvatureError);

/// A reward-privatizing mechanism: a curve, then randomized response; or k-ary randomized
/// response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// g(r) = r, for which P(1) = ((e^ε - 1) r + 1)/(e^ε + 1). For rewards between 0 and 1, it is
    /// the only curve whose estimates are mean rewards.
    Linear,
    /// g(r) = k r² + (1 - k) r.
    Quadratic(Curvature),
    /// g(r) = (e^(ε r) - 1)/(e^ε - 1), for which P(1) = e^(ε r)/(e^ε + 1).
    Exponential,
    /// Warner's randomized response, for rewards that are 0 or 1. For these rewards the other three
    /// curves are the same.
    RandomizedResponse,
    /// k-ary randomized response. Categories are taken as they are. Rewards in a range are rounded
    /// at random to one of k levels, which keeps their means.
    Kary(Alphabet),
}

impl Mechanism {
    /// Whether the mean of g(r) is the mean of r, whatever the distribution.
    pub fn is_linear(self) -> bool {
        match self {
            Self::Linear | Self::RandomizedResponse | Self::Kary(_) => true,
            Self::Quadratic(k) => k.units() == 0,
            Self::Exponential => false,
        }
    }

    /// The name of the mechanism in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Quadratic(_) => "quadratic",
            Self::Exponential => "exponential",
            Self::RandomizedResponse => "rr",
            Self::Kary(_) => "k-ary",
        }
    }
}

/// The curve of a mechanism, prepared for one ε.
#[derive(Clone, Copy, Debug)]
pub struct Curve {
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Identity,
    Quadratic { units: i128 },
    Exponential { epsilon: f64, span: f64 },
}

impl Curve {
    /// Prepares the curve of `mechanism` for reports at `epsilon`.
    pub fn new(mechanism: Mechanism, epsilon: Epsilon) -> Self {
        let shape = match mechanism {
            Mechanism::Linear | Mechanism::RandomizedResponse | Mechanism::Kary(_) => {
                Shape::Identity
            }
            Mechanism::Quadratic(k) => Shape::Quadratic { units: i128::from(k.units()) },
            Mechanism::Exponential => {
                let epsilon = epsilon.get();
                Shape::Exponential { epsilon, span: one_minus_exp_neg(epsilon) }
            }
        };
        Self { shape }
    }

    /// g(r) for a scaled reward r.
    ///
    /// Monotone except in the last bits of the exponential curve, and within `2^-50` of g.
    ///
    /// ```
    /// use bandana_shared::curve::{Curvature, Curve, Level, Mechanism};
    /// use bandana_shared::epsilon::Epsilon;
    /// let curve = Curve::new(Mechanism::Quadratic(Curvature::new(1.0)?), Epsilon::new(1.0)?);
    /// let half = Level::from_unit(0.5)?;
    /// assert_eq!(curve.apply(half).to_unit(), 0.25);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the result lies in 0..=2^53"
    )]
    pub fn apply(&self, reward: Level) -> Level {
        match self.shape {
            Shape::Identity => reward,
            Shape::Quadratic { units } => {
                // g = r - k r (1 - r). r(1 - r) is below 2^104 in units of
                // 2^-106, the product with k below 2^124. Rounding the
                // subtrahend down rounds g up, and keeps it monotone.
                let r = i128::from(reward.0);
                let bend = (units * (r * (i128::from(ONE) - r))) >> 73;
                Level((r - bend) as u64)
            }
            Shape::Exponential { epsilon, span } => {
                // 1 - g(r) = (1 - e^(-ε(1-r)))/(1 - e^-ε), a form in which the rounding of the
                // exponent matters least.
                let rest = (ONE - reward.0) as f64 / ONE as f64;
                // A division of zero takes less time than other divisions. A numerator other than
                // zero is at least 2^-74, and the substitute for zero is rounded away.
                let numerator = one_minus_exp_neg(epsilon * rest).max(f64::MIN_POSITIVE);
                let complement = numerator / span;
                Level(ONE - Level::of_checked_unit(complement).0)
            }
        }
    }
}

/// `1/k!` for the Taylor series of `e^x - 1`.
const INVERSE_FACTORIALS: [f64; 15] = {
    let mut terms = [1.0; 15];
    let mut factorial = 1.0;
    let mut k = 1;
    while k < 15 {
        factorial *= k as f64;
        terms[k] = 1.0 / factorial;
        k += 1;
    }
    terms
};

/// `1 - e^-z` for `z` in 0..=32, from additions and multiplications of normal numbers only: the
/// same bits on every platform that follows IEEE 754, and no branch that depends on `z`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "z is positive, and n is the nearest whole number"
)]
fn one_minus_exp_neg(z: f64) -> f64 {
    // ln 2 in two parts, of which the first has 20 trailing zero bits, so that
    // its product with a small integer is exact (Cody and Waite).
    const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
    const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
    // z = n ln 2 - x with |x| <= (ln 2)/2, so e^-z = 2^-n e^x.
    let n = (z * std::f64::consts::LOG2_E + 0.5) as u32;
    let x = (f64::from(n) * LN_2_HIGH - z) + f64::from(n) * LN_2_LOW;
    // Two terms at a time, which halves the chain of dependent operations.
    let (pairs, _) = INVERSE_FACTORIALS[1..].as_chunks::<2>();
    let square = x * x;
    let series =
        pairs.iter().rev().fold(0.0, |sum, [odd, even]| sum * square + (even * x + odd)) * x;
    let scale = f64::from_bits(u64::from(1023 - n) << 52);
    (1.0 - scale) - scale * series
}
