//! The client without input or output of its own.

mod experiment;
mod journal;
mod state;

use std::collections::BTreeMap;
use std::time::Duration;

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, ExperimentId, UploadId};
use thiserror::Error;

use crate::acceptance::Refusal;
use crate::assignment::{AssignmentId, Chosen, OpenAssignment, Unreported};
use crate::ledger::{Budget, Exhausted, Spent};
#[cfg(feature = "simulation")]
use crate::noise::SeededNoise;
use crate::noise::{EntropyError, NoiseSource, OsNoise, uniform_up_to};
use crate::outbox::{REPORTS_IN_ALL_MAX, REPORTS_MAX, UploadOutcome, UploadTask};
use crate::privatizer::PrivatizeError;
use crate::reward::Reward;
use crate::time::Timestamp;
use experiment::Enrolled;
pub use experiment::{FetchTask, Fetched};
use journal::Journal;
#[cfg(feature = "storage")]
pub(crate) use journal::{Content, Write};
#[cfg(feature = "storage")]
pub(crate) use state::Held;
pub(crate) use state::{Change, Draw, Epoch, Once, State};

/// The client of a device.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::Client;
///
/// let mut client = Client::new(budget()?);
/// # let id = specification()?.experiment_id().clone();
/// client.enroll(id.clone(), acceptance()?);
/// // What the host heard from a server:
/// client.on_fetched(&id, answer(now())?, now())?;
/// assert!(["red", "green"].contains(&client.choose(&id, now())?.label()));
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
/// // It leaves experiments on real users alone.
/// let refused = client.on_fetched(&id, answer(now())?, now());
/// assert!(matches!(refused, Err(ClientError::Refused(Refusal::SimulationMark { .. }))));
///
/// let mut parts = specification()?.to_parts();
/// parts.simulation = true;
/// let specification = Some(Specification::new(parts)?);
/// client.on_fetched(&id, Fetched { specification, ..answer(now())? }, now())?;
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// None: whoever knows the seed knows the noise.
#[cfg(feature = "simulation")]
pub type SimulatedClient = Core<SeededNoise>;

/// A report that no server has counted this long after its release time is dropped: its
/// server is gone.
const REPORT_AGE_MAX: Duration = Duration::from_hours(60 * 24);

/// A client without input or output of its own: it is told the time, hands out
/// tasks, and is told their results.
///
/// Apps hold a [`crate::Bandana`], which does all that; this is for hosts that carry
/// out the tasks by other means, for gateways, and for simulations.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// use bandana_client::{Task, UploadOutcome};
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// let chosen = client.choose(&id, now())?;
/// // After ten minutes and a delay of an hour at most, the host asks what is to be done.
/// let later = now().after(Duration::from_secs(600 + 3600));
/// loop {
///     match client.next_task(later)? {
///         Task::Fetch(task) => client.on_fetched(&task.experiment_id, answer(later)?, later)?,
///         Task::Upload(task) => {
///             client.on_upload_result(task.id(), &UploadOutcome::Accepted, later)?;
///         }
///         Task::Wait(_) | Task::Done => break,
///     }
/// }
/// assert_eq!(client.statistics().uploads_accepted, 1);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// A report leaves at the first [`Self::next_task`] after its release time, so
/// ask for tasks when a [`Task::Wait`] ends, when the app starts, or every so
/// often, and never *because* the user reacted: then the time of the upload
/// would tell.
pub struct Core<N> {
    noise: N,
    budget: Budget,
    state: State,
    journal: Journal,
    enrolled: BTreeMap<ExperimentId, Enrolled>,
    /// The server's day as last heard, also from an answer that was refused.
    heard_day: Option<(Day, Timestamp)>,
    /// The user has not agreed, for this run.
    withheld: bool,
    statistics: Statistics,
}

