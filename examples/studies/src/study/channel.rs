//! The channel: the signal that a learner receives for a reward.

use bandana_learners::bounds::BoundArm;
use bandana_learners::indices::reward_coin;
use bandana_shared::channel::{self, Floor, KaryChannel};
use bandana_shared::curve::{Curve, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::private_mean_of;
use rand::{Rng, RngExt as _};

use crate::instance::Instance;

/// The map from a reward in 0..=1 to the number that a learner receives.
#[derive(Clone, Copy, Debug)]
pub enum Channel {
    /// A private bit, computed as a device computes it, in the same integers.
    Bit(Curve, Floor),
    /// A symbol of k-ary randomized response, in the same integers: its position between the first
    /// symbol, 0, and the last one, 1.
    Levels(KaryChannel),
    /// The reward with Laplace noise of this scale.
    Laplace(f64),
    /// The reward itself.
    Reward,
    /// A coin with the reward as its bias.
    Coin,
}

impl Channel {
    /// The channel of this mechanism.
    pub fn of(mechanism: Mechanism, epsilon: Epsilon) -> Self {
        match reports(mechanism, epsilon) {
            channel::Channel::Bit(floor) => Self::Bit(Curve::new(mechanism, epsilon), floor),
            channel::Channel::Kary(channel) => Self::Levels(channel),
        }
    }

    /// The signal for a reward. A bit is 0 or 1, a symbol between them.
    #[inline]
    pub fn send(&self, reward: f64, rng: &mut impl Rng) -> f64 {
        match self {
            Self::Bit(curve, floor) => {
                let level = Level::from_unit(reward).unwrap_or(Level::ZERO);
                let threshold = floor.threshold(curve.apply(level));
                f64::from(u8::from(threshold.bit(rng.next_u64(), rng.next_u64())))
            }
            Self::Levels(channel) => {
                let level = Level::from_unit(reward).unwrap_or(Level::ZERO);
                let truth = channel.nearby_symbol(level, rng.next_u64());
                channel.alphabet().position(channel.answer(truth, rng.next_u64()))
            }
            Self::Laplace(scale) => {
                let uniform = rng.random::<f64>() - 0.5;
                reward - scale * uniform.signum() * (-2.0 * uniform.abs()).ln_1p()
            }
            Self::Reward => reward,
            Self::Coin => f64::from(u8::from(reward_coin(reward, rng.random()))),
        }
    }

    /// The arms of an instance as inputs of bounds; rewards sent openly count as if they had two
    /// values. `None` for levels and for Laplace noise, for which no bound is implemented.
    pub fn bound_arms(&self, instance: &Instance) -> Option<Vec<BoundArm>> {
        let private_mean = |arm: &crate::instance::SimulatedArm| match self {
            Self::Bit(curve, floor) => Some(private_mean_of(*floor, arm.rewards.mean_of(curve))),
            Self::Levels(_) | Self::Laplace(_) => None,
            Self::Reward | Self::Coin => Some(arm.rewards.mean()),
        };
        let bound_arm = |arm| Some((arm, private_mean(arm)?));
        let arms = instance.arms.iter().map(bound_arm).collect::<Option<Vec<_>>>()?;
        Some(
            arms.into_iter()
                .map(|(arm, private_mean)| BoundArm { mean: arm.rewards.mean(), private_mean })
                .collect(),
        )
    }
}

/// The channel of the reports of this mechanism.
pub fn reports(mechanism: Mechanism, epsilon: Epsilon) -> channel::Channel {
    match mechanism {
        Mechanism::Kary(alphabet) => KaryChannel::for_epsilon(alphabet, epsilon).into(),
        _ => Floor::for_epsilon(epsilon).into(),
    }
}
