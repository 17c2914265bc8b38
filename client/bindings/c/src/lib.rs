//! The client for C and C++: [`bandana_bindings`] behind opaque pointers.
//!
//! It has no logic but that of the border: texts, pointers, and panics that end here.
#![allow(non_camel_case_types, reason = "names of the header")]

mod text;

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

use bandana_bindings::{Bandana, Choice, Configuration, RewardTerms, Slot, Standing, Step, Store};
use text::{Text, bytes, give, read, text};

/// A client of an app.
pub struct bandana_client(Bandana);

/// What to show: an arm, or the app's own default.
pub struct bandana_choice {
    label: Option<Text>,
    reason: Option<Text>,
    choice: Choice,
}

/// A step of the host.
pub struct bandana_step {
    step: Step,
    path: Text,
    headers: Vec<(Text, Text)>,
}

/// What the rewards of an app's experiments are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum bandana_rewards {
    /// 0 or 1; without a reward, 0.
    BINARY,
    /// From `reward_low` to `reward_high`, others are refused; without a reward, `reward_low`.
    BOUNDED,
    /// 0, 1, ... up to `categories` - 1; without a reward, 0.
    CATEGORICAL,
}

/// Whether reports are made, and why not.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum bandana_standing {
    /// They are made.
    ON,
    /// The user has opted out, or has not consented.
    OPTED_OUT,
    /// The device's clock does not agree with the server's day.
    CLOCK_DISAGREES,
    /// The process is a copy of the one that has the client.
    FORKED,
    /// The store can't be used: nothing is reported.
    STORAGE_UNUSABLE,
    /// The last write failed; it is made again.
    STORAGE_FAILING,
    /// The client was closed.
    CLOSED,
}

/// What a step is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum bandana_step_kind {
    /// Post the body to the path at the aggregator's address, with the headers and without cookies.
    /// Tell the end by `bandana_answered` or `bandana_unanswered`.
    CALL,
    /// Keep the body, or nothing if it is empty, in place of what the slot had, as a whole or not at
    /// all. Tell the end by `bandana_written`. Only with storage by the host.
    WRITE,
    /// No step for some milliseconds.
    WAIT,
    /// No step until there is work.
    DONE,
    /// The client was closed.
    CLOSED,
}

/// A place of a host's store.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum bandana_slot {
    /// Everything but the sums of rewards.
    STATE,
    /// The sums of rewards of open assignments.
    REWARDS,
}

/// The settings of a client. Begin with `bandana_default_settings`.
#[repr(C)]
#[derive(Debug)]
pub struct bandana_settings {
    /// Whether the user consents. Without, nothing is fetched or sent, and nothing about the user is
    /// kept. Default: false.
    pub consent: bool,
    /// A directory of the app's own, for one client at a time, left out of backups. NULL, the default:
    /// the host has the storage, or nothing is kept and the budget begins anew with each start.
    pub directory: *const c_char,
    /// Whether the host has the storage, and makes the writes. Default: false.
    pub host_storage: bool,
    /// The last bytes written to the slot of the state; NULL: nothing was ever written.
    pub kept_state: *const u8,
    /// How many they are.
    pub kept_state_size: usize,
    /// The last bytes written to the slot of the rewards; NULL: there are none.
    pub kept_rewards: *const u8,
    /// How many they are.
    pub kept_rewards_size: usize,
    /// What rewards are: a number of `bandana_rewards`. Default: binary.
    pub rewards: c_int,
    /// The least bounded reward.
    pub reward_low: f64,
    /// The largest bounded reward.
    pub reward_high: f64,
    /// The number of categories.
    pub categories: u32,
    /// The largest epsilon of a report that the app accepts. Default: 1.
    pub epsilon_max: f64,
    /// The public key of the operator, in hexadecimal, which must have signed every experiment; NULL,
    /// the default: nobody need.
    pub operator_key: *const c_char,
    /// The public key of a witness, who must have signed too; NULL, the default: none.
    pub witness_key: *const c_char,
    /// The most that all reports of a window may cost, in nats. Default: 5.
    pub window_budget: f64,
    /// Days of the window, 1 to 31. Default: 7.
    pub window_days: u32,
    /// The most that all reports of the installation may cost, in nats. Default: 20.
    pub lifetime_budget: f64,
    /// The key of the app; NULL, the default: none.
    pub app_key: *const c_char,
    /// Whether sums of rewards are kept in the store. Default: false.
    pub keep_pending_rewards: bool,
    /// The shortest release delay that the app accepts, in seconds; below 0, the default: the
    /// library's.
    pub least_release_delay_seconds: i64,
    /// Whether an experiment is reported once in so many days, whichever arm, 0: once for ever; below
    /// 0, the default: as the experiment says.
    pub report_once_days: i64,
    /// Called with `context` when there may be a step to take; NULL, the default: nobody is told. It may
    /// only schedule, comes on any thread, and never because of a reward. It must not call the
    /// client. Once `bandana_close` has returned no call is under way, and none comes.
    pub on_work: Option<extern "C" fn(context: *mut c_void)>,
    /// Given to `on_work`.
    pub context: *mut c_void,
}

