//! Assignments: an arm that was chosen, and the rewards until its report.

use std::sync::Arc;
use std::time::Duration;

use bandana_shared::identity::{ArmIndex, ExperimentId, StoreId};
use bandana_shared::rewards::RewardKind;
use bandana_shared::specification::Specification;

use crate::noise::NoiseSource;
use crate::privatizer::{PrivateReport, PrivatizeError, Privatizer};
use crate::reward::Reward;
use crate::time::{CLOCK_SLACK, Timestamp};

/// Names an assignment within its installation, also after a restart.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::AssignmentId;
///
/// # let (bandana, mut tasks, clock) = started()?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// let kept: u64 = choice.assignment().ok_or("no arm")?.id().get();
/// // Later, the app has only the number.
/// let assignment = bandana.assignment(AssignmentId::new(kept)).ok_or("it is over")?;
/// assignment.reward(1.0);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssignmentId(u64);

impl AssignmentId {
    /// The id of this number, as [`Self::get`] gave it.
    ///
    /// ```
    /// # use bandana_client::AssignmentId;
    /// assert_eq!(AssignmentId::new(7).get(), 7);
    /// ```
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number, for an app that keeps it beyond its own end: 1 for the first
    /// assignment of an installation, then counting up. Keep only those of assignments
    /// that report: after a restart a number that was not stored, since its assignment
    /// never reports or since the process was killed first, is given again.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// An arm that was given, and the name under which rewards are added.
///
/// ```
#[doc = include_str!("example.txt")]
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// let chosen = client.choose(&id, now())?;
/// assert!(["red", "green"].contains(&chosen.label()));
/// assert_eq!(chosen.label(), specification()?.arms()[chosen.arm().get()].label());
/// assert_eq!(chosen.unreported(), None, "there will be a report");
/// assert_eq!(client.assigned(chosen.id(), now()), Some(chosen));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub(crate) id: AssignmentId,
    pub(crate) experiment_id: ExperimentId,
    pub(crate) arm: ArmIndex,
    pub(crate) label: String,
    pub(crate) unreported: Option<Unreported>,
}

impl Chosen {
    /// The assignment's name, for adding rewards.
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

    /// Why no report will be made; `None`: one will. That was decided when the arm
    /// was drawn, and no reward changes it.
    pub fn unreported(&self) -> Option<Unreported> {
        self.unreported
    }
}

/// Why an arm was given without a report to come. Rewards are then ignored.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::{Budget, Client, Unreported};
/// use bandana_shared::accounting::loss::PrivacyLoss;
///
/// // A report costs 1 nat, so there is one each week.
/// let mut client = Client::new(Budget::new(PrivacyLoss::new(1.0)?, 7, PrivacyLoss::new(9.0)?)?);
/// # let id = specification()?.experiment_id().clone();
/// # client.enroll(id.clone(), acceptance()?);
/// # client.on_fetched(&id, answer(now())?, now())?;
/// assert_eq!(client.choose(&id, now())?.unreported(), None);
/// assert_eq!(client.choose(&id, now())?.unreported(), Some(Unreported::WindowSpent));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unreported {
    /// The price does not fit what is left of the budget of the current window.
    WindowSpent,
    /// The price does not fit what is left of the budget of the installation.
    LifetimeSpent,
    /// The experiment has 1500 reports that are to be made or sent, as many as a client
    /// keeps.
    OutboxFull,
    /// The experiment reports once, and this arm was reported in this epoch.
    ReportedOnce,
    /// The client has been shut down.
    ShutDown,
    /// What the client stored can't be used, so that nothing is known about the
    /// budget.
    StorageUnusable,
}

/// An assignment whose rewards still count. That it reports, when and for which
/// arm was fixed when the arm was drawn, and no reward changes it.
pub(crate) struct OpenAssignment {
    pub(crate) specification: Arc<Specification>,
    pub(crate) arm: ArmIndex,
    pub(crate) rewards_until: Timestamp,
    pub(crate) release_at: Timestamp,
    /// The store that the specification came from, if that is known.
    pub(crate) store: Option<StoreId>,
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
        specification: Arc<Specification>,
        arm: ArmIndex,
        rewards_until: Timestamp,
        release_at: Timestamp,
    ) -> Self {
        Self { specification, arm, rewards_until, release_at, store: None, sum: None }
    }

    /// The same with the store that its specification came from.
    pub(crate) fn of_store(self, store: Option<StoreId>) -> Self {
        Self { store, ..self }
    }

    /// Whether rewards no longer count. The end of a window that is further ahead
    /// than the window is long was set before the clock was set back; it has come.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        let window = u64::from(self.specification.timing().attribution_window_seconds);
        let reach = Duration::from_secs(window) + CLOCK_SLACK;
        self.rewards_until <= now || self.rewards_until > now.after(reach)
    }

    /// How far ahead the release can lie at most.
    pub(crate) fn reach(&self) -> Duration {
        let timing = self.specification.timing();
        let window = u64::from(timing.attribution_window_seconds);
        Duration::from_secs(window + u64::from(timing.release_delay_seconds_max))
    }

    /// Adds a reward. Binary rewards count as the higher value once any of them
    /// has it, of categories the last one counts; others are summed, and the sum is clamped
    /// to the range.
    pub(crate) fn add(&mut self, reward: &Reward) -> Result<(), PrivatizeError> {
        let admitted = Privatizer::new(&self.specification).admit(reward)?;
        let sum = match (&self.sum, self.specification.rewards().kind()) {
            (None, _) | (Some(_), RewardKind::Categorical) => admitted,
            (Some(sum), RewardKind::Binary) => sum.expose().max(admitted),
            (Some(sum), RewardKind::Bounded) => {
                // The sum of two finite numbers may overflow, not be NaN.
                (sum.expose() + admitted).clamp(f64::MIN, f64::MAX)
            }
        };
        self.sum = Reward::new(sum).ok();
        Ok(())
    }

    /// The private report of what was added, or of the default reward.
    pub(crate) fn privatize(
        &self,
        noise: &mut impl NoiseSource,
    ) -> Result<PrivateReport, PrivatizeError> {
        let rewards = self.specification.rewards();
        let range = rewards.range();
        let total = self.sum.as_ref().map_or(rewards.default_reward(), Reward::expose);
        let clamped = total.clamp(range.low(), range.high());
        Privatizer::new(&self.specification).privatize_admitted(clamped, noise)
    }

    /// The sum of its rewards, for the one place where raw values may rest.
    #[cfg(feature = "storage")]
    pub(crate) fn sum(&self) -> Option<f64> {
        self.sum.as_ref().map(Reward::expose)
    }

    /// Puts back a sum that was kept over a restart.
    #[cfg(feature = "storage")]
    pub(crate) fn restore_sum(&mut self, sum: f64) {
        self.sum = Reward::new(sum).ok();
    }
}
