//! The lattice of rewards and noise.

use bandana_mechanisms::noise::{DiscreteGaussian, Ratio};
use bandana_shared::accounting::concentrated::Rho;
use rand::Rng;
use serde::{Deserialize, Serialize};

use super::error::ZcdpError;

/// Steps of the lattice per unit, for rewards and for the coordinates of vectors. A reward is
/// rounded by at most `2^-17`.
pub const UNITS: i128 = 1 << 16;

/// Maximum number of rewards of one experiment; sums then stay far from integer overflow.
pub const REWARDS_MAX: u64 = 1 << 40;

/// Maximum number of coordinates of an action.
pub const DIMENSION_MAX: usize = 64;

/// The range of rewards. The sensitivity of a sum is the length of the range: 1 for [`Self::Unit`],
/// 2 for [`Self::Symmetric`]. The papers' bandits have 1 for finite arms and 2 for linear ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RewardRange {
    /// 0 to 1.
    Unit,
    /// -1 to 1.
    Symmetric,
}

impl RewardRange {
    /// Both ends of the range.
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

    /// Length of the range in steps of the lattice.
    pub(super) fn length_units(self) -> u64 {
        match self {
            Self::Unit => 1 << 16,
            Self::Symmetric => 2 << 16,
        }
    }

    /// Rounds a reward to the lattice.
    ///
    /// # Errors
    /// [`ZcdpError::Reward`] when it is out of the range or not a number.
    #[expect(clippy::cast_possible_truncation, reason = "a number up to the units")]
    pub fn reward(self, reward: f64) -> Result<LatticeReward, ZcdpError> {
        let (low, high) = self.ends();
        if (low..=high).contains(&reward) {
            Ok(LatticeReward((reward * UNITS as f64).round() as i64))
        } else {
            Err(ZcdpError::Reward { low, high })
        }
    }
}

/// A reward on the lattice. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LatticeReward(i64);

impl LatticeReward {
    /// The reward in lattice steps.
    pub(super) fn units(self) -> i128 {
        self.0.into()
    }

    /// The reward, rounded to the lattice. It is for forwarding only, never for a log.
    pub fn disclose(self) -> f64 {
        reward_of(self.units())
    }
}

impl std::fmt::Debug for LatticeReward {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LatticeReward(<private>)")
    }
}

/// The noise of a release: independent draws of
/// [`DiscreteGaussian`], in steps of the lattice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoiseScale {
    /// σ² of each draw.
    pub variance: Ratio,
    /// Number of draws.
    pub draws: usize,
}

impl NoiseScale {
    /// Draws the noise.
    pub fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> Vec<i64> {
        let gaussian = DiscreteGaussian::new(self.variance);
        (0..self.draws).map(|_| gaussian.sample(rng)).collect()
    }
}

/// The protection of rewards.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Protection {
    /// None; for comparison.
    None,
    /// ρ-zCDP for each reward.
    Concentrated(Price),
}

/// A ρ within the supported range: 1e-7 to 1e6.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Price(f64);

impl TryFrom<f64> for Price {
    type Error = ZcdpError;

    fn try_from(rho: f64) -> Result<Self, ZcdpError> {
        if (RHO_MIN..=RHO_MAX).contains(&rho) { Ok(Self(rho)) } else { Err(ZcdpError::Rho { rho }) }
    }
}

impl From<Price> for f64 {
    fn from(price: Price) -> Self {
        price.0
    }
}

/// Least ρ: σ² is then below the `2^61` that noise has room for.
const RHO_MIN: f64 = 1e-7;

/// Largest ρ.
const RHO_MAX: f64 = 1e6;

impl Protection {
    /// ρ-zCDP for each reward.
    ///
    /// # Errors
    /// [`ZcdpError::Rho`] when it is not finite, or not in 1e-7..=1e6.
    pub fn concentrated(rho: f64) -> Result<Self, ZcdpError> {
        rho.try_into().map(Self::Concentrated)
    }

    /// The ρ per reward; infinite without protection.
    pub fn rho(self) -> Rho {
        match self {
            Self::None => Rho::new(f64::INFINITY).unwrap_or(Rho::ZERO),
            Self::Concentrated(Price(rho)) => Rho::new(rho).unwrap_or(Rho::ZERO),
        }
    }

