//! Values of settings that are one of several, as flags and files write them.

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

/// The titles of the learners in the dashboard's form.
pub(super) const LEARNERS: &[(&str, &str)] = &[
    ("ldp-ts", "ldp-ts: Thompson sampling, to earn rewards"),
    ("top-two", "top-two: top-two Thompson sampling, to decide which arm is best"),
    ("rand-ada-kl", "rand-ada-kl: less regret on average, without a proof"),
    ("truncated-ts", "truncated-ts: Thompson sampling with a truncated prior"),
    ("ldp-ucb", "ldp-ucb: upper confidence bounds, for comparison"),
    ("uniform", "uniform: equal traffic for all arms, for measuring"),
];

/// The titles of the mechanisms there.
pub(super) const MECHANISMS: &[(&str, &str)] = &[
    ("linear", "linear"),
    ("quadratic", "quadratic"),
    ("exponential", "exponential"),
    ("k-ary", "k-ary: one of several levels (for a range, from an epsilon of about 3 on)"),
    ("randomized-response", "randomized response (binary rewards)"),
];

/// The titles of the kinds of rewards there.
pub(super) const REWARD_KINDS: &[(&str, &str)] = &[
    ("binary", "one of two values, such as a tap or none"),
    ("bounded", "anything in a range, such as a rating"),
    ("categorical", "one of several things, which have no order"),
];

/// What the form says of rewards out of range.
pub(super) const OUT_OF_RANGE: &[(&str, &str)] = &[
    ("", "clamp in a range, else refuse"),
    ("refuse", "refuse"),
    ("clamp", "clamp (for a range)"),
];

/// What the form says of how long an arm is kept.
pub(super) const REDRAW: &[(&str, &str)] = &[
    ("false", "kept by each installation, which reports once"),
    ("true", "drawn anew each time, and each reported"),
];