/// How a client stands.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bandana_status {
    /// Whether reports are made.
    pub standing: bandana_standing,
    /// Privacy loss of the running window, in nats.
    pub window_spent: f64,
    /// Privacy loss so far, in nats.
    pub lifetime_spent: f64,
    /// Assignments whose rewards still count.
    pub open_assignments: u64,
    /// Reports that no server has counted yet.
    pub waiting_reports: u64,
    /// Reports made since the start.
    pub reports_made: u64,
    /// Uploads that a server has counted since the start.
    pub uploads_accepted: u64,
    /// Uploads that a server has refused for good since the start.
    pub uploads_refused: u64,
    /// Fetches without an answer since the start.
    pub fetches_failed: u64,
    /// Answers that the client has refused since the start.
    pub answers_refused: u64,
    /// Rewards that the experiment does not admit, or that came too late, since the start.
    pub rewards_refused: u64,
}

/// The context of `on_work`.
struct Context(*mut c_void);

// SAFETY: the header says that `on_work` comes on any thread, so whoever gives the pointer allows it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// What `work` gives, or `otherwise` if it panics.
fn contain<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    // A panic leaves the client as a panic of any other thread does: its locks are taken all the same.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// The client that a pointer from C leads to.
///
/// # Safety
/// NULL, or from `bandana_start` and not freed.
unsafe fn client<'a>(client: *const bandana_client) -> Option<&'a Bandana> {
    // SAFETY: as the caller promises.
    unsafe { client.as_ref() }.map(|client| &client.0)
}

/// Gives a thing of this library to C.
fn hand_out<T>(thing: T) -> *mut T {
    Box::into_raw(Box::new(thing))
}

/// Takes back what `hand_out` gave.
///
/// # Safety
/// NULL, or from `hand_out` and not taken back before.
unsafe fn take_back<T>(thing: *mut T) {
    if !thing.is_null() {
        // SAFETY: as the caller promises.
        contain((), || drop(unsafe { Box::from_raw(thing) }));
    }
}

/// Settings with their defaults.
#[unsafe(no_mangle)]
pub extern "C" fn bandana_default_settings() -> bandana_settings {
    bandana_settings {
        consent: false,
        directory: null(),
        host_storage: false,
        kept_state: null(),
        kept_state_size: 0,
        kept_rewards: null(),
        kept_rewards_size: 0,
        rewards: bandana_rewards::BINARY as c_int,
        reward_low: 0.0,
        reward_high: 1.0,
        categories: 2,
        epsilon_max: 1.0,
        operator_key: null(),
        witness_key: null(),
        window_budget: 5.0,
        window_days: 7,
        lifetime_budget: 20.0,
        app_key: null(),
        keep_pending_rewards: false,
        least_release_delay_seconds: -1,
        report_once_days: -1,
        on_work: None,
        context: std::ptr::null_mut(),
    }
}

