//! Policies: the probability of each arm.

use thiserror::Error;

use crate::identity::ArmIndex;
use crate::limits::{ARMS_MAX, WEIGHTS_MAX};

/// Weights over the arms: integers that sum to exactly `2^32`. They are for all installations. In
/// an experiment with segments, there are also weights for the installations of each segment, with
/// the same sum.
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
    arms: usize,
    /// `cumulative[i]` is the sum of the weights of arms 0..=i. The sums of each segment follow, and
    /// begin at 0 again.
    cumulative: Vec<u64>,
}

impl Weights {
    /// The sum of the weights.
    pub const TOTAL: u64 = 1 << 32;

    /// Checks that the weights sum to [`Self::TOTAL`]. If `weights` has several lists of `arms`
    /// arms, for all installations and then for each segment, it checks that each list does. The
    /// number of lists follows from the sum.
    ///
    /// # Errors
    /// [`PolicyError::ArmCount`] without arms or with more than [`ARMS_MAX`]. [`PolicyError::Sum`]
    /// for another sum.
    pub fn new(weights: &[u64]) -> Result<Self, PolicyError> {
        let sum = weights.iter().fold(0_u64, |sum, weight| sum.saturating_add(*weight));
        let lists = usize::try_from(sum / Self::TOTAL).unwrap_or(usize::MAX);
        let is_even = sum % Self::TOTAL == 0 && lists > 0 && weights.len().is_multiple_of(lists);
        let arms = if is_even { weights.len() / lists } else { weights.len() };
        if arms == 0 || arms > ARMS_MAX || weights.len() > WEIGHTS_MAX {
            return Err(PolicyError::ArmCount { arms });
        }
        if !is_even {
            return Err(PolicyError::Sum { sum });
        }
        let mut cumulative = Vec::with_capacity(weights.len());
        for list in weights.chunks(arms) {
            let mut sum = 0_u64;
            for weight in list {
                sum = sum.saturating_add(*weight);
                cumulative.push(sum);
            }
            if sum != Self::TOTAL {
                return Err(PolicyError::Sum { sum });
            }
        }
        Ok(Self { arms, cumulative })
    }

    /// The same weights for all installations, with these weights for the installations of each
    /// segment.
    ///
    /// ```
    /// use bandana_shared::policy::Weights;
    /// let [even, one] = [[1.0, 1.0], [0.0, 1.0]].map(|shares| Weights::from_shares(&shares));
    /// let weights = even?.with_segments(&[one.clone()?, one?])?;
    /// assert_eq!((weights.len(), weights.segments()), (2, 2));
    /// assert_eq!([weights.get(0), weights.get_in(Some(1), 0)], [1 << 31, 0]);
    /// # Ok::<(), bandana_shared::policy::PolicyError>(())
    /// ```
    ///
    /// # Errors
    /// [`PolicyError::ArmCount`] unless each has the same number of arms, and for too many weights
    /// in all.
    pub fn with_segments(mut self, segments: &[Self]) -> Result<Self, PolicyError> {
        for segment in segments {
            if segment.cumulative.len() != self.arms {
                return Err(PolicyError::ArmCount { arms: segment.cumulative.len() });
            }
            self.cumulative.extend_from_slice(&segment.cumulative);
        }
        if self.cumulative.len() > WEIGHTS_MAX {
            return Err(PolicyError::ArmCount { arms: self.cumulative.len() });
        }
        Ok(self)
    }

    /// The nearest weights to the given shares. The shares need not sum to 1. The cumulative shares
    /// are rounded, so every weight is off by less than 1. A share of 0 gives a weight of 0.
    ///
    /// # Errors
    /// [`PolicyError::Shares`] unless all are finite and at least 0, and one is positive.
    /// [`PolicyError::ArmCount`] as in [`Self::new`].
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

    /// The same weights, but each arm that is `active` has a weight. If it was 0, it becomes 1,
    /// which is taken from the largest weight. A holdout draws from the arms with a weight.
    ///
    /// ```
    /// use bandana_shared::policy::Weights;
    /// let weights = Weights::from_shares(&[1.0, 0.0, 0.0])?.with_every(&[true, true, false]);
    /// assert_eq!(weights.iter().collect::<Vec<_>>(), [(1 << 32) - 1, 1, 0]);
    /// # Ok::<(), bandana_shared::policy::PolicyError>(())
    /// ```
    #[must_use]
    pub fn with_every(&self, active: &[bool]) -> Self {
        let mut weights: Vec<u64> = self.iter().collect();
        for list in weights.chunks_mut(self.arms) {
            for (arm, _) in active.iter().enumerate().filter(|(_, active)| **active) {
                let largest = list.iter().enumerate().max_by_key(|(_, weight)| **weight);
                let largest = largest.map_or(arm, |(place, _)| place);
                if list.get(arm) == Some(&0) {
                    list[largest] -= 1;
                    list[arm] = 1;
                }
            }
        }
        Self::new(&weights).unwrap_or_else(|_| unreachable!("the sums are as before"))
    }

