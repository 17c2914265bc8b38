//! The learners of the server and others for comparison, by name.

mod by_batches;
mod index_player;
pub(crate) mod player;

use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context as _;
use bandana_learners::bounds::{BoundArm, ldp_ucb, thompson_sampling};

use crate::channel::{Channel, StandardChannel};
use crate::learner::BatchLearner;
use crate::learner::{Contestant, Learner, Privacy, Setting};
use by_batches::ServedByBatches;
use player::Player;

/// A learner of the server, or one for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardLearner {
    /// Thompson sampling on private bits. TS-CF, which maps the samples back through the
    /// channel, makes the same choices.
    LdpTs,
    /// Thompson sampling from the posterior, truncated to the range of a private mean.
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
    /// The same with scales up to 1. It has the least regret in most trials, and much regret in a
    /// few.
    RandAdaKlBold,
    /// Top-two Thompson sampling, for verdicts. It computes policies as rarely as a server does.
    TopTwo,
    /// The same share for every arm.
    Uniform,
    /// UCB1 on rewards.
    NonprivateUcb1,
    /// kl-UCB on rewards.
    NonprivateKlUcb,
    /// Thompson sampling on coins tossed for the rewards.
    NonprivateTs,
}

/// The learners and their names.
const NAMES: [(StandardLearner, &str); 15] = [
    (StandardLearner::LdpTs, "ldp-ts"),
    (StandardLearner::TruncatedTs, "truncated-ts"),
    (StandardLearner::LdpUcb, "ldp-ucb"),
    (StandardLearner::LdpUcbLaplace, "ldp-ucb-laplace"),
    (StandardLearner::KlUcb, "kl-ucb"),
    (StandardLearner::BayesUcb, "bayes-ucb"),
    (StandardLearner::Imed, "imed"),
    (StandardLearner::MossAnytime, "moss-anytime"),
    (StandardLearner::RandAdaKl, "rand-ada-kl"),
    (StandardLearner::RandAdaKlBold, "rand-ada-kl-bold"),
    (StandardLearner::TopTwo, "top-two"),
    (StandardLearner::Uniform, "uniform"),
    (StandardLearner::NonprivateUcb1, "nonprivate-ucb1"),
    (StandardLearner::NonprivateKlUcb, "nonprivate-kl-ucb"),
    (StandardLearner::NonprivateTs, "nonprivate-ts"),
];

impl StandardLearner {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(learner, _)| *learner)
    }
}

/// Reads a name; that of TS-CF, which makes the same choices as LDP-TS, stands for it.
impl FromStr for StandardLearner {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let name = if text == "ts-cf" { "ldp-ts" } else { text };
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(learner, _)| *learner).with_context(|| {
            let names = NAMES.map(|(_, name)| name).join(", ");
            format!("there is no learner {text:?}: all, or some of {names}")
        })
    }
}

impl Contestant for StandardLearner {
    fn name(&self) -> String {
        let known = NAMES.iter().find(|(learner, _)| learner == self);
        known.map_or("", |(_, name)| name).to_owned()
    }

    fn learner(&self, setting: &Setting) -> anyhow::Result<Box<dyn Learner>> {
        let player = Player::new(*self, setting.arms, setting.privacy)?;
        Ok(Box::new(if setting.fills_batches {
            player.filling_batches(setting.arms)
        } else {
            player
        }))
    }

    fn served(&self, setting: &Setting) -> anyhow::Result<Option<Box<dyn Learner>>> {
        let player = Player::served(*self, setting.arms, setting.privacy, setting.batch)?;
        Ok(player.map(|player| Box::new(player) as Box<dyn Learner>))
    }

    fn by_batches(&self, setting: &Setting) -> anyhow::Result<Option<Box<dyn BatchLearner>>> {
        let Ok(learner) = self.name().parse() else { return Ok(None) };
        Ok(Some(Box::new(ServedByBatches::new(learner, setting)?)))
    }

    fn channel(&self, privacy: Privacy) -> Arc<dyn Channel> {
        Arc::new(match self {
            Self::NonprivateUcb1 | Self::NonprivateKlUcb => StandardChannel::Reward,
            Self::NonprivateTs => StandardChannel::Coin,
            Self::LdpUcbLaplace => StandardChannel::Laplace(1.0 / privacy.epsilon.get()),
            _ => StandardChannel::of(privacy.mechanism, privacy.epsilon),
        })
    }

    fn own_channel(&self) -> Option<&'static str> {
        match self {
            Self::LdpUcbLaplace => Some("laplace"),
            _ => self.is_nonprivate().then_some("none"),
        }
    }

    fn is_nonprivate(&self) -> bool {
        matches!(self, Self::NonprivateUcb1 | Self::NonprivateKlUcb | Self::NonprivateTs)
    }

    /// The bound of Thompson sampling is asymptotic and omits a constant; that of UCB1 holds at every
    /// horizon. Neither holds where worse arms look better.
    fn upper_bound(&self, arms: &[BoundArm], horizon: u64) -> Option<f64> {
        let horizon = horizon as f64;
        let bound = match self {
            Self::LdpTs | Self::NonprivateTs => thompson_sampling(arms) * horizon.ln(),
            Self::LdpUcb | Self::NonprivateUcb1 => ldp_ucb(arms, horizon),
            _ => return None,
        };
        bound.is_finite().then_some(bound)
    }
}
