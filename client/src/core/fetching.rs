//! Fetches of experiments from a server, and the handling of their answers.

use std::sync::Arc;
use std::time::Duration;

use bandana_shared::identity::{Day, ExperimentId, StoreId, UnixSeconds};
use bandana_shared::policy::Policy;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::transparency::{View, ViewError};

use super::experiment::Enrolled;
use super::state::{CachedExperiment, Change};
use super::{ClientError, Core, relay_of};
use crate::day::DAY_DIFFERENCE_MAX;
use crate::debit::Debit;
use crate::noise::NoiseSource;
use crate::outbox::{TASK_TIME_MAX, full_jitter, is_due};
use crate::refusal::Refusal;
use crate::time::Timestamp;

/// A fetch of an experiment from a server.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// use bandana_client::{Client, FetchTask, Task};
///
/// # let id = specification()?.experiment_id().clone();
/// # let mut client = Client::new(budget()?);
/// client.enroll(id.clone(), acceptance()?);
/// let Task::Fetch(first) = client.next_task(now())? else { return Err("no question".into()) };
/// assert_eq!(first.experiment_id, id);
/// client.on_fetched(&first, answer(now())?, now())?;
///
/// // The policy lives a minute. A choice after that schedules a fetch within five minutes.
/// let later = now().after(Duration::from_secs(61));
/// client.draw(&id, later)?;
/// let later = later.after(Duration::from_secs(300));
/// let Task::Fetch(second) = client.next_task(later)? else { return Err("no question".into()) };
/// assert_eq!(second.experiment_id, id);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// A fetch reveals to a server that a device takes part, and when it fetches. It contains nothing
/// that a server chose, so a server can't recognise a device by it. It reveals nothing about
/// rewards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchTask {
    /// The id of the experiment. Nothing else is sent.
    pub experiment_id: ExperimentId,
    /// Distinguishes the fetches of a client; it is not sent. 0: no client handed it out.
    number: u64,
}

impl FetchTask {
    /// A fetch that no client asked for. The client adopts its answer, but dates no report by it,
    /// since nobody knows when the server gave it.
    ///
    /// ```
    /// # use bandana_client::FetchTask;
    /// # use bandana_shared::identity::ExperimentId;
    /// let task = FetchTask::new(ExperimentId::new("button-colour")?);
    /// assert_eq!(task.experiment_id.as_str(), "button-colour");
    /// # Ok::<(), bandana_shared::identity::IdentityError>(())
    /// ```
    pub fn new(experiment_id: ExperimentId) -> Self {
        Self { experiment_id, number: 0 }
    }
}

/// A server's answer to a [`FetchTask`].
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::Fetched;
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// // The server is of a kind that does not name its store.
/// let fetched = Fetched { store: None, ..answer(now())? };
/// client.on_fetched(&FetchTask::new(id.clone()), fetched, now())?;
/// assert_eq!(client.specification(&id), Some(&specification()?));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The specification.
    pub specification: Specification,
    /// The signatures of the specification.
    pub signatures: Vec<Signature>,
    /// The policy.
    pub policy: Policy,
    /// The server's day (UTC). If it is within a day of the device's own, it allows uploads for an
    /// hour.
    pub day: Day,
    /// The id of the server's store, or `None` if the server is too old to send it. The client
    /// keeps it with the specification, compares it, and never sends it.
    pub store: Option<StoreId>,
    /// The proof that the server's log contains specification, policy and store, or `None` if the
    /// server keeps no log.
    pub view: Option<View>,
}

impl<N: NoiseSource> Core<N> {
    /// The day of uploads, if a server's was received lately that is within a day of the device's:
    /// the earlier of the two. A server refuses a later day than its own; and the later of the two
    /// would be its choice.
    pub(super) fn day(&self, now: Timestamp) -> Option<Day> {
        let (heard, own) = (self.heard_day.get(self.moment(now))?, now.day());
        (heard.get().abs_diff(own.get()) <= DAY_DIFFERENCE_MAX).then_some(own.min(heard))
    }

    pub(super) fn fetch_task(&mut self, now: Timestamp) -> Option<FetchTask> {
        if self.day(now).is_none() {
            let relays = |id: &ExperimentId| relay_of(&self.enrolled, id);
            for experiment_id in self.state.outbox.need_day(now, &relays) {
                let enrolled = self.enrolled.entry(experiment_id);
                enrolled.or_insert_with(|| Enrolled::new(None, None)).wanted = true;
            }
        }
        for enrolled in self.enrolled.values_mut() {
            let refresh = enrolled.refresh_at.take_if(|time| is_due(*time, now));
            enrolled.wanted |= refresh.is_some();
        }
        let (id, enrolled) = self.enrolled.iter_mut().find(|(_, enrolled)| enrolled.is_due(now))?;
        enrolled.not_before = Some(now.after(TASK_TIME_MAX));
        // Of the epoch of this start: a result for another one is of no fetch that is awaited.
        self.fetches = (self.fetches + 1).max((self.state.last_assignment >> 32 << 32) + 1);
        enrolled.begin(self.fetches, self.state.settled());
        // A fetch for the day brings a policy too.
        enrolled.refresh_at = None;
        Some(FetchTask { experiment_id: id.clone(), number: self.fetches })
    }