/// Says nothing of what the client holds: bits, and what a reward has changed.
impl<N> std::fmt::Debug for Core<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// What a host is to do next.
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
/// client.on_fetched(&id, answer(now())?, now())?;
/// client.choose(&id, now())?;
/// // Until the attribution window ends there is nothing to do.
/// let end = now().after(Duration::from_secs(600));
/// assert!(matches!(client.next_task(now())?, Task::Wait(time) if time == end));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug)]
pub enum Task {
    /// Ask a server for an experiment, then call [`Core::on_fetched`] or
    /// [`Core::on_fetch_failed`].
    Fetch(FetchTask),
    /// Send an upload, then call [`Core::on_upload_result`]. Handed out at or after the
    /// release time of its report, whatever the reward was.
    Upload(UploadTask),
    /// Nothing before this time.
    Wait(Timestamp),
    /// Nothing, until something else happens: an arm is drawn, or an experiment enrolled.
    Done,
}

/// Counts since the client was made; a restart begins at zero again.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Reward, Statistics};
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// let chosen = client.choose(&id, now())?;
/// // Binary rewards are 0 or 1.
/// assert!(client.reward(chosen.id(), Reward::new(3.0)?, now()).is_err());
/// let expected = Statistics { assignments: 1, rewards_refused: 1, ..Statistics::default() };
/// assert_eq!(client.statistics(), expected);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// They stay on the device. `rewards_refused` is about rewards: an app that sends it
/// anywhere says so much about its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Arms given.
    pub assignments: u64,
    /// Arms given without a report to come.
    pub assignments_without_report: u64,
    /// Private bits made, one for each assignment that reports.
    pub reports_made: u64,
    /// Reports dropped because no server had counted them 60 days after their release
    /// time.
    pub reports_expired: u64,
    /// Server days that were not believed: more than a day from the device's own.
    pub days_refused: u64,
    /// Writes to the storage that failed; each is tried again.
    pub writes_failed: u64,
    /// Rewards that were not added: no finite number, not one that the experiment
    /// admits, or for an assignment that never reports or takes no more.
    pub rewards_refused: u64,
    /// Uploads that a server counted on this answer.
    pub uploads_accepted: u64,
    /// Uploads that a server had counted before.
    pub uploads_duplicate: u64,
    /// Uploads refused for good.
    pub uploads_refused: u64,
    /// Attempts to upload that will be repeated.
    pub uploads_postponed: u64,
    /// Questions for an experiment that no server answered.
    pub fetches_failed: u64,
    /// Answers that the client refused.
    pub answers_refused: u64,
}

impl Client {
    /// A client that keeps everything in memory, and takes part in experiments within
    /// this budget.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Client, Spent};
    /// let client = Client::new(budget()?);
    /// assert_eq!(client.spent(now()), Spent::default());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The budget is counted from zero: whoever makes a second client spends twice.
    pub fn new(budget: Budget) -> Self {
        Self::with(OsNoise, budget, State::default(), Journal::volatile())
    }
}

#[cfg(feature = "simulation")]
impl SimulatedClient {
    /// The simulated client of this number under this seed, without a budget. The same
    /// numbers give the same arms, bits and release times.
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
    /// # let specification = Some(Specification::new(parts)?);
    /// # let fetched = Fetched { specification, ..answer(now())? };
    /// let mut clients = [SimulatedClient::seeded(1, 2), SimulatedClient::seeded(1, 2)];
    /// for client in &mut clients {
    ///     client.enroll(id.clone(), acceptance()?);
    ///     client.on_fetched(&id, fetched.clone(), now())?;
    /// }
    /// for _ in 0..100 {
    ///     let [one, other] = clients.each_mut().map(|client| client.choose(&id, now()));
    ///     assert_eq!(one?, other?);
    /// }
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn seeded(seed: u64, user: u64) -> Self {
        let noise = SeededNoise::new(seed, user);
        Self::with(noise, Budget::UNLIMITED, State::default(), Journal::volatile())
    }
}

impl<N: NoiseSource> Core<N> {
    fn with(noise: N, budget: Budget, state: State, journal: Journal) -> Self {
        Self {
            noise,
            budget,
            state,
            journal,
            enrolled: BTreeMap::new(),
            heard_day: None,
            withheld: false,
            statistics: Statistics::default(),
        }
    }

