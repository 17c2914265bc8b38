//! The client as other languages hold it: the only place of the bindings with logic.
//!
//! Everything is a number, a text, bytes or a record of them. Only [`Bandana::start`] and
//! [`Bandana::join`] can fail, with a text that says what was wrong and what to do; nothing that
//! product code calls does.
//!
//! The host makes the calls. It asks for the next [`Step`], posts the bytes of a [`Call`] to the
//! aggregator, and tells the answer; or makes a [`Write`], if it has the storage. [`Bandana::start`]
//! takes a function that is called when there may be work. See `bandana_client::Tasks`.

mod configuration;
mod log;
mod records;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandana_client::{
    Answer, AssignmentId, CallId, Choice as Chosen, Clock, DefaultReason, NextCall, Reporting,
    SystemClock, Tasks, Trouble,
};
pub use configuration::{
    Configuration, ForcedArm, LogTerms, Metric, RefusalTerms, RewardTerms, Segment, SetupError,
    Store,
};
use log::Log;
pub use records::{Call, Choice, Header, LogLine, Slot, Standing, Status, Step, Write};

/// The wait before the next step when the system has no randomness.
const NO_RANDOMNESS_WAIT: Duration = Duration::from_secs(10);

/// Nanounits of a nat.
const NANO: f64 = 1e9;

/// The client of an app. All calls may come from any thread.
pub struct Bandana {
    handle: bandana_client::Bandana,
    /// Whether the app has closed the client. No lock: in a copy of the process it could be held.
    is_closed: AtomicBool,
    /// `None`: closed.
    tasks: Mutex<Option<Tasks>>,
    log: Mutex<Log>,
    /// The label of the arm that the app forces, by experiment.
    forced: BTreeMap<String, String>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Bandana {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bandana").finish_non_exhaustive()
    }
}

/// A trouble in words, with the experiment that it is about.
fn told(trouble: &Trouble) -> String {
    match trouble.experiment() {
        Some(id) => format!("experiment {id}: {trouble}"),
        None => trouble.to_string(),
    }
}