    /// Makes a fetch due again that was given up.
    #[cfg(feature = "grpc")]
    pub(super) fn fetch_again(&mut self, task: &FetchTask) {
        // The client gave it up, so nobody has withheld an answer.
        let was_withheld = self.has_asked;
        self.end_fetch(task, Timestamp::default());
        self.has_asked = was_withheld;
        if let Some(enrolled) = self.enrolled.get_mut(&task.experiment_id) {
            (enrolled.wanted, enrolled.not_before) = (true, None);
        }
    }

    /// The earliest time of a fetch.
    pub(super) fn next_fetch(&self) -> Option<Timestamp> {
        let wanted = self.enrolled.values().filter(|enrolled| enrolled.wanted);
        let refresh = self.enrolled.values().filter_map(|enrolled| enrolled.refresh_at);
        let due = |enrolled: &Enrolled| enrolled.not_before.unwrap_or_default();
        wanted.map(due).chain(refresh).min()
    }

    /// Receives a server's answer, and adopts it if it is within the app's acceptance.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Client;
    ///
    /// # let id = specification()?.experiment_id().clone();
    /// let mut client = Client::new(budget()?);
    /// client.enroll(id.clone(), acceptance()?);
    /// assert!(client.draw(&id, now()).is_err(), "nothing was heard yet");
    /// client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now())?;
    /// assert!(client.draw(&id, now()).is_ok());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the reason. The client keeps what it held, accepts the server's
    /// day, and fetches again later. For [`ClientError::NotEnrolled`] and [`ClientError::OptedOut`]
    /// it adopts nothing. [`ClientError::Entropy`] in place of a refusal, when there is no
    /// randomness for the wait.
    pub fn on_fetched(
        &mut self,
        task: &FetchTask,
        fetched: Fetched,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let experiment_id = &task.experiment_id;
        let was_withheld = self.has_asked;
        let asked = self.end_fetch(task, now);
        if self.is_opted_out() {
            return Err(ClientError::OptedOut);
        }
        if !self.enrolled.contains_key(experiment_id) {
            return Err(ClientError::NotEnrolled { experiment_id: experiment_id.clone() });
        }
        self.server.answered();
        let day_fits = self.heard_day.hear(fetched.day, self.moment(now));
        if day_fits {
            // This fetch has told the day.
            self.has_asked = was_withheld;
            self.state.dropped.hear(task.number, fetched.day);
            let settled = asked.min(self.state.settled());
            if settled != Debit::ZERO || self.state.ledger.is_news(fetched.day) {
                self.record(Change::DayHeard { day: fetched.day, settled });
            }
            // Other fetches under way were asked for the same debits.
            for other in self.enrolled.values_mut() {
                other.dated(settled);
            }
        }
        let accepted = self.accept(experiment_id, fetched, now);
        if let Err(error) = accepted {
            self.statistics.answers_refused += 1;
            self.ask_later(experiment_id, now)?;
            if let (ClientError::Refused(refusal), Some(enrolled)) =
                (&error, self.enrolled.get_mut(experiment_id))
            {
                enrolled.refusal = Some(refusal.clone());
            }
            return Err(error);
        }
        if !day_fits {
            // Arms are drawn; reports wait for a day on which server and device agree.
            self.statistics.days_refused += 1;
            return self.ask_later(experiment_id, now);
        }
        if let Some(enrolled) = self.enrolled.get_mut(experiment_id) {
            enrolled.wanted = false;
            enrolled.refresh_at = None;
            enrolled.failures = 0;
            enrolled.not_before = None;
            enrolled.refusal = None;
        }
        Ok(())
    }

