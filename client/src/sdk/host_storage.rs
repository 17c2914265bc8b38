//! Storage by the host: the bytes that a start reads, and the writes that the host makes.

use bandana_shared::stored::{self, StoredError};

use super::Tasks;
use crate::assignment::epoch_after;
use crate::core::{PendingRewards, State, StoredState};
use crate::storage::{Restored, StorageError, padded_rewards, unpadded_rewards};

/// The stored bytes of an installation: for each slot, the last bytes that the host wrote.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, Kept, Slot};
///
/// # let start = |kept: Kept| start(Bandana::builder().host_transport().host_storage(kept));
/// // The first start finds nothing.
/// let (bandana, mut tasks, _clock) = start(Kept::default())?;
/// let shown = bandana.experiment("button-colour")?.choose().label_or("blue").to_owned();
/// let mut kept = Kept::default();
/// while let Some(write) = tasks.next_write() {
///     // In one transaction of the host's store, which replaces what the slot had.
///     let bytes = Some(write.bytes().to_vec());
///     match write.slot() {
///         Slot::State => kept.state = bytes,
///         Slot::Rewards => kept.rewards = bytes,
///     }
///     tasks.written(write.number(), true);
/// }
/// drop((bandana, tasks));
///
/// // The next start has the same arm, and knows what was spent.
/// let (bandana, _tasks, _clock) = start(kept)?;
/// assert_eq!(bandana.experiment("button-colour")?.choose().label_or("blue"), shown);
/// assert_eq!(bandana.status().spent.lifetime.get(), 1_000_000_000);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// Without `state`, a start counts as the first one, and nothing counts as spent. So a host that
/// loses `state`, or restores an older one, spends the budget again.
#[derive(Clone, Default)]
pub struct Kept {
    /// The last bytes of [`Slot::State`], or `None` if nothing was ever written.
    pub state: Option<Vec<u8>>,
    /// The last bytes of [`Slot::Rewards`], or `None` or no bytes if there are none.
    pub rewards: Option<Vec<u8>>,
}

/// Prints nothing that is kept: private bits, and sums of rewards.
impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

/// A named slot in a host's store. Each write replaces it as a whole.
///
/// ```
/// use bandana_client::Slot;
///
/// /// The key in the store of a web page.
/// fn key(slot: Slot) -> &'static str {
///     match slot {
///         Slot::State => "bandana-state",
///         Slot::Rewards => "bandana-rewards",
///     }
/// }
/// assert_ne!(key(Slot::State), key(Slot::Rewards));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Everything but the sums of rewards.
    State,
    /// The sums of rewards of open assignments. They are absent if
    /// [`Builder::keep_pending_rewards`](crate::Builder::keep_pending_rewards) was set to `false`.
    Rewards,
}

