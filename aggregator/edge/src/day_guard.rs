//! The day by which uploads are judged, whatever the clock says.

use std::sync::Arc;
use std::time::Duration;

use bandana_shared::identity::Day;

use crate::clock::Clock;

/// The day by which uploads are judged.
///
/// Within a process the day never goes back, so that a device that was just told a day is not told
/// that it is in the future. Nor does it run ahead of the elapsed time by more than a day: a clock
/// that jumps into the future would move the replay window with it, for good. Only a clock before
/// the window is known to be wrong. Such a clock is not used, and is followed once it is right.
#[derive(Debug)]
pub struct DayGuard {
    clock: Arc<dyn Clock>,
    start: (Day, Duration),
    day: Day,
    /// The number of days by which the clock is ahead of the believed day.
    ahead: u32,
}

impl DayGuard {
    /// The guard of this clock, from now on.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let day = clock.day();
        Self { start: (day, clock.monotonic()), clock, day, ahead: 0 }
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The day that was last told.
    pub fn day(&self) -> Day {
        self.day
    }

    /// The number of days by which the clock is ahead of the believed day.
    pub fn ahead(&self) -> u32 {
        self.ahead
    }

    /// The least time by which the clock is behind an earlier state of it, or of a replica's clock.
    /// Derived from the newest day of a counted upload.
    pub fn behind(&self, newest: Option<Day>) -> Duration {
        let newest = newest.map_or(0, |newest| u64::from(newest.get()) * 86_400);
        Duration::from_secs(newest.saturating_sub(self.clock.unix_seconds()))
    }

    /// The present day, for a window that begins with `oldest`.
    pub fn get(&mut self, oldest: Day) -> Day {
        let (first, since) = self.start;
        let passed = self.clock.monotonic().saturating_sub(since).as_secs() / 86_400;
        let latest = first.forward(u32::try_from(passed).unwrap_or(u32::MAX)).forward(1);
        let day = self.clock.day();
        if self.day < oldest && day >= oldest {
            self.start = (day, self.clock.monotonic());
            (self.day, self.ahead) = (day, 0);
            return day;
        }
        if day > latest && self.day < latest {
            tracing::error!(
                %day, %latest,
                "the clock has jumped ahead of the time that has passed; the later day is not \
                 used. If the clock is right, the host of this machine has paused it: restart \
                 the server"
            );
        }
        self.ahead = day.get().saturating_sub(latest.get());
        self.day = self.day.max(day.min(latest));
        self.day
    }
}
