//! Kinds and ranges of an experiment's rewards.

use std::hint::black_box;

use thiserror::Error;

use crate::alphabet::Alphabet;
use crate::curve::{Level, LevelError};

/// The kind of rewards: two values, a range of values, or categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewardKind {
    /// One of the two ends of the range.
    Binary,
    /// Any value in the range.
    Bounded,
    /// A category, given by its number: a whole number from 0 to the upper end of the range. The
    /// numbers are names. Their order and their sums mean nothing.
    Categorical,
}

/// The treatment of a reward outside the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfRange {
    /// Refuses the reward, with an error to the app.
    Refuse,
    /// Uses the nearer end of the range.
    Clamp,
}

/// A range `low..=high` of finite numbers with `low < high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RewardRange {
    low: f64,
    high: f64,
}

impl RewardRange {
    /// 0 to 1.
    pub const UNIT: Self = Self { low: 0.0, high: 1.0 };

    /// Checks the ends.
    ///
    /// # Errors
    /// [`RewardsError::Range`] unless both ends and their difference are finite
    /// and `low < high`.
    pub fn new(low: f64, high: f64) -> Result<Self, RewardsError> {
        if low < high && (high - low).is_finite() {
            Ok(Self { low: without_sign_of_zero(low), high: without_sign_of_zero(high) })
        } else {
            Err(RewardsError::Range { low, high })
        }
    }

    /// The lower end.
    pub fn low(self) -> f64 {
        self.low
    }

    /// The upper end.
    pub fn high(self) -> f64 {
        self.high
    }

    /// `high - low`, finite and positive.
    #[inline]
    pub fn width(self) -> f64 {
        self.high - self.low
    }

    /// Whether `reward` lies in the range, ends included.
    #[inline]
    pub fn contains(self, reward: f64) -> bool {
        self.low <= reward && reward <= self.high
    }

    /// `reward` scaled to [0, 1].
    ///
    /// # Errors
    /// [`LevelError`] when `reward` is not in the range.
    #[inline]
    pub fn level(self, reward: f64) -> Result<Level, LevelError> {
        // Rounding is monotone, so the quotient is at most 1 for rewards in the range, and it is 0
        // and 1 at the ends. The quotient of a reward just outside can also be rounded to 0 or 1,
        // hence the check.
        if !self.contains(reward) {
            return Err(LevelError);
        }
        Ok(Level::of_checked_unit((reward - self.low) / self.width()))
    }
}

/// The rewards that an experiment admits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rewards {
    kind: RewardKind,
    range: RewardRange,
    out_of_range: OutOfRange,
    default: f64,
}

impl Rewards {
    /// Checks that the parts fit each other. `default` is the reported value of an assignment
    /// without a reward.
    ///
    /// # Errors
    /// [`RewardsError::Default`] when this kind of reward can't take the value `default`.
    /// [`RewardsError::BinaryClamp`] when binary rewards are to be clamped.
    /// [`RewardsError::Categories`] when categories are to be clamped, or when their range does not
    /// go from 0 to 1, 2 and so on up to 15.
    pub fn new(
        kind: RewardKind,
        range: RewardRange,
        out_of_range: OutOfRange,
        default: f64,
    ) -> Result<Self, RewardsError> {
        if kind == RewardKind::Binary && out_of_range == OutOfRange::Clamp {
            return Err(RewardsError::BinaryClamp);
        }
        if kind == RewardKind::Categorical
            && (out_of_range == OutOfRange::Clamp || categories_of(range).is_none())
        {
            return Err(RewardsError::Categories);
        }
        let rewards = Self { kind, range, out_of_range, default: without_sign_of_zero(default) };
        if rewards.admits(default) { Ok(rewards) } else { Err(RewardsError::Default { default }) }
    }

    /// Rewards of 0 or 1, for whether the user reacted. An assignment without a reward counts as 0.
    pub fn binary() -> Self {
        Self {
            kind: RewardKind::Binary,
            range: RewardRange::UNIT,
            out_of_range: OutOfRange::Refuse,
            default: 0.0,
        }
    }

    /// Any value in `range`. A reward beyond the range counts as the nearer end. An assignment
    /// without a reward counts as the lower end.
    pub fn bounded(range: RewardRange) -> Self {
        Self {
            kind: RewardKind::Bounded,
            range,
            out_of_range: OutOfRange::Clamp,
            default: range.low(),
        }
    }

    /// Categories from 0 on. An assignment without a reward counts as category 0.
    pub fn categorical(categories: Alphabet) -> Self {
        Self {
            kind: RewardKind::Categorical,
            range: RewardRange { low: 0.0, high: f64::from(categories.last().get()) },
            out_of_range: OutOfRange::Refuse,
            default: 0.0,
        }
    }

