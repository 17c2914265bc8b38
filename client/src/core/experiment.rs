//! Experiments as a client holds them, and fetches of newer versions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, Digest, ExperimentId, StoreId};
use bandana_shared::policy::Policy;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;

use super::state::{CachedExperiment, Change};
use super::{ClientError, Core};
use crate::acceptance::{Acceptance, Refusal};
use crate::day::{DAY_DIFFERENCE_MAX, is_older};
use crate::noise::{NoiseSource, uniform_up_to};
use crate::outbox::{TASK_TIME_MAX, full_jitter, is_due};
use crate::time::Timestamp;

/// Longest time from a choice by a stale policy to the fetch of a new one. The time is random, so
/// that the fetch does not reveal when the arm was shown.
const REFRESH_DELAY_MAX: Duration = Duration::from_mins(5);

/// Time before the expiry of its signatures at which an experiment is fetched anew.
const RENEWAL: Duration = Duration::from_hours(24);

/// Maximum number of fetches of an experiment whose results are awaited. A result beyond it is
/// adopted, but dates no debit.
const ASKED_MAX: usize = 16;

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
/// client.choose(&id, later)?;
/// let later = later.after(Duration::from_secs(300));
/// let Task::Fetch(second) = client.next_task(later)? else { return Err("no question".into()) };
/// assert_eq!(second.experiment_id, id);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// Reveals to a server that a device takes part, and when it fetches; it has nothing that a server
/// chose, so a server recognises nobody by it. Reveals nothing about rewards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchTask {
    /// The experiment, which is all that is sent.
    pub experiment_id: ExperimentId,
    /// Distinguishes the fetches of a client; it is not sent.
    number: u64,
}

impl FetchTask {
    /// A fetch that no client asked for: its answer is adopted, but tells no day of earlier reports.
    ///
    /// ```
    /// # use bandana_client::FetchTask;
    /// # use bandana_shared::identity::ExperimentId;
    /// let task = FetchTask::new(ExperimentId::new("button-colour")?);
    /// assert_eq!(task.experiment_id.as_str(), "button-colour");
    /// # Ok::<(), bandana_shared::identity::IdentityError>(())
    /// ```
    pub fn new(experiment_id: ExperimentId) -> Self {
        Self { experiment_id, number: UNASKED }
    }
}

/// Number of a fetch that no client handed out.
const UNASKED: u64 = u64::MAX;

/// The fetch that a result is of: a [`FetchTask`], or the last one of an experiment.
///
/// Pass the task. An answer to a fetch that was handed out earlier may tell an earlier day, so with
/// the experiment alone, and more than one fetch without a result, no report is dated by it; and a
/// result that is lost then ends that for the life of the client.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Client, FetchTask, Task};
///
/// # let id = specification()?.experiment_id().clone();
/// # let mut client = Client::new(budget()?);
/// # client.enroll(id.clone(), acceptance()?);
/// let Task::Fetch(task) = client.next_task(now())? else { return Err("no question".into()) };
/// client.on_fetched(&task, answer(now())?, now())?;
/// // The app has an answer from elsewhere.
/// client.on_fetched(&FetchTask::new(id), answer(now())?, now())?;
/// # Ok::<(), Failure>(())
/// ```
pub trait FetchOf: sealed::Sealed {
    /// The experiment.
    fn experiment_id(&self) -> &ExperimentId;

    /// The number of the task; 0: none.
    #[doc(hidden)]
    fn number(&self) -> u64;
}

mod sealed {
    /// Implemented here only.
    pub trait Sealed {}
    impl Sealed for super::FetchTask {}
    impl Sealed for super::ExperimentId {}
}

impl FetchOf for FetchTask {
    fn experiment_id(&self) -> &ExperimentId {
        &self.experiment_id
    }

    fn number(&self) -> u64 {
        self.number
    }
}

impl FetchOf for ExperimentId {
    fn experiment_id(&self) -> &ExperimentId {
        self
    }

