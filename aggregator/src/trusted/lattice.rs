//! The lattice on which rewards are added and noise is drawn.

use bandana_shared::accounting::concentrated::Rho;
use serde::{Deserialize, Serialize};

use super::error::TrustedError;

/// Steps of the reward lattice in half a range: a reward is rounded by at most `2^-21` of it.
pub const REWARD_UNITS: i128 = 1 << 20;

/// Steps of the lattice of vectors in a unit of length.
pub const VECTOR_UNITS: i128 = 1 << 16;

/// Most rewards of one experiment; sums are then far from the ends of their integers.
pub const REWARDS_MAX: u64 = 1 << 40;

/// Most coordinates of an action.
pub const DIMENSION_MAX: usize = 64;

/// Where rewards may lie. The sensitivity of a sum is the length of the range: 1 for
/// [`Self::Unit`], 2 for [`Self::Symmetric`]. The papers' bandits have 1 for finite arms
/// and 2 for linear ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RewardRange {
    /// 0 to 1.
    Unit,
    /// -1 to 1.
    Symmetric,
}

impl RewardRange {
    /// Both ends.
    pub fn ends(self) -> (f64, f64) {
        match self {
            Self::Unit => (0.0, 1.0),
            Self::Symmetric => (-1.0, 1.0),
        }
    }

    /// Length of the range, the sensitivity of a sum of rewards.
    pub fn length(self) -> f64 {
        match self {
            Self::Unit => 1.0,
            Self::Symmetric => 2.0,
        }
    }

    /// Standard deviation of a Gaussian variable whose tails bound those of a reward around
    /// its mean (Hoeffding's lemma): half the length.
    pub fn deviation(self) -> f64 {
        0.5 * self.length()
    }

    /// Length of the range in units of the lattice.
    fn length_units(self) -> u64 {
        match self {
            Self::Unit => REWARD_UNITS.unsigned_abs() as u64,
            Self::Symmetric => 2 * REWARD_UNITS.unsigned_abs() as u64,
        }
    }

    /// Rounds a reward to the lattice.
    ///
    /// # Errors
    /// [`TrustedError::Reward`] when it is out of the range or not a number.
    #[expect(clippy::cast_possible_truncation, reason = "a number up to the units")]
    pub fn reward(self, reward: f64) -> Result<LatticeReward, TrustedError> {
        let (low, high) = self.ends();
        if (low..=high).contains(&reward) {
            Ok(LatticeReward((reward * REWARD_UNITS as f64).round() as i64))
        } else {
            Err(TrustedError::Reward { low, high })
        }
    }
}

/// A reward on the lattice. It shows nothing of itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LatticeReward(i64);

impl LatticeReward {
    /// In steps of the lattice.
    pub(super) fn units(self) -> i128 {
        self.0.into()
    }
}

impl std::fmt::Debug for LatticeReward {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LatticeReward(<private>)")
    }
}

/// The variance parameter σ² of discrete Gaussian noise, a fraction in lowest terms or not, and
/// how many independent draws a release takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoiseScale {
    /// Numerator of σ².
    pub numerator: u128,
    /// Denominator of σ², at least 1.
    pub denominator: u128,
    /// Draws for one release.
    pub draws: usize,
}

impl NoiseScale {
    /// σ, rounded.
    pub fn deviation(self) -> f64 {
        (self.numerator as f64 / self.denominator as f64).sqrt()
    }
}

/// How rewards are protected.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Protection {
    /// Not at all; for comparison.
    None,
    /// ρ-zCDP for each reward.
    Concentrated(Price),
}

/// A ρ that noise can be made for, as an exact fraction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Price(f64);

impl TryFrom<f64> for Price {
    type Error = TrustedError;

    fn try_from(rho: f64) -> Result<Self, TrustedError> {
        if (RHO_MIN..=RHO_MAX).contains(&rho) {
            // Bits beyond the 24th are dropped: a smaller ρ, and fractions that fit.
            Ok(Self(f64::from_bits(rho.to_bits() & !((1 << 29) - 1))))
        } else {
            Err(TrustedError::Rho { rho })
        }
    }
}

