use std::time::Duration;

/// Milliseconds since 1970-01-01 (UTC) by the device's clock. The core never
/// reads a clock; whoever calls it says what time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
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

    /// How long it is from `earlier` to this time; zero when it was later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