    /// Equal shares for the arms that are `active`.
    ///
    /// # Errors
    /// The same as for [`Self::from_shares`].
    pub fn uniform(active: &[bool]) -> Result<Self, PolicyError> {
        Self::from_shares(&active.iter().map(|&a| f64::from(u8::from(a))).collect::<Vec<f64>>())
    }

    /// Number of arms.
    pub fn len(&self) -> usize {
        self.arms
    }

    /// Always false, since there is at least one arm.
    pub fn is_empty(&self) -> bool {
        self.cumulative.is_empty()
    }

    /// Number of segments with weights of their own.
    pub fn segments(&self) -> usize {
        self.cumulative.len() / self.arms - 1
    }

    /// The sums of a segment's weights; those of all installations without one, and for a segment
    /// that has no weights of its own.
    fn sums(&self, segment: Option<usize>) -> &[u64] {
        let mut lists = self.cumulative.chunks_exact(self.arms);
        let place = segment.filter(|segment| *segment < self.segments()).map_or(0, |one| one + 1);
        lists.nth(place).unwrap_or_default()
    }

    /// The weight of an arm, or 0 for an index beyond the last arm.
    pub fn get(&self, arm: usize) -> u64 {
        self.get_in(None, arm)
    }

    /// The weight of an arm in a segment, or for all installations if the segment is `None`.
    pub fn get_in(&self, segment: Option<usize>, arm: usize) -> u64 {
        let sums = self.sums(segment);
        let before = arm.checked_sub(1).and_then(|a| sums.get(a)).copied();
        sums.get(arm).map_or(0, |end| end - before.unwrap_or(0))
    }

    /// The weight of an arm as a fraction, 0 to 1.
    pub fn share(&self, arm: usize) -> f64 {
        self.get(arm) as f64 / Self::TOTAL as f64
    }

    /// [`Self::get_in`] as a fraction, 0 to 1.
    pub fn share_in(&self, segment: Option<usize>, arm: usize) -> f64 {
        self.get_in(segment, arm) as f64 / Self::TOTAL as f64
    }

    /// Entropy of the shares, in nats. It is 0 when one arm gets all traffic, and `ln k` when `k`
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

    /// All weights, in the order of the arms, and then those of each segment.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let lists = [None].into_iter().chain((0..self.segments()).map(Some));
        lists.flat_map(move |segment| (0..self.arms).map(move |arm| self.get_in(segment, arm)))
    }

    /// The arm for a uniformly random number.
    pub fn draw(&self, uniform: u32) -> ArmIndex {
        self.draw_in(None, uniform)
    }

    /// The arm for a uniformly random number and an installation of a segment.
    pub fn draw_in(&self, segment: Option<usize>, uniform: u32) -> ArmIndex {
        let uniform = u64::from(uniform);
        let arm = self.sums(segment).partition_point(|end| *end <= uniform);
        ArmIndex::new(arm).unwrap_or_else(|_| unreachable!("weights have at most ARMS_MAX arms"))
    }

    /// The arm for a uniformly random number, drawn evenly from the arms with a weight in a
    /// segment.
    ///
    /// ```
    /// use bandana_shared::policy::Weights;
    /// let weights = Weights::from_shares(&[0.99, 0.0, 0.01])?;
    /// let arms = [0, (1 << 31) - 1, 1 << 31, u32::MAX].map(|u| weights.draw_evenly_in(None, u));
    /// assert_eq!(arms.map(|arm| arm.get()), [0, 0, 2, 2]);
    /// # Ok::<(), bandana_shared::policy::PolicyError>(())
    /// ```
    pub fn draw_evenly_in(&self, segment: Option<usize>, uniform: u32) -> ArmIndex {
        let weighed = || (0..self.arms).filter(|arm| self.get_in(segment, *arm) > 0);
        let place = (u64::from(uniform) * weighed().count() as u64) >> 32;
        let arm = weighed().zip(0_u64..).find(|(_, at)| *at == place).map_or(0, |(arm, _)| arm);
        ArmIndex::new(arm).unwrap_or_else(|_| unreachable!("weights have at most ARMS_MAX arms"))
    }
}

/// Weights and their version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// An opaque number that is never 0. Equal versions mean equal weights.
    pub version: u64,
    /// The weights.
    pub weights: Weights,
    /// Seconds after which a device should fetch again, at least 1.
    pub time_to_live_seconds: u32,
}

/// Invalid weights of a policy.
#[derive(Clone, Error, PartialEq, Eq)]
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

crate::debug_says!(PolicyError);