impl From<Price> for f64 {
    fn from(price: Price) -> Self {
        price.0
    }
}

/// Least ρ, a bit below 1e-9.
const RHO_MIN: f64 = 1.0 / (1_u64 << 30) as f64;

/// Largest ρ, a bit above 1e6.
const RHO_MAX: f64 = (1_u64 << 20) as f64;

impl Protection {
    /// ρ-zCDP for each reward.
    ///
    /// # Errors
    /// [`TrustedError::Rho`] when it is not finite, or not in `2^-30..=2^20`.
    pub fn concentrated(rho: f64) -> Result<Self, TrustedError> {
        rho.try_into().map(Self::Concentrated)
    }

    /// The ρ of a reward; infinite without protection.
    pub fn rho(self) -> Rho {
        match self {
            Self::None => Rho::new(f64::INFINITY).unwrap_or(Rho::ZERO),
            Self::Concentrated(Price(rho)) => Rho::new(rho).unwrap_or(Rho::ZERO),
        }
    }

    /// `1/ρ`, 0 without protection.
    pub(super) fn inverse_rho(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Concentrated(Price(rho)) => 1.0 / rho,
        }
    }

    /// The noise for sums of rewards: one reward changes one of the `draws` sums of a release,
    /// by at most the length of the range.
    pub fn scale_of_sums(self, range: RewardRange, draws: usize) -> Option<NoiseScale> {
        self.scale(range.length_units().into(), draws)
    }

    /// The noise for a sum of vectors with at most [`VECTOR_UNITS`] of Euclidean norm, each
    /// multiplied by a reward: another reward moves it by the length of the range times that
    /// norm.
    pub fn scale_of_vectors(self, range: RewardRange, draws: usize) -> Option<NoiseScale> {
        let length = u128::from(range.length_units()) * VECTOR_UNITS.unsigned_abs();
        self.scale(length, draws)
    }

    /// `σ² = Δ²/(2ρ)`, exactly: ρ is a whole number of at most 24 bits times a power of 2.
    fn scale(self, sensitivity: u128, draws: usize) -> Option<NoiseScale> {
        let Self::Concentrated(Price(rho)) = self else { return None };
        let bits = rho.to_bits();
        let mantissa = u128::from((bits >> 29 & 0x7f_ffff) | 1 << 23);
        let exponent = i32::try_from(bits >> 52).unwrap_or_default() - 1023 - 23;
        let square = sensitivity * sensitivity;
        let (numerator, denominator) = match u32::try_from(exponent + 1) {
            Ok(up) => (square, mantissa << up),
            Err(_) => (square << (exponent + 1).unsigned_abs(), mantissa),
        };
        Some(NoiseScale { numerator, denominator, draws })
    }
}

/// An action's vector, on the lattice, of Euclidean norm at most 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action(Vec<i64>);

impl Action {
    /// Rounds each coordinate towards 0, to a multiple of `2^-16`; the norm does not grow.
    ///
    /// # Errors
    /// When a coordinate is not finite, the vector is zero (also after rounding), longer than
    /// 1, or has not `dimension` coordinates. `number` is for the message.
    #[expect(clippy::cast_possible_truncation, reason = "a number up to the units")]
    pub fn new(vector: &[f64], dimension: usize, number: usize) -> Result<Self, TrustedError> {
        if vector.len() != dimension {
            let found = vector.len();
            return Err(TrustedError::Dimension { action: number, found, expected: dimension });
        }
        if vector.iter().any(|x| !x.is_finite()) {
            return Err(TrustedError::NotFinite { action: number });
        }
        // A vector that was divided by its norm may be longer than 1 by a rounding.
        let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm > 1.0 + 1e-9 {
            return Err(TrustedError::Norm { action: number, norm });
        }
        let shrink = VECTOR_UNITS as f64 / norm.max(1.0);
        let units: Vec<i64> = vector.iter().map(|x| (x * shrink) as i64).collect();
        let square: i128 = units.iter().map(|x| i128::from(*x).pow(2)).sum();
        match square {
            0 => Err(TrustedError::Zero { action: number }),
            square if square > VECTOR_UNITS * VECTOR_UNITS => {
                Err(TrustedError::Norm { action: number, norm })
            }
            _ => Ok(Self(units)),
        }
    }