    /// Goes through a change of the state, and keeps it for the storage.
    fn record(&mut self, change: Change) {
        let number = self.journal.next_number();
        let applied = self.state.apply(&change, number);
        debug_assert!(applied.is_ok(), "a change that does not follow from the state");
        if applied.is_ok() {
            self.journal.push(change);
        }
    }

    /// Draws an arm by the policy as last heard, and fixes whether and when its
    /// report will be released. Never waits for a network or a disk.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let chosen = client.choose(&id, now())?;
    /// println!("show the {} button", chosen.label());
    /// // The report is paid for, whether or not the user reacts.
    /// assert_eq!(client.spent(now()).lifetime.get(), 1_000_000_000);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Takes the ε of the experiment off the budget, or gives an arm that never reports.
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::NoPolicy`] before a server
    /// has answered within the acceptance; [`ClientError::SignaturesExpired`];
    /// [`ClientError::OptedOut`]; [`ClientError::Entropy`]. Nothing is paid then.
    pub fn choose(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<Chosen, ClientError> {
        if self.is_opted_out() {
            return Err(ClientError::OptedOut);
        }
        let (held, acceptance) = self.use_held(experiment_id, now)?;
        let (specification, once_days) = (held.specification.clone(), acceptance.once_days());
        let weights = held.policy.weights.clone();
        let arm = weights.draw((self.noise.word()? >> 32) as u32);
        let timing = specification.timing();
        let delay_ms_max = u64::from(timing.release_delay_seconds_max) * 1000;
        let delay = Duration::from_millis(uniform_up_to(delay_ms_max, || self.noise.word())?);
        let window = Duration::from_secs(u64::from(timing.attribution_window_seconds));
        let rewards_until = now.after(window);

        let id = AssignmentId::new(self.state.last_assignment.saturating_add(1));
        let time = self.state.ledger.time(now);
        let once = once_days.map(|days| Epoch::at(days, time));
        let draw = Draw {
            id,
            digest: specification.digest(),
            experiment_id: experiment_id.clone(),
            arm,
            chosen_at: now,
            rewards_until,
            release_at: rewards_until.after(delay),
            price: NanoNats::from_epsilon(specification.epsilon()),
            once,
        };
        let unreported = self.why_unreported(&draw, now);
        self.statistics.assignments += 1;
        if unreported.is_none() {
            self.record(Change::Drawn(draw));
        } else {
            self.state.last_assignment = id.get();
            self.statistics.assignments_without_report += 1;
        }
        let label = specification.arms()[arm.get()].label().to_owned();
        Ok(Chosen { id, experiment_id: experiment_id.clone(), arm, label, unreported })
    }

    /// Why a draw is not to report, if it is not.
    fn why_unreported(&self, draw: &Draw, now: Timestamp) -> Option<Unreported> {
        if let Some(why) = self.journal.why_unreported() {
            return Some(why);
        }
        let reports = self.state.reports.get(&draw.experiment_id);
        let in_all = self.state.open.len() + self.state.outbox.parcels.len();
        if in_all >= REPORTS_IN_ALL_MAX || reports.is_some_and(|own| *own >= REPORTS_MAX) {
            return Some(Unreported::OutboxFull);
        }
        let reported = draw.once.is_some_and(|epoch| {
            let (experiment_id, arm) = (draw.experiment_id.clone(), draw.arm);
            self.state.once.contains(&Once { experiment_id, arm, epoch })
        });
        if reported {
            return Some(Unreported::ReportedOnce);
        }
        match self.state.ledger.admits(draw.price, now, &self.budget) {
            Ok(()) => None,
            Err(Exhausted::Window) => Some(Unreported::WindowSpent),
            Err(Exhausted::Lifetime) => Some(Unreported::LifetimeSpent),
        }
    }

    /// Adds a reward to an assignment. Rewards add up to one report: their sum,
    /// clamped to the range, or for binary rewards whether one of them had the
    /// higher value.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::{ClientError, Reward};
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let chosen = client.choose(&id, now())?;
    /// client.reward(chosen.id(), Reward::new(1.0)?, now())?;
    /// // The attribution window has ten minutes.
    /// let late = now().after(Duration::from_secs(601));
    /// let refused = client.reward(chosen.id(), Reward::new(1.0)?, late);
    /// assert!(matches!(refused, Err(ClientError::NotOpen)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Decides nothing but the odds of one bit; costs nothing beyond what was paid when
    /// the arm was drawn.
    ///
    /// # Errors
    /// [`ClientError::NotOpen`] when its time is over or it never reports;
    /// [`ClientError::Reward`] for a reward that the experiment does not admit.
    /// Nothing was added then, and the report is made all the same.
    #[expect(clippy::needless_pass_by_value, reason = "the raw value is to end here")]
    pub fn reward(
        &mut self,
        assignment: AssignmentId,
        reward: Reward,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let in_time = |open: &&mut OpenAssignment| now <= open.rewards_until;
        let open = self.state.open.get_mut(&assignment).filter(in_time);
        let added = match open {
            Some(open) => open.add(&reward).map_err(ClientError::from),
            None => Err(ClientError::NotOpen),
        };
        match &added {
            Ok(()) => self.journal.note_reward(),
            Err(_) => self.statistics.rewards_refused += 1,
        }
        added
    }

    /// Every assignment that is open or waits to be sent.
    #[cfg(test)]
    pub(crate) fn assignments(&self) -> impl Iterator<Item = AssignmentId> + '_ {
        self.state.open.keys().chain(self.state.outbox.parcels.keys()).copied()
    }

    /// The assignment that an upload reports.
    #[cfg(test)]
    pub(crate) fn assignment_of(&self, id: UploadId) -> Option<AssignmentId> {
        self.state.outbox.find(id)
    }

    /// The sum of the rewards of an assignment.
    #[cfg(test)]
    pub(crate) fn sum_of(&self, id: AssignmentId) -> Option<f64> {
        self.state.open.get(&id)?.sum()
    }

    /// Whether sums of rewards are kept in a storage.
    pub(crate) fn keeps_rewards(&self) -> bool {
        self.journal.keeps_rewards()
    }

    /// Counts a reward that is none.
    pub(crate) fn refuse_reward(&mut self) {
        self.statistics.rewards_refused += 1;
    }

    /// An assignment that still takes rewards, as it was given.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let chosen = client.choose(&id, now())?;
    /// assert_eq!(client.assigned(chosen.id(), now()).as_ref(), Some(&chosen));
    /// assert_eq!(client.assigned(chosen.id(), now().after(Duration::from_secs(601))), None);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn assigned(&self, id: AssignmentId, now: Timestamp) -> Option<Chosen> {
        let open = self.state.open.get(&id).filter(|open| now <= open.rewards_until)?;
        let label = open.specification.arms()[open.arm.get()].label().to_owned();
        let experiment_id = open.specification.experiment_id().clone();
        Some(Chosen { id, experiment_id, arm: open.arm, label, unreported: None })
    }

    /// What to do next. Assignments whose attribution window has ended are
    /// privatized here. A task whose result is not told within two minutes is handed
    /// out again.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Task;
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.choose(&id, now())?;
    /// assert_eq!((client.open_assignments(), client.waiting_reports()), (1, 0));
    /// let end = now().after(Duration::from_secs(600));
    /// client.next_task(end)?;
    /// assert_eq!((client.open_assignments(), client.waiting_reports()), (0, 1));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Entropy`]: nothing is lost, ask again later.
    pub fn next_task(&mut self, now: Timestamp) -> Result<Task, ClientError> {
        if self.is_opted_out() {
            return Ok(Task::Done);
        }
        self.privatize(now)?;
        self.drop_expired(now);
        if let Some(day) = self.day(now) {
            for (id, task) in self.state.outbox.seal(day, now, &mut self.noise)? {
                self.record(Change::Sealed { id, task });
            }
        }
        let durable = self.journal.durable();
        if let Some(task) = self.state.outbox.take(now, durable, &mut self.noise)? {
            return Ok(Task::Upload(task));
        }
        if let Some(task) = self.fetch_task(now) {
            return Ok(Task::Fetch(task));
        }
        Ok(self.next_time(now).map_or(Task::Done, Task::Wait))
    }

    /// The earliest time at which [`Self::next_task`] will have something to do.
    fn next_time(&self, now: Timestamp) -> Option<Timestamp> {
        let windows = self.state.open.values().map(|open| open.rewards_until);
        let outbox = self.state.outbox.next_time(now, self.journal.durable());
        windows.chain(self.next_fetch()).chain(outbox).min()
    }

    /// Turns every assignment whose attribution window has ended into a private bit.
    fn privatize(&mut self, now: Timestamp) -> Result<(), ClientError> {
        let over = self.state.open.iter().filter(|(_, open)| open.is_over(now));
        let ids: Vec<AssignmentId> = over.map(|(id, _)| *id).collect();
        for id in ids {
            let Some(open) = self.state.open.get(&id) else {
                continue;
            };
            let bit = open.privatize(&mut self.noise)?;
            self.record(Change::Privatized { id, bit });
            self.statistics.reports_made += 1;
        }
        Ok(())
    }

    /// Drops reports whose server is gone, if a server says too how late it is: a clock
    /// that is wrong for a moment costs no report.
    fn drop_expired(&mut self, now: Timestamp) {
        if self.day(now).is_none() {
            return;
        }
        let parcels = self.state.outbox.parcels.iter();
        let expired = parcels.filter(|(_, parcel)| now.since(parcel.release_at) > REPORT_AGE_MAX);
        let ids: Vec<AssignmentId> = expired.map(|(id, _)| *id).collect();
        for id in ids {
            self.record(Change::Settled { id });
            self.statistics.reports_expired += 1;
        }
    }

    /// Notes what became of an upload. One that is no longer known is ignored.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::{Task, UploadOutcome};
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// # client.choose(&id, now())?;
    /// # let later = now().after(Duration::from_secs(600 + 3600));
    /// # let Task::Fetch(_) = client.next_task(later)? else { return Err("no question".into()) };
    /// # client.on_fetched(&id, answer(later)?, later)?;
    /// let Task::Upload(task) = client.next_task(later)? else { return Err("not yet".into()) };
    /// // The answer to the first attempt was lost; the server knows the upload.
    /// client.on_upload_result(task.id(), &UploadOutcome::Duplicate, later)?;
    /// assert_eq!(client.waiting_reports(), 0);
    /// assert_eq!(client.statistics().uploads_duplicate, 1);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Entropy`]; the upload is handed out again later.
    pub fn on_upload_result(
        &mut self,
        id: UploadId,
        outcome: &UploadOutcome,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let Some(id) = self.state.outbox.find(id) else {
            return Ok(());
        };
        let counter = match outcome {
            UploadOutcome::Accepted => &mut self.statistics.uploads_accepted,
            UploadOutcome::Duplicate => &mut self.statistics.uploads_duplicate,
            UploadOutcome::Refused { .. } => &mut self.statistics.uploads_refused,
            UploadOutcome::Retry { retry_after } => {
                self.state.outbox.postpone(id, *retry_after, now, &mut self.noise)?;
                self.statistics.uploads_postponed += 1;
                return Ok(());
            }
        };
        *counter += 1;
        self.record(Change::Settled { id });
        Ok(())
    }

    /// Stops everything and forgets everything but what was spent: the user has
    /// withdrawn. Reports that have not been sent are not sent. Which arms have reported is
    /// forgotten too, see [`Acceptance::report_once`](crate::Acceptance::report_once).
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{ClientError, Task};
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.choose(&id, now())?;
    /// client.opt_out();
    /// assert_eq!((client.open_assignments(), client.waiting_reports()), (0, 0));
    /// assert!(matches!(client.choose(&id, now()), Err(ClientError::OptedOut)));
    /// assert!(matches!(client.next_task(now())?, Task::Done));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn opt_out(&mut self) {
        self.state.opt_out();
        self.journal.replace();
    }

    /// Takes part again, with what was spent before counted, in the experiments that the
    /// client was enrolled in. Each is asked for anew.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Task;
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.choose(&id, now())?;
    /// client.opt_out();
    /// client.opt_in();
    /// assert_eq!(client.spent(now()).lifetime.get(), 1_000_000_000);
    /// assert!(matches!(client.next_task(now())?, Task::Fetch(_)));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn opt_in(&mut self) {
        if self.is_opted_out() {
            self.withheld = false;
            self.state.opted_out = false;
            self.journal.replace();
            for (experiment_id, enrolled) in std::mem::take(&mut self.enrolled) {
                if let Some(acceptance) = enrolled.into_acceptance() {
                    self.enroll(experiment_id, acceptance);
                }
            }
        }
    }

    /// Notes that nothing is written from now on, so that nothing more is promised.
    pub(crate) fn close(&mut self) {
        self.journal.close();
    }

    /// Whether the user has withdrawn.
    pub fn is_opted_out(&self) -> bool {
        self.state.opted_out || self.withheld
    }

    /// Stops everything for this run, and forgets everything but what was spent: the user
    /// has not agreed. An earlier opt-out stands.
    pub(crate) fn withhold(&mut self) {
        let before = self.state.opted_out;
        self.opt_out();
        self.state.opted_out = before;
        self.withheld = true;
    }

    /// What was spent so far. A `now` that lies before the latest time at which an arm was
    /// paid for or news were heard counts as that time.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Timestamp;
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.choose(&id, now())?;
    /// assert_eq!(client.spent(now()).window.get(), 1_000_000_000);
    /// // A clock that is set back refills nothing.
    /// assert_eq!(client.spent(Timestamp::from_unix_ms(0)), client.spent(now()));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn spent(&self, now: Timestamp) -> Spent {
        self.state.ledger.spent(now, &self.budget)
    }

    /// Assignments whose rewards still count.
    pub fn open_assignments(&self) -> usize {
        self.state.open.len()
    }

    /// Private bits that no server has counted yet.
    pub fn waiting_reports(&self) -> usize {
        self.state.outbox.parcels.len()
    }

    /// Counts since the client was made.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }
}

