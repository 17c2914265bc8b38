//! The WebAssembly behind the package for browsers and Node: [`bandana_bindings`] for JavaScript.
//!
//! It has no logic but that of the border. The host has the storage, and the clock is the page's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bandana_bindings::{
    Bandana, Configuration, ForcedArm, LogTerms, Metric, RefusalTerms, RewardTerms, Segment, Slot,
    Standing, Step, Store,
};
use bandana_client::{Clock, Timestamp};
use js_sys::{Array, Function, Reflect};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast as _, JsError, JsValue};

#[wasm_bindgen]
extern "C" {
    /// Milliseconds of a clock that nobody sets, since the page was opened.
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;
}

/// The clock of the page.
#[derive(Debug)]
struct PageClock;

impl Clock for PageClock {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(js_sys::Date::now() as u64)
    }

    fn boot_time(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(performance_now() / 1000.0).ok()
    }
}

thread_local! {
    /// Functions that are told of work. A page has one thread.
    static WORKERS: RefCell<BTreeMap<u32, Function>> = const { RefCell::new(BTreeMap::new()) };
}

static LAST_WORKER: AtomicU32 = AtomicU32::new(0);

/// What to show.
#[wasm_bindgen(getter_with_clone)]
#[derive(Debug)]
pub struct Choice {
    /// The label of the arm; none: the default.
    pub label: Option<String>,
    /// The index of the arm.
    pub arm: Option<u32>,
    /// The number of the assignment.
    pub assignment: Option<u64>,
    /// Whether there will be a report.
    pub reported: bool,
    /// Why it is the default, or why there will be no report.
    pub reason: Option<String>,
}

impl From<bandana_bindings::Choice> for Choice {
    fn from(choice: bandana_bindings::Choice) -> Self {
        let bandana_bindings::Choice { label, arm, assignment, is_reported, reason } = choice;
        Self { label, arm, assignment, reported: is_reported, reason }
    }
}

/// How a client stands.
#[wasm_bindgen(getter_with_clone)]
#[derive(Debug)]
pub struct Status {
    /// Whether reports are made, and why not.
    pub standing: String,
    /// What is wrong with the store.
    pub trouble: Option<String>,
    /// Privacy loss of the running window, in nats; none: not known without the store.
    pub window_spent: Option<f64>,
    /// Privacy loss so far, in nats; none: not known without the store.
    pub lifetime_spent: Option<f64>,
    /// Assignments whose rewards still count.
    pub open_assignments: f64,
    /// Reports that no server has counted yet.
    pub waiting_reports: f64,
    /// Uploads that a server has counted.
    pub uploads_accepted: f64,
    /// Uploads that a server has refused for good.
    pub uploads_refused: f64,
    /// Fetches without an answer.
    pub fetches_failed: f64,
    /// Answers that the client has refused.
    pub answers_refused: f64,
    /// Rewards that the experiment does not admit, that came too late, or whose assignment never reports.
    pub rewards_refused: f64,
    /// The last refusal of an experiment, with what to do about it.
    pub last_refusal: Option<String>,
    /// The last failure, with what to do about it.
    pub last_error: Option<String>,
}

/// A step of the host.
#[wasm_bindgen(getter_with_clone)]
#[derive(Debug, Default)]
pub struct HostStep {
    /// `call`, `write`, `wait`, `done` or `closed`.
    pub kind: String,
    /// The number of a call or write.
    pub number: f64,
    /// The path of a call.
    pub path: String,
    /// Names and values of the headers of a call, one after the other.
    pub headers: Vec<String>,
    /// The bytes of a call or write.
    pub body: Vec<u8>,
    /// The slot of a write: `state` or `rewards`.
    pub slot: String,
    /// The milliseconds of a wait.
    pub milliseconds: f64,
}

impl From<Step> for HostStep {
    fn from(step: Step) -> Self {
        let of_kind = |kind: &str| Self { kind: kind.to_owned(), ..Self::default() };
        match step {
            Step::Call(call) => {
                let headers = call.headers.into_iter().flat_map(|one| [one.name, one.value]);
                let (number, headers) = (call.id as f64, headers.collect());
                Self { number, path: call.path, headers, body: call.body, ..of_kind("call") }
            }
            Step::Write(write) => {
                let slot = match write.slot {
                    Slot::State => "state",
                    Slot::Rewards => "rewards",
                };
                let (number, slot) = (write.number as f64, slot.to_owned());
                Self { number, slot, body: write.bytes, ..of_kind("write") }
            }
            Step::Wait { milliseconds } => {
                Self { milliseconds: milliseconds as f64, ..of_kind("wait") }
            }
            Step::Done => of_kind("done"),
            Step::Closed => of_kind("closed"),
        }
    }
}

/// A property of the settings; none: it is not there, or has another type.
fn property<T>(settings: &JsValue, name: &str, read: impl Fn(&JsValue) -> Option<T>) -> Option<T> {
    Reflect::get(settings, &JsValue::from_str(name)).ok().as_ref().and_then(read)
}

