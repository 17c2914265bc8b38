//! Work that a host is told of, once until it takes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

type Schedule = Box<dyn Fn() + Send + Sync>;

/// Tells a host that there may be work.
#[derive(Default)]
pub(crate) struct Work {
    /// Locked while the host is told, so that no call is under way once it is taken.
    schedule: Mutex<Option<Schedule>>,
    is_told: AtomicBool,
}

impl Work {
    pub(super) fn new(schedule: Option<Schedule>) -> Self {
        Self { schedule: Mutex::new(schedule), is_told: AtomicBool::new(false) }
    }

    /// Tells the host, unless it was told and has not come yet. Nothing of the client may be locked.
    pub(super) fn arose(&self) {
        if self.is_told.swap(true, Ordering::SeqCst) {
            return;
        }
        let schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schedule) = &*schedule {
            schedule();
        }
    }

    /// The host has come, and looks at everything after this.
    pub(super) fn taken(&self) {
        self.is_told.store(false, Ordering::SeqCst);
    }

    /// Tells nobody from now on.
    pub(super) fn end(&self) {
        drop(self.schedule.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