/// A lock that a panic of a host's callback does not close for good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bandana {
    /// Starts a client. `on_work` is called when there may be a step to take: it may only schedule, on
    /// whichever thread it comes, and is never called because of a reward, nor after [`Self::close`].
    ///
    /// # Errors
    /// [`SetupError`] when a setting is not valid. A store that can't be used is no error: arms are
    /// drawn and nothing is reported, see [`Status::standing`].
    pub fn start(
        configuration: Configuration,
        on_work: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, SetupError> {
        Self::start_with_clock(configuration, on_work, Arc::new(SystemClock))
    }

    /// [`Self::start`] with a clock of the host's.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_with_clock(
        configuration: Configuration,
        on_work: impl Fn() + Send + Sync + 'static,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let forced = configuration.forced.iter();
        let forced = forced.map(|one| (one.experiment.clone(), one.arm.clone())).collect();
        let ready = configuration.into_builder()?;
        let (handle, tasks) = ready.on_work(on_work).clock(Arc::clone(&clock)).build();
        Ok(Self {
            handle,
            is_closed: AtomicBool::new(false),
            tasks: Mutex::new(Some(tasks)),
            log: Mutex::default(),
            forced,
            clock,
        })
    }

    /// The client's handle; `None`: closed.
    fn handle(&self) -> Option<&bandana_client::Bandana> {
        (!self.is_closed.load(Ordering::SeqCst)).then_some(&self.handle)
    }

    /// Takes part in an experiment, which is fetched with one of the next steps.
    ///
    /// # Errors
    /// [`SetupError::Experiment`] when no experiment can have this name;
    /// [`SetupError::Closed`].
    pub fn join(&self, experiment: &str) -> Result<(), SetupError> {
        let handle = self.handle().ok_or(SetupError::Closed)?;
        if self.forced.contains_key(experiment) {
            return Ok(());
        }
        match handle.experiment(experiment) {
            Ok(_) => {
                // In a copy of the process somebody could hold it who is not there.
                if let Ok(mut log) = self.log.try_lock() {
                    log.joined(experiment);
                }
                Ok(())
            }
            Err(error) => Err(SetupError::Experiment { message: error.to_string() }),
        }
    }

    /// Whether there is a policy, so that [`Self::choose`] gives arms.
    pub fn is_ready(&self, experiment: &str) -> bool {
        self.why_not_ready(experiment).is_none()
    }

    /// Reason why [`Self::choose`] gives no arms, in words; `None`: it does.
    pub fn why_not_ready(&self, experiment: &str) -> Option<String> {
        let Some(handle) = self.handle() else { return Some(SetupError::Closed.to_string()) };
        if self.forced.contains_key(experiment) {
            return None;
        }
        match handle.experiment(experiment) {
            Ok(experiment) => {
                experiment.wait_until_ready(Duration::ZERO).err().map(|why| why.to_string())
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// The labels of the arms in play; none before there is a policy.
    pub fn labels(&self, experiment: &str) -> Vec<String> {
        if let Some(arm) = self.forced.get(experiment) {
            return vec![arm.clone()];
        }
        let experiment = self.handle().and_then(|handle| handle.experiment(experiment).ok());
        experiment.map(|experiment| experiment.labels()).unwrap_or_default()
    }

    /// The arm to show: that of the assignment whose attribution window lasts, or else a new one.
    /// Never waits, never fails.
    pub fn choose(&self, experiment: &str) -> Choice {
        self.choice(experiment, bandana_client::Experiment::choose)
    }

    /// A new assignment, also while the attribution window of another lasts. In an experiment with
    /// `redraw`, each draws an arm again and is paid for. In others the arm stays, and one is reported.
    pub fn draw(&self, experiment: &str) -> Choice {
        self.choice(experiment, bandana_client::Experiment::draw)
    }

    fn choice(
        &self,
        experiment: &str,
        way: impl Fn(&bandana_client::Experiment) -> Chosen,
    ) -> Choice {
        let Some(handle) = self.handle() else {
            return Choice::of_default(SetupError::Closed.to_string());
        };
        if let Some(arm) = self.forced.get(experiment) {
            let reason = "the app's settings force this arm, so there is no report".to_owned();
            return Choice { label: Some(arm.clone()), ..Choice::of_default(reason) };
        }
        match handle.experiment(experiment) {
            Ok(experiment) => match way(&experiment) {
                Chosen::Arm(assignment) => Choice {
                    label: Some(assignment.label().to_owned()),
                    arm: u32::try_from(assignment.arm().get()).ok(),
                    assignment: Some(assignment.id().get()),
                    is_reported: assignment.unreported().is_none(),
                    reason: assignment.unreported().map(|why| why.to_string()),
                },
                Chosen::Default(reason) => Choice::of_default(match &reason {
                    DefaultReason::NoPolicyYet => match experiment.wait_until_ready(Duration::ZERO)
                    {
                        Err(why) => why.to_string(),
                        Ok(()) => reason.to_string(),
                    },
                    _ => reason.to_string(),
                }),
            },
            Err(error) => Choice::of_default(error.to_string()),
        }
    }

    /// Adds a reward to an assignment, also after a restart. Returns whether it was taken, so that it may
    /// count. One that comes after its window, or that the experiment does not admit, is counted in
    /// [`Status::rewards_refused`].
    pub fn reward(&self, assignment: u64, reward: f64) -> bool {
        self.handle().is_some_and(|handle| handle.reward(AssignmentId::new(assignment), reward))
    }

    /// Adds a value of a metric to an assignment, as [`Self::reward`]. An assignment reports its
    /// rewards or one metric, which was drawn with its arm; so tell of all of them. A metric that the
    /// experiment does not have is ignored.
    pub fn measure(&self, assignment: u64, metric: &str, value: f64) -> bool {
        let id = AssignmentId::new(assignment);
        self.handle().is_some_and(|handle| handle.measure(id, metric, value))
    }

    /// How the client stands; once it is closed, as it stood then.
    pub fn status(&self) -> Status {
        let status = self.handle.status();
        let (standing, trouble) = match &status.reporting {
            _ if self.handle().is_none() => (Standing::Closed, None),
            Reporting::On => (Standing::On, None),
            Reporting::OptedOut => (Standing::OptedOut, None),
            Reporting::ClockDisagrees => (Standing::ClockDisagrees, None),
            Reporting::Forked => (Standing::Forked, None),
            Reporting::StorageUnusable(error) => {
                (Standing::StorageUnusable, Some(in_words(&**error)))
            }
            Reporting::StorageFailing(error) => {
                (Standing::StorageFailing, Some(in_words(&**error)))
            }
            // `ShutDown`, and what is added later.
            _ => (Standing::Closed, None),
        };
        // Without a store nobody knows, and the core counts with the whole budget.
        let is_known = !matches!(status.reporting, Reporting::StorageUnusable(_));
        let nats = |nano: u64| is_known.then_some(nano as f64 / NANO);
        let counts = status.statistics;
        Status {
            standing,
            trouble,
            window_spent: nats(status.spent.window.get()),
            lifetime_spent: nats(status.spent.lifetime.get()),
            open_assignments: status.open_assignments as u64,
            waiting_reports: status.waiting_reports as u64,
            reports_made: counts.reports_made,
            uploads_accepted: counts.uploads_accepted + counts.uploads_duplicate,
            uploads_refused: counts.uploads_refused,
            fetches_failed: counts.fetches_failed,
            answers_refused: counts.answers_refused,
            rewards_refused: counts.rewards_refused,
            last_refusal: status.last_refusal.as_ref().map(told),
            last_error: status.last_error.as_ref().map(told),
        }
    }

    /// The next line for developers: a first policy, a refusal, uploads, what is wrong with the store. Take
    /// lines after each step until there is none. Nothing in them depends on a reward or an arm.
    pub fn log_line(&self) -> Option<LogLine> {
        let mut log = lock(&self.log);
        log.take().or_else(|| {
            log.look(&self.status(), |experiment| self.is_ready(experiment));
            log.take()
        })
    }

    /// Opts the user out: nothing is fetched, kept or sent from now on, and what waited is erased.
    /// Returns whether that is stored; with storage by the host, it is with the next [`Write`].
    pub fn opt_out(&self) -> bool {
        self.handle().is_some_and(|handle| handle.opt_out().is_ok())
    }

    /// Opts the user in again, as [`Self::opt_out`].
    pub fn opt_in(&self) -> bool {
        self.handle().is_some_and(|handle| handle.opt_in().is_ok())
    }

    /// Ends waits for the server: the network has changed, or the app came to the foreground. Never
    /// call it because the user reacted.
    pub fn wake(&self) {
        if let Some(handle) = self.handle() {
            handle.wake();
        }
    }

    /// The next step of the host. Ask when there may be work, when a [`Step::Wait`] ends, and after each
    /// step; further calls may be under way meanwhile. Blocks on the disk with [`Store::Directory`].
    pub fn next_step(&self) -> Step {
        if let Some(write) = self.next_write() {
            return Step::Write(write);
        }
        let mut tasks = lock(&self.tasks);
        let Some(tasks) = tasks.as_mut() else { return Step::Closed };
        let next = tasks.next_call();
        // The call may have made a report, which leaves once it is written.
        if !matches!(next, Ok(NextCall::Call(_)))
            && let Some(write) = tasks.next_write()
        {
            return Step::Write(Write::of(&write));
        }
        let milliseconds = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        match next {
            Ok(NextCall::Call(call)) => Step::Call(Call::of(&call)),
            // Not before it ends: the wait is in whole milliseconds.
            Ok(NextCall::Wait(until)) => Step::Wait {
                milliseconds: milliseconds(until.since(self.clock.now())).saturating_add(1),
            },
            Ok(NextCall::Done) => Step::Done,
            Err(_) => Step::Wait { milliseconds: milliseconds(NO_RANDOMNESS_WAIT) },
        }
    }

    /// The next write, and no call: with storage by the host, also after a reward. With a directory
    /// the writes are made in this call, and there is none: see [`Self::write`].
    pub fn next_write(&self) -> Option<Write> {
        let mut tasks = lock(&self.tasks);
        let tasks = tasks.as_mut()?;
        tasks.write();
        tasks.next_write().map(|write| Write::of(&write))
    }

    /// Makes the writes that are due to a directory, and no call: also after a reward, which is lost
    /// with the process until then. Blocks on the disk.
    pub fn write(&self) {
        if let Some(tasks) = lock(&self.tasks).as_mut() {
            tasks.write();
        }
    }

    /// Tells the answer to a call: its status, the headers `content-type` and `retry-after`, and its
    /// body.
    pub fn answered(
        &self,
        call: u64,
        status: u16,
        content_type: Option<&str>,
        retry_after: Option<&str>,
        body: &[u8],
    ) {
        if let Some(tasks) = lock(&self.tasks).as_mut() {
            let answer = Answer { status, content_type, retry_after, body };
            // What is refused is in `why_not_ready` and in the status.
            tasks.answered(CallId::new(call), &answer).ok();
        }
    }

    /// Tells that a call had no answer.
    pub fn unanswered(&self, call: u64) {
        if let Some(tasks) = lock(&self.tasks).as_mut() {
            tasks.unanswered(CallId::new(call)).ok();
        }
    }

    /// Tells the end of a write: whether it would survive a power cut.
    pub fn written(&self, number: u64, is_durable: bool) {
        if let Some(tasks) = lock(&self.tasks).as_mut() {
            tasks.written(number, is_durable);
        }
    }

    /// Ends everything: a directory has all that is pending and is free for another client, and no step
    /// follows. A host that has the storage makes the writes of [`Self::next_write`] before. Arms that
    /// are asked for afterwards are defaults.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // The copy of a process has nothing to end, and whoever held the lock is not there.
        if !matches!(self.handle.status().reporting, Reporting::Forked) {
            drop(lock(&self.tasks).take());
        }
    }
}

/// An error with its causes.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