/// A call that the client can't carry out. It went on as before, apart from counting it
/// and, after an answer that it refused, asking again later.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Budget, Client, ClientError};
///
/// # let id = specification()?.experiment_id().clone();
/// let mut client = Client::new(Budget::UNLIMITED);
/// assert!(matches!(client.choose(&id, now()), Err(ClientError::NotEnrolled { .. })));
/// client.enroll(id.clone(), acceptance()?);
/// let label = match client.choose(&id, now()) {
///     Ok(chosen) => chosen.label().to_owned(),
///     Err(ClientError::NoPolicy { .. }) => "the default".to_owned(),
///     Err(error) => return Err(error.into()),
/// };
/// assert_eq!(label, "the default");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The app does not take part in it, see [`Core::enroll`].
    #[error("the client is not enrolled in experiment {experiment_id}; call `enroll` first")]
    NotEnrolled {
        /// The experiment.
        experiment_id: ExperimentId,
    },
    /// No server has answered yet, or nothing that the app accepts.
    #[error("there is no policy for experiment {experiment_id} yet; show a default and try later")]
    NoPolicy {
        /// The experiment.
        experiment_id: ExperimentId,
    },
    /// What is held of the experiment is no longer vouched for.
    #[error(
        "the signatures of experiment {experiment_id} have expired; show a default until its \
         operator signs it anew"
    )]
    SignaturesExpired {
        /// The experiment.
        experiment_id: ExperimentId,
    },
    /// The user has withdrawn.
    #[error("the user has opted out; show a default")]
    OptedOut,
    /// The assignment's time is over, or it never reports.
    #[error("the assignment takes no more rewards")]
    NotOpen,
    /// The reward is not one that the experiment admits.
    #[error(transparent)]
    Reward(PrivatizeError),
    /// The server asks for more than the app accepts.
    #[error("the server's answer was refused")]
    Refused(#[from] Refusal),
    /// No randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

impl From<PrivatizeError> for ClientError {
    fn from(error: PrivatizeError) -> Self {
        match error {
            PrivatizeError::Entropy(entropy) => Self::Entropy(entropy),
            other => Self::Reward(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::identity::Revision;
    use bandana_shared::policy::{Policy, Weights};
    use bandana_shared::rewards::Rewards;
    use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};

    use super::*;
    use crate::acceptance::Acceptance;
    use crate::noise::double::Words;

    type Failure = Box<dyn std::error::Error>;

    fn fetched(id: &ExperimentId) -> Result<Fetched, Failure> {
        let epsilon = Epsilon::new(1.0)?;
        let specification = Specification::new(SpecificationParts {
            experiment_id: id.clone(),
            revision: Revision::FIRST,
            simulation: true,
            epsilon,
            floor: bandana_shared::channel::Floor::for_epsilon(epsilon).get(),
            rewards: Rewards::binary(),
            mechanism: Mechanism::Linear,
            arms: vec![Arm::new("a")?, Arm::new("b")?],
            timing: ReleaseTiming { release_delay_seconds_max: 5, ..ReleaseTiming::IMMEDIATE },
        })?;
        let weights = Weights::uniform(&[true, true])?;
        let policy = Policy { version: 1, weights, time_to_live_seconds: 1000 };
        Ok(Fetched {
            specification: Some(specification),
            signatures: Vec::new(),
            policy: Some(policy),
            day: Day::new(1),
        })
    }

    /// Does `step`, and again with more words when they ran out. Counts the
    /// times that they did.
    fn patiently<T>(
        core: &mut Core<Words>,
        failures: &mut u32,
        mut step: impl FnMut(&mut Core<Words>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        match step(core) {
            Err(ClientError::Entropy(_)) => {
                *failures += 1;
                core.noise.0.extend(1000..1100);
                step(core)
            }
            other => other,
        }
    }

    #[test]
    fn wherever_the_randomness_fails_there_is_one_report_in_the_end() -> Result<(), Failure> {
        let id = ExperimentId::new("entropy")?;
        let mut total = 0;
        for words in 0..12 {
            let mut failures = 0;
            let noise = Words((0..words).collect());
            let journal = Journal::volatile();
            let mut core = Core::with(noise, Budget::UNLIMITED, State::default(), journal);
            let acceptance = Acceptance::new(Epsilon::new(1.0)?, Rewards::binary());
            core.enroll(id.clone(), acceptance);
            let now = Timestamp::from_unix_ms(0);
            patiently(&mut core, &mut failures, |core| core.on_fetch_failed(&id, now))?;
            core.on_fetched(&id, fetched(&id)?, now)?;
            patiently(&mut core, &mut failures, |core| core.choose(&id, now))?;
            let later = Timestamp::from_unix_ms(6000);
            let mut sent = Vec::new();
            for attempt in 0..3 {
                let now = later.after(Duration::from_secs(200 * attempt));
                let task = patiently(&mut core, &mut failures, |core| core.next_task(now))?;
                let Task::Upload(task) = task else { return Err(format!("{task:?}").into()) };
                let outcome = match attempt {
                    2 => UploadOutcome::Accepted,
                    _ => UploadOutcome::Retry { retry_after: None },
                };
                let told = core.on_upload_result(task.id(), &outcome, now);
                failures += u32::from(told.is_err());
                core.noise.0.extend(told.is_err().then_some(0..100).into_iter().flatten());
                sent.push(task);
            }
            assert!(sent.iter().all(|task| *task == sent[0]), "the same bytes every time");
            assert_eq!(core.statistics.reports_made, 1, "with {words} words");
            assert_eq!(
                (core.open_assignments(), core.waiting_reports()),
                (0, 0),
                "with {words} words"
            );
            total += failures;
        }
        assert!(total > 8, "the randomness failed {total} times");
        Ok(())
    }
}
