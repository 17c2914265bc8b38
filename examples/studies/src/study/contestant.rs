//! The learners of a study, by name.

use bandana_learners::bounds::{BoundArm, ldp_ucb, thompson_sampling};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use clap::ValueEnum;

use super::channel::Channel;

/// A learner of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Contestant {
    /// Thompson sampling on private bits. TS-CF, which maps the samples back through the
    /// channel, makes the same choices.
    #[value(alias = "ts-cf")]
    LdpTs,
    /// Thompson sampling from the posterior cut to what a private mean can be.
    TruncatedTs,
    /// UCB1 on private bits.
    LdpUcb,
    /// Upper confidence bounds on rewards with Laplace noise.
    LdpUcbLaplace,
    /// kl-UCB on private bits.
    KlUcb,
    /// Quantiles of the posterior.
    BayesUcb,
    /// Indexed minimum empirical divergence.
    Imed,
    /// MOSS without a horizon.
    MossAnytime,
    /// Adaptive kl indices with one random scale.
    RandAdaKl,
    /// The same with scales up to 1: the least regret in most trials, and much in a few.
    RandAdaKlBold,
    /// Top-two Thompson sampling, for verdicts. Its policies are computed anew as seldom as a
    /// server does.
    TopTwo,
    /// The same share for every arm.
    Uniform,
    /// UCB1 on rewards.
    #[value(name = "nonprivate-ucb1")]
    NonprivateUcb1,
    /// kl-UCB on rewards.
    NonprivateKlUcb,
    /// Thompson sampling on coins tossed for the rewards.
    NonprivateTs,
}

/// The privacy of a study's rewards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Privacy {
    /// The curve, or levels.
    pub mechanism: Mechanism,
    /// The privacy loss bound.
    pub epsilon: Epsilon,
}

impl Contestant {
    /// The name in options and results.
    pub fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// Whether the learner ignores the privacy settings.
    pub fn is_nonprivate(self) -> bool {
        matches!(self, Self::NonprivateUcb1 | Self::NonprivateKlUcb | Self::NonprivateTs)
    }

    /// Whether the learner ignores the curve.
    pub fn has_no_curve(self) -> bool {
        self.is_nonprivate() || self == Self::LdpUcbLaplace
    }

    /// The channel from which the learner learns.
    pub fn channel(self, privacy: Privacy) -> Channel {
        match self {
            Self::NonprivateUcb1 | Self::NonprivateKlUcb => Channel::Reward,
            Self::NonprivateTs => Channel::Coin,
            Self::LdpUcbLaplace => Channel::Laplace(1.0 / privacy.epsilon.get()),
            _ => Channel::of(privacy.mechanism, privacy.epsilon),
        }
    }

    /// The proven bound on the learner's regret after `horizon` rounds. `None` where none is
    /// implemented, or where worse arms look better. The bound of Thompson sampling is asymptotic
    /// and omits a constant; that of UCB1 holds at every horizon.
    pub fn upper_bound(self, arms: &[BoundArm], horizon: u64) -> Option<f64> {
        let horizon = horizon as f64;
        let bound = match self {
            Self::LdpTs | Self::NonprivateTs => thompson_sampling(arms) * horizon.ln(),
            Self::LdpUcb | Self::NonprivateUcb1 => ldp_ucb(arms, horizon),
            _ => return None,
        };
        bound.is_finite().then_some(bound)
    }
}
