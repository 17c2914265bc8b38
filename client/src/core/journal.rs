//! The journal knows which changes of the state are durable, and which are to be written.
//!
//! Every change has a number. A report is handed out only when the number of its last
//! change is durable, so that no upload leaves that a restart would not know of: its
//! price, its bit and its name are on the disk before.

#[cfg(feature = "storage")]
use std::time::Duration;

use super::Change;
#[cfg(feature = "storage")]
use super::{Core, State};
#[cfg(feature = "storage")]
use super::{PendingRewards, StoredState};
use crate::assignment::Unreported;
#[cfg(feature = "storage")]
use crate::ledger::{Budget, Ledger};
#[cfg(feature = "storage")]
use crate::noise::NoiseSource;
#[cfg(feature = "storage")]
use crate::outbox::full_jitter;
#[cfg(feature = "storage")]
use crate::time::Timestamp;

/// Changes after which the state is written as a whole, so that a start reads little.
#[cfg(feature = "storage")]
const CHANGES_PER_STATE: usize = 512;

pub(super) struct Journal {
    /// Number of the last change.
    last: u64,
    /// The client was shut down.
    closed: bool,
    keeping: Keeping,
}

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
    /// Whether sums of rewards are to be kept, and what is to be done about their file.
    keeps_rewards: bool,
    rewards: RewardsFile,
}

/// The file of the sums of rewards. It is written apart from the state, and whatever
/// becomes of it holds nothing else up: or else what is sent, and when, would depend on
/// the rewards.
#[cfg(feature = "storage")]
#[derive(Clone, Copy)]
struct RewardsFile {
    changed: bool,
    under_way: bool,
    /// No write before this time.
    not_before: Timestamp,
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
    /// Whether the user has withdrawn.
    pub(crate) opted_out: bool,
}

#[cfg(feature = "storage")]
#[derive(Debug)]
pub(crate) enum Content {
    /// To be appended to what is there.
    Changes(Vec<Change>),
    /// To replace what is there.
    Whole(Box<StoredState>),
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
                stored.rewards.changed = true;
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
            Keeping::Stored(stored) => stored.rewards.changed |= stored.keeps_rewards,
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
            // What a crash left of assignments that are no longer open is removed.
            rewards: RewardsFile {
                changed: keeps_rewards,
                under_way: false,
                not_before: Timestamp::default(),
            },
        };
        Self { last: State::AS_READ, closed: false, keeping: Keeping::Stored(stored) }
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
        stored.rewards.changed |=
            stored.keeps_rewards && changes.iter().any(|c| matches!(c, Change::Privatized { .. }));
        let number = stored.next_write;
        let content = if stored.whole || stored.appended + changes.len() > CHANGES_PER_STATE {
            stored.appended = 0;
            Content::Whole(Box::new(StoredState::new(&self.state, number, N::SIMULATED)))
        } else if !changes.is_empty() {
            stored.appended += changes.len();
            Content::Changes(changes)
        } else {
            return None;
        };
        stored.whole = false;
        stored.under_way = Some((number, last));
        let opted_out = self.state.opted_out;
        Some(Write { number, ledger: self.state.ledger.clone(), content, opted_out })
    }

    /// Notes whether a write was carried out. One that was not is followed, after a
    /// wait, by the whole state under the same number: whatever became of it, nothing
    /// was handed out on its account.
    pub(crate) fn on_written(&mut self, written: bool, now: Timestamp) {
        let Keeping::Stored(stored) = &mut self.journal.keeping else {
            return;
        };
        let Some((number, last)) = stored.under_way.take() else {
            return;
        };
        if written {
            stored.next_write = number + 1;
            stored.durable = last;
            stored.failures = 0;
            return;
        }
        self.statistics.writes_failed += 1;
        stored.whole = true;
        // Waits of up to four minutes.
        let wait = full_jitter(stored.failures.min(8), &mut self.noise);
        stored.failures = stored.failures.saturating_add(1);
        stored.not_before = now.after(wait.unwrap_or(Duration::from_mins(1)));
    }

    /// The sums of rewards that are to be kept now, if that is to be written. Its result
    /// must be told. It comes after the state: a sum is removed once its bit is durable.
    pub(crate) fn take_rewards(&mut self, now: Timestamp) -> Option<PendingRewards> {
        let Keeping::Stored(stored) = &mut self.journal.keeping else {
            return None;
        };
        let first = stored.whole || !stored.pending.is_empty() || stored.under_way.is_some();
        let rewards = &mut stored.rewards;
        if first || !rewards.changed || rewards.under_way || now < rewards.not_before {
            return None;
        }
        *rewards = RewardsFile { changed: false, under_way: true, ..*rewards };
        Some(if stored.keeps_rewards {
            PendingRewards::of(&self.state)
        } else {
            PendingRewards::none()
        })
    }

    /// Notes whether the sums of rewards were written. If not, that is tried again.
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

    /// Has the next write made at once, whatever became of the last one.
    pub(crate) fn write_now(&mut self) {
        if let Keeping::Stored(stored) = &mut self.journal.keeping {
            stored.not_before = Timestamp::default();
            stored.rewards.not_before = Timestamp::default();
        }
    }

    /// The time of the next write, if there is something to be written.
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

    /// Whether nothing is to be written, nor under way.
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
    /// There is no storage to write to.
    #[expect(clippy::unused_self, reason = "as with a storage")]
    pub(crate) fn next_write(&self) -> Option<crate::time::Timestamp> {
        None
    }

    /// Nothing is ever written.
    #[expect(clippy::unused_self, reason = "as with a storage")]
    pub(crate) fn is_written(&self) -> bool {
        true
    }
}
