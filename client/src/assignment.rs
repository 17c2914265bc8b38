use std::time::Duration;

use bandana_shared::identity::{ArmIndex, ExperimentId};
use bandana_shared::rewards::RewardKind;
use bandana_shared::specification::Specification;

use crate::noise::NoiseSource;
use crate::privatizer::{PrivateBit, PrivatizeError, Privatizer};
use crate::reward::Reward;
use crate::time::Timestamp;

/// Names an assignment within its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssignmentId(pub(crate) u64);

/// An arm that was given, and the place to add rewards to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub(crate) id: AssignmentId,
    pub(crate) experiment_id: ExperimentId,
    pub(crate) arm: ArmIndex,
    pub(crate) label: String,
    pub(crate) reports: bool,
}

impl Assignment {
    /// Its name, for adding rewards.
    pub fn id(&self) -> AssignmentId {
        self.id
    }

    /// The experiment.
    pub fn experiment_id(&self) -> &ExperimentId {
        &self.experiment_id
    }

    /// The arm to show.
    pub fn arm(&self) -> ArmIndex {
        self.arm
    }

    /// The arm's label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether a report will be made. It will not when the outbox had no room
    /// for one; rewards are then ignored.
    pub fn will_report(&self) -> bool {
        self.reports
    }
}

/// An assignment whose rewards still count. That it reports, when and for which
/// arm was fixed when the arm was drawn, and no reward changes it.
pub(crate) struct OpenAssignment {
    pub(crate) specification: std::sync::Arc<Specification>,
    pub(crate) arm: ArmIndex,
    pub(crate) rewards_until: Timestamp,
    pub(crate) release_at: Timestamp,
    /// Sum of the admitted rewards; `None`: none was added.
    sum: Option<Reward>,
}

/// Does not tell whether a reward was added: that alone can be the reward.
impl std::fmt::Debug for OpenAssignment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAssignment")
            .field("arm", &self.arm)
            .field("release_at", &self.release_at)
            .field("sum", &format_args!("<private>"))
            .finish_non_exhaustive()
    }
}

impl OpenAssignment {
    pub(crate) fn new(
        specification: std::sync::Arc<Specification>,
        arm: ArmIndex,
        rewards_until: Timestamp,
        release_at: Timestamp,
    ) -> Self {
        Self { specification, arm, rewards_until, release_at, sum: None }
    }

    /// Whether the report is to be made now. An assignment whose time is further
    /// ahead than its window and delay reach was made before the clock was set
    /// back; its time has come too.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let timing = self.specification.timing();
        let reach = u64::from(timing.attribution_window_seconds)
            + u64::from(timing.release_delay_seconds_max);
        self.release_at <= now || self.release_at > now.after(Duration::from_secs(reach))
    }

    /// Adds a reward. Binary rewards count as the higher value once any of them
    /// has it; others are summed, and the sum is clamped to the range.
    pub(crate) fn add(&mut self, reward: &Reward) -> Result<(), PrivatizeError> {
        let admitted = Privatizer::new(&self.specification).admit(reward)?;
        let sum = match (&self.sum, self.specification.rewards().kind()) {
            (None, _) => admitted,
            (Some(sum), RewardKind::Binary) => sum.expose().max(admitted),
            (Some(sum), RewardKind::Bounded) => {
                // The sum of two finite numbers may overflow, not be NaN.
                (sum.expose() + admitted).clamp(f64::MIN, f64::MAX)
            }
        };
        self.sum = Reward::new(sum).ok();
        Ok(())
    }

    /// The private bit of what was added, or of the default reward.
    pub(crate) fn privatize(
        &self,
        noise: &mut impl NoiseSource,
    ) -> Result<PrivateBit, PrivatizeError> {
        let rewards = self.specification.rewards();
        let range = rewards.range();
        let total = self.sum.as_ref().map_or(rewards.default_reward(), Reward::expose);
        let clamped = total.clamp(range.low(), range.high());
        Privatizer::new(&self.specification).privatize_admitted(clamped, noise)
    }
}
