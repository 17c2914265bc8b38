//! Rate limit of log lines that callers can cause: some lines pass, with the number of those
//! omitted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::rate::{Limiter, Rate};

/// Lines per second; after a pause, those of [`BURST_SECONDS`] may come at once.
const PER_SECOND: u32 = 1;

const BURST_SECONDS: u32 = 10;

/// Rate limit of one kind of line.
#[derive(Debug)]
pub struct LogLimit {
    limiter: Option<Limiter>,
    dropped: AtomicU64,
}

impl LogLimit {
    /// A limit of one line per second.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        let rate = Rate::new(PER_SECOND, BURST_SECONDS);
        let limiter = rate.map(|rate| Limiter::new(rate, Arc::clone(clock)));
        Self { limiter, dropped: AtomicU64::new(0) }
    }

    /// Admits the next line, and returns the number of lines dropped before it. None: this one is
    /// dropped too.
    pub fn next(&self) -> Option<u64> {
        if self.limiter.as_ref().is_some_and(|limiter| limiter.pass().is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.dropped.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use bandana_shared::identity::Day;

    #[test]
    fn many_lines_become_few_and_none_is_forgotten() {
        let clock = Arc::new(ManualClock::at_day(Day::new(1)));
        let lines = LogLimit::new(&(Arc::<ManualClock>::clone(&clock) as Arc<dyn Clock>));
        let told: Vec<u64> = (0..1000).filter_map(|_| lines.next()).collect();
        assert_eq!(told, [0; 10]);
        clock.set_day(Day::new(2));
        assert_eq!(lines.next(), Some(990));
        assert_eq!(lines.next(), Some(0));
    }
}
