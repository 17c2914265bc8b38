//! Rates: limits of how often events may happen.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::Clock as _;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use crate::clock::Clock;

/// A number of events in a second, and the most that may come at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    per_second: NonZeroU32,
    burst: NonZeroU32,
}

impl Rate {
    /// This many events in a second, with a burst of this many seconds' worth. None: one of the
    /// numbers is zero, which stands for no limit.
    pub fn new(per_second: u32, burst_seconds: u32) -> Option<Self> {
        let per_second = NonZeroU32::new(per_second)?;
        let burst = per_second.saturating_mul(NonZeroU32::new(burst_seconds)?);
        Some(Self { per_second, burst })
    }
}

/// The rates of one source. None: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Uploads, single or in a stream.
    pub uploads: Option<Rate>,
    /// Fetches of experiments, and selections of arms.
    pub questions: Option<Rate>,
}

/// The rate limiters of one source.
#[derive(Debug)]
pub struct Limiters {
    uploads: Option<Limiter>,
    questions: Option<Limiter>,
}

impl Limiters {
    /// Limiters of a source with its whole burst available.
    pub fn new(rates: Rates, clock: &Arc<dyn Clock>) -> Self {
        let limiter = |rate: Option<Rate>| rate.map(|rate| Limiter::new(rate, Arc::clone(clock)));
        Self { uploads: limiter(rates.uploads), questions: limiter(rates.questions) }
    }

    /// Admits one event of this kind.
    ///
    /// # Errors
    /// The time until the next event may pass, if no other comes before it.
    pub fn pass(&self, kind: Kind) -> Result<(), Duration> {
        let limiter = match kind {
            Kind::Upload => &self.uploads,
            Kind::Question => &self.questions,
        };
        limiter.as_ref().map_or(Ok(()), Limiter::pass)
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// See [`Rates::uploads`].
    Upload,
    /// See [`Rates::questions`].
    Question,
}

/// A rate limiter, which takes a few words of memory.
pub struct Limiter(RateLimiter<NotKeyed, InMemoryState, Monotonic, NoOpMiddleware<Duration>>);

impl Limiter {
    /// A limiter with its whole burst available.
    pub fn new(rate: Rate, clock: Arc<dyn Clock>) -> Self {
        Self::of(Quota::per_second(rate.per_second).allow_burst(rate.burst), clock)
    }

    /// A limiter that admits one event in each period.
    pub fn once_in(period: Duration, clock: Arc<dyn Clock>) -> Self {
        let period = period.max(Duration::from_nanos(1));
        let quota =
            Quota::with_period(period).unwrap_or_else(|| Quota::per_second(NonZeroU32::MIN));
        Self::of(quota, clock)
    }

    fn of(quota: Quota, clock: Arc<dyn Clock>) -> Self {
        Self(RateLimiter::direct_with_clock(quota, Monotonic(clock)))
    }

    /// Admits one event.
    ///
    /// # Errors
    /// The time until the next event may pass, if no other comes before it.
    pub fn pass(&self) -> Result<(), Duration> {
        self.0.check().map_err(|not_until| not_until.wait_time_from(self.0.clock().now()))
    }
}

/// A rate limiter for each of many sources.
pub struct KeyedLimiter<K: Clone + Eq + Hash>(
    RateLimiter<K, HashMapStateStore<K>, Monotonic, NoOpMiddleware<Duration>>,
);

impl<K: Clone + Eq + Hash> KeyedLimiter<K> {
    /// A limiter with the whole burst available to every source.
    pub fn new(rate: Rate, clock: Arc<dyn Clock>) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        Self(RateLimiter::new(quota, HashMapStateStore::default(), Monotonic(clock)))
    }

    /// Admits one event of this source.
    ///
    /// # Errors
    /// The time until the next event may pass, if no other comes before it.
    pub fn pass(&self, source: &K) -> Result<(), Duration> {
        let checked = self.0.check_key(source);
        checked.map_err(|not_until| not_until.wait_time_from(self.0.clock().now()))
    }

    /// Forgets the sources with their whole burst available, about which there is nothing to know.
    pub fn forget(&self) {
        self.0.retain_recent();
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for KeyedLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimiter").finish_non_exhaustive()
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}

/// The aggregator's clock as the library's.
#[derive(Clone, Debug)]
struct Monotonic(Arc<dyn Clock>);

impl governor::clock::Clock for Monotonic {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.monotonic()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use bandana_shared::identity::Day;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_holds() {
        let clock = Arc::new(ManualClock::at_day(Day::new(1)));
        let rate = Rate::new(4, 2).unwrap();
        let limiter = Limiter::new(rate, Arc::<ManualClock>::clone(&clock));
        assert_eq!((0..100).filter(|_| limiter.pass().is_ok()).count(), 8);
        assert_eq!(limiter.pass(), Err(Duration::from_millis(250)));
        // The burst is the maximum, however long the pause.
        clock.set_day(Day::new(2));
        assert_eq!((0..100).filter(|_| limiter.pass().is_ok()).count(), 8);
    }

    #[test]
    fn zero_is_no_limit_and_the_largest_settings_do_not_overflow() {
        assert_eq!((Rate::new(0, 5), Rate::new(5, 0)), (None, None));
        let clock = Arc::new(ManualClock::at_day(Day::new(20_000)));
        let most = Rate::new(u32::MAX, u32::MAX).unwrap();
        assert_eq!(Limiter::new(most, clock).pass(), Ok(()));
    }
}
