//! The client without input or output of its own.

mod choosing;
mod consent;
mod contexts;
mod crowd;
mod error;
mod experiment;
mod fetching;
#[cfg(feature = "storage")]
mod format;
mod journal;
mod own_reports;
mod release;
mod reporting;
#[cfg(feature = "storage")]
mod rewards;
mod server_wait;
mod state;
mod statistics;
#[cfg(feature = "storage")]
mod stored_specification;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::ExperimentId;
use bandana_shared::transparency::NoteKey;

#[cfg(test)]
use crate::assignment::AssignmentId;
use crate::budget::{Budget, Spent};
use crate::day::HeardDay;
#[cfg(feature = "simulation")]
use crate::noise::SeededNoise;
use crate::noise::{NoiseSource, OsNoise};
use crate::outbox::UploadTask;
use crate::shuffled_task::ShuffledTask;
use crate::time::{ClockReading, Timestamp};
pub use error::ClientError;
use experiment::Enrolled;
pub use fetching::{FetchTask, Fetched};
#[cfg(feature = "storage")]
pub(crate) use format::{StoredChanges, StoredDone, StoredLedger, StoredStarts, StoredState};
use journal::Journal;
#[cfg(feature = "storage")]
pub(crate) use journal::{Content, Write};
#[cfg(feature = "storage")]
pub(crate) use own_reports::{BatchCode, BatchReports, OwnReports};
#[cfg(all(test, feature = "storage"))]
pub(crate) use rewards::PendingReward;
#[cfg(feature = "storage")]
pub(crate) use rewards::PendingRewards;
use server_wait::ServerWait;
#[cfg(feature = "storage")]
pub(crate) use state::CachedExperiment;
pub(crate) use state::{Change, Draw, State};
pub use statistics::Statistics;

/// The client of a device.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::Client;
///
/// let mut client = Client::new(budget()?);
/// # let id = specification()?.experiment_id().clone();
/// client.enroll(id.clone(), acceptance()?);
/// // A server's answer, received by the host:
/// client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now())?;
/// assert!(["red", "green"].contains(&client.draw(&id, now())?.label()));
/// # Ok::<(), Failure>(())
/// ```
pub type Client = Core<OsNoise>;

/// A client whose noise comes from a seed, for simulations.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{ClientError, Fetched, Refusal, SimulatedClient};
/// use bandana_shared::specification::Specification;
///
/// let mut client = SimulatedClient::seeded(1, 2);
/// # let id = specification()?.experiment_id().clone();
/// client.enroll(id.clone(), acceptance()?);
/// // It refuses experiments on real users.
/// let refused = client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now());
/// assert!(matches!(refused, Err(ClientError::Refused(Refusal::SimulationMark { .. }))));
///
/// let mut parts = specification()?.to_parts();
/// parts.simulation = true;
/// let specification = Specification::new(parts)?;
/// let fetched = Fetched { specification, ..answer(now())? };
/// client.on_fetched(&FetchTask::new(id.clone()), fetched, now())?;
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// None: the seed determines the noise.
#[cfg(feature = "simulation")]
pub type SimulatedClient = Core<SeededNoise>;

