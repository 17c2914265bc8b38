//! The library behind the Python and Kotlin packages: [`bandana_bindings`] for UniFFI.
//!
//! It has no logic. The records are those of [`bandana_bindings`], told to UniFFI a second time,
//! since a crate can't derive for the types of another; a difference does not compile.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bandana_bindings::{
    Call, Choice, Configuration, ForcedArm, Header, LogLine, LogTerms, Metric, RefusalTerms,
    RewardTerms, Segment, SetupError, Slot, Standing, Status, Step, Store, Write,
};

uniffi::setup_scaffolding!("bandana_core");

#[uniffi::remote(Record)]
pub struct Configuration {
    pub store: Store,
    pub rewards: RewardTerms,
    pub epsilon_max: f64,
    pub signers: Vec<String>,
    pub log: Option<LogTerms>,
    pub window_budget: f64,
    pub window_days: u32,
    pub lifetime_budget: f64,
    pub consent: bool,
    pub app_key: Option<String>,
    pub keep_pending_rewards: bool,
    pub least_release_delay_seconds: Option<u64>,
    pub report_once_days: Option<u32>,
    pub segments: Vec<Segment>,
    pub metrics: Vec<Metric>,
    pub refusals: Option<RefusalTerms>,
    pub forced: Vec<ForcedArm>,
}

#[uniffi::remote(Record)]
pub struct ForcedArm {
    pub experiment: String,
    pub arm: String,
}

#[uniffi::remote(Record)]
pub struct LogTerms {
    pub key: String,
    pub witnesses: Vec<String>,
    pub quorum: Option<u32>,
}

#[uniffi::remote(Record)]
pub struct RefusalTerms {
    pub experiment: String,
    pub epsilon_max: f64,
}

#[uniffi::remote(Record)]
pub struct Segment {
    pub name: String,
    pub value: String,
}

#[uniffi::remote(Record)]
pub struct Metric {
    pub name: String,
    pub values: RewardTerms,
}

#[uniffi::remote(Enum)]
pub enum Store {
    Memory,
    Directory { path: String },
    Host { state: Option<Vec<u8>>, rewards: Option<Vec<u8>> },
}

#[uniffi::remote(Enum)]
pub enum RewardTerms {
    Binary,
    Bounded { low: f64, high: f64 },
    Categorical { categories: u32 },
}

#[uniffi::remote(Error)]
#[uniffi(flat_error)]
pub enum SetupError {
    Epsilon { message: String },
    Rewards { message: String },
    Log { message: String },
    Signers { message: String },
    Budget { message: String },
    AppKey { message: String },
    Segments { message: String },
    Metrics { message: String },
    Refusals { message: String },
    Experiment { message: String },
    Closed,
}

#[uniffi::remote(Record)]
pub struct Choice {
    pub label: Option<String>,
    pub arm: Option<u32>,
    pub assignment: Option<u64>,
    pub is_reported: bool,
    pub reason: Option<String>,
}

#[uniffi::remote(Enum)]
pub enum Standing {
    On,
    OptedOut,
    ClockDisagrees,
    Forked,
    StorageUnusable,
    StorageFailing,
    Closed,
}

#[uniffi::remote(Record)]
pub struct Status {
    pub standing: Standing,
    pub trouble: Option<String>,
    pub window_spent: Option<f64>,
    pub lifetime_spent: Option<f64>,
    pub open_assignments: u64,
    pub waiting_reports: u64,
    pub reports_made: u64,
    pub uploads_accepted: u64,
    pub uploads_refused: u64,
    pub fetches_failed: u64,
    pub answers_refused: u64,
    pub rewards_refused: u64,
    pub last_refusal: Option<String>,
    pub last_error: Option<String>,
}

#[uniffi::remote(Record)]
pub struct LogLine {
    pub is_warning: bool,
    pub text: String,
}

#[uniffi::remote(Enum)]
pub enum Slot {
    State,
    Rewards,
}

#[uniffi::remote(Record)]
pub struct Header {
    pub name: String,
    pub value: String,
}

#[uniffi::remote(Record)]
pub struct Call {
    pub id: u64,
    pub path: String,
    pub headers: Vec<Header>,
    pub body: Vec<u8>,
    pub is_upload: bool,
}

#[uniffi::remote(Record)]
pub struct Write {
    pub number: u64,
    pub slot: Slot,
    pub bytes: Vec<u8>,
}

#[uniffi::remote(Enum)]
pub enum Step {
    Call(Call),
    Write(Write),
    Wait { milliseconds: u64 },
    Done,
    Closed,
}

