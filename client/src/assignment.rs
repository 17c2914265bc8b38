//! Assignments: a chosen arm, and its rewards until its report.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{ArmIndex, CellIndex, ExperimentId, StoreId};
use bandana_shared::rewards::RewardKind;
use bandana_shared::specification::Specification;

use crate::debit::Debit;
use crate::noise::NoiseSource;
use crate::privatizer::{PrivateReport, PrivatizeError, Privatizer};
use crate::reward::Reward;
use crate::sign::Sign;
use crate::time::{CLOCK_SLACK, Timestamp};

/// Identifies an assignment, also after a restart. Two installations hardly ever give the same id,
/// so an id of another installation is not found.
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
    /// The id with this number. [`Self::get`] returns the number.
    ///
    /// ```
    /// # use bandana_client::AssignmentId;
    /// assert_eq!(AssignmentId::new(7).get(), 7);
    /// ```
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, for an app that stores it across restarts. Its upper half is the number of the
    /// client's start, counting from a random one. The lower half is the number of the assignment
    /// within that start. Neither is ever sent. No number is used twice, whether or not its
    /// assignment reports. An id that was given shortly before the process was killed may have no
    /// assignment after the restart.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// An arm that was drawn, and the id for adding rewards to it.
///
/// ```
#[doc = include_str!("example.txt")]
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// let chosen = client.draw(&id, now())?;
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
    /// The assignment's id, for adding rewards.
    pub fn id(&self) -> AssignmentId {
        self.id
    }

    /// The id of the experiment.
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

    /// The reason why no report will be made, or `None` if one will be made. It is fixed when the
    /// arm is drawn, and no reward changes it.
    pub fn unreported(&self) -> Option<Unreported> {
        self.unreported
    }
}

/// The reason why an assignment never reports. Its rewards are ignored.
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
/// # client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now())?;
/// assert_eq!(client.draw(&id, now())?.unreported(), None);
/// assert_eq!(client.draw(&id, now())?.unreported(), Some(Unreported::WindowSpent));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unreported {
    /// One report costs more than a whole cap of the app's budget, so there is never a report. Both
    /// numbers are in nano-nats.
    BeyondBudget {
        /// The price of a report, in nano-nats.
        price: NanoNats,
        /// The cap, in nano-nats.
        cap: NanoNats,
    },
    /// The price exceeds the rest of the budget of the current window.
    WindowSpent,
    /// The price exceeds the rest of the budget of the installation.
    LifetimeSpent,
    /// The price exceeds the rest of the current window in the central account, see
    /// [`crate::Budget::with_central`].
    CentralWindowSpent,
    /// The price exceeds the rest of the central account of the installation.
    CentralLifetimeSpent,
    /// The client has no room for another report: it keeps at most 1500 unsent reports and open
    /// assignments of one experiment, and 10 000 in all.
    OutboxFull,
    /// The installation reports the experiment once in a period, and has already done so in this
    /// one.
    ReportedOnce,
    /// The client has been shut down.
    ShutDown,
    /// The process was forked off from the process that has the client.
    Forked,
    /// The device's clock was moved: it does not agree with the server's day and the time that has
    /// passed since the server told it. Assignments report again once they agree.
    ClockDisagrees,
    /// The client's storage can't be used, so the spent budget is unknown.
    StorageUnusable,
    /// A private context chose the arm, and a report would reveal something of that context.
    NotExploring,
}

impl fmt::Display for Unreported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeyondBudget { price, cap } => {
                let nats = |nano_nats: &NanoNats| nano_nats.get() as f64 / NanoNats::PER_NAT as f64;
                let (price, cap) = (nats(price), nats(cap));
                return write!(
                    f,
                    "a report costs {price} nats, and the app's budget never has more than {cap}, so \
                     the app never reports"
                );
            }
            Self::WindowSpent => "the budget of the window is spent",
            Self::LifetimeSpent => "the budget of the installation is spent",
            Self::CentralWindowSpent => "the central budget of the window is spent",
            Self::CentralLifetimeSpent => "the central budget of the installation is spent",
            Self::OutboxFull => "too many reports wait",
            Self::ReportedOnce => "the experiment was reported in this period",
            Self::ShutDown => "the client was shut down",
            Self::Forked => "the process is a copy of the one that has the client",
            Self::ClockDisagrees => "the clock does not agree with the server's day",
            Self::StorageUnusable => "the storage can't be used",
            Self::NotExploring => "the arm was chosen by a private context",
        })
    }
}

/// The number before the first id of a start of which nothing is written yet: some way on, so that
/// ids that an earlier start gave and could not write hardly come again.
#[cfg(feature = "storage")]
pub(crate) fn epoch_after(last_assignment: u64) -> u64 {
    let step = u64::from(getrandom::u32().unwrap_or_default() & 0xffff);
    let last = last_assignment >> 32;
    let epoch = if last < FIRST_EPOCH { first_epoch() } else { last.saturating_add(1 + step) };
    (epoch.min(u64::from(u32::MAX)) << 32).max(last_assignment)
}

/// The upper half of the ids of an installation's first start: a random one, so that two installations
/// hardly give the same id. Half of all numbers are left for further starts.
#[cfg(feature = "storage")]
pub(crate) fn first_epoch() -> u64 {
    FIRST_EPOCH + u64::from(getrandom::u32().unwrap_or_default() >> 2)
}