/// A client that does no I/O. Its host passes the time, carries out the client's tasks, and reports
/// their results.
///
/// Apps use a [`crate::Bandana`], which does all that. This type is for hosts that carry out the
/// tasks by other means, for gateways, and for simulations.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// use bandana_client::{Task, UploadOutcome};
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// let chosen = client.draw(&id, now())?;
/// // After ten minutes and a delay of at most an hour, the host asks for the next task.
/// let later = now().after(Duration::from_secs(600 + 3600));
/// loop {
///     match client.next_task(later)? {
///         Task::Fetch(task) => client.on_fetched(&task, answer(later)?, later)?,
///         Task::Upload(task) => {
///             client.on_upload_result(task.id(), &UploadOutcome::Accepted, later)?;
///         }
///         // Only for apps that believe a relay.
///         Task::Shuffled(task) => {
///             client.on_upload_result(task.id(), &UploadOutcome::NoRelay, later)?;
///         }
///         Task::Wait(_) | Task::Done => break,
///     }
/// }
/// assert_eq!(client.statistics().uploads_accepted, 1);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// A report leaves at the first [`Self::next_task`] after its release time. So ask for tasks when a
/// [`Task::Wait`] ends, when the app starts, or at intervals. Never ask *because* the user reacted:
/// then the time of the upload would reveal the reaction.
pub struct Core<N> {
    noise: N,
    budget: Budget,
    state: State,
    journal: Journal,
    enrolled: BTreeMap<ExperimentId, Enrolled>,
    /// The last assignments that never report.
    unreported: BTreeMap<ExperimentId, choosing::Shown>,
    /// The number of epochs of each log, as last seen. A start begins anew: that witnesses have seen
    /// them lately is enough.
    log_sizes: BTreeMap<NoteKey, u64>,
    /// The server's day as last received, also from a refused answer.
    heard_day: HeardDay,
    /// Number of the last fetch that was handed out.
    fetches: u64,
    server: ServerWait,
    /// The time since the device was started, as last told.
    boot_time: Option<Duration>,
    /// The secret by which reports of this start share release times; `None`: not drawn yet.
    release_seed: Option<u64>,
    /// A fetch has ended since the server's day was last known.
    has_asked: bool,
    /// Fetches have ended, and none told a day that is known, so that reports wait for one.
    day_withheld: bool,
    /// Whether consent is withheld for this run.
    withheld: bool,
    statistics: Statistics,
    /// Rewards of this run that their experiments do not admit.
    rewards_not_admitted: u64,
    crowd: crowd::Crowd,
}

/// Prints nothing that the client holds: private bits, and data that depends on a reward.
impl<N> std::fmt::Debug for Core<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// The next task of a host.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// use bandana_client::{Budget, Client, Task};
///
/// # let id = specification()?.experiment_id().clone();
/// let mut client = Client::new(Budget::UNLIMITED);
/// assert!(matches!(client.next_task(now())?, Task::Done));
/// client.enroll(id.clone(), acceptance()?);
/// assert!(matches!(client.next_task(now())?, Task::Fetch(_)));
/// client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now())?;
/// client.draw(&id, now())?;
/// // Until the attribution window ends there is no task.
/// let end = now().after(Duration::from_secs(600));
/// assert!(matches!(client.next_task(now())?, Task::Wait(time) if time == end));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug)]
pub enum Task {
    /// Fetch an experiment, then call [`Core::on_fetched`] or [`Core::on_fetch_failed`].
    Fetch(FetchTask),
    /// Send an upload, then call [`Core::on_upload_result`]. This task comes at or after the
    /// release time of its report, whatever the reward was.
    Upload(UploadTask),
    /// Seal the upload of a shuffled report and send it to the relay, then call
    /// [`Core::on_upload_result`]. This task comes like [`Self::Upload`], but only for apps that
    /// believe a relay (feature `relay`).
    Shuffled(ShuffledTask),
    /// There is no task before this time.
    Wait(Timestamp),
    /// There is no task until another event: an arm is drawn, or an experiment enrolled.
    Done,
}

impl Client {
    /// A client that keeps everything in memory, and takes part in experiments within this budget.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Client, Spent};
    /// let client = Client::new(budget()?);
    /// assert_eq!(client.spent(), Spent::default());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The spent budget starts from zero: a second client spends the whole budget again.
    pub fn new(budget: Budget) -> Self {
        Self::with(OsNoise, budget, State::default(), Journal::volatile())
    }
}

