//! Choices: an arm, or the app's own default.

use std::ffi::c_char;
use std::ptr::null;

use bandana_bindings::{Bandana, Choice};

use crate::border::{bandana_client, client, contain, hand_out, handed, take_back};
use crate::text::{Text, read, text};

/// What to show: an arm, or the app's own default.
pub struct bandana_choice {
    label: Option<Text>,
    reason: Option<Text>,
    choice: Choice,
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
        let choice = match (self::client(client), unsafe { read(name) }) {
            (None, _) => default("the client was closed".to_owned()),
            (_, Err(message)) => default(message),
            (Some(client), Ok(name)) => way(&client, name.as_deref().unwrap_or_default()),
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

/// A new assignment, also while the attribution window of another lasts. In an experiment with
/// `redraw`, each draws an arm again and is paid for. In others the arm stays, and one is reported.
/// As `bandana_choose` otherwise.
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
    let choice = handed(choice);
    choice
        .as_deref()
        .and_then(|choice| choice.label.as_ref())
        .map_or(null(), |label| label.as_ptr())
}

/// Why it is the default, or why there will be no report, as long as the choice; NULL: there will be
/// one.
///
/// # Safety
/// As for `bandana_choice_label`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_reason(choice: *const bandana_choice) -> *const c_char {
    let choice = handed(choice);
    choice
        .as_deref()
        .and_then(|choice| choice.reason.as_ref())
        .map_or(null(), |reason| reason.as_ptr())
}

/// The index of the arm; below 0: show the app's own default.
///
/// # Safety
/// As for `bandana_choice_label`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_arm(choice: *const bandana_choice) -> i64 {
    let choice = handed(choice);
    choice.as_deref().and_then(|choice| choice.choice.arm).map_or(-1, i64::from)
}

/// The number of the assignment, for `bandana_reward`, also after a restart; 0: there is none.
///
/// # Safety
/// As for `bandana_choice_label`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_assignment(choice: *const bandana_choice) -> u64 {
    let choice = handed(choice);
    choice.as_deref().and_then(|choice| choice.choice.assignment).unwrap_or_default()
}

/// Whether there will be a report.
///
/// # Safety
/// As for `bandana_choice_label`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_is_reported(choice: *const bandana_choice) -> bool {
    handed(choice).is_some_and(|choice| choice.choice.is_reported)
}

/// Frees a choice. Its report is made all the same.
///
/// # Safety
/// `choice` is NULL, or comes from this library, and nobody has it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_choice_free(choice: *mut bandana_choice) {
    take_back(choice, "bandana_choice_free");
}