/// Starts below this number are of earlier versions, which counted from 1.
#[cfg(feature = "storage")]
pub(crate) const FIRST_EPOCH: u64 = 1 << 20;

/// The upper half of ids that no start with a storage gives, and hardly another start without one.
pub(crate) fn random_epoch() -> u64 {
    // Without randomness it is one for all.
    u64::from(getrandom::u32().unwrap_or_default() | 1 << 31)
}

/// An assignment that still takes rewards. Its report, release time and arm were fixed when the arm
/// was drawn, and no reward changes them.
pub(crate) struct OpenAssignment {
    pub(crate) specification: Arc<Specification>,
    /// Arm, segment and metric.
    pub(crate) cell: CellIndex,
    pub(crate) rewards_until: Timestamp,
    pub(crate) release_at: Timestamp,
    /// The store that the specification came from; `None`: unknown.
    pub(crate) store: Option<StoreId>,
    /// The debit for its report.
    pub(crate) price: Debit,
    /// Sum of the admitted rewards; `None`: no reward was added.
    sum: Option<Reward>,
    /// As secret as a reward, and like one not stored with the rest.
    sign: Sign,
}

/// Does not reveal whether a reward was added: that alone can reveal the reward.
impl fmt::Debug for OpenAssignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAssignment")
            .field("cell", &self.cell)
            .field("release_at", &self.release_at)
            .field("sum", &format_args!("<private>"))
            .finish_non_exhaustive()
    }
}

impl OpenAssignment {
    pub(crate) fn new(
        specification: Arc<Specification>,
        cell: CellIndex,
        rewards_until: Timestamp,
        release_at: Timestamp,
    ) -> Self {
        let price = Debit::unshuffled(specification.price());
        let coordinate = specification.cells().cell(cell).map_or(0, |cell| cell.coordinate);
        // The constant is known whatever the context was.
        let sign = if coordinate == 0 { Sign::Known { is_negative: false } } else { Sign::Lost };
        let (store, sum) = (None, None);
        Self { specification, cell, rewards_until, release_at, store, price, sum, sign }
    }

    /// Sets the coordinate that the rewards are reported with.
    pub(crate) fn set_sign(&mut self, sign: Sign) {
        self.sign = sign;
    }

    /// The coordinate that the rewards are reported with.
    #[cfg(feature = "storage")]
    pub(crate) fn sign(&self) -> Sign {
        self.sign
    }

    /// The same assignment, with another price than that of a report that is not shuffled.
    pub(crate) fn at_price(self, price: Debit) -> Self {
        Self { price, ..self }
    }

    /// The same assignment, with the store that its specification came from.
    pub(crate) fn of_store(self, store: Option<StoreId>) -> Self {
        Self { store, ..self }
    }

    /// The metric that is reported, by its number; 0 stands for the rewards.
    pub(crate) fn metric(&self) -> usize {
        self.specification.cells().cell(self.cell).map_or(0, |cell| cell.metric)
    }

    /// The arm that is shown.
    pub(crate) fn arm(&self) -> ArmIndex {
        self.specification.cells().arm_of(self.cell)
    }

    fn privatizer(&self) -> Privatizer {
        Privatizer::of_metric(&self.specification, self.metric())
    }

    /// Whether rewards no longer count. An end that lies further ahead than the window is long was
    /// set before the clock was set back, and counts as passed.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        let window = u64::from(self.specification.timing().attribution_window_seconds);
        let reach = Duration::from_secs(window) + CLOCK_SLACK;
        self.rewards_until <= now || self.rewards_until > now.after(reach)
    }

    /// Longest time from now to the release.
    pub(crate) fn reach(&self) -> Duration {
        let timing = self.specification.timing();
        let window = u64::from(timing.attribution_window_seconds);
        Duration::from_secs(window + u64::from(timing.release_delay_seconds_max))
    }

    /// Adds a reward, or a value of a metric with this number from 1 up. It changes nothing if another
    /// one is reported. Binary values count as the higher one once any of them is that. Of categories
    /// the last one counts. Others are summed, and the report clamps the sum to the range.
    pub(crate) fn add(&mut self, metric: usize, reward: &Reward) -> Result<(), PrivatizeError> {
        let admitted = Privatizer::of_metric(&self.specification, metric).admit(reward)?;
        if metric != self.metric() {
            return Ok(());
        }
        let sum = match (&self.sum, self.specification.values_of(metric).kind()) {
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

    /// The private report of the sum of the rewards, or of the default reward; with a private context,
    /// of its product with the sign.
    pub(crate) fn privatize(
        &self,
        noise: &mut impl NoiseSource,
    ) -> Result<PrivateReport, PrivatizeError> {
        let rewards = self.specification.values_of(self.metric());
        let range = rewards.range();
        let total = self.sum.as_ref().map_or(rewards.default_reward(), Reward::expose);
        let clamped = total.clamp(range.low(), range.high());
        self.privatizer().privatize_with_sign(clamped, self.sign, noise)
    }

    /// The sum of the rewards, for the rewards file, the only place where raw values may be stored.
    #[cfg(feature = "storage")]
    pub(crate) fn sum(&self) -> Option<f64> {
        self.sum.as_ref().map(Reward::expose)
    }

    /// Restores a sum that was stored across a restart.
    #[cfg(feature = "storage")]
    pub(crate) fn restore_sum(&mut self, sum: f64) {
        self.sum = Reward::new(sum).ok();
    }
}
