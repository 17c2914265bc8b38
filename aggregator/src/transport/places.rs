//! The places of a listener's connections, and who gives one up when all are taken.
//!
//! Whoever holds a place and does nothing with it must keep out nobody: answers that are not taken,
//! handshakes that do not go on, silence. So connections are looked at while most places are taken,
//! and a newcomer that finds none is given that of the connection that has done least for longest. It
//! waits for that for a moment. Connections whose calls go on are never displaced.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::peer::Calling;

/// The time between two looks at the connections.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Looks after which a connection can be displaced that does not take its answers, or has not begun;
/// that is idle; and whose calls are under way without a byte in either direction.
const LOOKS_UNTAKEN: u32 = 2;
const LOOKS_IDLE: u32 = 4;
const LOOKS_SILENT: u32 = 50;

/// Bytes between two looks with which a connection counts as one that takes its answers.
const TAKEN_BYTES: u64 = 16 * 1024;

/// Most newcomers that wait for a place, and for how long.
const WAITING_MAX: usize = 256;
const WAIT: Duration = Duration::from_secs(2);

/// The places of a listener.
#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    seats: Mutex<Vec<Weak<Seat>>>,
}

/// A place of a connection that is looked at.
#[derive(Debug, Default)]
pub(super) struct Seat {
    has_begun: AtomicBool,
    heard: AtomicU64,
    written: AtomicU64,
    calling: OnceLock<Arc<Calling>>,
    /// What the last look found, and in how many looks in a row.
    seen: Mutex<Seen>,
    looks: AtomicU32,
    must_leave: AtomicBool,
    waker: AtomicWaker,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    heard: u64,
    written: u64,
    taken: u64,
    state: State,
}

/// What a connection does, the least deserving first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// It does not take its answers.
    Untaken,
    /// It has not said what it wants.
    NotBegun,
    /// It has no calls, and says nothing.
    Idle,
    /// Nothing comes or goes, with calls under way.
    Silent,
    #[default]
    Active,
}

impl State {
    /// Looks after which it can be displaced.
    fn looks(self) -> Option<u32> {
        match self {
            Self::Untaken | Self::NotBegun => Some(LOOKS_UNTAKEN),
            Self::Idle => Some(LOOKS_IDLE),
            Self::Silent => Some(LOOKS_SILENT),
            Self::Active => None,
        }
    }
}

impl Seat {
    /// Records the bytes of a read.
    pub(super) fn heard(&self, bytes: usize) {
        self.heard.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records the bytes of a write.
    pub(super) fn written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records that the peer has said what protocol it speaks.
    pub(super) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Notes the calls of the connection.
    pub(super) fn with_calls(&self, calling: &Arc<Calling>) {
        // There is one connection for each place.
        self.calling.set(Arc::clone(calling)).ok();
    }

    /// Ready when the place is needed for another connection.
    pub(super) fn poll_displaced(&self, context: &Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        if self.must_leave.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn displace(&self) {
        self.must_leave.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Looks at the connection once more.
    fn look(&self) -> (State, u32) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (heard, written) =
            (self.heard.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed));
        let calling = self.calling.get();
        let (waiting, taken, under_way) = calling
            .map_or((0, 0, 0), |calling| (calling.waiting(), calling.taken(), calling.under_way()));
        let state = if !self.has_begun.load(Ordering::Relaxed) {
            State::NotBegun
        } else if waiting > 0 && taken == seen.taken && written - seen.written < TAKEN_BYTES {
            State::Untaken
        } else if heard != seen.heard || written != seen.written {
            State::Active
        } else if under_way == 0 {
            State::Idle
        } else {
            State::Silent
        };
        let before = if state == seen.state { self.looks.load(Ordering::Relaxed) } else { 0 };
        *seen = Seen { heard, written, taken, state };
        self.looks.store(before + 1, Ordering::Relaxed);
        (state, before + 1)
    }
}

impl Places {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        let (free, waiting) = (Arc::new(Semaphore::new(limit)), AtomicUsize::new(0));
        Arc::new(Self { limit, free, waiting, seats: Mutex::default() })
    }

