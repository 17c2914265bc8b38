//! The client's files: the ledger, open assignments, and reports to be sent.
//!
//! A directory holds
//! - `ledger`: two slots of 1 KiB that are written in turn, each with the number of a write and the
//!   budget spent up to that write; after them the number of the last completed write;
//! - `state`: the whole state after some write, and the changes since;
//! - `rewards`: sums of rewards, unless the app keeps none, and zeros in place of erased ones;
//! - `starts`: the number of starts, from which ids of assignments begin;
//! - `lock`; `installed`, which distinguishes a loss from a first start; and `opted-out`, which a
//!   reset keeps, as it does `starts`.
//!
//! A write before something is handed out has a number, and goes to the ledger first, then to the
//! state, each made durable. So after a crash both have the same number, or the ledger is one ahead
//! and budget was wasted. All other changes are appended to the state under the number of the last
//! such write and left to the operating system: a power cut may lose them, and with them
//! assignments of which nothing was handed out. A larger difference, or a state behind a completed
//! write, means that a file was truncated, exchanged or rolled back. The files are then not used,
//! and the client reports nothing until the app resets the directory.
//!
//! Disclosures of trusted experiments have a separate directory and file.

#[cfg(test)]
mod crash_tests;
mod directory;
#[cfg(test)]
mod double;
mod error;
#[cfg(test)]
mod golden_tests;
#[cfg(any(feature = "trusted", feature = "fuzzing"))]
mod memory;
mod rewards;
#[cfg(test)]
mod round_trip_tests;
#[cfg(test)]
mod samples;

use std::io;

use bandana_shared::stored::{self, StoredError};

use crate::assignment::{FIRST_EPOCH, first_epoch, random_epoch};
use crate::core::{Content, State, Write};
use crate::core::{StoredChanges, StoredDone, StoredLedger, StoredStarts, StoredState};
use crate::ledger::Ledger;
pub(crate) use directory::Directory;
#[cfg(all(test, feature = "trusted"))]
pub(crate) use double::{Disk, Fault};
pub use error::StorageError;
#[cfg(any(feature = "trusted", feature = "fuzzing"))]
pub(crate) use memory::MemoryFiles;
use rewards::RewardsFile;
pub(crate) use rewards::{padded_rewards, unpadded_rewards};

pub(crate) const LEDGER: &str = "ledger";
pub(crate) const STATE: &str = "state";
const STATE_NEW: &str = "state.new";
pub(crate) const REWARDS: &str = "rewards";
const REWARDS_NEW: &str = "rewards.new";
const STARTS: &str = "starts";
const STARTS_NEW: &str = "starts.new";
const INSTALLED: &str = "installed";
pub(crate) const OPTED_OUT: &str = "opted-out";

/// Every file that a reset removes. `installed`, which reveals a loss, is the last. An opt-out
/// stays.
const ALL: [&str; 6] = [STATE_NEW, STATE, REWARDS_NEW, REWARDS, LEDGER, INSTALLED];

/// Size of a slot of the ledger in bytes: enough for a record with a month of days.
const SLOT: usize = 1024;

/// The files of one directory. Written data is durable only after a sync of the file; a rename or a
/// removal only after a sync of the directory.
pub(crate) trait Files: Send + std::fmt::Debug {
    /// The whole content of a file; `None`: the file does not exist.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Checks that nobody else can have locked the directory, and that open files are still in it.
    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Writes at an offset, creating the file if need be.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Appends to a file.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Replaces the content of a file.
    fn create(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Makes the content of a file durable.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Renames a file over another.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file, if it exists.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&mut self) -> io::Result<()>;
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Storage {
    files: Box<dyn Files>,
    /// Whether `installed` exists, which distinguishes a loss from a first start.
    installed: bool,
    /// Whether `opted-out` exists.
    opted_out: bool,
    rewards: RewardsFile,
    /// The files that this start has read and not yet synced.
    unsettled: Vec<&'static str>,
}

/// The state that was read, and the number of the next write.
pub(crate) type Restored = (State, u64);

impl Storage {
    /// Reads all files.
    pub(crate) fn open(
        files: Box<dyn Files>,
        simulated: bool,
        keeps_rewards: bool,
    ) -> Result<(Self, Restored), StorageError> {
        let rewards = RewardsFile::default();
        let (installed, opted_out, unsettled) = (false, false, Vec::new());
        let mut storage = Self { files, installed, opted_out, rewards, unsettled };
        storage.installed = storage.read_file(INSTALLED)?.is_some();
        storage.opted_out = storage.read_file(OPTED_OUT)?.is_some();
        let (mut state, next_write) = storage.read(simulated)?;
        if storage.opted_out && !state.opted_out {
            // The process ended between the marker and the deletion.
            state.opt_out();
        }
        state.last_assignment = storage.begin_epoch(state.last_assignment)?;
        storage.open_rewards(&mut state, keeps_rewards)?;
        Ok((storage, (state, next_write)))
    }