/// The record of settings from C.
///
/// # Safety
/// Each pointer of the settings is NULL, or leads to what the header says.
unsafe fn configuration(settings: &bandana_settings) -> Result<Configuration, String> {
    // SAFETY: as the caller promises, here and below.
    let given = |pointer| unsafe { read(pointer) };
    let store = match (given(settings.directory)?, settings.host_storage) {
        (Some(_), true) => {
            return Err("directory: the host has the storage; give one of both".into());
        }
        (Some(path), false) => Store::Directory { path },
        (None, true) => Store::Host {
            // SAFETY: as above.
            state: unsafe { bytes(settings.kept_state, settings.kept_state_size) },
            // SAFETY: as above.
            rewards: unsafe { bytes(settings.kept_rewards, settings.kept_rewards_size) },
        },
        (None, false) => Store::Memory,
    };
    let bounded = RewardTerms::Bounded { low: settings.reward_low, high: settings.reward_high };
    let kinds = [
        (bandana_rewards::BINARY, RewardTerms::Binary),
        (bandana_rewards::BOUNDED, bounded),
        (
            bandana_rewards::CATEGORICAL,
            RewardTerms::Categorical { categories: settings.categories },
        ),
    ];
    let kind = kinds.into_iter().find(|(kind, _)| *kind as c_int == settings.rewards);
    let (_, rewards) = kind.ok_or_else(|| {
        format!("rewards: {} is no number of `bandana_rewards`", settings.rewards)
    })?;
    let keys = [given(settings.operator_key)?, given(settings.witness_key)?];
    if let [None, Some(_)] = keys {
        return Err("signers: a witness's key is given without the operator's".into());
    }
    Ok(Configuration {
        store,
        rewards,
        epsilon_max: settings.epsilon_max,
        signers: keys.into_iter().flatten().collect(),
        window_budget: settings.window_budget,
        window_days: settings.window_days,
        lifetime_budget: settings.lifetime_budget,
        consent: settings.consent,
        app_key: given(settings.app_key)?,
        keep_pending_rewards: settings.keep_pending_rewards,
        least_release_delay_seconds: u64::try_from(settings.least_release_delay_seconds).ok(),
        report_once_days: match settings.report_once_days {
            ..0 => None,
            days => Some(u32::try_from(days).map_err(|_| "report_once_days: too many days")?),
        },
    })
}

/// Starts a client. NULL: a setting can't be used, and `*error`, unless `error` is NULL, is a text that
/// says which and why, to be freed by `bandana_text_free`.
///
/// # Safety
/// `settings` leads to settings whose pointers are NULL or lead to what is said of them; `error` is
/// NULL or leads to a pointer that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_start(
    settings: *const bandana_settings,
    error: *mut *mut c_char,
) -> *mut bandana_client {
    contain(std::ptr::null_mut(), || {
        // SAFETY: as the caller promises.
        let started = match unsafe { settings.as_ref() } {
            None => Err("settings: NULL was given".to_owned()),
            Some(settings) => {
                let (on_work, context) = (settings.on_work, Context(settings.context));
                // SAFETY: as the caller promises.
                unsafe { configuration(settings) }.and_then(|configuration| {
                    let work = move || {
                        if let Some(on_work) = on_work {
                            on_work(context.get());
                        }
                    };
                    Bandana::start(configuration, work).map_err(|error| error.to_string())
                })
            }
        };
        match started {
            Ok(started) => hand_out(bandana_client(started)),
            Err(message) => {
                // SAFETY: as the caller promises.
                unsafe { give(error, &message) };
                std::ptr::null_mut()
            }
        }
    })
}

/// Ends everything, as `bandana_close`, and frees the client.
///
/// # Safety
/// `client` is NULL, or comes from `bandana_start`, and no other function has it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_free(client: *mut bandana_client) {
    // SAFETY: as the caller promises.
    unsafe {
        bandana_close(client);
        take_back(client);
    }
}

/// Ends everything: a directory has all that is pending and is free for another client, and no step
/// follows. A host that has the storage makes the writes of `bandana_next_write` before. Reports that
/// wait leave after the next start.
///
/// # Safety
/// `client` is NULL, or comes from `bandana_start` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_close(client: *const bandana_client) {
    // SAFETY: as the caller promises.
    if let Some(client) = unsafe { self::client(client) } {
        contain((), || client.close());
    }
}