    /// A place, if one is free.
    pub(super) fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// A seat in the queue for a place. None: there are enough in it.
    pub(super) fn queue(self: &Arc<Self>) -> Option<Queued> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let queued = Queued(Arc::clone(self));
        (before < WAITING_MAX).then_some(queued)
    }

    /// Has the connection of a place looked at.
    pub(super) fn seat(&self) -> Arc<Seat> {
        let seat = Arc::new(Seat::default());
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if seats.len() >= 2 * self.limit {
            seats.retain(|seat| seat.strong_count() > 0);
        }
        seats.push(Arc::downgrade(&seat));
        seat
    }

    /// Looks at the connections while most places are taken, for ever, and gives those that are
    /// needed to newcomers. `displaced` is told of each.
    pub(super) async fn look_after(&self, displaced: impl Fn()) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if self.free.available_permits() <= self.limit / 4 {
                self.look(&displaced);
            }
        }
    }

    fn look(&self, displaced: &impl Fn()) {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let mut idle = Vec::new();
        seats.retain(|seat| {
            let Some(seat) = seat.upgrade() else { return false };
            let (state, looks) = seat.look();
            let is_leaving = seat.must_leave.load(Ordering::Relaxed);
            if !is_leaving && state.looks().is_some_and(|enough| looks >= enough) {
                idle.push((state, looks, seat));
            }
            true
        });
        drop(seats);
        let needed = self.waiting.load(Ordering::Relaxed);
        idle.sort_by_key(|(state, looks, _)| (*state, std::cmp::Reverse(*looks)));
        for (.., seat) in idle.into_iter().take(needed) {
            seat.displace();
            displaced();
        }
    }
}

/// A newcomer that waits for a place.
#[derive(Debug)]
pub(super) struct Queued(Arc<Places>);

impl Queued {
    /// Waits for a place in order of arrival. None: there was none in time.
    pub(super) async fn wait(self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.0.free).acquire_owned();
        tokio::time::timeout(WAIT, place).await.ok()?.ok()
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seat of a connection that has begun, with its calls.
    fn begun(places: &Places) -> (Arc<Seat>, Arc<Calling>) {
        let (seat, calling) = (places.seat(), Arc::default());
        seat.with_calls(&calling);
        seat.begin();
        (seat, calling)
    }

    fn is_displaced(seat: &Seat) -> bool {
        seat.poll_displaced(&Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn who_takes_nothing_goes_first_and_who_goes_on_stays() {
        let places = Places::new(5);
        let (untaken, of_untaken) = begun(&places);
        let (idle, _) = begun(&places);
        let (busy, of_busy) = begun(&places);
        let (slow, of_slow) = begun(&places);
        let silent = places.seat();
        let (_waits, _calls) = (of_untaken.wait(), of_busy.begin());
        let _large = of_slow.wait();
        let queued: Vec<_> = (0..2).map(|_| places.queue().unwrap()).collect();
        for look in 0..LOOKS_IDLE {
            // The one pings, and takes no answer; the other one reads a large answer.
            untaken.heard(17);
            untaken.written(17);
            slow.written(usize::try_from(TAKEN_BYTES).unwrap());
            busy.heard(100);
            places.look(&|| {});
            let gone = [&untaken, &silent, &idle, &busy, &slow].map(|seat| is_displaced(seat));
            let expected = look + 1 >= LOOKS_UNTAKEN;
            assert_eq!(gone, [expected, expected, look + 1 >= LOOKS_IDLE, false, false], "{look}");
        }
        drop(queued);
    }

    #[test]
    fn nobody_goes_for_nobody_and_the_queue_has_an_end() {
        let places = Places::new(1);
        let (idle, _) = begun(&places);
        for _ in 0..100 {
            places.look(&|| {});
        }
        assert!(!is_displaced(&idle));
        let queued: Vec<_> = (0..WAITING_MAX).map(|_| places.queue().unwrap()).collect();
        assert!(places.queue().is_none());
        drop(queued);
        assert!(places.queue().is_some());
    }
}
