//! Waiting disclosures and the ledger of ρ, in memory and on the disk, without network and clock.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::wire::v1::DiscloseRequest;

use super::budget::{RhoBudget, RhoExhausted, RhoSpent, SpentOnExperiment};
use super::disclosure::Debtor;
use super::disclosures::{KeepError, WAITING_DAYS_MAX, WAITING_MAX};
use super::rho_file::RhoFile;
use super::rho_ledger::{Counted, RhoLedger};
use super::{Disclosure, TrustedError};
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
    budget: RhoBudget,
    ledger: RhoLedger,
    rho_file: RhoFile,
    /// Tells this ledger from others of the process, for disclosures that are in memory.
    number: u64,
}

/// The number of the next ledger of the process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// What can be sent next for an experiment.
#[derive(Debug)]
pub(super) struct Batch {
    /// Messages whose price is durable.
    pub(super) messages: Vec<(Name, DiscloseRequest)>,
    /// Why others can't be sent, none of which was.
    pub(super) refused: Option<RhoExhausted>,
    /// Why others that were sent before can't be sent again, at a price that has grown.
    pub(super) held: Option<RhoExhausted>,
}

/// The name of a disclosure.
pub(super) type Name = [u8; 16];

impl Waiting {
    pub(super) fn open(files: Box<dyn Files>, budget: RhoBudget) -> Result<Self, StorageError> {
        let (mut file, kept) = DisclosuresFile::open(files)?;
        let (rho_file, mut ledger) = RhoFile::open(file.files())?;
        ledger.debited.retain(|name, _| kept.contains_key(name));
        let (dropped, number) = (Vec::new(), NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Self { file, kept, written: true, dropped, budget, ledger, rho_file, number })
    }

    pub(super) fn spent(&self) -> RhoSpent {
        self.ledger.spent(&self.budget)
    }

    pub(super) fn spent_on(&self, id: &ExperimentId) -> SpentOnExperiment {
        self.ledger.spent_on(id, &self.budget)
    }

    /// Counts a disclosure that is in memory, once, at this price or more. It is durable on return.
    pub(super) fn debit(
        &mut self,
        debtor: &Debtor,
        price: NanoNats,
        day: Day,
    ) -> Result<(), TrustedError> {
        self.ledger.hear(day);
        let of_memory = debtor.counted_by.get().filter(|(ledger, _)| *ledger == self.number);
        let counted = self.ledger.debited.get(&debtor.name).or(of_memory.map(|(_, by)| by));
        let id = &debtor.experiment_id;
        if let Some(counted) = counted.copied() {
            if self.ledger.raise(id, price, counted, &self.budget)? {
                self.rho_file.change();
            }
        } else {
            let day = self.ledger.debit(id, price, &self.budget)?;
            self.rho_file.change();
            debtor.counted_by.get_or_init(|| (self.number, Counted { day, price }));
        }
        self.write_ledger().map_err(TrustedError::Ledger)
    }

    fn write_ledger(&mut self) -> Result<(), StorageError> {
        self.rho_file.write(self.file.files(), &self.ledger)
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Makes a disclosure durable.
    pub(super) fn keep(&mut self, disclosure: Disclosure) -> Result<(), KeepError> {
        if self.kept.len() >= WAITING_MAX {
            return Err(KeepError::Full(Box::new(disclosure)));
        }
        let name = disclosure.name();
        if let Some(counted) = disclosure.counted_by(self.number) {
            self.ledger.debited.insert(name, counted);
            self.rho_file.change();
        }
        self.kept.insert(name, Kept { disclosure, kept_on: UNCONFIRMED });
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
        self.ledger.hear(today);
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
    /// without a day get `day`, if there is one. Each is counted in the ledger at `price`, once, or
    /// is not sent. All of that is durable on return.
    ///
    /// A disclosure keeps its day, and a server that was away for longer than its replay window
    /// refuses it. So only a few disclosures have a day at a time.
    pub(super) fn batch(
        &mut self,
        id: &ExperimentId,
        price: NanoNats,
        day: Option<Day>,
        tried: &BTreeSet<Name>,
    ) -> Result<Batch, StorageError> {
        if let Some(day) = day {
            self.ledger.hear(day);
        }
        let of_it = |kept: &&Kept| kept.disclosure.experiment_id() == id;
        let dated = self.kept.values().filter(of_it).filter(|k| k.disclosure.day().is_some());
        let mut room = SEALED_MAX.saturating_sub(dated.count());
        let (mut admitted, mut refused, mut held) = (Vec::new(), None, None);
        let untried = self.kept.iter().filter(|(name, _)| !tried.contains(*name));
        for (name, kept) in untried.filter(|(_, kept)| of_it(kept)) {
            let counted = self.ledger.debited.get(name).copied();
            let is_dated = kept.disclosure.day().is_some();
            // A crash may have left it counted without a day. It gets the day of its debit.
            let day = kept.disclosure.day().or(counted.map(|counted| counted.day)).or(day);
            let Some(day) = day.filter(|_| is_dated || room > 0) else { continue };
            let debited = match counted {
                Some(by) => self.ledger.raise(id, price, by, &self.budget).map(|new| (new, by.day)),
                None => self.ledger.debit(id, price, &self.budget).map(|on| (true, on)),
            };
            match debited {
                Ok((false, _)) => {}
                Ok((true, day)) => {
                    self.ledger.debited.insert(*name, Counted { day, price });
                    self.rho_file.change();
                }
                Err(exhausted) => {
                    let of = if counted.is_some() { &mut held } else { &mut refused };
                    of.get_or_insert(exhausted);
                    continue;
                }
            }
            if !is_dated {
                kept.disclosure.fix_day(day);
                self.written = false;
                room -= 1;
            }
            admitted.push((*name, kept.disclosure.message(day)));
        }
        self.write()?;
        // Also where nothing has changed: whoever lost the lock sends nothing.
        self.write_ledger()?;
        Ok(Batch { messages: admitted, refused, held })
    }

    /// Drops the disclosures of an experiment that were never sent, and returns their number.
    pub(super) fn drop_uncounted(&mut self, id: &ExperimentId) -> usize {
        let debited = &self.ledger.debited;
        let is_uncounted = |name: &Name, kept: &mut Kept| {
            kept.disclosure.experiment_id() == id && !debited.contains_key(name)
        };
        let dropped = self.kept.extract_if(.., is_uncounted).count();
        self.written &= dropped == 0;
        dropped
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
        // Not after the ledger: a disk without room for that can still erase.
        self.file.write(&self.kept)?;
        self.written = true;
        Ok(count)
    }

    /// Writes the disclosures, if they have changed, after the ledger.
    pub(super) fn write(&mut self) -> Result<(), StorageError> {
        if !self.written {
            self.write_ledger()?;
            self.file.write(&self.kept)?;
            self.written = true;
            // Those that are gone for good leave with the ledger's next write.
            self.ledger.debited.retain(|name, _| self.kept.contains_key(name));
        }
        Ok(())
    }
}
