//! The available algorithms, behind one interface.

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::adac_gope::{AdacGope, GopeSettings};
use super::adac_oful::{AdacOful, OfulSettings};
use super::adac_ucb::{AdacUcb, ReleasedMean, UcbSettings, check_arm};
use super::error::ZcdpError;
use super::lattice::{Action, LatticeReward, NoiseScale, Protection, RewardRange};
use super::lazy_release::LazyRelease;

/// The algorithm of an experiment, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum AlgorithmSettings {
    /// AdaC-UCB; rewards in 0..=1.
    Ucb(UcbSettings),
    /// AdaC-GOPE.
    Gope(GopeSettings),
    /// AdaC-OFUL.
    Oful(OfulSettings),
    /// Lazy release; rewards in 0..=1.
    Lazy {
        /// Number of arms.
        arms: usize,
        /// The protection of rewards.
        protection: Protection,
    },
}

/// A played arm or action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Played {
    /// An arm or action by its index.
    Arm(usize),
    /// A vector, for AdaC-OFUL.
    Vector(Action),
}

/// The released statistics of an algorithm.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// The statistic of each arm.
    Means(Vec<Option<ReleasedMean>>),
    /// The mean of each action, by the last phase.
    Actions(Vec<Option<f64>>),
    /// The estimated parameter.
    Parameter(Vec<f64>),
}

/// A running algorithm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Algorithm {
    Ucb(AdacUcb),
    Gope(AdacGope),
    Oful(AdacOful),
    Lazy(LazyRelease),
}

impl Algorithm {
    pub(super) fn new(plan: AlgorithmSettings) -> Result<Self, ZcdpError> {
        Ok(match plan {
            AlgorithmSettings::Ucb(settings) => Self::Ucb(AdacUcb::new(settings)?),
            AlgorithmSettings::Gope(settings) => Self::Gope(AdacGope::new(settings)?),
            AlgorithmSettings::Oful(settings) => Self::Oful(AdacOful::new(settings)?),
            AlgorithmSettings::Lazy { arms, protection } => {
                Self::Lazy(LazyRelease::new(arms, protection)?)
            }
        })
    }

    pub(super) fn plan(&self) -> AlgorithmSettings {
        match self {
            Self::Ucb(ucb) => AlgorithmSettings::Ucb(ucb.settings()),
            Self::Gope(gope) => AlgorithmSettings::Gope(gope.settings().clone()),
            Self::Oful(oful) => AlgorithmSettings::Oful(oful.settings()),
            Self::Lazy(lazy) => {
                let (arms, protection) = lazy.settings();
                AlgorithmSettings::Lazy { arms, protection }
            }
        }
    }

    pub(super) fn noise(&self) -> Option<NoiseScale> {
        match self {
            Self::Ucb(ucb) => ucb.noise(),
            Self::Gope(gope) => gope.noise(),
            Self::Oful(oful) => oful.noise(),
            Self::Lazy(lazy) => lazy.noise(),
        }
    }

    pub(super) fn is_due(&self) -> bool {
        match self {
            Self::Ucb(ucb) => ucb.is_due(),
            Self::Gope(gope) => gope.is_due(),
            Self::Oful(oful) => oful.is_due(),
            Self::Lazy(lazy) => lazy.is_due(),
        }
    }

    /// The due statistic without noise.
    pub(super) fn exact_statistic(&self) -> Vec<i128> {
        match self {
            Self::Ucb(ucb) => ucb.exact_statistic(),
            Self::Gope(gope) => gope.exact_statistic(),
            Self::Oful(oful) => oful.exact_statistic(),
            Self::Lazy(lazy) => lazy.exact_statistic(),
        }
    }

    pub(super) fn release(&mut self, noise: &[i64]) -> Result<(), ZcdpError> {
        match self {
            Self::Ucb(ucb) => ucb.release(noise),
            Self::Gope(gope) => gope.release(noise),
            Self::Oful(oful) => oful.release(noise),
            Self::Lazy(lazy) => lazy.release(noise),
        }
    }

    /// Validates a play and its reward, independently of the state.
    pub(super) fn check(&self, played: &Played, reward: f64) -> Result<LatticeReward, ZcdpError> {
        let range = match (self, played) {
            (Self::Ucb(ucb), Played::Arm(arm)) => {
                check_arm(*arm, ucb.settings().arms)?;
                RewardRange::Unit
            }
            (Self::Lazy(lazy), Played::Arm(arm)) => {
                check_arm(*arm, lazy.settings().0)?;
                RewardRange::Unit
            }
            (Self::Gope(gope), Played::Arm(arm)) => {
                check_arm(*arm, gope.settings().actions.len())?;
                gope.settings().range
            }
            (Self::Oful(oful), Played::Vector(action)) => {
                oful.check(action, 0)?;
                oful.settings().range
            }
            (Self::Oful(_), Played::Arm(_)) => return Err(ZcdpError::NotANumber),
            (_, Played::Vector(_)) => return Err(ZcdpError::NotAVector),
        };
        range.reward(reward)
    }

    pub(super) fn observe(
        &mut self,
        played: &Played,
        reward: LatticeReward,
    ) -> Result<(), ZcdpError> {
        match (self, played) {
            (Self::Ucb(ucb), Played::Arm(arm)) => ucb.observe(*arm, reward),
            (Self::Gope(gope), Played::Arm(arm)) => gope.observe(*arm, reward),
            (Self::Lazy(lazy), Played::Arm(arm)) => lazy.observe(*arm, reward),
            (Self::Oful(oful), Played::Vector(action)) => oful.observe(action, reward),
            (Self::Oful(_), Played::Arm(_)) => Err(ZcdpError::NotANumber),
            (_, Played::Vector(_)) => Err(ZcdpError::NotAVector),
        }
    }

    /// The arm or action to play; for AdaC-OFUL the index of the best of these vectors. Only lazy
    /// release uses `rng`.
    pub(super) fn recommend<R: Rng + ?Sized>(
        &self,
        vectors: &[Action],
        rng: &mut R,
    ) -> Result<usize, ZcdpError> {
        match (self, vectors) {
            (Self::Ucb(ucb), []) => Ok(ucb.recommended()),
            (Self::Gope(gope), []) => Ok(gope.recommended()),
            (Self::Lazy(lazy), []) => Ok(lazy.draw(rng)),
            (Self::Oful(oful), vectors) => oful.choose(vectors),
            _ => Err(ZcdpError::NotAVector),
        }
    }

    pub(super) fn shown(&self) -> Shown {
        match self {
            Self::Ucb(ucb) => Shown::Means(ucb.released()),
            Self::Lazy(lazy) => Shown::Means(lazy.released()),
            Self::Gope(gope) => Shown::Actions(gope.released().to_vec()),
            Self::Oful(oful) => Shown::Parameter(oful.estimate().to_vec()),
        }
    }

    pub(super) fn rewards(&self) -> u64 {
        match self {
            Self::Ucb(ucb) => ucb.rewards(),
            Self::Gope(gope) => gope.rewards(),
            Self::Oful(oful) => oful.rewards(),
            Self::Lazy(lazy) => lazy.rewards(),
        }
    }

    /// A copy without unreleased rewards: its recommendations and released statistics are the same.
    pub(super) fn without_buffers(&self) -> Self {
        let mut rest = self.clone();
        match &mut rest {
            Self::Ucb(ucb) => ucb.erase_buffers(),
            Self::Gope(gope) => gope.erase_buffers(),
            Self::Oful(oful) => oful.erase_buffers(),
            Self::Lazy(lazy) => lazy.erase_buffers(),
        }
        rest
    }
}
