//! The world of disclosing users: actions and their rewards.

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

/// Number of actions in the published experiments.
const ACTIONS: usize = 10;

/// Dimension of the actions.
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

/// The actions and rewards of a simulation.
#[derive(Clone, Debug)]
pub enum World {
    /// Arms with these means, rewards of 0 and 1.
    Arms(Vec<f64>),
    /// Fixed actions for all users, with rewards of -1 and 1 whose means are linear in the actions.
    Fixed {
        /// The actions.
        actions: Vec<Vec<f64>>,
        /// The true parameter, which the server is to learn.
        parameter: Vec<f64>,
    },
    /// New actions for each user.
    Changing {
        /// The true parameter, which the server is to learn.
        parameter: Vec<f64>,
    },
}

impl World {
    /// The world of the published experiments for an algorithm.
    pub fn new(algorithm: Algorithm, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Users have the streams from 0 upwards.
        rng.set_stream(u64::MAX);
        let parameter = direction(usize::from(DIMENSION), &mut rng);
        match algorithm {
            Algorithm::AdacUcb | Algorithm::LazyRelease => Self::Arms(MEANS.to_vec()),
            Algorithm::AdacGope => Self::Fixed { actions: actions(&mut rng), parameter },
            Algorithm::AdacOful => Self::Changing { parameter },
        }
    }

    /// The algorithm's settings for this world, as a wire message.
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

    /// Number of arms or actions.
    pub fn choices(&self) -> usize {
        match self {
            Self::Arms(means) => means.len(),
            Self::Fixed { actions, .. } => actions.len(),
            Self::Changing { .. } => ACTIONS,
        }
    }

    /// The actions of one user, if actions change; otherwise empty.
    pub(super) fn actions_of_today(&self, rng: &mut impl Rng) -> Vec<Vec<f64>> {
        if matches!(self, Self::Changing { .. }) { actions(rng) } else { Vec::new() }
    }

    /// The mean reward of each arm, or of each action; `today` are the actions if these change.
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

    /// Draws a reward with this mean.
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