    fn number(&self) -> u64 {
        0
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
/// client.on_fetched(&id, Fetched { store: None, ..answer(now())? }, now())?;
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
    /// The server's day (UTC): within a day of the device's own it allows uploads for an hour.
    pub day: Day,
    /// The id of the server's store; `None`: the server is too old to send it. The client keeps it
    /// beside the specification, compares it, and never sends it.
    pub store: Option<StoreId>,
}

/// An experiment that a client fetches.
#[derive(Debug)]
pub(super) struct Enrolled {
    /// The app's terms; `None`: it no longer takes part, but earlier reports still need the
    /// server's day.
    acceptance: Option<Acceptance>,
    /// Time until which the held specification is within the acceptance; `None`: it is not.
    usable_until: Option<Timestamp>,
    /// Whether a fetch is due.
    wanted: bool,
    /// Time of the fetch that was scheduled when an arm was drawn by a stale policy.
    refresh_at: Option<Timestamp>,
    failures: u32,
    /// Fetches without a result, the earliest first: the number of each, and the debits that were
    /// settled when it was handed out.
    asked: VecDeque<(u64, NanoNats)>,
    /// Time before which no fetch is made: the end of a wait, or of the time for a task that was
    /// handed out.
    not_before: Option<Timestamp>,
    /// Reason why the last answer was refused, if it was.
    refusal: Option<Refusal>,
}

impl Enrolled {
    fn new(acceptance: Option<Acceptance>, usable_until: Option<Timestamp>) -> Self {
        let wanted = acceptance.is_some() && usable_until.is_none();
        Self {
            acceptance,
            usable_until,
            wanted,
            refresh_at: None,
            failures: 0,
            asked: VecDeque::new(),
            not_before: None,
            refusal: None,
        }
    }

    /// The app's terms.
    pub(super) fn into_acceptance(self) -> Option<Acceptance> {
        self.acceptance
    }

    /// Notes a fetch that is handed out.
    fn begin(&mut self, number: u64, settled: NanoNats) {
        if self.asked.len() < ASKED_MAX {
            self.asked.push_back((number, settled));
        }
    }

    /// Notes the result of a fetch, and returns the debits that its day is for: none, if it is not
    /// known which of several fetches it was.
    fn end(&mut self, number: u64) -> NanoNats {
        let is_only = self.asked.len() == 1;
        let found = if number == 0 {
            // The latest of several: what is left is about earlier days.
            self.asked.pop_back().filter(|_| is_only)
        } else {
            let place = self.asked.iter().position(|(asked, _)| *asked == number);
            place.and_then(|place| self.asked.remove(place))
        };
        found.map_or(NanoNats::ZERO, |(_, settled)| settled)
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.wanted && self.not_before.is_none_or(|time| is_due(time, now))
    }
}

impl CachedExperiment {
    fn is_stale(&self, now: Timestamp) -> bool {
        let lifetime = Duration::from_secs(u64::from(self.policy.time_to_live_seconds));
        is_older(self.heard_at, lifetime, now)
    }
}

impl<N: NoiseSource> Core<N> {
    /// Takes part in an experiment, within `acceptance`. Enrolling again replaces the acceptance.
    /// The held specification and policy stay in use if the new acceptance admits them, and waiting
    /// reports are kept.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Acceptance, Task};
    /// use bandana_shared::{epsilon::Epsilon, rewards::Rewards};
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// // The app is now stricter than the experiment.
    /// client.enroll(id.clone(), Acceptance::unsigned(Epsilon::new(0.1)?, Rewards::binary()));
    /// assert!(client.choose(&id, now()).is_err());
    /// assert!(matches!(client.next_task(now())?, Task::Fetch(_)));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn enroll(&mut self, experiment_id: ExperimentId, acceptance: Acceptance) {
        let held = self.state.cached.get(&experiment_id);
        // A lower bound of the time. The signatures are checked again when they are used.
        let now = self.state.ledger.time(Timestamp::default());
        let judged = held.map(|held| {
            let offered = (&*held.specification, &held.signatures[..]);
            acceptance.judge(offered, None, N::SIMULATED, now)
        });
        let (usable_until, refusal) = match judged {
            Some(Ok(until)) => (Some(until), None),
            Some(Err(refusal)) => (None, Some(refusal)),
            None => (None, None),
        };
        let enrolled = Enrolled { refusal, ..Enrolled::new(Some(acceptance), usable_until) };
        self.enrolled.insert(experiment_id, enrolled);
    }

    /// Judges everything that is held anew.
    #[cfg(feature = "storage")]
    pub(super) fn enroll_again(&mut self) {
        for (experiment_id, enrolled) in std::mem::take(&mut self.enrolled) {
            if let Some(acceptance) = enrolled.into_acceptance() {
                self.enroll(experiment_id, acceptance);
            }
        }
    }

    /// All experiments that the client holds.
    pub(crate) fn held_experiments(&self) -> Vec<ExperimentId> {
        self.state.cached.keys().cloned().collect()
    }