    /// Makes a new epoch durable, so that no id of an assignment comes again, not even one that was
    /// given and not stored. Returns the number before its first id.
    ///
    /// If that can't be written, the epoch is a random one beyond all others.
    fn begin_epoch(&mut self, last_assignment: u64) -> Result<u64, StorageError> {
        let stored = self.read_file(STARTS)?;
        let stored = stored.and_then(|bytes| stored::from_bytes::<StoredStarts>(&bytes).ok());
        let last = (last_assignment >> 32).max(stored.map_or(0, |starts| starts.0));
        let next = if last < FIRST_EPOCH { first_epoch() } else { last.saturating_add(1) };
        let next = next.min(u64::from(u32::MAX));
        let bytes = stored::to_bytes(&StoredStarts(next))?;
        let written = replace(&mut *self.files, STARTS_NEW, STARTS, &bytes);
        let epoch = match written {
            Ok(()) => next,
            Err(_) => next.max(random_epoch()),
        };
        Ok((epoch << 32).max(last_assignment))
    }

    fn read_file(&self, name: &'static str) -> Result<Option<Vec<u8>>, StorageError> {
        self.files.read(name).map_err(|source| failed("reading", name, source))
    }

    fn read(&mut self, simulated: bool) -> Result<Restored, StorageError> {
        let (ledger, state) = (self.read_file(LEDGER)?, self.read_file(STATE)?);
        let found = [(LEDGER, ledger.is_some()), (STATE, state.is_some())];
        self.unsettled =
            found.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
        let is_there = ledger.is_some();
        let (ledger, done) = read_ledger(&ledger.unwrap_or_default())?;
        match (ledger, state) {
            (None, None) if !self.installed => Ok((State::default(), 1)),
            // The very first write was interrupted between ledger and state.
            (Some((1, ledger)), None) if !self.installed => {
                Ok((State { ledger, ..State::default() }, 1))
            }
            (Some((number, ledger)), Some(state)) => {
                let (mut state, last) = read_state(&state, simulated, (number, &ledger))?;
                if last < done {
                    return Err(damaged(STATE));
                }
                match number.checked_sub(last) {
                    Some(0) => {}
                    // It includes what the state lacks. One that has less is of a client that did
                    // not know the state.
                    Some(1) if !ledger.lifetime().covers(state.ledger.lifetime()) => {
                        return Err(damaged(LEDGER));
                    }
                    Some(1) => state.ledger = ledger,
                    // The slot of that write is to be written again, not the only valid slot.
                    None if last - number == 1 => return Ok((state, last)),
                    Some(_) => return Err(damaged(STATE)),
                    None => return Err(damaged(LEDGER)),
                }
                Ok((state, last + 1))
            }
            (None, _) if is_there => Err(damaged(LEDGER)),
            (None, _) => Err(StorageError::Missing { file: LEDGER }),
            (Some(_), None) => Err(StorageError::Missing { file: STATE }),
        }
    }

    /// Makes a write durable. A failed write may be partly done.
    pub(crate) fn commit(&mut self, write: &Write) -> Result<(), StorageError> {
        if write.opted_out && !self.opted_out {
            self.mark(OPTED_OUT)?;
            self.opted_out = true;
        }
        self.files.check().map_err(|source| failed("keeping", "lock", source))?;
        if !write.is_synced {
            let Content::Changes(changes) = &write.content else { return Ok(()) };
            let frame = frame(&StoredChanges::new(write.number, changes))?;
            let written = self.files.append(STATE, &frame);
            return written.map_err(|source| failed("writing", STATE, source));
        }
        self.settle()?;
        self.write_ledger(write)?;
        let written = match &write.content {
            Content::Changes(changes) => {
                let frame = frame(&StoredChanges::new(write.number, changes))?;
                self.files.append(STATE, &frame).and_then(|()| self.files.sync(STATE))
            }
            Content::Whole(state) => replace(&mut *self.files, STATE_NEW, STATE, &frame(&**state)?),
        };
        written.map_err(|source| failed("writing", STATE, source))?;
        // Not synced, and a failure is ignored: if the number is lost, fewer rollbacks are
        // detected.
        let done = frame(&StoredDone(write.number))?;
        self.files.write_at(LEDGER, 2 * SLOT as u64, &done).ok();
        if !self.installed {
            self.mark(INSTALLED)?;
            self.installed = true;
        }
        if self.opted_out && !write.opted_out {
            let removed = self.files.remove(OPTED_OUT);
            let removed = removed.and_then(|()| self.files.sync_directory());
            removed.map_err(|source| failed("removing", OPTED_OUT, source))?;
            self.opted_out = false;
        }
        Ok(())
    }

    /// Syncs what this start has read, before its first synced write. A killed process may have left
    /// some of it to the operating system. If a power cut took that back after the ledger was written,
    /// the ledger would be two ahead.
    fn settle(&mut self) -> Result<(), StorageError> {
        if self.unsettled.is_empty() {
            return Ok(());
        }
        for name in &self.unsettled {
            self.files.sync(name).map_err(|source| failed("writing", name, source))?;
        }
        let synced = self.files.sync_directory();
        synced.map_err(|source| failed("writing", STATE, source))?;
        self.unsettled.clear();
        Ok(())
    }