/// Whether there may be a step to take. A host waits for it in a call: code of its own would be called
/// in the middle of `choose`, with whatever signal handlers and locks it has.
#[derive(Debug, Default)]
struct Signal {
    raised: Mutex<Raised>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Raised {
    has_work: bool,
    /// A reward is to be written. It ends no wait.
    has_reward: bool,
}

impl Signal {
    fn raise(&self, change: impl FnOnce(&mut Raised)) {
        change(&mut self.raised.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until there is work, for at most `patience`. Calls `write` meanwhile, after rewards.
    #[expect(clippy::disallowed_methods, reason = "a host waits by the clock of its system")]
    fn wait(&self, patience: Duration, write: impl Fn()) {
        let end = Instant::now().checked_add(patience);
        let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = end.map_or(patience, |end| end.saturating_duration_since(Instant::now()));
            let is_idle = |raised: &mut Raised| !raised.has_work && !raised.has_reward;
            let waited = self.changed.wait_timeout_while(raised, left, is_idle);
            raised = waited.unwrap_or_else(PoisonError::into_inner).0;
            // What is to be written is, with the next step.
            if raised.has_work || !raised.has_reward || left.is_zero() {
                raised.has_work = false;
                return;
            }
            raised.has_reward = false;
            drop(raised);
            write();
            raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The client of an app. All calls may come from any thread.
#[derive(Debug, uniffi::Object)]
pub struct Core {
    client: bandana_bindings::Bandana,
    signal: Arc<Signal>,
}

#[uniffi::export]
impl Core {
    /// Starts a client.
    ///
    /// # Errors
    /// When a setting is not valid.
    #[uniffi::constructor]
    pub fn start(configuration: Configuration) -> Result<Arc<Self>, SetupError> {
        let signal = Arc::new(Signal::default());
        let raised = Arc::clone(&signal);
        let tell = move || raised.raise(|raised| raised.has_work = true);
        let client = bandana_bindings::Bandana::start(configuration, tell)?;
        Ok(Arc::new(Self { client, signal }))
    }

    /// Waits until there may be a step to take, for at most so long; at once if there was one since the
    /// last wait. Never ends because of a reward.
    pub fn wait_for_work(&self, milliseconds: u64) {
        self.signal.wait(Duration::from_millis(milliseconds), || self.client.write());
    }

    /// Takes part in an experiment.
    ///
    /// # Errors
    /// When no experiment can have this name, or the client was closed.
    pub fn join(&self, experiment: &str) -> Result<(), SetupError> {
        self.client.join(experiment)
    }

    /// Whether there is a policy, so that `choose` gives arms.
    pub fn is_ready(&self, experiment: &str) -> bool {
        self.client.is_ready(experiment)
    }

    /// Reason why `choose` gives no arms; none: it does.
    pub fn why_not_ready(&self, experiment: &str) -> Option<String> {
        self.client.why_not_ready(experiment)
    }

    /// The labels of the arms in play; none before there is a policy.
    pub fn labels(&self, experiment: &str) -> Vec<String> {
        self.client.labels(experiment)
    }

    /// The arm to show: that of the assignment whose window lasts, or else a new one.
    pub fn choose(&self, experiment: &str) -> Choice {
        self.client.choose(experiment)
    }

    /// A new assignment. In an experiment with `redraw`, each draws an arm again and is paid for.
    pub fn draw(&self, experiment: &str) -> Choice {
        self.client.draw(experiment)
    }

    /// Adds a reward to an assignment. Returns whether it was taken.
    pub fn reward(&self, assignment: u64, reward: f64) -> bool {
        self.rewarded(self.client.reward(assignment, reward))
    }

    /// Adds a value of a metric to an assignment. Returns whether it was taken.
    pub fn measure(&self, assignment: u64, metric: &str, value: f64) -> bool {
        self.rewarded(self.client.measure(assignment, metric, value))
    }

    /// How the client stands.
    pub fn status(&self) -> Status {
        self.client.status()
    }

    /// The next line for developers; none: nothing is new. Nothing in it depends on a reward or an arm.
    pub fn log_line(&self) -> Option<LogLine> {
        self.client.log_line()
    }

    /// Opts the user out. Returns whether that is stored.
    pub fn opt_out(&self) -> bool {
        self.client.opt_out()
    }

    /// Opts the user in again. Returns whether that is stored.
    pub fn opt_in(&self) -> bool {
        self.client.opt_in()
    }

    /// Ends waits for the server. Never call it because the user reacted.
    pub fn wake(&self) {
        self.client.wake();
    }

    /// The next step.
    pub fn next_step(&self) -> Step {
        self.client.next_step()
    }

    /// The next write, and no call.
    pub fn next_write(&self) -> Option<Write> {
        self.client.next_write()
    }

    /// Tells the answer to a call.
    #[expect(clippy::needless_pass_by_value, reason = "UniFFI has few references")]
    pub fn answered(
        &self,
        call: u64,
        status: u16,
        content_type: Option<String>,
        retry_after: Option<String>,
        body: Vec<u8>,
    ) {
        self.client.answered(call, status, content_type.as_deref(), retry_after.as_deref(), &body);
    }

    /// Tells that a call had no answer.
    pub fn unanswered(&self, call: u64) {
        self.client.unanswered(call);
    }

    /// Tells the end of a write.
    pub fn written(&self, number: u64, is_durable: bool) {
        self.client.written(number, is_durable);
    }

    /// Ends everything. In Kotlin `close` is what frees the object.
    pub fn end(&self) {
        self.client.close();
        self.signal.raise(|raised| raised.has_work = true);
    }
}

impl Core {
    /// Has a reward written by the thread that waits for work, so that an app which is killed has it.
    fn rewarded(&self, counts: bool) -> bool {
        // None does in a copy of the process, whose locks may be held by threads that are not there.
        if counts {
            self.signal.raise(|raised| raised.has_reward = true);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_reward_is_written_and_ends_no_wait() {
        let signal = Arc::new(Signal::default());
        let (tell, told) = channel();
        let waiting = Arc::clone(&signal);
        let waits = std::thread::spawn(move || {
            waiting.wait(Duration::from_mins(10), || tell.send(()).unwrap());
        });
        for _ in 0..3 {
            signal.raise(|raised| raised.has_reward = true);
            told.recv().unwrap();
            assert!(!waits.is_finished());
        }
        signal.raise(|raised| raised.has_work = true);
        waits.join().unwrap();
        // However many rewards come, a wait ends in time.
        signal.raise(|raised| raised.has_reward = true);
        signal.wait(Duration::ZERO, || signal.raise(|raised| raised.has_reward = true));
    }
}
