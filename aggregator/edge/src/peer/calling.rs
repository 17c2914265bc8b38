//! The calls of one connection, and the time that their answers wait to be taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The number of parts of the answer time. Waiting times are measured in parts.
const PARTS: u32 = 4;

/// The number of slots for the part in which an answer began to wait: the parts of the answer time,
/// one partial part at either end, and some for late checks.
const PLACES: usize = 16;

/// The running calls of one connection.
#[derive(Debug)]
pub struct Calling {
    begin: Instant,
    part: Duration,
    under_way: AtomicUsize,
    begun: AtomicU64,
    waiting: AtomicU32,
    taken: AtomicU64,
    /// The number of waiting answers, by the part in which they began to wait.
    since: [AtomicU32; PLACES],
}

impl Default for Calling {
    /// A connection whose answers may wait for ever.
    fn default() -> Self {
        Self::new(Duration::MAX)
    }
}

impl Calling {
    /// A connection whose answers must be taken within this time, or at most half as much more.
    pub fn new(answer_time: Duration) -> Self {
        let part = (answer_time / PARTS).max(Duration::from_millis(1));
        Self {
            begin: Instant::now(),
            part,
            under_way: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            taken: AtomicU64::new(0),
            since: Default::default(),
        }
    }

    /// The interval at which to check for overdue answers. None while no answer waits.
    pub(crate) fn look_every(&self) -> Option<Duration> {
        (self.waiting.load(Ordering::Relaxed) > 0).then_some(self.part)
    }

    /// Whether an answer has waited for too long.
    pub(crate) fn is_overdue(&self) -> bool {
        if self.look_every().is_none() {
            return false;
        }
        let now = self.parts();
        // Of the answers that began a part later, some have waited for less than the whole time.
        (PARTS as usize + 1..PLACES - 1).any(|ago| {
            let place = now.checked_sub(ago).map(|then| then % PLACES);
            place.is_some_and(|place| self.since[place].load(Ordering::Relaxed) > 0)
        })
    }

    fn parts(&self) -> usize {
        let parts = self.begin.elapsed().as_nanos() / self.part.as_nanos().max(1);
        usize::try_from(parts).unwrap_or(usize::MAX)
    }

    /// The number of answers that wait to be taken.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The number of answers that were taken, or given up.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The number of running calls, whose answers were not yet taken.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// The number of calls that ever began.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Counts a call as running until the returned guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
    }

    /// Counts an answer as waiting until the returned guard is dropped.
    pub(crate) fn wait(self: &Arc<Self>) -> Waiting {
        let place = self.parts() % PLACES;
        self.since[place].fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting { calling: Arc::clone(self), place }
    }
}

/// A running call.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Calling>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer that waits to be taken.
#[derive(Debug)]
pub(crate) struct Waiting {
    calling: Arc<Calling>,
    place: usize,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.calling.since[self.place].fetch_sub(1, Ordering::Relaxed);
        self.calling.waiting.fetch_sub(1, Ordering::Relaxed);
        self.calling.taken.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_overdue_after_their_time_and_not_before() {
        let seconds = Duration::from_secs;
        for begin in 0..40 {
            let calling = Arc::new(Calling::new(seconds(8)));
            tokio::time::advance(seconds(begin)).await;
            let (first, second) = (calling.wait(), calling.begin());
            for _ in 0..8 {
                assert!(!calling.is_overdue());
                tokio::time::advance(seconds(1)).await;
            }
            drop(calling.wait());
            tokio::time::advance(seconds(4)).await;
            assert!(calling.is_overdue(), "{begin}");
            drop(first);
            assert!(!calling.is_overdue() && calling.look_every().is_none());
            assert_eq!(calling.under_way(), 1);
            drop(second);
            assert_eq!(calling.under_way(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_time_nothing_is_overdue() {
        let calling = Arc::new(Calling::default());
        let _waiting = calling.wait();
        tokio::time::advance(Duration::from_hours(10_000)).await;
        assert!(!calling.is_overdue());
    }
}
