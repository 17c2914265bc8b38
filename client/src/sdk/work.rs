//! Work that a host is told of, once until it takes it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Tells a host that there may be work.
#[derive(Default)]
pub(crate) struct Work {
    schedule: Option<Box<dyn Fn() + Send + Sync>>,
    is_told: AtomicBool,
}

impl Work {
    pub(super) fn new(schedule: Option<Box<dyn Fn() + Send + Sync>>) -> Self {
        Self { schedule, is_told: AtomicBool::new(false) }
    }

    /// Tells the host, unless it was told and has not come yet. Nothing of the client may be locked.
    pub(super) fn arose(&self) {
        if let Some(schedule) = &self.schedule
            && !self.is_told.swap(true, Ordering::SeqCst)
        {
            schedule();
        }
    }

    /// The host has come, and looks at everything after this.
    pub(super) fn taken(&self) {
        self.is_told.store(false, Ordering::SeqCst);
    }
}
