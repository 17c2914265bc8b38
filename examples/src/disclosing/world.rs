//! The world of disclosing users: actions, and how they pay.

use bandana_client::trusted::{DisclosedReward, TrustedError};
use bandana_shared::wire::v1::trusted_specification::Algorithm as Message;
use bandana_shared::wire::v1::{AdacGope, AdacOful, AdacUcb, LazyRelease, Vector};
use clap::ValueEnum;
use rand::{Rng, RngExt as _};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use bandana_studies::curator::trial::direction;

/// Means of the arms of the published experiments.
const MEANS: [f64; 5] = [0.75, 0.625, 0.5, 0.375, 0.25];

/// Vectors to choose from, of the published experiments.
const ACTIONS: usize = 10;

/// Their coordinates.
const DIMENSION: u8 = 3;

/// β of the published experiments.
const BETA: f64 = 1.0;

/// δ of the published experiments.
const DELTA: f64 = 0.001;

/// An algorithm that servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// Upper confidence bounds in episodes, finite arms.
    AdacUcb,
    /// Rand-AdaKL on seldom releases, finite arms; ours.
    LazyRelease,
    /// Optimal designs and elimination, fixed actions.
    AdacGope,
    /// Optimism for linear rewards, other actions for each user.
    AdacOful,
}

/// What there is to play.
#[derive(Clone, Debug)]
pub enum World {
    /// Arms with these means, rewards of 0 and 1.
    Arms(Vec<f64>),
    /// The same actions for all, rewards of -1 and 1 with means linear in them.
    Fixed {
        /// The actions.
        actions: Vec<Vec<f64>>,
        /// What the server is to learn.
        parameter: Vec<f64>,
    },
    /// Others for each user.
    Changing {
        /// What the server is to learn.
        parameter: Vec<f64>,
    },
}

impl World {
    /// The world of the published experiments with an algorithm.
    pub fn new(algorithm: Algorithm, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Users have the streams from 0 on.
        rng.set_stream(u64::MAX);
        let parameter = direction(usize::from(DIMENSION), &mut rng);
        match algorithm {
            Algorithm::AdacUcb | Algorithm::LazyRelease => Self::Arms(MEANS.to_vec()),
            Algorithm::AdacGope => Self::Fixed { actions: actions(&mut rng), parameter },
            Algorithm::AdacOful => Self::Changing { parameter },
        }
    }

    /// The algorithm for this world, as a server is told of it.
    pub(super) fn message(&self, algorithm: Algorithm) -> Message {
        let arms = u32::try_from(self.choices()).unwrap_or(u32::MAX);
        match (algorithm, self) {
            (Algorithm::LazyRelease, _) => Message::LazyRelease(LazyRelease { arms }),
            (_, Self::Fixed { actions, .. }) => {
                let vector = |action: &Vec<f64>| Vector { coordinates: action.clone() };
                let actions = actions.iter().map(vector).collect();
                Message::AdacGope(AdacGope { actions, delta: DELTA })
            }
            (_, Self::Changing { .. }) => {
                Message::AdacOful(AdacOful { dimension: u32::from(DIMENSION) })
            }
            (_, Self::Arms(_)) => Message::AdacUcb(AdacUcb { arms, beta: BETA }),
        }
    }

    /// Arms or actions to choose from.
    pub fn choices(&self) -> usize {
        match self {
            Self::Arms(means) => means.len(),
            Self::Fixed { actions, .. } => actions.len(),
            Self::Changing { .. } => ACTIONS,
        }
    }

    /// What a user can play, where that changes; else nothing.
    pub(super) fn actions_of_today(&self, rng: &mut impl Rng) -> Vec<Vec<f64>> {
        if matches!(self, Self::Changing { .. }) { actions(rng) } else { Vec::new() }
    }

    /// The mean reward of each arm or action, of `today` where they change.
    pub fn means(&self, today: &[Vec<f64>]) -> Vec<f64> {
        let linear = |actions: &[Vec<f64>], parameter: &[f64]| {
            let mean = |action: &Vec<f64>| action.iter().zip(parameter).map(|(a, b)| a * b).sum();
            actions.iter().map(mean).collect()
        };
        match self {
            Self::Arms(means) => means.clone(),
            Self::Fixed { actions, parameter } => linear(actions, parameter),
            Self::Changing { parameter } => linear(today, parameter),
        }
    }

    /// A reward with this mean.
    pub(super) fn react(
        &self,
        mean: f64,
        rng: &mut impl Rng,
    ) -> Result<DisclosedReward, TrustedError> {
        let low = if matches!(self, Self::Arms(_)) { 0.0 } else { -1.0 };
        let is_good = rng.random_bool(((mean - low) / (1.0 - low)).clamp(0.0, 1.0));
        DisclosedReward::new(if is_good { 1.0 } else { low })
    }
}

fn actions(rng: &mut impl Rng) -> Vec<Vec<f64>> {
    (0..ACTIONS).map(|_| direction(usize::from(DIMENSION), rng)).collect()
}