    /// The number of categories, or `None` for other kinds.
    pub fn categories(self) -> Option<Alphabet> {
        (self.kind == RewardKind::Categorical).then(|| categories_of(self.range)).flatten()
    }

    /// The kind of rewards.
    pub fn kind(self) -> RewardKind {
        self.kind
    }

    /// The range.
    pub fn range(self) -> RewardRange {
        self.range
    }

    /// The treatment of rewards outside the range.
    pub fn out_of_range(self) -> OutOfRange {
        self.out_of_range
    }

    /// Whether both have the same values, that is kind and range. It does not matter what counts
    /// without a reward or beyond the range.
    pub fn has_values_of(self, other: Self) -> bool {
        (self.kind, self.range) == (other.kind, other.range)
    }

    /// The reward of an assignment that received none.
    pub fn default_reward(self) -> f64 {
        self.default
    }

    /// Whether `reward` is an admitted value.
    #[expect(
        clippy::float_cmp,
        reason = "binary rewards are the two ends themselves, not near them"
    )]
    #[expect(clippy::needless_bitwise_bool, reason = "both comparisons are to be made")]
    pub fn admits(self, reward: f64) -> bool {
        match self.kind {
            // Skipping the second comparison would reveal the reward. Without the black box the
            // compiler turns `|` into `||`.
            RewardKind::Binary => {
                black_box((reward == self.range.low) | (reward == self.range.high))
            }
            RewardKind::Bounded => self.range.contains(reward),
            // All comparisons are made, whatever their results.
            RewardKind::Categorical => {
                let same = |number: u32| u32::from(reward == f64::from(number));
                let known =
                    (0..Alphabet::MAX).filter(|number| f64::from(*number) <= self.range.high);
                black_box(known.map(same).sum::<u32>()) == 1
            }
        }
    }
}

/// The categories 0 to the end of this range, if it begins at 0 and its end is a valid number.
#[expect(clippy::float_cmp, reason = "whole numbers are exact")]
fn categories_of(range: RewardRange) -> Option<Alphabet> {
    let mut all = (Alphabet::MIN..=Alphabet::MAX).filter_map(|count| Alphabet::new(count).ok());
    all.find(|all| range.low == 0.0 && range.high == f64::from(all.last().get()))
}

/// Turns -0 into +0. Protobuf libraries differ in whether they send -0, so a digest must not depend
/// on it.
fn without_sign_of_zero(x: f64) -> f64 {
    x + 0.0
}

/// An invalid declaration of rewards.
#[derive(Clone, Error, PartialEq)]
#[non_exhaustive]
pub enum RewardsError {
    /// The ends of the range are invalid.
    #[error("reward range {low} to {high} needs two finite ends, the lower one first")]
    Range {
        /// The given lower end.
        low: f64,
        /// The given upper end.
        high: f64,
    },
    /// The default reward is invalid.
    #[error("default reward {default} is not a value that rewards of this kind and range take")]
    Default {
        /// The given value.
        default: f64,
    },
    /// Binary rewards can't be clamped.
    #[error("binary rewards take two values, so there is nothing to clamp; refuse others instead")]
    BinaryClamp,
    /// The range is not a range of category numbers.
    #[error(
        "categories are the numbers from 0 to 1, 2 and so on up to 15, and others are refused: \
         the range is 0 to one less than their number"
    )]
    Categories,
}

crate::debug_says!(RewardsError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewards_just_outside_the_range_are_refused() {
        // In all three cases the quotient rounds to 0 or 1.
        for (low, high, reward) in [
            (-1e16, 1.0, 1.0_f64.next_up()),
            (-1e300, 0.0, f64::from_bits(1)),
            (0.0, 1e300, -f64::from_bits(1)),
        ] {
            let range = RewardRange::new(low, high).unwrap();
            assert_eq!(range.level(reward), Err(LevelError), "{reward:e}");
            assert_eq!(range.level(low), Ok(Level::ZERO));
            assert_eq!(range.level(high), Ok(Level::ONE));
        }
    }

    #[test]
    fn the_sign_of_zero_is_dropped() {
        let range = RewardRange::new(-0.0, 2.0).unwrap();
        assert!(range.low().is_sign_positive());
        let range = RewardRange::new(-2.0, -0.0).unwrap();
        assert!(range.high().is_sign_positive());
        let rewards = Rewards::new(RewardKind::Bounded, range, OutOfRange::Refuse, -0.0).unwrap();
        assert!(rewards.default_reward().is_sign_positive());
        assert_eq!(range.level(-0.0), Ok(Level::ONE));
    }
}
