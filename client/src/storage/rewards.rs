//! The file of the sums of rewards, which is written over in place.
//!
//! Nothing that leaves depends on it, and no write waits for the disk: a write takes the same steps
//! whatever the rewards are, and an assignment needs no sync for them. What the process has written
//! survives its end. A power cut may lose it, and may bring back what was erased in the seconds
//! before. The next start ignores sums of assignments that are no longer open, and its first write
//! erases them durably.

use bandana_shared::stored::{self, StoredError};

use super::{REWARDS, REWARDS_NEW, Storage, StorageError, failed, frame, split_frame};
use crate::core::{PendingRewards, State};

/// Size of a block of the file in bytes.
const BLOCK: usize = 1024;

/// What is known of the file.
#[derive(Debug, Default)]
pub(super) struct RewardsFile {
    /// Bytes from its beginning that may hold sums, all after them being zero; `None`: there is no
    /// file.
    filled: Option<usize>,
    /// Whether the next write is synced, since the file may hold what a power cut has brought back.
    syncs: bool,
}

impl Storage {
    /// Restores the sums that were kept, or removes them where the app keeps none.
    pub(super) fn open_rewards(
        &mut self,
        state: &mut State,
        keeps_rewards: bool,
    ) -> Result<(), StorageError> {
        let rewards = self.read_file(REWARDS)?;
        // Damaged rewards are lost, as in a restart without the file.
        let readable = rewards.as_deref().filter(|_| keeps_rewards).and_then(unpadded_rewards);
        if let Some(rewards) = readable {
            rewards.restore(state);
        }
        let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let filled = rewards.map(|bytes| if is_blank(&bytes) { 0 } else { bytes.len() });
        self.rewards = RewardsFile { filled, syncs: filled.is_some_and(|filled| filled > 0) };
        if filled.is_some() && !keeps_rewards {
            self.remove_rewards()
        } else if self.read_file(REWARDS_NEW)?.is_some() {
            self.remove(&[REWARDS_NEW])
        } else {
            Ok(())
        }
    }

    /// Stores the sums of open assignments, and erases all others.
    pub(crate) fn keep_rewards(&mut self, rewards: &PendingRewards) -> Result<(), StorageError> {
        let filled = self.rewards.filled.unwrap_or_default();
        let (bytes, table) = if !rewards.is_empty() {
            let bytes = padded_rewards(rewards, filled)?;
            let table = padded_rewards(rewards, 0)?.len();
            (bytes, table)
        } else if self.opted_out && self.rewards.filled.is_some() {
            return self.remove_rewards();
        } else if filled > 0 {
            (vec![0; filled], 0)
        } else {
            return Ok(());
        };
        // Also if the write is done in part: what is written of old sums is written over.
        self.rewards.filled = Some(bytes.len());
        let written = self.files.write_at(REWARDS, 0, &bytes);
        let written = written
            .and_then(|()| if self.rewards.syncs { self.files.sync(REWARDS) } else { Ok(()) });
        written.map_err(|source| failed("writing", REWARDS, source))?;
        self.rewards = RewardsFile { filled: Some(table), syncs: false };
        Ok(())
    }

    /// Removes the sums, and a half-written file of an older version.
    fn remove_rewards(&mut self) -> Result<(), StorageError> {
        self.remove(&[REWARDS_NEW, REWARDS])?;
        self.rewards = RewardsFile::default();
        Ok(())
    }

    fn remove(&mut self, names: &[&str]) -> Result<(), StorageError> {
        names
            .iter()
            .try_for_each(|name| self.files.remove(name))
            .and_then(|()| self.files.sync_directory())
            .map_err(|source| failed("removing", REWARDS, source))
    }
}

/// Sums of rewards in whole blocks, at least `size` bytes: how many there are is all that shows.
pub(crate) fn padded_rewards(
    rewards: &PendingRewards,
    size: usize,
) -> Result<Vec<u8>, StoredError> {
    let mut bytes = frame(rewards)?;
    bytes.resize(bytes.len().next_multiple_of(BLOCK).max(size), 0);
    Ok(bytes)
}

/// Reads what [`padded_rewards`] made; `None` when it is damaged, or erased.
pub(crate) fn unpadded_rewards(bytes: &[u8]) -> Option<PendingRewards> {
    // Older versions replaced the file as a whole.
    let framed = split_frame(bytes).map_or(bytes, |(frame, _)| frame);
    stored::from_bytes(framed).ok()
}
