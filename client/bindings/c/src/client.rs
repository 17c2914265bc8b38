//! The client of an app: its start and end, its experiments, its state.

use std::ffi::{c_char, c_void};

use bandana_bindings::{Bandana, Standing};

use crate::border::{bandana_client, client, client_here, contain, hand_out, take_back};
use crate::settings::{bandana_settings, configuration};
use crate::text::{give, read, text};

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

/// How a client stands.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bandana_status {
    /// Whether reports are made.
    pub standing: bandana_standing,
    /// Privacy loss of the running window, in nats; NAN: not known without the store.
    pub window_spent: f64,
    /// Privacy loss so far, in nats; NAN: not known without the store.
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
    /// Rewards that the experiment does not admit, that came too late, or whose assignment never
    /// reports, since the start.
    pub rewards_refused: u64,
}

/// The context of `on_work`.
struct Context(*mut c_void);

impl Context {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

// SAFETY: the header says that `on_work` comes on any thread, so whoever gives the pointer allows it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

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
            Ok(started) => hand_out(bandana_client::new(started)),
            Err(message) => {
                // SAFETY: as the caller promises.
                unsafe { give(error, &message) };
                std::ptr::null_mut()
            }
        }
    })
}

/// Ends everything, as `bandana_close`, and frees the client. What was freed acts as NULL from then on: to
/// free a client, a choice or a step twice does nothing, and says so on the standard error.
///
/// # Safety
/// `client` is NULL, or comes from `bandana_start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_free(client: *mut bandana_client) {
    // In a copy of the process there is nothing to end.
    if self::client(client).is_none() || self::client_here(client).is_some() {
        // SAFETY: as the caller promises.
        unsafe { bandana_close(client) };
        take_back(client, "bandana_free");
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
    if let Some(client) = self::client_here(client) {
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
        let joined = match (self::client(client), unsafe { read(name) }) {
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
        let why = match (self::client(client), unsafe { read(name) }) {
            (None, _) => Some("the client was closed".to_owned()),
            (_, Err(message)) => Some(message),
            (Some(client), Ok(name)) => client.why_not_ready(name.as_deref().unwrap_or_default()),
        };
        why.map_or(std::ptr::null_mut(), |why| text(&why).into_raw())
    })
}

/// Adds a reward to an assignment. Returns whether it was taken.
///
/// # Safety
/// `client` is NULL, or comes from `bandana_start` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_reward(
    client: *const bandana_client,
    assignment: u64,
    reward: f64,
) -> bool {
    let client = self::client(client);
    contain(false, || client.as_deref().is_some_and(|client| client.reward(assignment, reward)))
}

/// Adds a value of a metric to an assignment. Returns whether it was taken. An assignment
/// reports its rewards or one metric, which was drawn with its arm; so tell of all of them. A
/// metric that the experiment does not have is ignored.
///
/// # Safety
/// As for `bandana_reward`; `metric` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_measure(
    client: *const bandana_client,
    assignment: u64,
    metric: *const c_char,
    value: f64,
) -> bool {
    let client = self::client(client);
    // SAFETY: as the caller promises. What is no text names no metric.
    let metric = || unsafe { read(metric) }.ok().flatten().unwrap_or_default();
    let measure = |client: &Bandana| client.measure(assignment, &metric(), value);
    contain(false, || client.as_deref().is_some_and(measure))
}

/// How the client stands; once it is closed, as it stood then. NULL or a freed client is CLOSED, and
/// nothing is known of it: no loss, and counts of 0.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_status_of(client: *const bandana_client) -> bandana_status {
    let client = self::client(client);
    let status = contain(None, || client.as_deref().map(Bandana::status));
    let status = status.unwrap_or_else(bandana_bindings::Status::of_none);
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
        window_spent: status.window_spent.unwrap_or(f64::NAN),
        lifetime_spent: status.lifetime_spent.unwrap_or(f64::NAN),
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
    let client = self::client(client);
    contain(std::ptr::null_mut(), || {
        let trouble = client.as_deref().and_then(|client| client.status().trouble);
        trouble.map_or(std::ptr::null_mut(), |trouble| text(&trouble).into_raw())
    })
}

/// The next line for developers, to be freed by `bandana_text_free`; NULL: nothing is new. Lines tell of first
/// policies, refusals, uploads and the store. Nothing in them depends on a reward or an arm. Take them after
/// each step. `is_warning`, unless it is NULL, becomes whether something is in the way.
///
/// # Safety
/// As for `bandana_reward`; `is_warning` is NULL, or leads to a bool that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_log_line(
    client: *const bandana_client,
    is_warning: *mut bool,
) -> *mut c_char {
    let client = self::client_here(client);
    contain(std::ptr::null_mut(), || {
        let Some(line) = client.as_deref().and_then(Bandana::log_line) else {
            return std::ptr::null_mut();
        };
        // SAFETY: as the caller promises.
        if let Some(is_warning) = unsafe { is_warning.as_mut() } {
            *is_warning = line.is_warning;
        }
        text(&line.text).into_raw()
    })
}

/// The last refusal of an experiment since the start, in words, with what to do about it, to be freed by
/// `bandana_text_free`; NULL: none.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_last_refusal(client: *const bandana_client) -> *mut c_char {
    let client = self::client(client);
    contain(std::ptr::null_mut(), || {
        let refusal = client.as_deref().and_then(|client| client.status().last_refusal);
        refusal.map_or(std::ptr::null_mut(), |refusal| text(&refusal).into_raw())
    })
}

/// The last fetch, upload or answer since the start that failed, in words, with what to do about it, to be
/// freed by `bandana_text_free`; NULL: none.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_last_error(client: *const bandana_client) -> *mut c_char {
    let client = self::client(client);
    contain(std::ptr::null_mut(), || {
        let error = client.as_deref().and_then(|client| client.status().last_error);
        error.map_or(std::ptr::null_mut(), |error| text(&error).into_raw())
    })
}

/// Opts the user out: nothing is fetched, kept or sent from now on, and what waited is erased. Returns
/// whether that is stored; with storage by the host, it is with the next write.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_opt_out(client: *const bandana_client) -> bool {
    let client = self::client(client);
    contain(false, || client.as_deref().is_some_and(Bandana::opt_out))
}

/// Opts the user in again, as `bandana_opt_out`.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_opt_in(client: *const bandana_client) -> bool {
    let client = self::client(client);
    contain(false, || client.as_deref().is_some_and(Bandana::opt_in))
}

/// Ends waits for the server: the network has changed, or the app came to the foreground. Never call it
/// because the user reacted.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_wake(client: *const bandana_client) {
    if let Some(client) = self::client(client) {
        contain((), || client.wake());
    }
}
