//! Arms whose mean rewards are linear in the features of a context.

use bandana_shared::context::Feature;
use bandana_shared::participation::Millionths;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

/// Number of arms.
pub(super) const ARMS: usize = 4;

/// The share of users for whom a seldom feature is true, in millionths.
const SELDOM: u32 = 100_000;

/// The law of contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Law {
    /// Each feature is a fair coin of its own.
    Independent,
    /// Each feature is a fair coin, and with a probability of 7/10 the coin of the one before.
    Correlated,
    /// Each feature is true for one user of ten; whether the learner knows.
    Seldom { is_known: bool },
}

/// Arms and contexts. The coefficients of the arms are drawn for each trial.
#[derive(Clone, Copy, Debug)]
pub struct ContextualArms {
    /// The name in tables.
    pub name: &'static str,
    /// Number of features.
    pub features: usize,
    law: Law,
    /// The standard deviation of an arm's mean over contexts, about.
    strength: f64,
}

/// The coefficients of the mean rewards in one trial: those of each arm, the constant first.
#[derive(Clone, Debug)]
pub(super) struct Coefficients(Vec<Vec<f64>>);

impl ContextualArms {
    /// Independent features, which together move the mean reward of an arm by about .15.
    pub fn independent(features: usize) -> Self {
        Self { name: "independent features", features, law: Law::Independent, strength: 0.15 }
    }

    /// The same with features that go together.
    pub fn correlated(features: usize) -> Self {
        Self { name: "correlated features", law: Law::Correlated, ..Self::independent(features) }
    }

    /// The same with features that are seldom true, as the learner knows.
    pub fn seldom(features: usize) -> Self {
        let law = Law::Seldom { is_known: true };
        Self { name: "seldom features", law, ..Self::independent(features) }
    }

    /// The same with features that are seldom true, which the learner takes for common ones.
    pub fn misjudged(features: usize) -> Self {
        let law = Law::Seldom { is_known: false };
        Self { name: "seldom, taken for common", law, ..Self::independent(features) }
    }

    /// Features that don't matter.
    pub fn useless(features: usize) -> Self {
        Self { name: "features that don't matter", strength: 0.0, ..Self::independent(features) }
    }

    /// All instances of the study.
    pub fn all() -> Vec<Self> {
        let of = |features| {
            let kinds =
                [Self::independent, Self::correlated, Self::seldom, Self::misjudged, Self::useless];
            kinds.map(|kind| kind(features))
        };
        [3, 15].into_iter().flat_map(of).collect()
    }

    /// The coefficients of a trial: uniform, with a standard deviation of .05 for the constant, and
    /// for the features together of the strength.
    pub(super) fn coefficients(&self, seed: u64) -> Coefficients {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        // A uniform number from -1 to 1 has a variance of 1/3.
        let mut uniform = |deviation: f64| deviation * 3.0_f64.sqrt() * rng.random_range(-1.0..1.0);
        let of_feature = self.strength / (self.features as f64).sqrt();
        let arm = |_| {
            let constant = uniform(0.05);
            let features = (0..self.features).map(|_| uniform(of_feature));
            std::iter::once(constant).chain(features.collect::<Vec<f64>>()).collect()
        };
        Coefficients((0..ARMS).map(arm).collect())
    }

    /// The features as an experiment declares them.
    pub(super) fn declared(&self) -> anyhow::Result<Vec<Feature>> {
        let true_share = match self.law {
            Law::Seldom { is_known: true } => Millionths::new(SELDOM)?,
            _ => Millionths::HALF,
        };
        let feature = |number: usize| Ok(Feature::new(number.to_string(), true_share)?);
        (1..=self.features).map(feature).collect()
    }

    /// A user's context.
    pub(super) fn context(&self, rng: &mut Xoshiro256PlusPlus) -> Vec<bool> {
        let mut context: Vec<bool> = Vec::with_capacity(self.features);
        for _ in 0..self.features {
            let before = context.last().copied();
            context.push(match (self.law, before) {
                (Law::Correlated, Some(before)) if rng.random_bool(0.7) => before,
                (Law::Seldom { .. }, _) => rng.random_bool(f64::from(SELDOM) / 1e6),
                _ => rng.random_bool(0.5),
            });
        }
        context
    }
}

impl Coefficients {
    /// The mean reward of each arm in a context, from 0 to 1.
    pub(super) fn means(&self, context: &[bool]) -> Vec<f64> {
        let mean = |own: &Vec<f64>| {
            let signed =
                own[1..].iter().zip(context).map(|(one, on)| if *on { *one } else { -one });
            (0.5 + own[0] + signed.sum::<f64>()).clamp(0.0, 1.0)
        };
        self.0.iter().map(mean).collect()
    }
}
