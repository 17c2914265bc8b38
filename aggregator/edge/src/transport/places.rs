//! The places of a listener's connections, and who gives one up when all are taken.
//!
//! Whoever holds a place and does nothing with it must keep out nobody: answers that are not taken,
//! handshakes that do not go on, silence. So connections are looked at while most places are taken,
//! and a newcomer that finds none is given that of the connection that has done least for longest. It
//! waits for that for a moment. Connections whose calls go on are never displaced.
//!
//! The newest newcomer comes first: those before it may be of one who fills the queue, and those who
//! are turned away come back as the newest.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::MissedTickBehavior;

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
    /// Newcomers that wait, the newest last.
    waiting: Mutex<VecDeque<oneshot::Sender<OwnedSemaphorePermit>>>,
    /// Told when a place is free again.
    freed: Arc<Notify>,
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
    begun: u64,
    state: State,
}

/// What a connection does, the least deserving first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// It does not take its answers.
    Untaken,
    /// It has not said what it wants.
    NotBegun,
    /// It has no calls, whatever else it says.
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
        let (waiting, taken) =
            calling.map_or((0, 0), |calling| (calling.waiting(), calling.taken()));
        let (begun, under_way) =
            calling.map_or((0, 0), |calling| (calling.begun(), calling.under_way()));
        let state = if !self.has_begun.load(Ordering::Relaxed) {
            State::NotBegun
        } else if waiting > 0 && taken == seen.taken && written - seen.written < TAKEN_BYTES {
            State::Untaken
        } else if under_way == 0 && waiting == 0 && begun == seen.begun {
            // Frames that are no calls cost nothing, so they keep no place.
            State::Idle
        } else if begun != seen.begun || heard != seen.heard || written != seen.written {
            State::Active
        } else {
            State::Silent
        };
        let before = if state == seen.state { self.looks.load(Ordering::Relaxed) } else { 0 };
        *seen = Seen { heard, written, taken, begun, state };
        self.looks.store(before + 1, Ordering::Relaxed);
        (state, before + 1)
    }
}

impl Places {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        let (free, freed) = (Arc::new(Semaphore::new(limit)), Arc::default());
        Arc::new(Self { limit, free, waiting: Mutex::default(), freed, seats: Mutex::default() })
    }

    /// A place, if one is free.
    pub(super) fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// A newcomer in the queue for a place. If there are too many, the oldest leaves.
    pub(super) fn queue(&self) -> Queued {
        let (give, given) = oneshot::channel();
        let mut waiting = self.waiting();
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(give);
        Queued(given)
    }

    /// The newcomers that still wait.
    fn waiting(&self) -> MutexGuard<'_, VecDeque<oneshot::Sender<OwnedSemaphorePermit>>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|newcomer| !newcomer.is_closed());
        waiting
    }

    /// Gives free places to newcomers.
    fn give(&self) {
        let mut waiting = self.waiting();
        while let Some(newcomer) = waiting.pop_back() {
            let Some(place) = self.take() else {
                waiting.push_back(newcomer);
                return;
            };
            // One that has given up meanwhile drops it.
            newcomer.send(place).ok();
        }
    }

    /// To be told when a place is free again.
    pub(super) fn freed(&self) -> Freed {
        Freed(Arc::clone(&self.freed))
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
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => {
                    if self.free.available_permits() <= self.limit / 4 {
                        self.look(&displaced);
                    }
                }
                () = self.freed.notified() => {}
            }
            self.give();
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
        let needed = self.waiting().len();
        idle.sort_by_key(|(state, looks, _)| (*state, std::cmp::Reverse(*looks)));
        for (.., seat) in idle.into_iter().take(needed) {
            seat.displace();
            displaced();
        }
    }
}

/// A newcomer that waits for a place.
#[derive(Debug)]
pub(super) struct Queued(oneshot::Receiver<OwnedSemaphorePermit>);

impl Queued {
    /// Waits for a place. None: there was none in time.
    pub(super) async fn wait(self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(WAIT, self.0).await.ok()?.ok()
    }
}

/// Tells that a place is free when dropped, which must be after the place.
#[derive(Debug)]
pub(super) struct Freed(Arc<Notify>);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

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
        let (pinging, _) = begun(&places);
        let (calling, of_calling) = begun(&places);
        let silent = places.seat();
        let (_waits, _calls) = (of_untaken.wait(), of_busy.begin());
        let _large = of_slow.wait();
        let queued: Vec<_> = (0..3).map(|_| places.queue()).collect();
        for look in 0..LOOKS_IDLE {
            // The one pings, and takes no answer; the other one reads a large answer.
            untaken.heard(17);
            untaken.written(17);
            slow.written(usize::try_from(TAKEN_BYTES).unwrap());
            busy.heard(100);
            pinging.heard(17);
            // A short call between any two looks.
            drop(of_calling.begin());
            places.look(&|| {});
            let gone = [&untaken, &silent, &idle, &pinging, &busy, &slow, &calling]
                .map(|seat| is_displaced(seat));
            let (early, late) = (look + 1 >= LOOKS_UNTAKEN, look + 1 >= LOOKS_IDLE);
            assert_eq!(gone, [early, early, late, late, false, false, false], "{look}");
        }
        drop(queued);
    }

    #[test]
    fn nobody_goes_for_nobody() {
        let places = Places::new(1);
        let (idle, _) = begun(&places);
        for _ in 0..100 {
            places.look(&|| {});
        }
        assert!(!is_displaced(&idle));
    }

    #[test]
    fn the_newest_comes_first_and_the_oldest_leaves() {
        let places = Places::new(1);
        let taken = places.take().unwrap();
        let mut queued: Vec<_> = (0..=WAITING_MAX).map(|_| places.queue()).collect();
        assert!(matches!(queued.remove(0).0.try_recv(), Err(TryRecvError::Closed)));
        places.give();
        assert!(queued.iter_mut().all(|one| matches!(one.0.try_recv(), Err(TryRecvError::Empty))));
        drop(taken);
        places.give();
        // The one before it has given up.
        let newest = queued.pop().unwrap().0.try_recv().unwrap();
        drop((queued.pop(), newest));
        places.give();
        assert!(queued.pop().unwrap().0.try_recv().is_ok());
    }
}