#[cfg(feature = "simulation")]
impl SimulatedClient {
    /// The simulated client with this number under this seed, without a budget. The same numbers
    /// give the same arms, bits and release times.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # use bandana_client::Fetched;
    /// # use bandana_shared::specification::Specification;
    /// use bandana_client::SimulatedClient;
    ///
    /// # let id = specification()?.experiment_id().clone();
    /// # let mut parts = specification()?.to_parts();
    /// # parts.simulation = true;
    /// # let specification = Specification::new(parts)?;
    /// # let fetched = Fetched { specification, ..answer(now())? };
    /// let mut clients = [SimulatedClient::seeded(1, 2), SimulatedClient::seeded(1, 2)];
    /// for client in &mut clients {
    ///     client.enroll(id.clone(), acceptance()?);
    ///     client.on_fetched(&FetchTask::new(id.clone()), fetched.clone(), now())?;
    /// }
    /// for _ in 0..100 {
    ///     let [one, other] = clients.each_mut().map(|client| client.draw(&id, now()));
    ///     assert_eq!(one?, other?);
    /// }
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn seeded(seed: u64, user: u64) -> Self {
        let noise = SeededNoise::new(seed, user);
        Self::with(noise, Budget::UNLIMITED, State::default(), Journal::volatile())
    }
}

/// The relay that the app believes for an experiment, as the present terms have it.
fn relay_of<'a>(
    enrolled: &'a BTreeMap<ExperimentId, Enrolled>,
    experiment_id: &ExperimentId,
) -> Option<&'a GatewayKeys> {
    Some(enrolled.get(experiment_id)?.acceptance.as_ref()?.relay()?.relay())
}

impl<N: NoiseSource> Core<N> {
    fn with(noise: N, budget: Budget, state: State, journal: Journal) -> Self {
        Self {
            noise,
            budget,
            state,
            journal,
            enrolled: BTreeMap::new(),
            unreported: BTreeMap::new(),
            log_sizes: BTreeMap::new(),
            heard_day: HeardDay::default(),
            fetches: 0,
            server: ServerWait::default(),
            boot_time: None,
            release_seed: None,
            has_asked: false,
            day_withheld: false,
            withheld: false,
            statistics: Statistics::default(),
            rewards_not_admitted: 0,
            crowd: crowd::Crowd::default(),
        }
    }

    /// Applies a change to the state, and queues it for the storage.
    fn record(&mut self, change: Change) {
        let number = self.journal.next_number();
        let applied = self.state.apply(&change, number);
        debug_assert!(applied.is_ok(), "a change that does not follow from the state");
        if applied.is_ok() {
            self.journal.push(change);
        }
    }