    /// Whether the app takes part in an experiment.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Budget, Client};
    /// # let id = specification()?.experiment_id().clone();
    /// let mut client = Client::new(Budget::UNLIMITED);
    /// assert!(!client.is_enrolled(&id));
    /// client.enroll(id.clone(), acceptance()?);
    /// assert!(client.is_enrolled(&id));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn is_enrolled(&self, experiment_id: &ExperimentId) -> bool {
        self.enrolled.get(experiment_id).is_some_and(|enrolled| enrolled.acceptance.is_some())
    }

    /// Reason why the last answer about an experiment, or what the client holds of it, was refused, if
    /// it was.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Fetched, Refusal};
    /// use bandana_shared::{identity::ExperimentId, specification::Specification};
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let mut parts = specification()?.to_parts();
    /// parts.experiment_id = ExperimentId::new("another")?;
    /// let specification = Specification::new(parts)?;
    /// let refused = client.on_fetched(&id, Fetched { specification, ..answer(now())? }, now());
    /// assert!(refused.is_err());
    /// assert_eq!(client.refusal(&id), Some(&Refusal::OtherExperiment));
    /// // The next valid answer clears it.
    /// client.on_fetched(&id, answer(now())?, now())?;
    /// assert_eq!(client.refusal(&id), None);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn refusal(&self, experiment_id: &ExperimentId) -> Option<&Refusal> {
        self.enrolled.get(experiment_id)?.refusal.as_ref()
    }

    /// The specification that the client takes part under; `None` before a server has sent one that
    /// the app accepts.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (client, id) = (client()?, specification()?.experiment_id().clone());
    /// let labels = client.specification(&id).map(|specification| {
    ///     specification.arms().iter().map(|arm| arm.label().to_owned()).collect::<Vec<_>>()
    /// });
    /// assert_eq!(labels, Some(vec!["red".to_owned(), "green".to_owned()]));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn specification(&self, experiment_id: &ExperimentId) -> Option<&Specification> {
        self.enrolled.get(experiment_id)?.usable_until?;
        Some(&self.state.cached.get(experiment_id)?.specification)
    }

    /// The held specification and policy of an experiment, if they can be used. Schedules a fetch
    /// when they are stale.
    pub(super) fn use_held(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<(&CachedExperiment, &Acceptance), ClientError> {
        let not_enrolled = || ClientError::NotEnrolled { experiment_id: experiment_id.clone() };
        let enrolled = self.enrolled.get_mut(experiment_id).ok_or_else(not_enrolled)?;
        let acceptance = enrolled.acceptance.as_ref().ok_or_else(not_enrolled)?;
        let no_policy = || ClientError::NoPolicy { experiment_id: experiment_id.clone() };
        let usable_until = enrolled.usable_until.ok_or_else(no_policy)?;
        let held = self.state.cached.get(experiment_id).ok_or_else(no_policy)?;
        let time = self.state.ledger.time(now);
        let old = held.is_stale(now) || time.after(RENEWAL) >= usable_until;
        if old && !enrolled.wanted && enrolled.refresh_at.is_none() {
            let delay_ms_max = u64::try_from(REFRESH_DELAY_MAX.as_millis()).unwrap_or(u64::MAX);
            let delay = uniform_up_to(delay_ms_max, || self.noise.jitter())?;
            enrolled.refresh_at = Some(now.after(Duration::from_millis(delay)));
        }
        if time >= usable_until {
            return Err(ClientError::SignaturesExpired { experiment_id: experiment_id.clone() });
        }
        Ok((held, acceptance))
    }

    /// Makes a fetch due again that was given up.
    #[cfg(feature = "grpc")]
    pub(super) fn fetch_again(&mut self, task: &FetchTask) {
        if let Some(enrolled) = self.enrolled.get_mut(&task.experiment_id) {
            (enrolled.wanted, enrolled.not_before) = (true, None);
            enrolled.end(task.number);
        }
    }

    /// Has an experiment fetched with the next task.
    pub(super) fn want(&mut self, experiment_id: &ExperimentId) {
        let enrolled = self.enrolled.get_mut(experiment_id);
        if let Some(enrolled) = enrolled.filter(|one| one.acceptance.is_some()) {
            enrolled.wanted = true;
        }
    }

    /// The day of uploads, if a server's was received lately that is within a day of the device's: the
    /// earlier of the two. A server refuses a later day than its own; and the later of the two would
    /// be its choice.
    pub(super) fn day(&self, now: Timestamp) -> Option<Day> {
        let (heard, own) = (self.heard_day.get(self.moment(now))?, now.day());
        (heard.get().abs_diff(own.get()) <= DAY_DIFFERENCE_MAX).then_some(own.min(heard))
    }

    pub(super) fn fetch_task(&mut self, now: Timestamp) -> Option<FetchTask> {
        if self.day(now).is_none() {
            for experiment_id in self.state.outbox.need_day(now) {
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

    /// Forgets a specification that the store it came from does not know. An impostor may have
    /// named that store, and every specification that the store serves would then be refused as a
    /// change that no revision may make. Debits, assignments and reports stay as they are.
    ///
    /// The specification is kept where signers are pinned, since their word is better than a
    /// store's. It is also kept where an arm has reported once, since the next specification might
    /// number the same arm differently.
    pub(super) fn forget_disowned(
        &mut self,
        experiment_id: &ExperimentId,
        (digest, store): (Digest, StoreId),
    ) {
        let Some(enrolled) = self.enrolled.get_mut(experiment_id) else { return };
        let unsigned = enrolled.acceptance.as_ref().is_some_and(|accepted| !accepted.is_signed());
        let is_held =
            self.state.cached.get(experiment_id).is_some_and(|held| {
                held.specification.digest() == digest && held.store == Some(store)
            });
        if !unsigned || !is_held || self.state.has_reported_once(experiment_id) {
            return;
        }
        enrolled.usable_until = None;
        enrolled.wanted = true;
        self.state.cached.remove(experiment_id);
        self.journal.replace();
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
    /// assert!(client.choose(&id, now()).is_err(), "nothing was heard yet");
    /// client.on_fetched(&id, answer(now())?, now())?;
    /// assert!(client.choose(&id, now()).is_ok());
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
        fetch: &impl FetchOf,
        fetched: Fetched,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let (experiment_id, number) = (fetch.experiment_id(), fetch.number());
        self.server.ended();
        if self.is_opted_out() {
            return Err(ClientError::OptedOut);
        }
        if !self.enrolled.contains_key(experiment_id) {
            return Err(ClientError::NotEnrolled { experiment_id: experiment_id.clone() });
        }
        self.server.answered();
        let asked = self.enrolled.get_mut(experiment_id).map(|enrolled| enrolled.end(number));
        let day_fits = self.heard_day.hear(fetched.day, self.moment(now));
        if day_fits {
            let settled = asked.unwrap_or(NanoNats::ZERO).min(self.state.settled());
            if settled > NanoNats::ZERO || self.state.ledger.is_news(fetched.day) {
                self.record(Change::DayHeard { day: fetched.day, settled });
            }
            // Other fetches under way were asked for the same debits.
            for other in self.enrolled.values_mut() {
                for (_, asked) in &mut other.asked {
                    *asked = asked.saturating_sub(settled);
                }
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
        let Fetched { specification, signatures, policy, store, day: _ } = fetched;
        if specification.experiment_id() != experiment_id {
            return Err(Refusal::OtherExperiment.into());
        }
        let before = held.map(|held| &*held.specification);
        let until =
            acceptance.judge((&specification, &signatures[..]), before, N::SIMULATED, time)?;
        let same = held.filter(|held| held.specification.digest() == specification.digest());
        let (weights, arms) = (policy.weights.len(), specification.arms().len());
        if weights != arms {
            return Err(Refusal::PolicyArms { weights, arms }.into());
        }
        enrolled.usable_until = Some(until);
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

    /// Records that no answer came, or one that asks for a pause: of `retry_after`, at most an hour.
    /// The client makes no further call before that and a random wait are over. The bound of that
    /// wait doubles with every failure, from one second to one hour.
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
        fetch: &impl FetchOf,
        retry_after: Option<Duration>,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let (experiment_id, number) = (fetch.experiment_id(), fetch.number());
        self.server.ended();
        self.statistics.fetches_failed += 1;
        let error = || ClientError::NotEnrolled { experiment_id: experiment_id.clone() };
        let enrolled = self.enrolled.get_mut(experiment_id).ok_or_else(error)?;
        (enrolled.wanted, enrolled.not_before) = (true, None);
        enrolled.end(number);
        Ok(self.server.failed(false, retry_after, now, &mut self.noise)?)
    }

    /// Records that a server has answered, but not with the experiment: it does not know it, or has
    /// refused the fetch. The client fetches this experiment again after a random wait whose bound
    /// doubles with every failure, from one second to one hour.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.on_fetch_refused(&id, now())?;
    /// assert_eq!(client.statistics().fetches_failed, 1);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::Entropy`].
    pub fn on_fetch_refused(
        &mut self,
        fetch: &impl FetchOf,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let (experiment_id, number) = (fetch.experiment_id(), fetch.number());
        self.server.ended();
        self.statistics.fetches_failed += 1;
        self.server.answered();
        self.enrolled.get_mut(experiment_id).map(|enrolled| enrolled.end(number));
        self.ask_later(experiment_id, now)
    }

    /// Records that a server's answer was not valid. Like [`Self::on_fetch_refused`], but counted as
    /// a refused answer.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.on_answer_invalid(&id, now())?;
    /// let statistics = client.statistics();
    /// assert_eq!((statistics.answers_refused, statistics.fetches_failed), (1, 0));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::Entropy`].
    pub fn on_answer_invalid(
        &mut self,
        fetch: &impl FetchOf,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let (experiment_id, number) = (fetch.experiment_id(), fetch.number());
        self.server.ended();
        self.statistics.answers_refused += 1;
        self.server.answered();
        self.enrolled.get_mut(experiment_id).map(|enrolled| enrolled.end(number));
        self.ask_later(experiment_id, now)
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
