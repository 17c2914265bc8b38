//! The journal tracks which changes of the state are durable, and which are to be written.
//!
//! Every change has a number. A report is handed out only when the number of its last change is
//! durable: its price, its bit and its name are on the disk before it can leave. So no upload
//! leaves that a restart would forget.

#[cfg(feature = "storage")]
use std::time::Duration;

use super::Change;
#[cfg(feature = "storage")]
use super::{Core, State};
#[cfg(feature = "storage")]
use super::{PendingRewards, StoredState};
use crate::assignment::Unreported;
#[cfg(feature = "storage")]
use crate::assignment::random_epoch;
#[cfg(feature = "storage")]
use crate::budget::Budget;
#[cfg(feature = "storage")]
use crate::ledger::Ledger;
#[cfg(feature = "storage")]
use crate::noise::NoiseSource;
#[cfg(feature = "storage")]
use crate::outbox::full_jitter;
#[cfg(feature = "storage")]
use crate::time::Timestamp;

/// Number of changes after which the whole state is written, so that a start reads little.
#[cfg(feature = "storage")]
const CHANGES_PER_STATE: usize = 512;

pub(super) struct Journal {
    /// Number of the last change.
    last: u64,
    /// Whether the client was shut down.
    closed: bool,
    /// Whether the process is a copy of the one that has the client.
    orphaned: bool,
    keeping: Keeping,
}

enum Keeping {
    /// In memory only: every change counts as durable.
    Volatile,
    /// The storage can't be used: no change is ever durable.
    #[cfg_attr(not(feature = "storage"), expect(dead_code, reason = "needs a storage"))]
    Unusable,
    #[cfg(feature = "storage")]
    Stored(Stored),
}

/// The progress of writes to a storage.
#[cfg(feature = "storage")]
struct Stored {
    /// Number of the last change that is durable.
    durable: u64,
    /// Changes not yet handed out in a write.
    pending: Vec<Change>,
    /// Number of changes after which the whole state is written; 0: with each.
    changes_max: usize,
    /// Changes in the storage after its last whole state.
    appended: usize,
    /// Number of the next synced write.
    next_write: u64,
    /// Whether the next write must hold the whole state.
    whole: bool,
    /// The write that is under way: whether it is synced, and the number of its last change.
    under_way: Option<(bool, u64)>,
    failures: u32,
    /// Time before which no write is made.
    not_before: Timestamp,
    /// The client is about to end: a failed write is tried again at once.
    hurries: bool,
    /// Whether sums of rewards are stored.
    keeps_rewards: bool,
    rewards: RewardsFile,
}

/// The state of the file of the sums of rewards. It is written apart from the state, and its
/// failures hold up nothing else: otherwise the uploads and their times would depend on the
/// rewards.
#[cfg(feature = "storage")]
#[derive(Clone, Copy)]
struct RewardsFile {
    changed: bool,
    under_way: bool,
    /// Time before which no write is made.
    not_before: Timestamp,
}

/// A write, carried out as one unit.
#[cfg(feature = "storage")]
#[derive(Debug)]
pub(crate) struct Write {
    /// 1 and up, without gaps, for synced writes; otherwise the number of the last synced one.
    pub(crate) number: u64,
    /// Whether it is to survive a power cut: only what is handed out depends on that. What was only
    /// handed to the operating system survives the end of the process.
    pub(crate) is_synced: bool,
    /// The ledger after the write, written first.
    pub(crate) ledger: Ledger,
    pub(crate) content: Content,
    /// Whether the user has opted out.
    pub(crate) opted_out: bool,
}

#[cfg(feature = "storage")]
#[derive(Debug)]
pub(crate) enum Content {
    /// Changes to append to the stored state.
    Changes(Vec<Change>),
    /// A whole state to replace the stored one.
    Whole(Box<StoredState>),
}

#[cfg(feature = "storage")]
impl Write {
    /// The whole state, encoded; `None`: it can't be.
    pub(crate) fn whole(&self) -> Option<Vec<u8>> {
        match &self.content {
            Content::Whole(state) => bandana_shared::stored::to_bytes(&**state).ok(),
            Content::Changes(_) => None,
        }
    }
}

