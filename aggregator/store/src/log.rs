//! The public log of what devices are told, as it is stored.

use bandana_shared::identity::UnixSeconds;
use bandana_shared::transparency::{Frontier, Hash};

use super::{StoreError, damaged};

/// An epoch of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEpoch {
    /// Its place, from 0 on.
    pub number: u64,
    /// Its time.
    pub time: UnixSeconds,
    /// The entry of the log.
    pub entry: Hash,
    /// The log with this epoch.
    pub log: Frontier,
    /// What it says, encoded; empty if that is kept no longer.
    pub content: Vec<u8>,
}

/// An epoch to be added to the log.
#[derive(Clone, Debug)]
pub struct EpochToAdd {
    /// The epoch. It is refused unless its number is that of the next one.
    pub epoch: StoredEpoch,
    /// What earlier epochs say is kept no longer.
    pub keep_from: u64,
}

/// The columns of an epoch: number, seconds, entry, roots and content.
pub(super) type EpochColumns = (u64, u64, Vec<u8>, Vec<u8>, Vec<u8>);

impl StoredEpoch {
    pub(super) fn from_columns(
        (number, seconds, entry, roots, content): EpochColumns,
    ) -> Result<Self, StoreError> {
        let wrong = || damaged(format!("the epoch {number} of the log"));
        let (hashes, rest) = roots.as_chunks();
        let log = number.checked_add(1).and_then(|size| Frontier::new(size, hashes.to_vec()));
        Ok(Self {
            number,
            time: UnixSeconds::new(seconds),
            entry: entry.try_into().map_err(|_| wrong())?,
            log: log.filter(|_| rest.is_empty()).ok_or_else(wrong)?,
            content,
        })
    }

    pub(super) fn roots(&self) -> Vec<u8> {
        self.log.roots().concat()
    }
}