/// Takes part in an experiment, which is fetched with one of the next steps. False: no experiment can
/// have this name, or the client was closed; `*error` is as for `bandana_start`.
///
/// # Safety
/// `client` is NULL, or comes from `bandana_start` and was not freed; `name` is a text; `error` is NULL
/// or leads to a pointer that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_join(
    client: *const bandana_client,
    name: *const c_char,
    error: *mut *mut c_char,
) -> bool {
    contain(false, || {
        // SAFETY: as the caller promises.
        let joined = match unsafe { (self::client(client), read(name)) } {
            (None, _) => Err("the client was closed".to_owned()),
            (_, Err(message)) => Err(message),
            (Some(client), Ok(name)) => {
                client.join(name.as_deref().unwrap_or_default()).map_err(|error| error.to_string())
            }
        };
        if let Err(message) = &joined {
            // SAFETY: as the caller promises.
            unsafe { give(error, message) };
        }
        joined.is_ok()
    })
}

/// Reason why `bandana_choose` gives no arms, to be freed by `bandana_text_free`; NULL: it does.
///
/// # Safety
/// As for `bandana_choose`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_why_not_ready(
    client: *const bandana_client,
    name: *const c_char,
) -> *mut c_char {
    contain(std::ptr::null_mut(), || {
        // SAFETY: as the caller promises.
        let why = match unsafe { (self::client(client), read(name)) } {
            (None, _) => Some("the client was closed".to_owned()),
            (_, Err(message)) => Some(message),
            (Some(client), Ok(name)) => client.why_not_ready(name.as_deref().unwrap_or_default()),
        };
        why.map_or(std::ptr::null_mut(), |why| text(&why).into_raw())
    })
}

/// A choice for C.
///
/// # Safety
/// As for `bandana_choose`.
unsafe fn choice(
    client: *const bandana_client,
    name: *const c_char,
    way: fn(&Bandana, &str) -> Choice,
) -> *mut bandana_choice {
    let default = |reason: String| Choice {
        label: None,
        arm: None,
        assignment: None,
        is_reported: false,
        reason: Some(reason),
    };
    contain(std::ptr::null_mut(), || {
        // SAFETY: as the caller promises.
        let choice = match unsafe { (self::client(client), read(name)) } {
            (None, _) => default("the client was closed".to_owned()),
            (_, Err(message)) => default(message),
            (Some(client), Ok(name)) => way(client, name.as_deref().unwrap_or_default()),
        };
        let (label, reason) =
            (choice.label.as_deref().map(text), choice.reason.as_deref().map(text));
        hand_out(bandana_choice { label, reason, choice })
    })
}

/// The arm to show: that of the assignment whose attribution window lasts, also after a restart, or else
/// a new one. Never waits for a network or a disk. To be freed by `bandana_choice_free`; NULL only when
/// there is no memory.
///
/// # Safety
/// `client` is NULL, or comes from `bandana_start` and was not freed; `name` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choose(
    client: *const bandana_client,
    name: *const c_char,
) -> *mut bandana_choice {
    // SAFETY: as the caller promises.
    unsafe { choice(client, name, Bandana::choose) }
}

/// Draws an arm anew, also while the window of another assignment lasts. Each is paid for. As
/// `bandana_choose` otherwise.
///
/// # Safety
/// As for `bandana_choose`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_draw(
    client: *const bandana_client,
    name: *const c_char,
) -> *mut bandana_choice {
    // SAFETY: as the caller promises.
    unsafe { choice(client, name, Bandana::draw) }
}

/// The label of the arm, as long as the choice; NULL: show the app's own default.
///
/// # Safety
/// `choice` is NULL, or comes from this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_label(choice: *const bandana_choice) -> *const c_char {
    // SAFETY: as the caller promises.
    let choice = unsafe { choice.as_ref() };
    choice.and_then(|choice| choice.label.as_ref()).map_or(null(), |label| label.as_ptr())
}

