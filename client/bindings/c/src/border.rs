//! Pointers to what this library gives out, and panics that end here.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bandana_bindings::Bandana;

/// A client of an app.
pub struct bandana_client(pub(crate) Bandana);

/// What `work` gives, or `otherwise` if it panics.
pub(crate) fn contain<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    // A panic leaves the client as a panic of any other thread does: its locks are taken all the same.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// The client that a pointer from C leads to.
///
/// # Safety
/// NULL, or from `bandana_start` and not freed.
pub(crate) unsafe fn client<'a>(client: *const bandana_client) -> Option<&'a Bandana> {
    // SAFETY: as the caller promises.
    unsafe { client.as_ref() }.map(|client| &client.0)
}

/// Gives a thing of this library to C.
pub(crate) fn hand_out<T>(thing: T) -> *mut T {
    Box::into_raw(Box::new(thing))
}

/// Takes back what `hand_out` gave.
///
/// # Safety
/// NULL, or from `hand_out` and not taken back before.
pub(crate) unsafe fn take_back<T>(thing: *mut T) {
    if !thing.is_null() {
        // SAFETY: as the caller promises.
        contain((), || drop(unsafe { Box::from_raw(thing) }));
    }
}
