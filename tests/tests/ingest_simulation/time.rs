//! A clock whose calendar can jump while its monotonic time advances normally.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_shared::identity::Day;

/// The clocks of one simulated machine. They advance on command only.
#[derive(Debug)]
pub(crate) struct SimulatedClock {
    seconds: AtomicU64,
    monotonic: AtomicU64,
}

impl SimulatedClock {
    /// Clocks at noon of a day.
    pub(crate) fn at(day: Day) -> Self {
        let seconds = u64::from(day.get()) * 86_400 + 43_200;
        Self { seconds: AtomicU64::new(seconds), monotonic: AtomicU64::new(1000) }
    }

    /// Advances the time.
    pub(crate) fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
        self.monotonic.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Sets the calendar to noon of a day.
    pub(crate) fn set(&self, day: Day) {
        self.seconds.store(u64::from(day.get()) * 86_400 + 43_200, Ordering::SeqCst);
    }
}

impl Clock for SimulatedClock {
    fn unix_seconds(&self) -> u64 {
        self.seconds.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.monotonic.load(Ordering::SeqCst))
    }
}
