//! Waiting disclosures, in memory and on the disk, without network and clock.

use std::collections::BTreeSet;

use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::wire::v1::DiscloseRequest;

use super::Disclosure;
use super::disclosures::{KeepError, WAITING_DAYS_MAX, WAITING_MAX};
use crate::outbox::SEALED_MAX;
use crate::storage::{Files, StorageError};
use crate::trusted::disclosures_file::{DisclosuresFile, KeptByName};

/// A disclosure that waits.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) disclosure: Disclosure,
    /// The first day on which it waited, as sent by a server; [`UNCONFIRMED`] before.
    pub(crate) kept_on: Day,
}

/// The day before any server has sent one. The device's own day is not used: its clock may stand in
/// 1970 or in 2099, and either would erase disclosures or keep them for ever.
const UNCONFIRMED: Day = Day::new(0);

/// The waiting disclosures by their random names, so that they leave in random order.
#[derive(Debug)]
pub(super) struct Waiting {
    file: DisclosuresFile,
    kept: KeptByName,
    /// Whether the disk has the content of the memory.
    written: bool,
    /// The experiments of disclosures that were kept for too long, until the next call of
    /// [`Self::take_dropped`].
    dropped: Vec<ExperimentId>,
}

/// The name of a disclosure.
pub(super) type Name = [u8; 16];

impl Waiting {
    pub(super) fn open(files: Box<dyn Files>) -> Result<Self, StorageError> {
        let (file, kept) = DisclosuresFile::open(files)?;
        Ok(Self { file, kept, written: true, dropped: Vec::new() })
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Makes a disclosure durable.
    pub(super) fn keep(&mut self, disclosure: Disclosure) -> Result<(), KeepError> {
        if self.kept.len() >= WAITING_MAX {
            return Err(KeepError::Full(Box::new(disclosure)));
        }
        self.kept.insert(disclosure.name(), Kept { disclosure, kept_on: UNCONFIRMED });
        self.written = false;
        self.write().map_err(KeepError::NotDurable)
    }

    /// The experiments with waiting disclosures.
    pub(super) fn experiments(&self) -> BTreeSet<ExperimentId> {
        self.kept.values().map(|kept| kept.disclosure.experiment_id().clone()).collect()
    }

    /// Whether a disclosure of an experiment waits.
    pub(super) fn waits_for(&self, id: &ExperimentId) -> bool {
        self.kept.values().any(|kept| kept.disclosure.experiment_id() == id)
    }

    /// Receives a day that a server has sent and the device accepts. Disclosures without a first
    /// day age from here. Those kept for too long are dropped, and leave the disk with the next
    /// write.
    pub(super) fn hear(&mut self, today: Day) {
        for kept in self.kept.values_mut() {
            let is_ahead = kept.kept_on > today;
            if (is_ahead || kept.kept_on == UNCONFIRMED) && kept.kept_on != today {
                kept.kept_on = today;
                self.written = false;
            }
        }
        let old = |kept: &Kept| kept.kept_on.forward(WAITING_DAYS_MAX) < today;
        for (_, kept) in self.kept.extract_if(.., |_, kept| old(kept)) {
            self.written = false;
            self.dropped.push(kept.disclosure.experiment_id().clone());
        }
    }

    /// The experiment of each disclosure that was kept for too long.
    pub(super) fn take_dropped(&mut self) -> Vec<ExperimentId> {
        std::mem::take(&mut self.dropped)
    }

    /// Whether a disclosure still waits.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.kept.contains_key(name)
    }

    /// The messages to be sent next for an experiment, apart from those already tried. Disclosures
    /// without a day get `day`, if there is one, and that is durable on return.
    ///
    /// A disclosure keeps its day, and a server that was away for longer than its replay window
    /// refuses it. So only a few disclosures have a day at a time.
    pub(super) fn batch(
        &mut self,
        id: &ExperimentId,
        day: Option<Day>,
        tried: &BTreeSet<Name>,
    ) -> Result<Vec<(Name, DiscloseRequest)>, StorageError> {
        let of_it = |kept: &&Kept| kept.disclosure.experiment_id() == id;
        let dated = self.kept.values().filter(of_it).filter(|k| k.disclosure.day().is_some());
        let room = SEALED_MAX.saturating_sub(dated.count());
        if let Some(day) = day {
            let undated = self.kept.values().filter(of_it);
            for kept in undated.filter(|kept| kept.disclosure.day().is_none()).take(room) {
                kept.disclosure.fix_day(day);
                self.written = false;
            }
        }
        self.write()?;
        let untried = self.kept.iter().filter(|(name, _)| !tried.contains(*name));
        let batch = untried.filter(|(_, kept)| of_it(kept)).filter_map(|(name, kept)| {
            Some((*name, kept.disclosure.message(kept.disclosure.day()?)))
        });
        Ok(batch.collect())
    }

    /// Whether a disclosure of an experiment needs a day.
    pub(super) fn needs_day(&self, id: &ExperimentId) -> bool {
        let mut disclosures = self.kept.values().map(|kept| &kept.disclosure);
        disclosures.any(|disclosure| disclosure.experiment_id() == id && disclosure.day().is_none())
    }

    /// Drops a disclosure, and returns whether it was waiting. It leaves the disk with the next
    /// write.
    pub(super) fn settle(&mut self, name: &Name) -> bool {
        let was_there = self.kept.remove(name).is_some();
        self.written &= !was_there;
        was_there
    }

    /// Drops all disclosures, and returns their number.
    pub(super) fn withdraw(&mut self) -> Result<usize, StorageError> {
        let count = std::mem::take(&mut self.kept).len();
        self.written = false;
        self.write().map(|()| count)
    }

    /// Writes the disclosures, if they have changed.
    pub(super) fn write(&mut self) -> Result<(), StorageError> {
        if !self.written {
            self.file.write(&self.kept)?;
            self.written = true;
        }
        Ok(())
    }
}