impl Journal {
    pub(super) fn volatile() -> Self {
        Self { last: 0, closed: false, orphaned: false, keeping: Keeping::Volatile }
    }

    /// Reason why no assignment reports, if none does.
    pub(super) fn why_unreported(&self) -> Option<Unreported> {
        if self.orphaned {
            return Some(Unreported::Forked);
        }
        match (&self.keeping, self.closed) {
            (Keeping::Unusable, _) => Some(Unreported::StorageUnusable),
            (_, true) => Some(Unreported::ShutDown),
            (_, false) => None,
        }
    }

    /// Records that nothing is written from now on.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Records that the process is a copy. Returns whether that is news.
    pub(super) fn orphan(&mut self) -> bool {
        !std::mem::replace(&mut self.orphaned, true)
    }

    /// Whether nothing is written any more because the client was shut down.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// Number of the last change that counts as durable.
    pub(super) fn durable(&self) -> u64 {
        match &self.keeping {
            Keeping::Volatile => u64::MAX,
            Keeping::Unusable => 0,
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => stored.durable,
        }
    }

    /// Records a change that was applied.
    pub(super) fn push(&mut self, change: Change) {
        self.last += 1;
        match &mut self.keeping {
            Keeping::Volatile | Keeping::Unusable => drop(change),
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => stored.pending.push(change),
        }
    }

    /// Makes the next write hold the whole state, after a change that is not a [`Change`].
    pub(super) fn replace(&mut self) {
        self.last += 1;
        match &mut self.keeping {
            Keeping::Volatile | Keeping::Unusable => {}
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => {
                stored.whole = true;
                stored.rewards.changed = true;
            }
        }
    }

    /// Whether sums of rewards are stored.
    pub(super) fn keeps_rewards(&self) -> bool {
        match &self.keeping {
            Keeping::Volatile | Keeping::Unusable => false,
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => stored.keeps_rewards,
        }
    }

    /// Records that a reward was added.
    pub(super) fn note_reward(&mut self) {
        match &mut self.keeping {
            Keeping::Volatile | Keeping::Unusable => {}
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => stored.rewards.changed |= stored.keeps_rewards,
        }
    }
}

/// Longest wait after a failed write, with room for a clock that is set back a little.
#[cfg(feature = "storage")]
const WAIT_MAX: Duration = Duration::from_mins(10);

/// Wait after a failed write of a client that is about to end.
#[cfg(feature = "storage")]
const HURRIED_WAIT: Duration = Duration::from_millis(50);

/// Whether a wait that ends at `end` goes on. One further ahead than any wait was set by a clock that
/// has been set back since, and is over.
#[cfg(feature = "storage")]
fn is_waiting(end: Timestamp, now: Timestamp) -> bool {
    now < end && end <= now.after(WAIT_MAX)
}

#[cfg(feature = "storage")]
impl Journal {
    /// The journal of a client whose state a storage holds, up to the write before `next_write`.
    fn stored(next_write: u64, keeps_rewards: bool, changes_max: usize) -> Self {
        let stored = Stored {
            durable: 0,
            pending: Vec::new(),
            changes_max,
            appended: 0,
            next_write,
            // The whole state replaces a write torn by a crash before anything is appended.
            whole: true,
            under_way: None,
            failures: 0,
            not_before: Timestamp::default(),
            hurries: false,
            keeps_rewards,
            // The first write removes sums that a crash left for assignments that are no longer
            // open.
            rewards: RewardsFile {
                changed: keeps_rewards,
                under_way: false,
                not_before: Timestamp::default(),
            },
        };
        Self {
            last: State::AS_READ,
            closed: false,
            orphaned: false,
            keeping: Keeping::Stored(stored),
        }
    }
}

#[cfg(feature = "storage")]
impl<N: NoiseSource> Core<N> {
    /// A client with the state of a storage.
    pub(crate) fn restored(
        noise: N,
        budget: Budget,
        restored: (State, u64),
        keeps_rewards: bool,
    ) -> Self {
        let (state, next_write) = restored;
        Self::with(
            noise,
            budget,
            state,
            Journal::stored(next_write, keeps_rewards, CHANGES_PER_STATE),
        )
    }

