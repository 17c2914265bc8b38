use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bandana_shared::identity::Day;

/// Milliseconds since 1970-01-01 (UTC) by the device's clock. The core never
/// reads a clock; whoever calls it says what time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The end of time, for what does not end.
    pub const MAX: Self = Self(u64::MAX);

    /// A time by its milliseconds since 1970-01-01 (UTC).
    pub fn from_unix_ms(milliseconds: u64) -> Self {
        Self(milliseconds)
    }

    /// Milliseconds since 1970-01-01 (UTC).
    pub fn unix_ms(self) -> u64 {
        self.0
    }

    /// The time that lies `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Its day (UTC).
    pub fn day(self) -> Day {
        Day::of_unix_seconds(self.0 / 1000)
    }

    /// How long it is from `earlier` to this time; zero when it was later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Tells the time to a client. The one of the device is [`SystemClock`]; a host that knows
/// better, and a test, have their own.
pub trait Clock: Send + Sync {
    /// The time now. It may jump: what the client does then is documented.
    fn now(&self) -> Timestamp;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}
