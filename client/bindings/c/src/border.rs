//! Handles of what this library gives out, and panics that end here.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use bandana_bindings::Bandana;
use sharded_slab::{Entry, Slab};

use crate::choices::bandana_choice;
use crate::steps::bandana_step;

/// A client of an app.
pub struct bandana_client(pub(crate) Bandana);

/// What is given to C by a handle. C sees a pointer; it is the number of a place, with how often that place was
/// used. So a handle that was freed leads to nothing, and a thing lasts while a function uses it. A table has no
/// lock, which a copy of the process could find taken for good.
pub(crate) trait Handed: Sized + 'static {
    fn table() -> &'static Slab<Self>;
}

macro_rules! handed {
    ($($thing:ty),*) => {$(
        impl Handed for $thing {
            fn table() -> &'static Slab<Self> {
                static TABLE: LazyLock<Slab<$thing>> = LazyLock::new(Slab::new);
                &TABLE
            }
        }
    )*};
}

handed!(bandana_client, bandana_choice, bandana_step);

/// What `work` gives, or `otherwise` if it panics.
pub(crate) fn contain<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    // A panic leaves the client as a panic of any other thread does: its locks are taken all the same.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// What a handle leads to; `None` for NULL, and for one that was freed.
pub(crate) fn handed<T: Handed>(handle: *const T) -> Option<Entry<'static, T>> {
    T::table().get(handle.addr().checked_sub(1)?)
}

/// A client in use.
pub(crate) struct ClientInUse(Entry<'static, bandana_client>);

impl Deref for ClientInUse {
    type Target = Bandana;

    fn deref(&self) -> &Bandana {
        &self.0.0
    }
}

/// The client that a handle leads to; `None` for NULL, and for one that was freed.
pub(crate) fn client(handle: *const bandana_client) -> Option<ClientInUse> {
    handed(handle).map(ClientInUse)
}

/// Gives a thing of this library to C; NULL: there is no memory.
pub(crate) fn hand_out<T: Handed>(thing: T) -> *mut T {
    let place = T::table().insert(thing).and_then(|place| place.checked_add(1));
    std::ptr::without_provenance_mut(place.unwrap_or_default())
}

/// Takes back what `hand_out` gave. NULL is nothing. What was freed before is an error, which is told.
pub(crate) fn take_back<T: Handed>(handle: *mut T, function: &str) {
    let Some(place) = handle.addr().checked_sub(1) else { return };
    contain((), || {
        if !T::table().remove(place) {
            eprintln!("{function}: this was freed before, or does not come from this library");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_bindings::Step;

    #[test]
    fn what_was_freed_leads_to_nothing_and_is_freed_once() {
        let give = || crate::steps::hand_out_step(Step::Wait { milliseconds: 7 });
        let first = give();
        assert!(handed(first).is_some());
        take_back(first, "a test");
        assert!(handed(first).is_none());
        // Its place is used again, by another handle.
        let later: Vec<_> = (0..1000).map(|_| give()).collect();
        take_back(first, "a test");
        assert!(!later.contains(&first) && later.iter().all(|step| handed(*step).is_some()));
        for step in later {
            take_back(step, "a test");
        }
        take_back(std::ptr::null_mut::<bandana_step>(), "a test");
        assert!(handed(std::ptr::null::<bandana_client>()).is_none());
    }

    #[test]
    fn what_is_in_use_is_freed_afterwards() {
        let step = crate::steps::hand_out_step(Step::Wait { milliseconds: 7 });
        let in_use = handed(step);
        take_back(step, "a test");
        assert!(handed(step).is_none());
        assert_eq!(in_use.map(|step| step.milliseconds()), Some(7));
    }
}
