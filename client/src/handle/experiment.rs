use std::sync::Arc;

use bandana_shared::identity::{ArmIndex, ExperimentId};

use super::Shared;
use crate::acceptance::Refusal;
use crate::assignment::{AssignmentId, Chosen, Unreported};
use crate::core::ClientError;
use crate::reward::Reward;

/// One experiment of a [`crate::Bandana`].
#[derive(Clone, Debug)]
pub struct Experiment {
    shared: Arc<Shared>,
    id: ExperimentId,
}

impl Experiment {
    pub(super) fn new(shared: Arc<Shared>, id: ExperimentId) -> Self {
        Self { shared, id }
    }

    /// Its name.
    pub fn id(&self) -> &ExperimentId {
        &self.id
    }

    /// Whether there is a policy, so that [`Self::choose`] gives arms.
    pub fn is_ready(&self) -> bool {
        let core = self.shared.core();
        !core.is_opted_out() && core.specification(&self.id).is_some()
    }

    /// Draws an arm, and decides then and there whether and when there will be a report
    /// of it. Waits for nothing.
    pub fn choose(&self) -> Choice {
        let mut core = self.shared.core();
        let chosen = core.choose(&self.id, self.shared.now());
        let refusal = core.refusal(&self.id).cloned();
        drop(core);
        self.shared.writes.wake();
        match (chosen, refusal) {
            (Ok(chosen), _) => Choice::Arm(Assignment::new(Arc::clone(&self.shared), chosen)),
            (Err(ClientError::OptedOut), _) => Choice::Default(DefaultReason::OptedOut),
            (Err(ClientError::Entropy(_)), _) => Choice::Default(DefaultReason::NoRandomness),
            (Err(ClientError::SignaturesExpired { .. }), _) => {
                Choice::Default(DefaultReason::SignaturesExpired)
            }
            (Err(_), Some(refusal)) => Choice::Default(DefaultReason::Refused(refusal)),
            (Err(_), None) => Choice::Default(DefaultReason::NoPolicyYet),
        }
    }
}

/// What an app is to show.
#[derive(Clone, Debug)]
#[must_use = "an arm was drawn, and its report will be made"]
pub enum Choice {
    /// This arm.
    Arm(Assignment),
    /// Whatever the app shows without Bandana; there will be no report.
    Default(DefaultReason),
}

impl Choice {
    /// The label of the arm, or `default`.
    pub fn label_or<'a>(&'a self, default: &'a str) -> &'a str {
        match self {
            Self::Arm(assignment) => assignment.label(),
            Self::Default(_) => default,
        }
    }

    /// Adds a reward to the arm's assignment; without an arm, does nothing.
    pub fn reward(&self, reward: f64) {
        if let Self::Arm(assignment) = self {
            assignment.reward(reward);
        }
    }

    /// The assignment, if an arm was drawn.
    pub fn assignment(&self) -> Option<&Assignment> {
        match self {
            Self::Arm(assignment) => Some(assignment),
            Self::Default(_) => None,
        }
    }
}

/// Why there is no arm.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DefaultReason {
    /// No server has answered yet.
    NoPolicyYet,
    /// The server asks for more than the app accepts.
    Refused(Refusal),
    /// Nobody vouches for the experiment any more.
    SignaturesExpired,
    /// The user has withdrawn.
    OptedOut,
    /// The operating system has no randomness.
    NoRandomness,
}

/// An arm that was given, and the place to add rewards to. Whether, when and for which
/// arm it reports is settled; dropping it, and adding no reward or many, changes
/// nothing of that.
#[derive(Clone, Debug)]
pub struct Assignment {
    shared: Arc<Shared>,
    chosen: Chosen,
}

impl Assignment {
    pub(super) fn new(shared: Arc<Shared>, chosen: Chosen) -> Self {
        Self { shared, chosen }
    }

    /// Its name, for [`crate::Bandana::assignment`], also after a restart.
    pub fn id(&self) -> AssignmentId {
        self.chosen.id()
    }

    /// The experiment.
    pub fn experiment_id(&self) -> &ExperimentId {
        self.chosen.experiment_id()
    }

    /// The arm to show.
    pub fn arm(&self) -> ArmIndex {
        self.chosen.arm()
    }

    /// The arm's label.
    pub fn label(&self) -> &str {
        self.chosen.label()
    }

    /// Why there will be no report; `None`: there will be one.
    pub fn unreported(&self) -> Option<Unreported> {
        self.chosen.unreported()
    }

    /// Adds a reward, while the attribution window lasts. Rewards add up: bounded ones
    /// to their sum, clamped to the range, binary ones to whether one of them had the
    /// higher value. One that the experiment does not admit, or that comes too late, is
    /// ignored and counted in [`crate::Statistics::rewards_refused`].
    pub fn reward(&self, reward: f64) {
        let now = self.shared.now();
        let mut core = self.shared.core();
        match Reward::new(reward) {
            // Refusals are counted by the core.
            Ok(reward) => drop(core.reward(self.chosen.id(), reward, now)),
            Err(_) => core.refuse_reward(),
        }
        let keeps = core.keeps_rewards();
        drop(core);
        if keeps {
            self.shared.writes.wake();
        }
    }
}