/// A number that the settings must have.
fn number(settings: &JsValue, name: &str) -> Result<f64, JsError> {
    let missing = || JsError::new(&format!("{name}: a number was expected"));
    property(settings, name, JsValue::as_f64).ok_or_else(missing)
}

/// A whole number that the settings may have.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is checked")]
fn whole(settings: &JsValue, name: &str) -> Result<Option<u32>, JsError> {
    match property(settings, name, JsValue::as_f64) {
        None => Ok(None),
        Some(number) if number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number) => {
            Ok(Some(number as u32))
        }
        Some(number) => {
            Err(JsError::new(&format!("{name}: {number} is no whole number from 0 on")))
        }
    }
}

/// The elements of an array of the settings; none: it is not there.
fn elements(settings: &JsValue, name: &str) -> Vec<JsValue> {
    let array = |value: &JsValue| value.dyn_ref::<Array>().map(Array::to_vec);
    property(settings, name, array).unwrap_or_default()
}

/// A text that an element of such an array must have.
fn text(element: &JsValue, array: &str, name: &str) -> Result<String, JsError> {
    let missing = || JsError::new(&format!("{array}: texts were expected"));
    property(element, name, JsValue::as_string).ok_or_else(missing)
}

fn segments(settings: &JsValue) -> Result<Vec<Segment>, JsError> {
    let segment = |from: &JsValue| {
        let (name, value) = (text(from, "segments", "name")?, text(from, "segments", "value")?);
        Ok(Segment { name, value })
    };
    elements(settings, "segments").iter().map(segment).collect()
}

fn forced(settings: &JsValue) -> Result<Vec<ForcedArm>, JsError> {
    let forced = |from: &JsValue| {
        let experiment = text(from, "forced", "name")?;
        Ok(ForcedArm { experiment, arm: text(from, "forced", "value")? })
    };
    elements(settings, "forced").iter().map(forced).collect()
}

fn metrics(settings: &JsValue) -> Result<Vec<Metric>, JsError> {
    let metric = |from: &JsValue| {
        Ok(Metric { name: text(from, "metrics", "name")?, values: rewards(from, "metrics")? })
    };
    elements(settings, "metrics").iter().map(metric).collect()
}

/// What the rewards, or the values of a metric, are.
fn rewards(settings: &JsValue, what: &str) -> Result<RewardTerms, JsError> {
    let kind = property(settings, "rewards", JsValue::as_string);
    match kind.as_deref() {
        Some("binary") => Ok(RewardTerms::Binary),
        Some("bounded") => Ok(RewardTerms::Bounded {
            low: number(settings, "rewardLow")?,
            high: number(settings, "rewardHigh")?,
        }),
        Some("categorical") => {
            Ok(RewardTerms::Categorical { categories: whole(settings, "categories")?.unwrap_or(0) })
        }
        _ => Err(JsError::new(&format!("{what}: binary, bounded or categorical was expected"))),
    }
}

fn configuration(
    settings: &JsValue,
    kept: (Option<Vec<u8>>, Option<Vec<u8>>),
    store: &str,
) -> Result<Configuration, JsError> {
    let text = |name| property(settings, name, JsValue::as_string);
    let is_set = |name| property(settings, name, JsValue::as_bool).unwrap_or(false);
    let (state, rewards_kept) = kept;
    let store = match store {
        "memory" => Store::Memory,
        _ => Store::Host { state, rewards: rewards_kept },
    };
    Ok(Configuration {
        store,
        rewards: rewards(settings, "rewards")?,
        epsilon_max: number(settings, "epsilonMax")?,
        signers: [text("operatorKey"), text("countersignerKey")].into_iter().flatten().collect(),
        log: match text("logKey") {
            Some(key) => Some(LogTerms {
                key,
                witnesses: text("logWitnesses")
                    .map(|keys| keys.split_whitespace().map(str::to_owned).collect())
                    .unwrap_or_default(),
                quorum: whole(settings, "logQuorum")?,
            }),
            None => None,
        },
        window_budget: number(settings, "windowBudget")?,
        window_days: whole(settings, "windowDays")?.unwrap_or(0),
        lifetime_budget: number(settings, "lifetimeBudget")?,
        consent: is_set("consent"),
        app_key: text("appKey"),
        keep_pending_rewards: property(settings, "keepPendingRewards", JsValue::as_bool)
            .unwrap_or(true),
        least_release_delay_seconds: whole(settings, "leastReleaseDelaySeconds")?.map(u64::from),
        report_once_days: whole(settings, "reportOnceDays")?,
        segments: segments(settings)?,
        metrics: metrics(settings)?,
        refusals: match text("refusalsExperiment") {
            Some(experiment) => {
                let epsilon_max = number(settings, "refusalsEpsilonMax")?;
                Some(RefusalTerms { experiment, epsilon_max })
            }
            None => None,
        },
        forced: forced(settings)?,
    })
}

/// A number of a call or write, which JavaScript has as a floating-point number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn back(number: f64) -> u64 {
    number as u64
}

/// The client of a page.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Core {
    client: Bandana,
    worker: u32,
}

