//! The stored ledger, and the numbers of writes and of starts.

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::Day;
use bandana_shared::stored::{Older, Stored, StoredError};
use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;

/// The number of a completed write.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredDone(pub(crate) u64);

impl Stored for StoredDone {
    const MAGIC: [u8; 4] = *b"BDdn";
    const VERSION: u16 = 1;
}

/// The number of starts so far.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredStarts(pub(crate) u64);

impl Stored for StoredStarts {
    const MAGIC: [u8; 4] = *b"BDep";
    const VERSION: u16 = 1;
}

/// The spent budget: the record of a slot.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredLedger {
    number: u64,
    record: LedgerRecord,
}

impl Stored for StoredLedger {
    const MAGIC: [u8; 4] = *b"BDlg";
    const VERSION: u16 = 2;

    fn from_older(older: &Older<'_>) -> Result<Option<Self>, StoredError> {
        if older.version() != 1 {
            return Ok(None);
        }
        let (number, record): (u64, LedgerRecord1) = older.decode()?;
        Ok(Some(Self { number, record: record.into() }))
    }
}

impl StoredLedger {
    pub(crate) fn new(number: u64, ledger: &Ledger) -> Self {
        Self { number, record: LedgerRecord::new(ledger) }
    }

    pub(crate) fn into_parts(self) -> (u64, Ledger) {
        (self.number, self.record.into_ledger())
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LedgerRecord {
    lifetime: u64,
    undated: u64,
    days: Vec<(u32, u64)>,
    today: Option<u32>,
}

/// The record of version 1, whose days were the device's own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LedgerRecord1 {
    lifetime: u64,
    days: Vec<(u32, u64)>,
    high_water_ms: u64,
}

/// All debits count until a server has told its day, and for a window from then on: reports that are
/// not sent can be older than the days that were kept.
impl From<LedgerRecord1> for LedgerRecord {
    fn from(LedgerRecord1 { lifetime, .. }: LedgerRecord1) -> Self {
        Self { lifetime, undated: lifetime, days: Vec::new(), today: None }
    }
}

impl LedgerRecord {
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self {
            lifetime: ledger.lifetime().get(),
            undated: ledger.undated().get(),
            days: ledger.days().map(|(day, spent)| (day.get(), spent.get())).collect(),
            today: ledger.today().map(Day::get),
        }
    }

    pub(super) fn into_ledger(self) -> Ledger {
        let days = self.days.into_iter();
        let days = days.map(|(day, spent)| (Day::new(day), NanoNats::new(spent))).collect();
        let sums = (NanoNats::new(self.lifetime), NanoNats::new(self.undated));
        Ledger::from_parts(sums, days, self.today.map(Day::new))
    }
}