/// A write for the host to make. [`Self::bytes`] replace what the slot had, as a whole or not at
/// all. See [`Kept`].
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, Kept, Slot};
/// # let builder = Bandana::builder().host_transport().host_storage(Kept::default());
/// # let (bandana, mut tasks, _clock) = start(builder)?;
/// let _shown = bandana.experiment("button-colour")?.choose();
/// let write = tasks.next_write().ok_or("nothing to write")?;
/// assert_eq!((write.slot(), write.bytes().is_empty()), (Slot::State, false));
/// assert!(!format!("{write:?}").contains("bytes"), "private bits are not printed");
/// # tasks.written(write.number(), true);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HostWrite {
    number: u64,
    slot: Slot,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for HostWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("HostWrite");
        shown.field("number", &self.number).field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl HostWrite {
    /// The number by which [`Tasks::written`] knows the write.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The slot to write.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The new content of the slot. It is empty if sums of rewards are to be erased.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The writes that a host has under way: at most one for each slot.
#[derive(Debug, Default)]
pub(super) struct HostWrites {
    last: u64,
    state: Option<u64>,
    rewards: Option<u64>,
    /// Size of the sums of rewards so far, which does not shrink while there are any.
    rewards_size: usize,
}

/// Reads what a host has kept.
///
/// # Errors
/// [`StorageError::Damaged`] and [`StorageError::Version`] when it can't be used.
pub(super) fn restore(kept: &Kept, keeps_rewards: bool) -> Result<Restored, StorageError> {
    let Some(bytes) = &kept.state else {
        let state = State { last_assignment: epoch_after(0), ..State::default() };
        return Ok((state, 1));
    };
    let stored = stored::from_bytes::<StoredState>(bytes).map_err(|error| match error {
        StoredError::Newer { found, known } | StoredError::Outdated { found, known } => {
            StorageError::Version { file: "state", found, known }
        }
        _ => StorageError::Damaged { file: "state" },
    })?;
    let damaged = StorageError::Damaged { file: "state" };
    let (mut state, number) = stored.into_state(false).ok_or(damaged)?;
    state.last_assignment = epoch_after(state.last_assignment);
    // Damaged rewards are lost, as in a restart without them.
    let rewards = kept.rewards.as_deref().filter(|_| keeps_rewards);
    if let Some(rewards) = rewards.and_then(unpadded_rewards) {
        rewards.restore(&mut state);
    }
    Ok((state, number + 1))
}

impl Tasks {
    /// Returns the next write, for a host that keeps the storage
    /// ([`crate::Builder::host_storage`]). A report waits until everything that it depends on is
    /// written. So ask whenever there may be work, before and after each task, and after a reward.
    /// Until a reward is written, it is lost if the process ends. At most one write is under way
    /// for each slot.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Kept};
    /// # let builder = Bandana::builder().host_transport().host_storage(Kept::default());
    /// # let (bandana, mut tasks, _clock) = start(builder)?;
    /// let _shown = bandana.experiment("button-colour")?.choose();
    /// let write = tasks.next_write().ok_or("nothing to write")?;
    /// // It is under way.
    /// assert_eq!(tasks.next_write(), None);
    /// tasks.written(write.number(), true);
    /// while let Some(write) = tasks.next_write() {
    ///     tasks.written(write.number(), true);
    /// }
    /// assert!(tasks.is_written());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Asking sends nothing. So, unlike a request for a task, it may follow a reward.
    pub fn next_write(&mut self) -> Option<HostWrite> {
        if self.shared.is_forked() || !self.shared.is_stored_by_host() {
            return None;
        }
        let now = self.shared.now();
        let write = self.shared.core().take_write(now);
        if let Some(write) = write {
            let Some(bytes) = write.whole() else {
                self.shared.core().on_written(false, now);
                return None;
            };
            self.writes.last += 1;
            self.writes.state = Some(self.writes.last);
            return Some(HostWrite { number: self.writes.last, slot: Slot::State, bytes });
        }
        let rewards: PendingRewards = self.shared.core().take_rewards(now)?;
        let bytes = if rewards.is_empty() {
            self.writes.rewards_size = 0;
            Vec::new()
        } else {
            padded_rewards(&rewards, self.writes.rewards_size).unwrap_or_default()
        };
        self.writes.rewards_size = bytes.len();
        self.writes.last += 1;
        self.writes.rewards = Some(self.writes.last);
        Some(HostWrite { number: self.writes.last, slot: Slot::Rewards, bytes })
    }

    /// Records the result of a write. `is_durable` says whether it would survive a power cut. A
    /// failed write is made again, with all later changes. A `number` other than that of the last
    /// write of its slot is ignored.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Bandana, Kept, Slot};
    /// # let builder = Bandana::builder().host_transport().host_storage(Kept::default());
    /// # let (bandana, mut tasks, _clock) = start(builder)?;
    /// let _shown = bandana.experiment("button-colour")?.choose();
    /// let write = tasks.next_write().ok_or("nothing to write")?;
    /// // The store is full.
    /// tasks.written(write.number(), false);
    /// assert!(!tasks.is_written());
    /// assert_eq!(bandana.status().statistics.writes_failed, 1);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn written(&mut self, number: u64, is_durable: bool) {
        let now = self.shared.now();
        if self.writes.state == Some(number) {
            self.writes.state = None;
            self.shared.core().on_written(is_durable, now);
            self.shared.host_wrote(is_durable);
            self.shared.wake_network();
        } else if self.writes.rewards == Some(number) {
            self.writes.rewards = None;
            self.shared.core().on_rewards_written(is_durable, now);
        }
    }

    /// Whether all writes are done: none waits, and none is under way.
    pub fn is_written(&self) -> bool {
        self.shared.is_written()
    }
}
