//! The channel: the signal that a learner receives for a reward.

use std::fmt;

use bandana_learners::indices::reward_coin;
use bandana_shared::channel::{self, Floor, KaryChannel};
use bandana_shared::curve::{Curve, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::private_mean_of;
use rand::{Rng as _, RngExt as _};

use crate::bandit::Bandit;
use crate::random::Random;

/// The map from a reward in 0..=1 to the number that a learner receives.
pub trait Channel: fmt::Debug + Send + Sync {
    /// The signal for a reward: 0 or 1 for bits, 0 to 1 for levels.
    fn send(&self, reward: f64, rng: &mut Random) -> f64;

    /// The mean of the signals of an arm, for bounds, or `None` if it is not known. The study then
    /// has no bounds.
    fn private_mean(&self, _bandit: &dyn Bandit, _arm: usize) -> Option<f64> {
        None
    }

    /// The probability of each symbol in a report of an arm, for studies by batches. `None` if
    /// signals are not symbols, or if it is not known.
    fn symbol_shares(&self, _bandit: &dyn Bandit, _arm: usize) -> Option<Vec<f64>> {
        None
    }

    /// The floor of the bits, for the certificate of shuffling, or `None` if there is none.
    fn floor(&self) -> Option<Floor> {
        None
    }
}

/// The channels of devices, and others for comparison.
#[derive(Clone, Copy, Debug)]
pub enum StandardChannel {
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

impl StandardChannel {
    /// The channel of this mechanism.
    pub fn of(mechanism: Mechanism, epsilon: Epsilon) -> Self {
        match reports(mechanism, epsilon) {
            channel::Channel::Bit(floor) => Self::Bit(Curve::new(mechanism, epsilon), floor),
            channel::Channel::Kary(channel) => Self::Levels(channel),
        }
    }
}

impl Channel for StandardChannel {
    #[inline]
    fn send(&self, reward: f64, rng: &mut Random) -> f64 {
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

    /// Rewards that are sent openly count as if they had two values. There is no bound for levels and
    /// for Laplace noise.
    fn private_mean(&self, bandit: &dyn Bandit, arm: usize) -> Option<f64> {
        match self {
            Self::Bit(curve, floor) => {
                Some(private_mean_of(*floor, bandit.curved_mean(arm, curve)?))
            }
            Self::Levels(_) | Self::Laplace(_) => None,
            Self::Reward | Self::Coin => bandit.means().get(arm).copied(),
        }
    }

    /// A level is rounded to one of its two neighbours at random, and then sent as it is or as any of
    /// the others.
    fn symbol_shares(&self, bandit: &dyn Bandit, arm: usize) -> Option<Vec<f64>> {
        match self {
            Self::Levels(channel) => {
                let alphabet = channel.alphabet();
                let places = f64::from(alphabet.len() - 1);
                let other = (1.0 - channel.contrast()) / f64::from(alphabet.len());
                let share = |symbol| {
                    let place = places * alphabet.position(symbol);
                    let near = |reward: f64| (1.0 - (places * reward - place).abs()).max(0.0);
                    Some(other + channel.contrast() * bandit.mean_of(arm, &near)?)
                };
                alphabet.symbols().map(share).collect()
            }
            Self::Bit(..) | Self::Coin => {
                let one = self.private_mean(bandit, arm)?;
                Some(vec![1.0 - one, one])
            }
            Self::Laplace(_) | Self::Reward => None,
        }
    }

    fn floor(&self) -> Option<Floor> {
        match self {
            Self::Bit(_, floor) => Some(*floor),
            _ => None,
        }
    }
}

/// The channel of the reports of this mechanism.
pub fn reports(mechanism: Mechanism, epsilon: Epsilon) -> channel::Channel {
    match mechanism {
        Mechanism::Kary(alphabet) => KaryChannel::for_epsilon(alphabet, epsilon).into(),
        _ => Floor::for_epsilon(epsilon).into(),
    }
}
