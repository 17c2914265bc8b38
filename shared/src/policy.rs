//! Policies: the probability of each arm.

use thiserror::Error;

use crate::identity::ArmIndex;
use crate::limits::ARMS_MAX;

/// Weights over the arms, integers that sum to `2^32` exactly.
///
/// ```
/// use bandana_shared::policy::Weights;
/// let weights = Weights::from_shares(&[3.0, 1.0])?;
/// assert_eq!(weights.get(0), 3 << 30);
/// assert_eq!(weights.draw(u32::MAX).get(), 1);
/// # Ok::<(), bandana_shared::policy::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// `cumulative[i]` is the sum of the weights of arms 0..=i.
    cumulative: Vec<u64>,
}

impl Weights {
    /// The sum of the weights.
    pub const TOTAL: u64 = 1 << 32;

    /// Checks that the weights sum to [`Self::TOTAL`].
    ///
    /// # Errors
    /// [`PolicyError::ArmCount`] without arms or with more than [`ARMS_MAX`],
    /// [`PolicyError::Sum`] for another sum.
    pub fn new(weights: &[u64]) -> Result<Self, PolicyError> {
        if weights.is_empty() || weights.len() > ARMS_MAX {
            return Err(PolicyError::ArmCount { arms: weights.len() });
        }
        let mut sum = 0_u64;
        let cumulative: Vec<u64> = weights
            .iter()
            .map(|weight| {
                sum = sum.saturating_add(*weight);
                sum
            })
            .collect();
        if sum == Self::TOTAL { Ok(Self { cumulative }) } else { Err(PolicyError::Sum { sum }) }
    }

    /// The nearest weights to the given shares, which need not sum to 1. The cumulative shares are
    /// rounded, so every weight is off by less than 1. A share of 0 gives a weight of 0.
    ///
    /// # Errors
    /// [`PolicyError::Shares`] unless all are finite and at least 0, and one is
    /// positive; [`PolicyError::ArmCount`] as in [`Self::new`].
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rounded number from 0 to about 2^32"
    )]
    pub fn from_shares(shares: &[f64]) -> Result<Self, PolicyError> {
        let total: f64 = shares.iter().sum();
        let valid = shares.iter().all(|share| *share >= 0.0) && total > 0.0 && total.is_finite();
        if !shares.is_empty() && !valid {
            return Err(PolicyError::Shares);
        }
        let last = shares.iter().rposition(|share| *share > 0.0).unwrap_or_default();
        let mut sum = 0.0;
        let mut before = 0;
        let weigh = |(arm, share): (usize, &f64)| {
            sum += share;
            let scaled = (sum / total * Self::TOTAL as f64).round() as u64;
            let end = if arm >= last { Self::TOTAL } else { scaled.min(Self::TOTAL).max(before) };
            let weight = end - before;
            before = end;
            weight
        };
        Self::new(&shares.iter().enumerate().map(weigh).collect::<Vec<u64>>())
    }

    /// Equal shares for the arms that are `active`.
    ///
    /// # Errors
    /// As [`Self::from_shares`].
    pub fn uniform(active: &[bool]) -> Result<Self, PolicyError> {
        Self::from_shares(&active.iter().map(|&a| f64::from(u8::from(a))).collect::<Vec<f64>>())
    }

    /// Number of arms.
    pub fn len(&self) -> usize {
        self.cumulative.len()
    }

    /// Always false: there is at least one arm.
    pub fn is_empty(&self) -> bool {
        self.cumulative.is_empty()
    }

    /// The weight of an arm; 0 for an index beyond the last arm.
    pub fn get(&self, arm: usize) -> u64 {
        let before = arm.checked_sub(1).and_then(|a| self.cumulative.get(a)).copied();
        self.cumulative.get(arm).map_or(0, |end| end - before.unwrap_or(0))
    }

    /// The weight of an arm as a fraction, 0 to 1.
    pub fn share(&self, arm: usize) -> f64 {
        self.get(arm) as f64 / Self::TOTAL as f64
    }

    /// Entropy of the shares, in nats: 0 when one arm gets all traffic, `ln k` when `k`
    /// arms get the same.
    ///
    /// ```
    /// use bandana_shared::policy::Weights;
    /// let weights = Weights::uniform(&[true, true, false])?;
    /// assert!((weights.entropy() - 2.0_f64.ln()).abs() < 1e-9);
    /// # Ok::<(), bandana_shared::policy::PolicyError>(())
    /// ```
    pub fn entropy(&self) -> f64 {
        let shares = (0..self.len()).map(|arm| self.share(arm)).filter(|share| *share > 0.0);
        // Not the negated sum, which would be -0 for one arm.
        shares.map(|share| share * libm::log(share.recip())).sum()
    }

    /// All weights, in the order of the arms.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map(|arm| self.get(arm))
    }

    /// The arm for a uniformly random number.
    pub fn draw(&self, uniform: u32) -> ArmIndex {
        let uniform = u64::from(uniform);
        let arm = self.cumulative.partition_point(|end| *end <= uniform);
        ArmIndex::new(arm).unwrap_or_else(|_| unreachable!("weights have at most ARMS_MAX arms"))
    }
}

/// Weights and their version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Opaque and never 0; equal versions mean equal weights.
    pub version: u64,
    /// The weights.
    pub weights: Weights,
    /// Seconds after which a device should fetch again, at least 1.
    pub time_to_live_seconds: u32,
}

/// Invalid weights of a policy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// No arms, or too many.
    #[error("a policy weighs 1 to {max} arms; this one weighs {arms}", max = ARMS_MAX)]
    ArmCount {
        /// The number of arms.
        arms: usize,
    },
    /// The weights have a sum other than `2^32`.
    #[error("weights must sum to 2^32; these sum to {sum}")]
    Sum {
        /// The sum.
        sum: u64,
    },
    /// The shares are not a distribution.
    #[error("shares must be finite numbers from 0 up, and one of them positive")]
    Shares,
    /// Version 0 or a time to live of 0.
    #[error("a policy needs a version and a time to live of at least 1")]
    Unversioned,
}
