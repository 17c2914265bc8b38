//! The file of the ledger of ρ, which is durable before a reward leaves.
//!
//! The file is replaced as a whole, so after a crash it has its old or its new content. `installed`
//! tells its loss from a first start: without the file nothing is disclosed until the directory is
//! reset.

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::stored::{self, Stored, StoredError};
use serde::{Deserialize, Serialize};

use super::rho_ledger::{Account, Counted, RhoLedger};
use crate::storage::{Files, StorageError, failed, replace};

pub(crate) const RHO: &str = "rho";
const RHO_NEW: &str = "rho.new";
const INSTALLED: &str = "rho.installed";

/// The state of the file.
#[derive(Debug)]
pub(crate) struct RhoFile {
    /// Whether the marker of a first write exists.
    installed: bool,
    /// Whether the file has the content of the memory.
    written: bool,
}

impl RhoFile {
    /// Reads the file, and makes what was read durable. No file and no marker: nothing is spent.
    pub(crate) fn open(files: &mut dyn Files) -> Result<(Self, RhoLedger), StorageError> {
        let get = |name| files.read(name).map_err(|source| failed("reading", name, source));
        let (bytes, installed) = (get(RHO)?, get(INSTALLED)?.is_some());
        let half_written = get(RHO_NEW)?.is_some();
        let ledger = match bytes.as_deref() {
            Some(bytes) => read(bytes)?,
            None if installed => return Err(StorageError::Missing { file: RHO }),
            None => RhoLedger::default(),
        };
        if half_written {
            files.remove(RHO_NEW).map_err(|source| failed("removing", RHO, source))?;
        }
        if bytes.is_some() {
            let synced = files.sync(RHO).and_then(|()| files.sync_directory());
            synced.map_err(|source| failed("writing", RHO, source))?;
        }
        let written = installed || bytes.is_none();
        Ok((Self { installed, written }, ledger))
    }

    /// The memory has changed.
    pub(crate) fn change(&mut self) {
        self.written = false;
    }

    /// Makes the ledger durable, if it has changed. After an error the file has the old or the new
    /// content.
    pub(crate) fn write(
        &mut self,
        files: &mut dyn Files,
        ledger: &RhoLedger,
    ) -> Result<(), StorageError> {
        // Another process that took the lock has a count of its own.
        files.check().map_err(|source| failed("keeping", "lock", source))?;
        if self.written {
            return Ok(());
        }
        let bytes = bytes(ledger)?;
        replace(files, RHO_NEW, RHO, &bytes).map_err(|source| failed("writing", RHO, source))?;
        if !self.installed {
            let marked = files
                .create(INSTALLED, b"")
                .and_then(|()| files.sync(INSTALLED))
                .and_then(|()| files.sync_directory());
            marked.map_err(|source| failed("writing", INSTALLED, source))?;
            self.installed = true;
        }
        self.written = true;
        Ok(())
    }

    /// Forgets what was spent. The marker goes last.
    pub(crate) fn reset(files: &mut dyn Files) -> Result<(), StorageError> {
        for name in [RHO_NEW, RHO, INSTALLED] {
            let removed = files.remove(name).and_then(|()| files.sync_directory());
            removed.map_err(|source| failed("removing", name, source))?;
        }
        Ok(())
    }
}

/// The encoding of a ledger.
pub(crate) fn bytes(ledger: &RhoLedger) -> Result<Vec<u8>, StoredError> {
    stored::to_bytes(&StoredRho::new(ledger))
}

/// Decodes the file.
pub(crate) fn read(bytes: &[u8]) -> Result<RhoLedger, StorageError> {
    let damaged = || StorageError::Damaged { file: RHO };
    let stored: StoredRho = stored::from_bytes(bytes).map_err(|error| match error {
        StoredError::Newer { found, known } | StoredError::Outdated { found, known } => {
            StorageError::Version { file: RHO, found, known }
        }
        _ => damaged(),
    })?;
    stored.into_ledger().ok_or_else(damaged)
}

#[derive(Serialize, Deserialize)]
struct StoredRho {
    today: Option<u32>,
    accounts: Vec<StoredAccount>,
    /// Names, days, and prices.
    debited: Vec<([u8; 16], u32, u64)>,
}

impl Stored for StoredRho {
    const MAGIC: [u8; 4] = *b"BDrh";
    const VERSION: u16 = 1;
}

#[derive(Serialize, Deserialize)]
struct StoredAccount {
    experiment_id: String,
    /// Billionths of ρ.
    price: u64,
    rewards: u64,
    days: Vec<(u32, u64)>,
}

impl StoredRho {
    fn new(ledger: &RhoLedger) -> Self {
        let account = |(id, account): (&ExperimentId, &Account)| StoredAccount {
            experiment_id: id.to_string(),
            price: account.price.get(),
            rewards: account.rewards,
            days: account.days.iter().map(|(day, rewards)| (day.get(), *rewards)).collect(),
        };
        let debit = |(name, counted): (&[u8; 16], &Counted)| {
            (*name, counted.day.get(), counted.price.get())
        };
        Self {
            today: ledger.today.map(Day::get),
            accounts: ledger.accounts.iter().map(account).collect(),
            debited: ledger.debited.iter().map(debit).collect(),
        }
    }

    /// `None`: no ledger of this library has this content.
    fn into_ledger(self) -> Option<RhoLedger> {
        let counted = |(name, day, price)| {
            (name, Counted { day: Day::new(day), price: NanoNats::new(price) })
        };
        let mut ledger = RhoLedger {
            today: self.today.map(Day::new),
            debited: self.debited.into_iter().map(counted).collect(),
            ..RhoLedger::default()
        };
        for stored in self.accounts {
            let id = ExperimentId::new(stored.experiment_id).ok()?;
            let count = stored.days.len();
            let days = stored.days.into_iter().map(|(day, rewards)| (Day::new(day), rewards));
            let account = Account {
                price: NanoNats::new(stored.price),
                rewards: stored.rewards,
                days: days.collect(),
            };
            let in_days = account.days.values().try_fold(0_u64, |sum, of| sum.checked_add(*of))?;
            let fits = account.days.len() == count && in_days <= account.rewards;
            if !fits || ledger.accounts.insert(id, account).is_some() {
                return None;
            }
        }
        Some(ledger)
    }
}
