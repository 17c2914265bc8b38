//! Values of a draft that are one of several, as flags and files write them.

use bandana_learners::Learner;
use clap::ValueEnum;
use serde::Deserialize;

/// What rewards may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RewardKind {
    Binary,
    Bounded,
    Categorical,
}

/// What the traffic of an experiment is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Goal {
    /// Rewards: users get the arm that seems best. There may never be a verdict.
    #[default]
    Earn,
    /// A verdict which arm is best, from as few users as possible.
    Decide,
}

impl Goal {
    pub(super) fn learner(self) -> Learner {
        match self {
            Self::Earn => Learner::LdpTs,
            Self::Decide => Learner::TopTwo,
        }
    }
}

/// What a device does with rewards out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OutOfRange {
    Refuse,
    Clamp,
}

/// How a reward becomes a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mechanism {
    Linear,
    Quadratic,
    Exponential,
    RandomizedResponse,
    KAry,
}
