//! What rewards an experiment admits.

use thiserror::Error;

use crate::curve::{Level, LevelError};

/// Whether rewards take two values or a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewardKind {
    /// The two ends of the range, nothing between.
    Binary,
    /// Anything in the range.
    Bounded,
}

/// What a device does with a reward outside the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutOfRange {
    /// Refuse it, and tell the app.
    Refuse,
    /// Use the nearer end of the range.
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
            Ok(Self { low, high })
        } else {
            Err(RewardsError::Range { low, high })
        }
    }

    /// Its lower end.
    pub fn low(self) -> f64 {
        self.low
    }

    /// Its upper end.
    pub fn high(self) -> f64 {
        self.high
    }

    /// `high - low`, finite and positive.
    pub fn width(self) -> f64 {
        self.high - self.low
    }

    /// Whether `reward` lies in the range, ends included.
    pub fn contains(self, reward: f64) -> bool {
        self.low <= reward && reward <= self.high
    }

    /// `reward` scaled to [0, 1].
    ///
    /// # Errors
    /// [`LevelError`] when `reward` is not in the range.
    pub fn level(self, reward: f64) -> Result<Level, LevelError> {
        // Rounding is monotone, so the quotient is at most 1 for rewards in
        // the range, and it is 0 and 1 at the ends.
        Level::from_unit((reward - self.low) / self.width())
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
    /// Checks that the parts fit each other. `default` is what an assignment
    /// reports that received no reward.
    ///
    /// # Errors
    /// [`RewardsError::Default`] when this kind of reward can't take the value
    /// `default`; [`RewardsError::BinaryClamp`] when binary rewards are to be
    /// clamped.
    pub fn new(
        kind: RewardKind,
        range: RewardRange,
        out_of_range: OutOfRange,
        default: f64,
    ) -> Result<Self, RewardsError> {
        if kind == RewardKind::Binary && out_of_range == OutOfRange::Clamp {
            return Err(RewardsError::BinaryClamp);
        }
        let rewards = Self { kind, range, out_of_range, default };
        if rewards.admits(default) { Ok(rewards) } else { Err(RewardsError::Default { default }) }
    }

    /// 0 or 1, and 0 when there was none: did the user react?
    pub fn binary() -> Self {
        Self {
            kind: RewardKind::Binary,
            range: RewardRange::UNIT,
            out_of_range: OutOfRange::Refuse,
            default: 0.0,
        }
    }

    /// Anything in `range`, and its lower end when there was none.
    pub fn bounded(range: RewardRange) -> Self {
        Self {
            kind: RewardKind::Bounded,
            range,
            out_of_range: OutOfRange::Refuse,
            default: range.low(),
        }
    }

    /// Two values or a range.
    pub fn kind(self) -> RewardKind {
        self.kind
    }

    /// The range.
    pub fn range(self) -> RewardRange {
        self.range
    }

    /// What happens to rewards outside it.
    pub fn out_of_range(self) -> OutOfRange {
        self.out_of_range
    }

    /// The reward of an assignment that received none.
    pub fn default_reward(self) -> f64 {
        self.default
    }

    /// Whether `reward` is one of the values that rewards take.
    #[expect(
        clippy::float_cmp,
        reason = "binary rewards are the two ends themselves, not near them"
    )]
    pub fn admits(self, reward: f64) -> bool {
        match self.kind {
            RewardKind::Binary => reward == self.range.low || reward == self.range.high,
            RewardKind::Bounded => self.range.contains(reward),
        }
    }
}

/// Rewards that can't be declared so.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum RewardsError {
    /// The ends of the range.
    #[error("reward range {low} to {high} needs two finite ends, the lower one first")]
    Range {
        /// The lower end that was given.
        low: f64,
        /// The upper end that was given.
        high: f64,
    },
    /// The default reward.
    #[error("default reward {default} is not a value that rewards of this kind and range take")]
    Default {
        /// The value that was given.
        default: f64,
    },
    /// Clamping of binary rewards.
    #[error("binary rewards take two values, so there is nothing to clamp; refuse others instead")]
    BinaryClamp,
}