    /// Judges an answer, and holds it.
    fn accept(
        &mut self,
        experiment_id: &ExperimentId,
        fetched: Fetched,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let Some(enrolled) = self.enrolled.get_mut(experiment_id) else {
            return Ok(());
        };
        let Some(acceptance) = &enrolled.acceptance else {
            // Fetched for its day only.
            return Ok(());
        };
        let held = self.state.cached.get(experiment_id);
        let time = self.state.ledger.time(now);
        let Fetched { specification, signatures, policy, store, view, day: _ } = fetched;
        if specification.experiment_id() != experiment_id {
            return Err(Refusal::OtherExperiment.into());
        }
        let before = held.map(|held| &*held.specification);
        let offered = (&specification, &signatures[..]);
        let certified = &mut enrolled.certified;
        let accepted = acceptance.judge(offered, before, certified, N::SIMULATED, time)?;
        let same = held.filter(|held| held.specification.digest() == specification.digest());
        let (weights, arms) = (policy.weights.len(), specification.arms().len());
        if weights != arms {
            return Err(Refusal::PolicyArms { weights, arms }.into());
        }
        let (lists, segments) = (policy.weights.segments(), specification.measurement().lists());
        if lists != segments {
            return Err(Refusal::PolicySegments { lists, segments }.into());
        }
        if let Some(witnessed) = acceptance.log() {
            // Before anything is kept of it: the store's id is as good a mark as a policy.
            let store = store.ok_or(Refusal::Log(ViewError::Missing))?;
            let known = self.log_sizes.entry(witnessed.log().clone()).or_default();
            let time = UnixSeconds::new(now.unix_ms() / 1000);
            let told = (&specification, &policy, store);
            let checked = witnessed.check_experiment(view.as_ref(), told, *known, time);
            *known = checked.map_err(Refusal::Log)?;
        }
        enrolled.accepted = Some(accepted);
        let anew = same.is_none_or(|held| held.signatures != signatures);
        // A server that does not name its store may have the same one.
        let store = store.or(same.and_then(|held| held.store));
        let news =
            anew || same.is_some_and(|h| h.policy.version != policy.version || h.store != store);
        let specification =
            same.map_or_else(|| Arc::new(specification), |held| Arc::clone(&held.specification));
        let next = CachedExperiment { specification, signatures, policy, heard_at: now, store };
        if news {
            self.record(Change::Heard { held: next, anew });
        } else {
            // A new time of receipt alone is not worth a write.
            self.state.cached.insert(experiment_id.clone(), next);
        }
        Ok(())
    }

    /// Records that no answer came, or one that asks for a pause of `retry_after`, which counts up
    /// to one hour. The client makes no further call before the pause and a random wait are over.
    /// The bound of that wait doubles with every failure, from one second to one hour.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::{Client, Task};
    ///
    /// # let id = specification()?.experiment_id().clone();
    /// # let mut client = Client::new(budget()?);
    /// # client.enroll(id.clone(), acceptance()?);
    /// let Task::Fetch(task) = client.next_task(now())? else { return Err("no question".into()) };
    /// client.on_fetch_failed(&task, None, now())?;
    /// let Task::Wait(time) = client.next_task(now())? else { return Err("at once".into()) };
    /// assert!(time > now() && time <= now().after(Duration::from_millis(1001)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::Entropy`].
    pub fn on_fetch_failed(
        &mut self,
        task: &FetchTask,
        retry_after: Option<Duration>,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        self.end_fetch(task, now);
        self.statistics.fetches_failed += 1;
        let experiment_id = &task.experiment_id;
        let error = || ClientError::NotEnrolled { experiment_id: experiment_id.clone() };
        let enrolled = self.enrolled.get_mut(experiment_id).ok_or_else(error)?;
        (enrolled.wanted, enrolled.not_before) = (true, None);
        Ok(self.server.failed(false, retry_after, now, &mut self.noise)?)
    }

    /// Records that a server answered without the experiment: it does not know the experiment, or
    /// has refused the fetch. The client fetches this experiment again after a random wait whose
    /// bound doubles with every failure, from one second to one hour.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.on_fetch_refused(&FetchTask::new(id.clone()), now())?;
    /// assert_eq!(client.statistics().fetches_failed, 1);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::Entropy`].
    pub fn on_fetch_refused(
        &mut self,
        task: &FetchTask,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        self.end_fetch(task, now);
        self.statistics.fetches_failed += 1;
        self.server.answered();
        self.ask_later(&task.experiment_id, now)
    }

    /// Records that a server's answer was not valid. Like [`Self::on_fetch_refused`], but counted as
    /// a refused answer.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.on_answer_invalid(&FetchTask::new(id.clone()), now())?;
    /// let statistics = client.statistics();
    /// assert_eq!((statistics.answers_refused, statistics.fetches_failed), (1, 0));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::Entropy`].
    pub fn on_answer_invalid(
        &mut self,
        task: &FetchTask,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        self.end_fetch(task, now);
        self.statistics.answers_refused += 1;
        self.server.answered();
        self.ask_later(&task.experiment_id, now)
    }

    /// Notes the result of a fetch, and returns the debits that its day is for.
    fn end_fetch(&mut self, task: &FetchTask, now: Timestamp) -> Debit {
        self.server.ended(now);
        self.has_asked = true;
        let enrolled = self.enrolled.get_mut(&task.experiment_id);
        enrolled.map_or(Debit::ZERO, |enrolled| enrolled.end(task.number))
    }

    fn ask_later(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let error = || ClientError::NotEnrolled { experiment_id: experiment_id.clone() };
        let enrolled = self.enrolled.get_mut(experiment_id).ok_or_else(error)?;
        enrolled.wanted = true;
        let wait = full_jitter(enrolled.failures, &mut self.noise)?;
        enrolled.failures = enrolled.failures.saturating_add(1);
        // At least a millisecond, so that a host that loops can't spin.
        enrolled.not_before = Some(now.after(wait).after(Duration::from_millis(1)));
        Ok(())
    }
}