    /// All assignments that are open or wait to be sent.
    #[cfg(test)]
    pub(crate) fn assignments(&self) -> impl Iterator<Item = AssignmentId> + '_ {
        self.state.open.keys().chain(self.state.outbox.parcels.keys()).copied()
    }

    /// The assignment whose report an upload carries.
    #[cfg(test)]
    pub(crate) fn assignment_of(
        &self,
        id: bandana_shared::identity::UploadId,
    ) -> Option<AssignmentId> {
        self.state.outbox.find(id)
    }

    /// The sum of the rewards of an assignment.
    #[cfg(test)]
    pub(crate) fn sum_of(&self, id: AssignmentId) -> Option<f64> {
        self.state.open.get(&id)?.sum()
    }

    /// Whether sums of rewards are stored.
    pub(crate) fn keeps_rewards(&self) -> bool {
        self.journal.keeps_rewards()
    }

    /// Whether nothing is written from now on.
    pub(crate) fn is_closed(&self) -> bool {
        self.journal.is_closed()
    }

    /// Records that nothing is written from now on, so that no further assignment reports.
    pub(crate) fn close(&mut self) {
        self.journal.close();
    }

    /// The privacy loss so far. A report counts in every window until it was sent and a server has
    /// answered after that. Then it counts from the server's day on.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.draw(&id, now())?;
    /// assert_eq!(client.spent().window.get(), 1_000_000_000);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn spent(&self) -> Spent {
        self.state.ledger.spent(&self.budget)
    }

    /// Begins to give ids of assignments from `epoch` on, their upper half.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.state.last_assignment = epoch << 32;
    }

    /// Notes that the process is a copy: the client of the other one goes on. Ids of its assignments
    /// are of an epoch of their own.
    pub(crate) fn orphan(&mut self) {
        if self.journal.orphan() {
            self.begin_epoch(crate::assignment::random_epoch());
        }
    }

    /// Tells the client the time since the device was started: see
    /// [`Clock::boot_time`](crate::Clock::boot_time). Hosts that know this time tell it before each
    /// call.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Unreported;
    /// # let mut client = bandana_client::Client::new(budget()?);
    /// # let id = specification()?.experiment_id().clone();
    /// # client.enroll(id.clone(), acceptance()?);
    /// client.set_boot_time(Some(Duration::from_secs(100)));
    /// client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now())?;
    /// // A second later the user sets the clock a month ahead.
    /// client.set_boot_time(Some(Duration::from_secs(101)));
    /// let later = now().after(Duration::from_hours(30 * 24));
    /// assert_eq!(client.draw(&id, later)?.unreported(), Some(Unreported::ClockDisagrees));
    /// // And back again.
    /// assert_eq!(client.draw(&id, now())?.unreported(), None);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn set_boot_time(&mut self, boot_time: Option<Duration>) {
        self.boot_time = boot_time;
    }

    pub(super) fn moment(&self, now: Timestamp) -> ClockReading {
        ClockReading { now, boot_time: self.boot_time }
    }

    /// Whether the device's clock agrees with the server's day and the time that has passed since.
    pub(crate) fn clock_agrees(&self, now: Timestamp) -> bool {
        let by_boot_time = self.heard_day.agrees(self.moment(now));
        by_boot_time.unwrap_or_else(|| now.day().forward(1) >= self.state.day())
    }

    /// The end of the wait for the server after calls that failed, if there is one.
    pub(crate) fn waits_for_server(&self, now: Timestamp) -> Option<Timestamp> {
        self.server.end(now)
    }

    /// Ends the wait for the server within a second, because the way to the server may be another
    /// one now. Call it when the network has changed or the app comes to the foreground, and never
    /// because the user reacted. Calls that end a wait, or that come while a call to the server is
    /// under way, count at most once in ten seconds.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::{Client, Task};
    ///
    /// # let id = specification()?.experiment_id().clone();
    /// # let mut client = Client::new(budget()?);
    /// # client.enroll(id.clone(), acceptance()?);
    /// for _ in 0..10 {
    ///     let Task::Fetch(task) = client.next_task(now())? else { break };
    ///     client.on_fetch_failed(&task, Some(Duration::from_mins(30)), now())?;
    /// }
    /// client.resume(now())?;
    /// let Task::Wait(time) = client.next_task(now())? else { return Err("at once".into()) };
    /// assert!(time <= now().after(Duration::from_secs(1)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// Returns whether the call counts.
    ///
    /// # Errors
    /// [`ClientError::Entropy`]: the wait stays as it is.
    pub fn resume(&mut self, now: Timestamp) -> Result<bool, ClientError> {
        Ok(self.server.resume(now, &mut self.noise)?)
    }

    /// Number of assignments whose rewards still count.
    pub fn open_assignments(&self) -> usize {
        self.state.open.len()
    }

    /// Number of private bits that no server has counted yet.
    pub fn waiting_reports(&self) -> usize {
        self.state.outbox.parcels.len()
    }

    /// Number of waiting reports that are to be shuffled and have no relay. Either the app believes
    /// no relay for their experiment, or the last attempt found that the transport leads through
    /// none ([`UploadOutcome::NoRelay`](crate::UploadOutcome::NoRelay)).
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.draw(&id, now())?;
    /// // Reports of this experiment go to the aggregator.
    /// assert_eq!(client.reports_without_relay(), 0);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn reports_without_relay(&self) -> usize {
        self.state.outbox.without_relay(&|id| relay_of(&self.enrolled, id))
    }

    /// Counts since the client was made.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Whether the arms of the last hour were those of many visitors, not of one user.
    pub(crate) fn draws_for_a_crowd(&self) -> bool {
        self.crowd.is_there()
    }
}
