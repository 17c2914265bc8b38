//! Steps: the calls and writes that the host makes, and their ends.

use std::ffi::c_char;
use std::ptr::null;

use bandana_bindings::{Bandana, Slot, Step};

use crate::border::{bandana_client, client_here, contain, hand_out, handed, take_back};
use crate::text::{Text, bytes, read, text};

/// A step of the host.
pub struct bandana_step {
    step: Step,
    path: Text,
    headers: Vec<(Text, Text)>,
}

impl bandana_step {
    pub(crate) fn milliseconds(&self) -> u64 {
        match self.step {
            Step::Wait { milliseconds } => milliseconds,
            _ => 0,
        }
    }
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

/// Gives a step to C.
pub(crate) fn hand_out_step(step: Step) -> *mut bandana_step {
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
    let client = client_here(client);
    contain(std::ptr::null_mut(), || {
        hand_out_step(client.as_deref().map_or(Step::Closed, Bandana::next_step))
    })
}

/// The next write, and no call: also after a reward, which is lost with the process until then. NULL:
/// there is none; with a directory the writes were made. Blocks on the disk then.
///
/// # Safety
/// As for `bandana_reward`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_next_write(client: *const bandana_client) -> *mut bandana_step {
    let client = client_here(client);
    contain(std::ptr::null_mut(), || {
        let write = client.as_deref().and_then(Bandana::next_write);
        write.map_or(std::ptr::null_mut(), |write| hand_out_step(Step::Write(write)))
    })
}

/// What the step is.
///
/// # Safety
/// `step` is NULL, or comes from this library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_kind_of(step: *const bandana_step) -> bandana_step_kind {
    match handed(step).as_deref().map(|step| &step.step) {
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
    match handed(step).as_deref().map(|step| &step.step) {
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
    handed(step).map_or(0, |step| step.milliseconds())
}

/// The path of a call, as long as the step; empty for others.
///
/// # Safety
/// As for `bandana_step_kind_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_path(step: *const bandana_step) -> *const c_char {
    handed(step).as_deref().map_or(null(), |step| step.path.as_ptr())
}

/// Whether a call is an upload, which should have a connection of its own.
///
/// # Safety
/// As for `bandana_step_kind_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bandana_step_is_upload(step: *const bandana_step) -> bool {
    let step = handed(step);
    matches!(step.as_deref().map(|step| &step.step), Some(Step::Call(call)) if call.is_upload)
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
    let step = handed(step);
    step.as_deref()
        .and_then(|step| step.headers.get(index))
        .map_or(null(), |(name, _)| name.as_ptr())
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
    let step = handed(step);
    step.as_deref()
        .and_then(|step| step.headers.get(index))
        .map_or(null(), |(_, value)| value.as_ptr())
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
    let step = handed(step);
    let body: &[u8] = match step.as_deref().map(|step| &step.step) {
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
    match handed(step).as_deref().map(|step| &step.step) {
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
    take_back(step, "bandana_step_free");
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
    let Some(client) = client_here(client) else { return };
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
    if let Some(client) = client_here(client) {
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
    if let Some(client) = client_here(client) {
        contain((), || client.written(number, is_durable));
    }
}