/// Why it is the default, or why there will be no report, as long as the choice; NULL: there will be
/// one.
///
/// # Safety
/// As for `bandana_choice_label`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_reason(choice: *const bandana_choice) -> *const c_char {
    // SAFETY: as the caller promises.
    let choice = unsafe { choice.as_ref() };
    choice.and_then(|choice| choice.reason.as_ref()).map_or(null(), |reason| reason.as_ptr())
}

/// The index of the arm; below 0: show the app's own default.
///
/// # Safety
/// As for `bandana_choice_label`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_arm(choice: *const bandana_choice) -> i64 {
    // SAFETY: as the caller promises.
    let choice = unsafe { choice.as_ref() };
    choice.and_then(|choice| choice.choice.arm).map_or(-1, i64::from)
}

/// The number of the assignment, for `bandana_reward`, also after a restart; 0: there is none.
///
/// # Safety
/// As for `bandana_choice_label`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_assignment(choice: *const bandana_choice) -> u64 {
    // SAFETY: as the caller promises.
    let choice = unsafe { choice.as_ref() };
    choice.and_then(|choice| choice.choice.assignment).unwrap_or_default()
}

/// Whether there will be a report.
///
/// # Safety
/// As for `bandana_choice_label`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_is_reported(choice: *const bandana_choice) -> bool {
    // SAFETY: as the caller promises.
    unsafe { choice.as_ref() }.is_some_and(|choice| choice.choice.is_reported)
}

/// Frees a choice. Its report is made all the same.
///
/// # Safety
/// `choice` is NULL, or comes from this library, and nobody has it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_free(choice: *mut bandana_choice) {
    // SAFETY: as the caller promises.
    unsafe { take_back(choice) }
}

/// Adds a reward to an assignment. Returns whether its window lasts.
///
/// # Safety
/// `client` is NULL, or comes from `bandana_start` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_reward(
    client: *const bandana_client,
    assignment: u64,
    reward: f64,
) -> bool {
    // SAFETY: as the caller promises.
    let client = unsafe { self::client(client) };
    contain(false, || client.is_some_and(|client| client.reward(assignment, reward)))
}

/// How the client stands.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_status_of(client: *const bandana_client) -> bandana_status {
    // SAFETY: as the caller promises.
    let client = unsafe { self::client(client) };
    let status = contain(None, || client.map(Bandana::status));
    let status = status.unwrap_or_else(bandana_bindings::Status::closed);
    bandana_status {
        standing: match status.standing {
            Standing::On => bandana_standing::ON,
            Standing::OptedOut => bandana_standing::OPTED_OUT,
            Standing::ClockDisagrees => bandana_standing::CLOCK_DISAGREES,
            Standing::Forked => bandana_standing::FORKED,
            Standing::StorageUnusable => bandana_standing::STORAGE_UNUSABLE,
            Standing::StorageFailing => bandana_standing::STORAGE_FAILING,
            Standing::Closed => bandana_standing::CLOSED,
        },
        window_spent: status.window_spent,
        lifetime_spent: status.lifetime_spent,
        open_assignments: status.open_assignments,
        waiting_reports: status.waiting_reports,
        reports_made: status.reports_made,
        uploads_accepted: status.uploads_accepted,
        uploads_refused: status.uploads_refused,
        fetches_failed: status.fetches_failed,
        answers_refused: status.answers_refused,
        rewards_refused: status.rewards_refused,
    }
}

/// What is wrong with the store, in words, to be freed by `bandana_text_free`; NULL: nothing.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_trouble(client: *const bandana_client) -> *mut c_char {
    // SAFETY: as the caller promises.
    let client = unsafe { self::client(client) };
    contain(std::ptr::null_mut(), || {
        let trouble = client.and_then(|client| client.status().trouble);
        trouble.map_or(std::ptr::null_mut(), |trouble| text(&trouble).into_raw())
    })
}