    /// Checks a list of actions of one dimension, the first one's.
    ///
    /// # Errors
    /// As [`Self::new`], and [`TrustedError::Parameter`] for a dimension of 0 or more than
    /// [`DIMENSION_MAX`].
    pub fn list(vectors: &[Vec<f64>]) -> Result<Vec<Self>, TrustedError> {
        let dimension = vectors.first().map_or(0, Vec::len);
        check_dimension(dimension)?;
        vectors.iter().enumerate().map(|(at, vector)| Self::new(vector, dimension, at)).collect()
    }

    /// In steps of the lattice.
    pub(super) fn units(&self) -> &[i64] {
        &self.0
    }

    /// Its coordinates, which are exact.
    pub fn coordinates(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.0.iter().map(|x| *x as f64 / VECTOR_UNITS as f64)
    }

    /// Number of coordinates.
    pub fn dimension(&self) -> usize {
        self.0.len()
    }
}

/// Whether vectors may have so many coordinates.
pub(super) fn check_dimension(dimension: usize) -> Result<(), TrustedError> {
    if (1..=DIMENSION_MAX).contains(&dimension) {
        return Ok(());
    }
    Err(TrustedError::Parameter {
        name: "the dimension",
        value: dimension as f64,
        expected: "1 to 64 coordinates",
    })
}

/// The sum of a lattice in its own unit.
pub(super) fn reward_of(units: i128) -> f64 {
    units as f64 / REWARD_UNITS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_is_exactly_that_of_rho() {
        for rho in [1e-9, 1e-3, 0.1, 0.5, 1.0, 3.0, 1e6] {
            let protection = Protection::concentrated(rho).unwrap();
            let used = protection.rho().get();
            assert!(used <= rho && used > rho * (1.0 - 1e-6), "{rho} {used}");
            for range in [RewardRange::Unit, RewardRange::Symmetric] {
                let one = protection.scale_of_sums(range, 1).unwrap();
                let vectors = protection.scale_of_vectors(range, 3).unwrap();
                let length = range.length_units() as f64;
                // All factors are powers of two but one mantissa of 24 bits.
                let spent = length * length / 2.0 * one.denominator as f64 / one.numerator as f64;
                assert!((spent - used).abs() < 1e-15 * used, "{rho} {spent}");
                let ratio = vectors.deviation() / one.deviation() / VECTOR_UNITS as f64;
                assert!((ratio - 1.0).abs() < 1e-12);
            }
        }
        for rho in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-12, 1e7] {
            assert!(Protection::concentrated(rho).is_err(), "{rho}");
        }
        assert_eq!(Protection::None.scale_of_sums(RewardRange::Unit, 1), None);
    }

    #[test]
    fn rewards_and_actions_out_of_range_are_refused() {
        assert!(RewardRange::Unit.reward(-0.01).is_err());
        assert!(RewardRange::Symmetric.reward(1.01).is_err());
        assert!(RewardRange::Symmetric.reward(f64::NAN).is_err());
        assert_eq!(RewardRange::Symmetric.reward(-0.5).unwrap().units(), -REWARD_UNITS / 2);
        let refused = |vector: &[f64]| Action::new(vector, 2, 7).unwrap_err().to_string();
        assert_eq!(
            refused(&[0.0, 0.0]),
            "action 7 is zero; such an action teaches nothing: leave it out"
        );
        assert!(refused(&[1.0, 0.1]).contains("norm 1.00"));
        assert!(refused(&[f64::NAN, 0.1]).contains("not a finite number"));
        assert!(refused(&[1.0]).contains("1 coordinates; expected 2"));
        // Divided by its norm, a vector may come out a rounding too long.
        let third = 1.0_f64.next_up();
        assert!(Action::new(&[third, 0.0], 2, 0).is_ok());
    }
}