    /// Creates an empty file, whose existence is its meaning.
    fn mark(&mut self, name: &'static str) -> Result<(), StorageError> {
        let marked = self
            .files
            .create(name, b"")
            .and_then(|()| self.files.sync(name))
            .and_then(|()| self.files.sync_directory());
        marked.map_err(|source| failed("writing", name, source))
    }

    fn write_ledger(&mut self, write: &Write) -> Result<(), StorageError> {
        let mut slot = frame(&StoredLedger::new(write.number, &write.ledger))?;
        debug_assert!(slot.len() <= SLOT, "a ledger record that does not fit its slot");
        slot.resize(SLOT, 0);
        let offset = write.number % 2 * SLOT as u64;
        let written = self
            .files
            .write_at(LEDGER, offset, &slot)
            .and_then(|()| self.files.sync(LEDGER))
            // The first write creates the file.
            .and_then(|()| if write.number == 1 { self.files.sync_directory() } else { Ok(()) });
        written.map_err(|source| failed("writing", LEDGER, source))
    }

    /// Erases everything, including the spent budget, except an opt-out.
    pub(crate) fn reset(files: &mut dyn Files) -> Result<(), StorageError> {
        for name in ALL {
            let removed = files.remove(name).and_then(|()| files.sync_directory());
            removed.map_err(|source| failed("removing", name, source))?;
        }
        Ok(())
    }
}

/// Replaces a file as a whole, by writing and renaming another file.
pub(crate) fn replace(
    files: &mut dyn Files,
    new: &str,
    name: &str,
    bytes: &[u8],
) -> io::Result<()> {
    files.create(new, bytes)?;
    files.sync(new)?;
    files.rename(new, name)?;
    files.sync_directory()
}

pub(crate) fn failed(doing: &'static str, file: &'static str, source: io::Error) -> StorageError {
    StorageError::Io { doing, file, source }
}

fn damaged(file: &'static str) -> StorageError {
    StorageError::Damaged { file }
}

/// Encodes a value with a length prefix.
fn frame<T: stored::Stored>(value: &T) -> Result<Vec<u8>, StoredError> {
    let bytes = stored::to_bytes(value)?;
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&bytes);
    Ok(frame)
}

/// Splits off the first frame; `None` when it is cut off.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// Decodes a value; `None` when it is damaged.
fn read_frame<T: stored::Stored>(
    bytes: &[u8],
    file: &'static str,
) -> Result<Option<T>, StorageError> {
    match stored::from_bytes(bytes) {
        Ok(value) => Ok(Some(value)),
        Err(StoredError::Newer { found, known } | StoredError::Outdated { found, known }) => {
            Err(StorageError::Version { file, found, known })
        }
        Err(_) => Ok(None),
    }
}

/// The later valid slot, if there is one, and the number of the last write that is known to be
/// completed.
fn read_ledger(bytes: &[u8]) -> Result<(Option<(u64, Ledger)>, u64), StorageError> {
    let mut latest: Option<(u64, Ledger)> = None;
    for (place, slot) in bytes.chunks(SLOT).take(2).enumerate() {
        let Some((record, _)) = split_frame(slot) else {
            continue;
        };
        let Some(record) = read_frame::<StoredLedger>(record, LEDGER)? else {
            continue;
        };
        let (number, ledger) = record.into_parts();
        let in_place = number % 2 == place as u64;
        if in_place && latest.as_ref().is_none_or(|(latest, _)| number > *latest) {
            latest = Some((number, ledger));
        }
    }
    let done = bytes.get(2 * SLOT..).and_then(split_frame);
    let done = done.map(|(done, _)| read_frame::<StoredDone>(done, LEDGER)).transpose()?;
    Ok((latest, done.flatten().map_or(0, |done| done.0)))
}

/// The state after the last write that is complete, and the number of the last synced one among
/// them. The ledger takes the place of the state's own at the write of its number: it can include
/// later debits, since when the write of the state fails, both are written again.
fn read_state(
    bytes: &[u8],
    simulated: bool,
    (of_ledger, ledger): (u64, &Ledger),
) -> Result<(State, u64), StorageError> {
    let (first, mut rest) = split_frame(bytes).ok_or_else(|| damaged(STATE))?;
    let first = read_frame::<StoredState>(first, STATE)?.ok_or_else(|| damaged(STATE))?;
    let (mut state, mut number) = first.into_state(simulated).ok_or_else(|| damaged(STATE))?;
    let replace = |state: &mut State, number: u64| match number == of_ledger {
        true if !ledger.lifetime().covers(state.ledger.lifetime()) => Err(damaged(LEDGER)),
        true => {
            state.ledger = ledger.clone();
            Ok(())
        }
        false => Ok(()),
    };
    replace(&mut state, number)?;
    while let Some((frame, after)) = split_frame(rest) {
        let Some(changes) = read_frame::<StoredChanges>(frame, STATE)? else {
            break;
        };
        let is_synced = match changes.number().checked_sub(number) {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(damaged(STATE)),
        };
        changes.apply(&mut state).ok_or_else(|| damaged(STATE))?;
        if is_synced {
            number += 1;
            replace(&mut state, number)?;
        }
        rest = after;
    }
    Ok((state, number))
}