/// Opts the user out: nothing is fetched, kept or sent from now on, and what waited is erased. Returns
/// whether that is stored; with storage by the host, it is with the next write.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_opt_out(client: *const bandana_client) -> bool {
    // SAFETY: as the caller promises.
    let client = unsafe { self::client(client) };
    contain(false, || client.is_some_and(Bandana::opt_out))
}

/// Opts the user in again, as `bandana_opt_out`.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_opt_in(client: *const bandana_client) -> bool {
    // SAFETY: as the caller promises.
    let client = unsafe { self::client(client) };
    contain(false, || client.is_some_and(Bandana::opt_in))
}

/// Ends waits for the server: the network has changed, or the app came to the foreground. Never call it
/// because the user reacted.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_wake(client: *const bandana_client) {
    // SAFETY: as the caller promises.
    if let Some(client) = unsafe { self::client(client) } {
        contain((), || client.wake());
    }
}

/// Gives a step to C.
fn hand_out_step(step: Step) -> *mut bandana_step {
    let (path, headers) = match &step {
        Step::Call(call) => {
            let headers = call.headers.iter();
            (text(&call.path), headers.map(|one| (text(&one.name), text(&one.value))).collect())
        }
        _ => (text(""), Vec::new()),
    };
    hand_out(bandana_step { step, path, headers })
}

/// The next step. Ask when there may be work, when a wait ends, and after each step; further calls may
/// be under way meanwhile. Blocks on the disk with a directory. To be freed by `bandana_step_free`;
/// NULL only when there is no memory.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_next_step(client: *const bandana_client) -> *mut bandana_step {
    // SAFETY: as the caller promises.
    let client = unsafe { self::client(client) };
    contain(std::ptr::null_mut(), || hand_out_step(client.map_or(Step::Closed, Bandana::next_step)))
}

/// The next write, and no call: with storage by the host, also after a reward. NULL: there is none.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_next_write(client: *const bandana_client) -> *mut bandana_step {
    // SAFETY: as the caller promises.
    let client = unsafe { self::client(client) };
    contain(std::ptr::null_mut(), || {
        let write = client.and_then(Bandana::next_write);
        write.map_or(std::ptr::null_mut(), |write| hand_out_step(Step::Write(write)))
    })
}

/// What the step is.
///
/// # Safety
/// `step` is NULL, or comes from this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_kind_of(step: *const bandana_step) -> bandana_step_kind {
    // SAFETY: as the caller promises.
    match unsafe { step.as_ref() }.map(|step| &step.step) {
        Some(Step::Call(_)) => bandana_step_kind::CALL,
        Some(Step::Write(_)) => bandana_step_kind::WRITE,
        Some(Step::Wait { .. }) => bandana_step_kind::WAIT,
        Some(Step::Done) => bandana_step_kind::DONE,
        Some(Step::Closed) | None => bandana_step_kind::CLOSED,
    }
}

/// The number of a call or write, by which its end is told; 0 for others.
///
/// # Safety
/// As for `bandana_step_kind_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_number(step: *const bandana_step) -> u64 {
    // SAFETY: as the caller promises.
    match unsafe { step.as_ref() }.map(|step| &step.step) {
        Some(Step::Call(call)) => call.id,
        Some(Step::Write(write)) => write.number,
        _ => 0,
    }
}

/// Milliseconds of a wait; 0 for others.
///
/// # Safety
/// As for `bandana_step_kind_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_milliseconds(step: *const bandana_step) -> u64 {
    // SAFETY: as the caller promises.
    match unsafe { step.as_ref() }.map(|step| &step.step) {
        Some(Step::Wait { milliseconds }) => *milliseconds,
        _ => 0,
    }
}

/// The path of a call, as long as the step; empty for others.
///
/// # Safety
/// As for `bandana_step_kind_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_path(step: *const bandana_step) -> *const c_char {
    // SAFETY: as the caller promises.
    unsafe { step.as_ref() }.map_or(null(), |step| step.path.as_ptr())
}

/// Whether a call is an upload, which should have a connection of its own.
///
/// # Safety
/// As for `bandana_step_kind_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_is_upload(step: *const bandana_step) -> bool {
    // SAFETY: as the caller promises.
    let step = unsafe { step.as_ref() };
    matches!(step.map(|step| &step.step), Some(Step::Call(call)) if call.is_upload)
}

