//! Which changes of the state are durable, and which are to be written.
//!
//! Every change has a number. A report is handed out only when the number of its last
//! change is durable, so that no upload leaves that a restart would not know of: its
//! price, its bit and its name are on the disk before.

#[cfg(feature = "storage")]
use std::time::Duration;

use super::Change;
#[cfg(feature = "storage")]
use super::{Core, State};
use crate::assignment::Unreported;
#[cfg(feature = "storage")]
use crate::ledger::{Budget, Ledger};
#[cfg(feature = "storage")]
use crate::noise::NoiseSource;
#[cfg(feature = "storage")]
use crate::outbox::full_jitter;
#[cfg(feature = "storage")]
use crate::storage::{PendingRewards, StoredState};
#[cfg(feature = "storage")]
use crate::time::Timestamp;

/// Changes after which the state is written as a whole, so that a start reads little.
#[cfg(feature = "storage")]
const CHANGES_PER_STATE: usize = 512;

#[derive(Debug)]
pub(super) struct Journal {
    /// Number of the last change.
    last: u64,
    /// The client was shut down.
    closed: bool,
    keeping: Keeping,
}

#[derive(Debug)]
enum Keeping {
    /// In memory only: every change is as durable as it will ever be.
    Volatile,
    /// There is a storage that can't be used: nothing is ever durable.
    #[cfg_attr(not(feature = "storage"), expect(dead_code, reason = "needs a storage"))]
    Unusable,
    #[cfg(feature = "storage")]
    Stored(Stored),
}

/// What a storage knows and is to be told.
#[cfg(feature = "storage")]
#[derive(Debug)]
struct Stored {
    /// Number of the last change that is durable.
    durable: u64,
    /// Changes since the last write was made.
    pending: Vec<Change>,
    /// Changes in the storage that come after its last whole state.
    appended: usize,
    /// Number of the next write.
    next_write: u64,
    /// Whether the next write must hold the whole state.
    whole: bool,
    /// The write that is under way, by its number, with its last change.
    under_way: Option<(u64, u64)>,
    failures: u32,
    /// No write before this time.
    not_before: Timestamp,
    /// Whether sums of rewards are to be kept, and whether they have changed.
    keeps_rewards: bool,
    rewards_changed: bool,
}

/// What is to be written, as one unit.
#[cfg(feature = "storage")]
#[derive(Debug)]
pub(crate) struct Write {
    /// 1 and up, without gaps.
    pub(crate) number: u64,
    /// The ledger after it, written first.
    pub(crate) ledger: Ledger,
    pub(crate) content: Content,
    /// Sums of open assignments, if the app keeps them and they have changed.
    pub(crate) rewards: Option<PendingRewards>,
}

#[cfg(feature = "storage")]
#[derive(Debug)]
pub(crate) enum Content {
    /// To be appended to what is there.
    Changes(Vec<Change>),
    /// To replace what is there.
    Whole(Box<StoredState>),
    /// Nothing has changed but the sums of rewards.
    Nothing,
}

impl Journal {
    pub(super) fn volatile() -> Self {
        Self { last: 0, closed: false, keeping: Keeping::Volatile }
    }

    /// Why no assignment reports, if none does.
    pub(super) fn why_unreported(&self) -> Option<Unreported> {
        match (&self.keeping, self.closed) {
            (Keeping::Unusable, _) => Some(Unreported::StorageUnusable),
            (_, true) => Some(Unreported::ShutDown),
            (_, false) => None,
        }
    }

    /// Notes that nothing is written from now on.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// Number of the last change that is as durable as it will ever be.
    pub(super) fn durable(&self) -> u64 {
        match &self.keeping {
            Keeping::Volatile => u64::MAX,
            Keeping::Unusable => 0,
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => stored.durable,
        }
    }

    /// Notes a change that was applied.
    pub(super) fn push(&mut self, change: Change) {
        self.last += 1;
        match &mut self.keeping {
            Keeping::Volatile | Keeping::Unusable => drop(change),
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => stored.pending.push(change),
        }
    }

    /// Has the whole state written next, after a change that is no [`Change`].
    pub(super) fn replace(&mut self) {
        self.last += 1;
        match &mut self.keeping {
            Keeping::Volatile | Keeping::Unusable => {}
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => {
                stored.whole = true;
                stored.rewards_changed = stored.keeps_rewards;
            }
        }
    }

    /// Whether sums of rewards are kept in a storage.
    pub(super) fn keeps_rewards(&self) -> bool {
        match &self.keeping {
            Keeping::Volatile | Keeping::Unusable => false,
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => stored.keeps_rewards,
        }
    }