#[wasm_bindgen]
impl Core {
    /// Starts a client with what the host has kept; `store` is `memory` or `host`.
    ///
    /// # Errors
    /// When a setting is not valid.
    #[wasm_bindgen(constructor)]
    pub fn new(
        settings: &JsValue,
        store: &str,
        state: Option<Vec<u8>>,
        rewards: Option<Vec<u8>>,
        on_work: Function,
    ) -> Result<Self, JsError> {
        let configuration = configuration(settings, (state, rewards), store)?;
        let worker = LAST_WORKER.fetch_add(1, Ordering::Relaxed);
        WORKERS.with_borrow_mut(|workers| workers.insert(worker, on_work));
        let tell = move || {
            let on_work = WORKERS.with_borrow(|workers| workers.get(&worker).cloned());
            if let Some(on_work) = on_work {
                // It only schedules; what it throws is its own.
                on_work.call0(&JsValue::UNDEFINED).ok();
            }
        };
        match Bandana::start_with_clock(configuration, tell, Arc::new(PageClock)) {
            Ok(client) => Ok(Self { client, worker }),
            Err(error) => {
                WORKERS.with_borrow_mut(|workers| workers.remove(&worker));
                Err(JsError::new(&error.to_string()))
            }
        }
    }

    /// Takes part in an experiment.
    ///
    /// # Errors
    /// When no experiment can have this name, or the client was closed.
    pub fn join(&self, experiment: &str) -> Result<(), JsError> {
        self.client.join(experiment).map_err(|error| JsError::new(&error.to_string()))
    }

    /// The labels of the arms in play; none before there is a policy.
    pub fn labels(&self, experiment: &str) -> Vec<String> {
        self.client.labels(experiment)
    }

    /// Why `choose` gives no arms; none: it does.
    pub fn why_not_ready(&self, experiment: &str) -> Option<String> {
        self.client.why_not_ready(experiment)
    }

    /// The arm to show.
    pub fn choose(&self, experiment: &str) -> Choice {
        self.client.choose(experiment).into()
    }

    /// Draws an arm anew.
    pub fn draw(&self, experiment: &str) -> Choice {
        self.client.draw(experiment).into()
    }

    /// Adds a reward to an assignment.
    pub fn reward(&self, assignment: u64, reward: f64) -> bool {
        self.client.reward(assignment, reward)
    }

    /// Adds a value of a metric to an assignment.
    pub fn measure(&self, assignment: u64, metric: &str, value: f64) -> bool {
        self.client.measure(assignment, metric, value)
    }

    /// How the client stands.
    pub fn status(&self) -> Status {
        let status = self.client.status();
        let standing = match status.standing {
            Standing::On => "on",
            Standing::OptedOut => "opted-out",
            Standing::ClockDisagrees => "clock-disagrees",
            Standing::Forked => "forked",
            Standing::StorageUnusable => "storage-unusable",
            Standing::StorageFailing => "storage-failing",
            Standing::Closed => "closed",
        };
        Status {
            standing: standing.to_owned(),
            trouble: status.trouble,
            window_spent: status.window_spent,
            lifetime_spent: status.lifetime_spent,
            open_assignments: status.open_assignments as f64,
            waiting_reports: status.waiting_reports as f64,
            uploads_accepted: status.uploads_accepted as f64,
            uploads_refused: status.uploads_refused as f64,
            fetches_failed: status.fetches_failed as f64,
            answers_refused: status.answers_refused as f64,
            rewards_refused: status.rewards_refused as f64,
            last_refusal: status.last_refusal,
            last_error: status.last_error,
        }
    }

    /// Opts the user out; it is stored with the next write.
    pub fn opt_out(&self) -> bool {
        self.client.opt_out()
    }

    /// Opts the user in again; it is stored with the next write.
    pub fn opt_in(&self) -> bool {
        self.client.opt_in()
    }

    /// Ends waits for the server.
    pub fn wake(&self) {
        self.client.wake();
    }

    /// The next step.
    pub fn next_step(&self) -> HostStep {
        self.client.next_step().into()
    }

    /// The next write, and no call.
    pub fn next_write(&self) -> Option<HostStep> {
        self.client.next_write().map(|write| Step::Write(write).into())
    }

    /// Tells the answer to a call.
    #[expect(clippy::needless_pass_by_value, reason = "so it comes from JavaScript")]
    pub fn answered(
        &self,
        call: f64,
        status: u16,
        content_type: Option<String>,
        retry_after: Option<String>,
        body: &[u8],
    ) {
        let (content_type, retry_after) = (content_type.as_deref(), retry_after.as_deref());
        self.client.answered(back(call), status, content_type, retry_after, body);
    }

    /// Tells that a call had no answer.
    pub fn unanswered(&self, call: f64) {
        self.client.unanswered(back(call));
    }

    /// Tells the end of a write.
    pub fn written(&self, number: f64, is_durable: bool) {
        self.client.written(back(number), is_durable);
    }

    /// Ends everything.
    pub fn end(&self) {
        self.client.close();
        WORKERS.with_borrow_mut(|workers| workers.remove(&self.worker));
    }
}
