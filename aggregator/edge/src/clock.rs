//! Clocks of the aggregator.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bandana_shared::identity::Day;

/// A source of time that tests can move.
pub trait Clock: Debug + Send + Sync {
    /// Seconds since 1970-01-01 (UTC).
    fn unix_seconds(&self) -> u64;

    /// The time since a fixed moment. It never goes back, and goes on while the host sleeps.
    fn monotonic(&self) -> Duration;

    /// The present day.
    fn day(&self) -> Day {
        Day::of_unix_seconds(self.unix_seconds())
    }
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Duration,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self { start: since_boot() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn unix_seconds(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    fn monotonic(&self) -> Duration {
        since_boot().saturating_sub(self.start)
    }
}

/// [`std::time::Instant`] stands still while the host is suspended: after a day of sleep, the
/// calendar would seem to have jumped.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // The time is not negative.
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
fn since_boot() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;

    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed()
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock {
    seconds: AtomicU64,
}

impl ManualClock {
    /// A clock at the start of `day`.
    pub fn at_day(day: Day) -> Self {
        let clock = Self::default();
        clock.set_day(day);
        clock
    }

    /// Lets so many seconds pass.
    pub fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Moves the clock to the start of `day`.
    pub fn set_day(&self, day: Day) {
        self.seconds.store(u64::from(day.get()) * 86_400, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn unix_seconds(&self) -> u64 {
        self.seconds.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.unix_seconds())
    }
}