    /// `1/ρ`; 0 without protection.
    pub(super) fn inverse_rho(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Concentrated(Price(rho)) => 1.0 / rho,
        }
    }

    /// The noise of a release of `draws` numbers. One reward moves them, in L2 norm, by at most Δ,
    /// the length of the range in steps: `σ² = Δ²/(2ρ)`, rounded up. None without protection.
    pub fn noise(self, range: RewardRange, draws: usize) -> Option<NoiseScale> {
        let Self::Concentrated(Price(rho)) = self else { return None };
        let square = Ratio::whole(range.length_units().pow(2)).ok()?;
        let variance = square.over(Ratio::at_most(2.0 * rho).ok()?).ok()?;
        Some(NoiseScale { variance, draws })
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
    pub fn new(vector: &[f64], dimension: usize, number: usize) -> Result<Self, ZcdpError> {
        if vector.len() != dimension {
            let found = vector.len();
            return Err(ZcdpError::Dimension { action: number, found, expected: dimension });
        }
        if vector.iter().any(|x| !x.is_finite()) {
            return Err(ZcdpError::NotFinite { action: number });
        }
        // A normalised vector may be longer than 1 by a rounding error.
        let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm > 1.0 + 1e-9 {
            return Err(ZcdpError::Norm { action: number, norm });
        }
        let shrink = UNITS as f64 / norm.max(1.0);
        let units: Vec<i64> = vector.iter().map(|x| (x * shrink) as i64).collect();
        let square: i128 = units.iter().map(|x| i128::from(*x).pow(2)).sum();
        match square {
            0 => Err(ZcdpError::Zero { action: number }),
            square if square > UNITS * UNITS => Err(ZcdpError::Norm { action: number, norm }),
            _ => Ok(Self(units)),
        }
    }

    /// Converts a list of actions, all of the first one's dimension.
    ///
    /// # Errors
    /// As [`Self::new`], and [`ZcdpError::Parameter`] for a dimension of 0 or more than
    /// [`DIMENSION_MAX`].
    pub fn list(vectors: &[Vec<f64>]) -> Result<Vec<Self>, ZcdpError> {
        let dimension = vectors.first().map_or(0, Vec::len);
        check_dimension(dimension)?;
        vectors.iter().enumerate().map(|(at, vector)| Self::new(vector, dimension, at)).collect()
    }

    /// The coordinates in lattice steps.
    pub(super) fn units(&self) -> &[i64] {
        &self.0
    }

    /// The coordinates, exact.
    pub fn coordinates(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.0.iter().map(|x| *x as f64 / UNITS as f64)
    }

    /// Number of coordinates.
    pub fn dimension(&self) -> usize {
        self.0.len()
    }
}

/// Checks the number of coordinates of vectors.
pub(super) fn check_dimension(dimension: usize) -> Result<(), ZcdpError> {
    if (1..=DIMENSION_MAX).contains(&dimension) {
        return Ok(());
    }
    Err(ZcdpError::Parameter {
        name: "the dimension",
        value: dimension as f64,
        expected: "1 to 64 coordinates",
    })
}

/// A sum in lattice steps, converted to the unit of rewards.
pub(super) fn reward_of(units: i128) -> f64 {
    units as f64 / UNITS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_is_that_of_rho() {
        for rho in [1e-7, 1e-3, 0.1, 0.5, 1.0, 3.0, 1e6] {
            let protection = Protection::concentrated(rho).unwrap();
            for range in [RewardRange::Unit, RewardRange::Symmetric] {
                let scale = protection.noise(range, 3).unwrap();
                let length = range.length_units() as f64;
                let spent = length * length / 2.0 / scale.variance.to_f64();
                // A variance is rounded up to a ratio of 62 bits.
                assert!(spent <= rho * (1.0 + 1e-12) && spent > 0.95 * rho, "{rho} {spent}");
            }
        }
        for rho in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-8, 1e7] {
            assert!(Protection::concentrated(rho).is_err(), "{rho}");
        }
        assert_eq!(Protection::None.noise(RewardRange::Unit, 1), None);
    }

    #[test]
    fn rewards_and_actions_out_of_range_are_refused() {
        assert!(RewardRange::Unit.reward(-0.01).is_err());
        assert!(RewardRange::Symmetric.reward(1.01).is_err());
        assert!(RewardRange::Symmetric.reward(f64::NAN).is_err());
        assert_eq!(RewardRange::Symmetric.reward(-0.5).unwrap().units(), -UNITS / 2);
        let refused = |vector: &[f64]| Action::new(vector, 2, 7).unwrap_err().to_string();
        assert_eq!(
            refused(&[0.0, 0.0]),
            "action 7 is zero; such an action teaches nothing: leave it out"
        );
        assert!(refused(&[1.0, 0.1]).contains("norm 1.00"));
        assert!(refused(&[f64::NAN, 0.1]).contains("not a finite number"));
        assert!(refused(&[1.0]).contains("1 coordinates; expected 2"));
        // A normalised vector may be too long by a rounding error.
        let third = 1.0_f64.next_up();
        assert!(Action::new(&[third, 0.0], 2, 0).is_ok());
    }
}
