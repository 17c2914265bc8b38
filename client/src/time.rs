//! Time, which the caller passes to the core.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bandana_shared::identity::Day;

/// Largest step back of the clock that does not affect pending times.
pub(crate) const CLOCK_SLACK: Duration = Duration::from_hours(1);

/// A time in milliseconds since 1970-01-01 (UTC) by the device's clock, 0 to 2^64 - 1. The core
/// never reads a clock. Its caller passes the time.
///
/// ```
/// use std::time::Duration;
/// use bandana_client::Timestamp;
///
/// let noon = Timestamp::from_unix_ms(1_709_208_000_000); // on 2024-02-29
/// let midnight = noon.after(Duration::from_hours(12));
/// assert_eq!(midnight.since(noon), Duration::from_hours(12));
/// assert_eq!(midnight.day(), noon.day().forward(1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The latest time, for things without an end.
    pub const MAX: Self = Self(u64::MAX);

    /// The time that is this many milliseconds after 1970-01-01 (UTC).
    ///
    /// ```
    /// use bandana_client::Timestamp;
    /// assert_eq!(Timestamp::from_unix_ms(86_400_000).day().get(), 1);
    /// ```
    pub fn from_unix_ms(milliseconds: u64) -> Self {
        Self(milliseconds)
    }

    /// Milliseconds since 1970-01-01 (UTC).
    pub fn unix_ms(self) -> u64 {
        self.0
    }

    /// The time `duration` later, at most [`Self::MAX`]. Fractions of a millisecond are dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bandana_client::Timestamp;
    /// assert_eq!(Timestamp::from_unix_ms(5).after(Duration::from_secs(1)).unix_ms(), 1005);
    /// assert_eq!(Timestamp::MAX.after(Duration::from_secs(1)), Timestamp::MAX);
    /// ```
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The first moment of a day (UTC).
    pub(crate) fn start_of(day: Day) -> Self {
        Self(u64::from(day.get()) * 86_400_000)
    }

    /// The day (UTC) of this time.
    pub fn day(self) -> Day {
        Day::of_unix_seconds(self.0 / 1000)
    }

    /// The time from `earlier` to this time; zero if `earlier` is later.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bandana_client::Timestamp;
    /// let (earlier, later) = (Timestamp::from_unix_ms(5), Timestamp::from_unix_ms(7));
    /// assert_eq!(later.since(earlier), Duration::from_millis(2));
    /// assert_eq!(earlier.since(later), Duration::ZERO);
    /// ```
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A source of time for a client. The device's clock is [`SystemClock`]; hosts with a better clock,
/// and tests, implement their own.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use bandana_client::{Clock, Timestamp};
///
/// /// Stands still until a test moves it.
/// struct Hands(AtomicU64);
///
/// impl Clock for Hands {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
///     }
/// }
/// let clock = Hands(AtomicU64::new(1000));
/// clock.0.fetch_add(500, Ordering::SeqCst);
/// assert_eq!(clock.now(), Timestamp::from_unix_ms(1500));
/// ```
pub trait Clock: Send + Sync {
    /// The time now. It may jump. After a step back, a pending time counts as passed if it lies
    /// further ahead than when it was set. No window of the budget depends on this clock.
    fn now(&self) -> Timestamp;

    /// The time since the device was started, including sleep, or `None` if it is not known.
    ///
    /// Neither the user nor the network can move this clock, so it shows when the other clock was
    /// moved. While the two disagree, arms are drawn without reports. This clock must never go back
    /// while the process lives.
    fn boot_time(&self) -> Option<Duration> {
        None
    }
}

/// A reading of both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    pub(crate) now: Timestamp,
    /// The time since the device was started; `None`: it is not known.
    pub(crate) boot_time: Option<Duration>,
}

impl ClockReading {
    /// The device's own clocks.
    #[cfg(feature = "trusted")]
    pub(crate) fn of_system() -> Self {
        Self { now: SystemClock.now(), boot_time: SystemClock.boot_time() }
    }

    /// The time that has truly passed since; `None`: it is not known.
    pub(crate) fn passed_since(self, earlier: Self) -> Option<Duration> {
        self.boot_time?.checked_sub(earlier.boot_time?)
    }
}

/// The clock of the operating system.
///
/// ```
/// use bandana_client::{Clock as _, SystemClock, Timestamp};
/// let new_year_2020 = Timestamp::from_unix_ms(1_577_836_800_000);
/// assert!(SystemClock.now() > new_year_2020);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    #[cfg(unix)]
    fn boot_time(&self) -> Option<Duration> {
        use rustix::time::{ClockId, clock_gettime};

        // Elsewhere this one goes on during sleep.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const SINCE_BOOT: ClockId = ClockId::Monotonic;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const SINCE_BOOT: ClockId = ClockId::Boottime;
        Duration::try_from(clock_gettime(SINCE_BOOT)).ok()
    }
}