/// The name of a header of a call, as long as the step; NULL: it has no more.
///
/// # Safety
/// As for `bandana_step_kind_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_header_name(
    step: *const bandana_step,
    index: usize,
) -> *const c_char {
    // SAFETY: as the caller promises.
    let step = unsafe { step.as_ref() };
    step.and_then(|step| step.headers.get(index)).map_or(null(), |(name, _)| name.as_ptr())
}

/// The value of a header of a call, as long as the step; NULL: it has no more.
///
/// # Safety
/// As for `bandana_step_kind_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_header_value(
    step: *const bandana_step,
    index: usize,
) -> *const c_char {
    // SAFETY: as the caller promises.
    let step = unsafe { step.as_ref() };
    step.and_then(|step| step.headers.get(index)).map_or(null(), |(_, value)| value.as_ptr())
}

/// The bytes of a call or write, as long as the step, and how many they are.
///
/// # Safety
/// As for `bandana_step_kind_of`; `size` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_body(
    step: *const bandana_step,
    size: *mut usize,
) -> *const u8 {
    // SAFETY: as the caller promises.
    let body: &[u8] = match unsafe { step.as_ref() }.map(|step| &step.step) {
        Some(Step::Call(call)) => &call.body,
        Some(Step::Write(write)) => &write.bytes,
        _ => &[],
    };
    // SAFETY: as the caller promises.
    if let Some(size) = unsafe { size.as_mut() } {
        *size = body.len();
    }
    body.as_ptr()
}

/// The place of a write.
///
/// # Safety
/// As for `bandana_step_kind_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_slot(step: *const bandana_step) -> bandana_slot {
    // SAFETY: as the caller promises.
    match unsafe { step.as_ref() }.map(|step| &step.step) {
        Some(Step::Write(write)) if write.slot == Slot::Rewards => bandana_slot::REWARDS,
        _ => bandana_slot::STATE,
    }
}

/// Frees a step. It still awaits its end.
///
/// # Safety
/// `step` is NULL, or comes from this library, and nobody has it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_free(step: *mut bandana_step) {
    // SAFETY: as the caller promises.
    unsafe { take_back(step) }
}

/// Tells the answer to a call: its status, the headers `content-type` and `retry-after`, NULL for none,
/// and its body.
///
/// # Safety
/// `client` is NULL, or comes from `bandana_start` and was not freed; the texts are NULL or texts;
/// `body` leads to `size` bytes, or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_answered(
    client: *const bandana_client,
    call: u64,
    status: u16,
    content_type: *const c_char,
    retry_after: *const c_char,
    body: *const u8,
    size: usize,
) {
    // SAFETY: as the caller promises.
    let Some(client) = (unsafe { self::client(client) }) else { return };
    // SAFETY: as the caller promises. A header that is no text is none.
    let header = |pointer| unsafe { read(pointer) }.ok().flatten();
    contain((), || {
        let (content_type, retry_after) = (header(content_type), header(retry_after));
        // SAFETY: as the caller promises.
        let body = unsafe { bytes(body, size) }.unwrap_or_default();
        client.answered(call, status, content_type.as_deref(), retry_after.as_deref(), &body);
    });
}

/// Tells that a call had no answer.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_unanswered(client: *const bandana_client, call: u64) {
    // SAFETY: as the caller promises.
    if let Some(client) = unsafe { self::client(client) } {
        contain((), || client.unanswered(call));
    }
}

/// Tells the end of a write: whether it would survive a power cut.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_written(
    client: *const bandana_client,
    number: u64,
    is_durable: bool,
) {
    // SAFETY: as the caller promises.
    if let Some(client) = unsafe { self::client(client) } {
        contain((), || client.written(number, is_durable));
    }
}

/// Frees a text that a function says is to be freed.
///
/// # Safety
/// `text` is NULL, or comes from such a function, and nobody has it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Text::from_raw(text) });
    }
}