    /// Notes that a reward was added.
    pub(super) fn note_reward(&mut self) {
        match &mut self.keeping {
            Keeping::Volatile | Keeping::Unusable => {}
            #[cfg(feature = "storage")]
            Keeping::Stored(stored) => stored.rewards_changed |= stored.keeps_rewards,
        }
    }
}

#[cfg(feature = "storage")]
impl Journal {
    /// The journal of a client whose state a storage holds, up to the write before
    /// `next_write`.
    fn stored(next_write: u64, keeps_rewards: bool) -> Self {
        let stored = Stored {
            durable: 0,
            pending: Vec::new(),
            appended: 0,
            next_write,
            // What was torn by a crash is replaced before anything is appended.
            whole: true,
            under_way: None,
            failures: 0,
            not_before: Timestamp::default(),
            keeps_rewards,
            rewards_changed: false,
        };
        Self { last: 0, closed: false, keeping: Keeping::Stored(stored) }
    }
}

#[cfg(feature = "storage")]
impl<N: NoiseSource> Core<N> {
    /// A client with the state that a storage holds.
    pub(crate) fn restored(
        noise: N,
        budget: Budget,
        restored: (State, u64),
        keeps_rewards: bool,
    ) -> Self {
        let (state, next_write) = restored;
        Self::with(noise, budget, state, Journal::stored(next_write, keeps_rewards))
    }

    /// A client whose storage can't be used: it gives arms and never reports.
    pub(crate) fn without_reports(noise: N, budget: Budget) -> Self {
        let journal = Journal { last: 0, closed: false, keeping: Keeping::Unusable };
        Self::with(noise, budget, State::default(), journal)
    }

    /// What is to be written now, if anything. Its result must be told.
    pub(crate) fn take_write(&mut self, now: Timestamp) -> Option<Write> {
        let last = self.journal.last;
        let Keeping::Stored(stored) = &mut self.journal.keeping else {
            return None;
        };
        if stored.under_way.is_some() || now < stored.not_before {
            return None;
        }
        let changes = std::mem::take(&mut stored.pending);
        stored.rewards_changed |=
            stored.keeps_rewards && changes.iter().any(|c| matches!(c, Change::Privatized { .. }));
        let rewards = stored.rewards_changed.then(|| PendingRewards::of(&self.state));
        stored.rewards_changed = false;
        let number = stored.next_write;
        let content = if stored.whole || stored.appended + changes.len() > CHANGES_PER_STATE {
            stored.appended = 0;
            Content::Whole(Box::new(StoredState::new(&self.state, number, N::SIMULATED)))
        } else if !changes.is_empty() {
            stored.appended += changes.len();
            Content::Changes(changes)
        } else if rewards.is_some() {
            Content::Nothing
        } else {
            return None;
        };
        stored.whole = false;
        stored.under_way = Some((number, last));
        Some(Write { number, ledger: self.state.ledger.clone(), content, rewards })
    }

    /// Notes whether a write was carried out. One that was not is followed, after a
    /// wait, by the whole state under the same number: whatever became of it, nothing
    /// was handed out on its account.
    pub(crate) fn on_written(&mut self, write: &Write, written: bool, now: Timestamp) {
        let Keeping::Stored(stored) = &mut self.journal.keeping else {
            return;
        };
        let Some((number, last)) = stored.under_way.take() else {
            return;
        };
        if written {
            if !matches!(write.content, Content::Nothing) {
                stored.next_write = number + 1;
                stored.durable = last;
            }
            stored.failures = 0;
            return;
        }
        self.statistics.writes_failed += 1;
        stored.whole = true;
        stored.rewards_changed = stored.keeps_rewards;
        // Waits of up to four minutes.
        let wait = full_jitter(stored.failures.min(8), &mut self.noise);
        stored.failures = stored.failures.saturating_add(1);
        stored.not_before = now.after(wait.unwrap_or(Duration::from_mins(1)));
    }

    /// Has the next write made at once, whatever became of the last one.
    pub(crate) fn write_now(&mut self) {
        if let Keeping::Stored(stored) = &mut self.journal.keeping {
            stored.not_before = Timestamp::default();
        }
    }

    /// The time of the next write, if there is something to be written.
    #[cfg(feature = "grpc")]
    pub(crate) fn next_write(&self) -> Option<Timestamp> {
        let Keeping::Stored(stored) = &self.journal.keeping else {
            return None;
        };
        let idle = stored.under_way.is_none();
        let something = stored.whole || !stored.pending.is_empty() || stored.rewards_changed;
        (idle && something).then_some(stored.not_before)
    }

    /// Whether nothing is to be written, nor under way.
    #[cfg(feature = "grpc")]
    pub(crate) fn is_written(&self) -> bool {
        let Keeping::Stored(stored) = &self.journal.keeping else {
            return true;
        };
        stored.under_way.is_none() && self.next_write().is_none()
    }
}