    /// A client with the state that its host has kept, which writes it as a whole each time.
    pub(crate) fn restored_by_host(
        noise: N,
        budget: Budget,
        restored: (State, u64),
        keeps_rewards: bool,
    ) -> Self {
        let (state, next_write) = restored;
        Self::with(noise, budget, state, Journal::stored(next_write, keeps_rewards, 0))
    }

    /// A client whose storage can't be used: it draws arms and never reports.
    pub(crate) fn without_reports(noise: N, budget: Budget) -> Self {
        let keeping = Keeping::Unusable;
        let journal = Journal { last: 0, closed: false, orphaned: false, keeping };
        let mut core = Self::with(noise, budget, State::default(), journal);
        core.begin_epoch(random_epoch());
        core
    }

    /// Goes on with the state of a storage that could not be used before. What servers have told
    /// meanwhile, and an opt-out, stay.
    pub(crate) fn begin_storing(&mut self, restored: (State, u64), keeps_rewards: bool) {
        let (state, next_write) = restored;
        let before = std::mem::replace(&mut self.state, state);
        let closed = self.journal.closed;
        self.journal =
            Journal { closed, ..Journal::stored(next_write, keeps_rewards, CHANGES_PER_STATE) };
        if before.opted_out || self.is_opted_out() {
            let opted_out = before.opted_out || self.state.opted_out;
            self.state.opt_out();
            self.state.opted_out = opted_out;
            return;
        }
        for (experiment_id, held) in before.cached {
            // What is stored is judged by, and is fetched anew.
            if !self.state.cached.contains_key(&experiment_id) {
                self.record(Change::Heard { held, anew: true });
            }
        }
        self.enroll_again();
    }

    /// The next write, if one is due. The caller must pass its result to [`Self::on_written`].
    pub(crate) fn take_write(&mut self, now: Timestamp) -> Option<Write> {
        let last = self.journal.last;
        let Keeping::Stored(stored) = &mut self.journal.keeping else {
            return None;
        };
        if stored.under_way.is_some() || is_waiting(stored.not_before, now) {
            return None;
        }
        let changes = std::mem::take(&mut stored.pending);
        // Whatever the rewards are: the times of writes would tell of them.
        stored.rewards.changed |= stored.keeps_rewards && !changes.is_empty();
        // A bit that a power cut takes back has not left, and another one takes its place.
        let mut is_synced = changes.iter().any(|change| matches!(change, Change::Sealed { .. }));
        let number = stored.next_write;
        let content = if stored.whole || stored.appended + changes.len() > stored.changes_max {
            stored.appended = 0;
            is_synced = true;
            Content::Whole(Box::new(StoredState::new(&self.state, number, N::SIMULATED)))
        } else if !changes.is_empty() {
            stored.appended += changes.len();
            Content::Changes(changes)
        } else {
            return None;
        };
        stored.whole = false;
        stored.under_way = Some((is_synced, last));
        let number = if is_synced { number } else { number - 1 };
        let (ledger, opted_out) = (self.state.ledger.clone(), self.state.opted_out);
        Some(Write { number, is_synced, ledger, content, opted_out })
    }

    /// Records whether a write was carried out. A failed write is followed, after a wait, by the
    /// whole state under the same number. That is safe even if the failed write reached the disk,
    /// since no report was handed out because of it.
    pub(crate) fn on_written(&mut self, written: bool, now: Timestamp) {
        let Keeping::Stored(stored) = &mut self.journal.keeping else {
            return;
        };
        let Some((is_synced, last)) = stored.under_way.take() else {
            return;
        };
        if written {
            if is_synced {
                stored.next_write += 1;
                stored.durable = last;
            }
            stored.failures = 0;
            return;
        }
        self.statistics.writes_failed += 1;
        stored.whole = true;
        // Waits of up to four minutes.
        let wait = full_jitter(stored.failures.min(8), &mut self.noise);
        stored.failures = stored.failures.saturating_add(1);
        let wait = wait.unwrap_or(Duration::from_mins(1));
        let wait = if stored.hurries { wait.min(HURRIED_WAIT) } else { wait };
        stored.not_before = now.after(wait);
    }

