//! Handles of what this library gives out, and panics that end here.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use bandana_bindings::Bandana;
use sharded_slab::{Config, Entry, Slab};

use crate::choices::bandana_choice;
use crate::steps::bandana_step;

/// A client of an app.
pub struct bandana_client {
    bandana: Bandana,
    /// The process that has started it.
    process: u32,
}

impl bandana_client {
    pub(crate) fn new(bandana: Bandana) -> Self {
        Self { bandana, process: std::process::id() }
    }
}

/// A table with two million places for each thread, so that a place is used a billion times before a handle
/// comes again. The uppermost two bits of a handle are its kind.
#[derive(Debug)]
pub(crate) struct Table;

impl Config for Table {
    const MAX_PAGES: usize = 16;
    const RESERVED_BITS: usize = 2;
}

/// A thing that C holds by a handle. C sees a pointer; it is the number of a place, with how often that place was
/// used. So a handle that was freed leads to nothing, and a thing lasts while a function uses it. A table has no
/// lock, which a copy of the process could find taken for good.
pub(crate) trait Handed: Sized + 'static {
    /// 1 to 3.
    const KIND: usize;

    fn table() -> &'static Slab<Self, Table>;
}

macro_rules! handed {
    ($($thing:ty = $kind:literal),*) => {$(
        impl Handed for $thing {
            const KIND: usize = $kind;

            fn table() -> &'static Slab<Self, Table> {
                static TABLE: LazyLock<Slab<$thing, Table>> =
                    LazyLock::new(Slab::new_with_config::<Table>);
                &TABLE
            }
        }
    )*};
}

handed!(bandana_client = 1, bandana_choice = 2, bandana_step = 3);

/// The number of the bit from which on the kind is: as many are reserved in the table.
const KIND_BIT: u32 = usize::BITS - 2;

/// The place that a handle says; `None` for NULL, and for one of another kind.
fn place<T: Handed>(handle: *const T) -> Option<usize> {
    let kind = T::KIND << KIND_BIT;
    (handle.addr() >> KIND_BIT == T::KIND).then(|| handle.addr() - kind)
}

/// What `work` gives, or `otherwise` if it panics.
pub(crate) fn contain<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    // A panic leaves the client as a panic of any other thread does: its locks are taken all the same.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// What a handle leads to; `None` for NULL, and for one that was freed.
pub(crate) fn handed<T: Handed>(handle: *const T) -> Option<Entry<'static, T, Table>> {
    T::table().get(place(handle)?)
}

/// A client in use.
pub(crate) struct ClientInUse(Entry<'static, bandana_client, Table>);

impl Deref for ClientInUse {
    type Target = Bandana;

    fn deref(&self) -> &Bandana {
        &self.0.bandana
    }
}

/// The client that a handle leads to; `None` for NULL, and for one that was freed.
pub(crate) fn client(handle: *const bandana_client) -> Option<ClientInUse> {
    handed(handle).map(ClientInUse)
}

/// As [`client`], for what a copy of the process must not do: who held a lock of the client may not be there.
pub(crate) fn client_here(handle: *const bandana_client) -> Option<ClientInUse> {
    client(handle).filter(|client| client.0.process == std::process::id())
}

/// Gives a thing of this library to C; NULL: there is no memory.
pub(crate) fn hand_out<T: Handed>(thing: T) -> *mut T {
    let place = T::table().insert(thing);
    std::ptr::without_provenance_mut(place.map_or(0, |place| place | T::KIND << KIND_BIT))
}

/// Takes back what `hand_out` gave. NULL is nothing. What was freed before is an error, which is told.
pub(crate) fn take_back<T: Handed>(handle: *mut T, function: &str) {
    if handle.is_null() {
        return;
    }
    contain((), || {
        if !place(handle).is_some_and(|place| T::table().remove(place)) {
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
        // A place is used far more often than in this loop before a handle comes again.
        for _ in 0..20_000 {
            let step = give();
            assert_ne!(step, first);
            take_back(step, "a test");
        }
        // A handle of one kind is none of another, and no small number is one.
        let step = give();
        assert!(handed(step.cast::<bandana_client>().cast_const()).is_none());
        assert!(handed(std::ptr::without_provenance::<bandana_step>(1)).is_none());
        take_back(step, "a test");
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