    /// The sums of rewards to be written now, if a write is due. The caller must pass its result to
    /// [`Self::on_rewards_written`]. It follows the state: a sum is erased once its bit is written.
    pub(crate) fn take_rewards(&mut self, now: Timestamp) -> Option<PendingRewards> {
        let Keeping::Stored(stored) = &mut self.journal.keeping else {
            return None;
        };
        let first = stored.whole || !stored.pending.is_empty() || stored.under_way.is_some();
        let rewards = &mut stored.rewards;
        if first || !rewards.changed || rewards.under_way || is_waiting(rewards.not_before, now) {
            return None;
        }
        *rewards = RewardsFile { changed: false, under_way: true, ..*rewards };
        Some(if stored.keeps_rewards {
            PendingRewards::of(&self.state)
        } else {
            PendingRewards::none()
        })
    }

    /// Records whether the sums of rewards were written. A failed write is tried again.
    pub(crate) fn on_rewards_written(&mut self, written: bool, now: Timestamp) {
        if let Keeping::Stored(stored) = &mut self.journal.keeping {
            stored.rewards.under_way = false;
            if !written {
                stored.rewards.changed = true;
                stored.rewards.not_before = now.after(Duration::from_mins(1));
                self.statistics.writes_failed += 1;
            }
        }
    }

    /// Has failed writes tried again at once, since the client is about to end.
    pub(crate) fn hurry(&mut self) {
        if let Keeping::Stored(stored) = &mut self.journal.keeping {
            stored.hurries = true;
        }
        self.write_now();
    }

    /// Makes the next write due at once, even after a failure.
    pub(crate) fn write_now(&mut self) {
        if let Keeping::Stored(stored) = &mut self.journal.keeping {
            stored.not_before = Timestamp::default();
            stored.rewards.not_before = Timestamp::default();
        }
    }

    /// The time of the next write, if one is pending.
    pub(crate) fn next_write(&self) -> Option<Timestamp> {
        let Keeping::Stored(stored) = &self.journal.keeping else {
            return None;
        };
        let idle = stored.under_way.is_none() && !stored.rewards.under_way;
        let state = stored.whole || !stored.pending.is_empty();
        let state = state.then_some(stored.not_before);
        let rewards = stored.rewards.changed.then_some(stored.rewards.not_before);
        state.or(rewards).filter(|_| idle)
    }

    /// Whether no write is pending or under way on which an upload can depend. It says nothing about
    /// rewards, whose file is written apart from the state.
    #[cfg(feature = "grpc")]
    pub(crate) fn is_state_written(&self) -> bool {
        let Keeping::Stored(stored) = &self.journal.keeping else {
            return true;
        };
        stored.under_way.is_none() && !stored.whole && stored.pending.is_empty()
    }

    /// Whether no write is pending or under way.
    pub(crate) fn is_written(&self) -> bool {
        let Keeping::Stored(stored) = &self.journal.keeping else {
            return true;
        };
        let rewards = stored.rewards;
        stored.under_way.is_none()
            && !stored.whole
            && stored.pending.is_empty()
            && !rewards.changed
            && !rewards.under_way
    }
}

#[cfg(not(feature = "storage"))]
impl<N> super::Core<N> {
    /// Without a storage there is no write.
    #[expect(clippy::unused_self, reason = "as with a storage")]
    pub(crate) fn next_write(&self) -> Option<crate::time::Timestamp> {
        None
    }

    /// Without a storage nothing is pending.
    #[cfg(feature = "grpc")]
    #[expect(clippy::unused_self, reason = "as with a storage")]
    pub(crate) fn is_state_written(&self) -> bool {
        true
    }

    /// Without a storage nothing is pending.
    #[expect(clippy::unused_self, reason = "as with a storage")]
    pub(crate) fn is_written(&self) -> bool {
        true
    }
}
