//! The stored ledger, and the numbers of writes and of starts.

use std::collections::BTreeMap;

use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::Day;
use bandana_shared::stored::{Older, Stored, StoredError};
use serde::{Deserialize, Serialize};

use crate::debit::Debit;
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
    const VERSION: u16 = 3;

    fn from_older(older: &Older<'_>) -> Result<Option<Self>, StoredError> {
        let (number, record): (u64, LedgerRecord2) = match older.version() {
            1 => {
                let (number, record): (u64, LedgerRecord1) = older.decode()?;
                (number, record.into())
            }
            2 => older.decode()?,
            _ => return Ok(None),
        };
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

/// Local and central ε in nano-nats, and δ in units of 2^-64.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct StoredDebit(u64, u64, u64);

impl StoredDebit {
    pub(super) fn new(debit: Debit) -> Self {
        Self(debit.local.get(), debit.central.get(), debit.delta.get())
    }

    pub(super) fn into_debit(self) -> Debit {
        let (local, central) = (NanoNats::new(self.0), NanoNats::new(self.1));
        Debit { local, central, delta: DeltaUnits::new(self.2) }
    }

    /// An amount of a time without a central account: no report was shuffled.
    pub(super) fn local(local: u64) -> Self {
        Self::new(Debit::unshuffled(NanoNats::new(local)))
    }
}

/// A ledger. It fits a slot with a full window of the largest amounts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LedgerRecord {
    lifetime: StoredDebit,
    undated: StoredDebit,
    /// Each day as the number of days until `today`, which takes one byte.
    days: Vec<(u32, StoredDebit)>,
    today: Option<u32>,
}

/// The record of version 2, which had one account.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LedgerRecord2 {
    lifetime: u64,
    undated: u64,
    days: Vec<(u32, u64)>,
    today: Option<u32>,
}

impl From<LedgerRecord2> for LedgerRecord {
    fn from(LedgerRecord2 { lifetime, undated, days, today }: LedgerRecord2) -> Self {
        let ago = |day: u32| today.unwrap_or(0).saturating_sub(day);
        let days = days.into_iter().map(|(day, spent)| (ago(day), StoredDebit::local(spent)));
        Self {
            lifetime: StoredDebit::local(lifetime),
            undated: StoredDebit::local(undated),
            days: days.collect(),
            today,
        }
    }
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
impl From<LedgerRecord1> for LedgerRecord2 {
    fn from(LedgerRecord1 { lifetime, .. }: LedgerRecord1) -> Self {
        Self { lifetime, undated: lifetime, days: Vec::new(), today: None }
    }
}

impl From<LedgerRecord1> for LedgerRecord {
    fn from(record: LedgerRecord1) -> Self {
        LedgerRecord2::from(record).into()
    }
}

impl LedgerRecord {
    pub(super) fn new(ledger: &Ledger) -> Self {
        let today = ledger.today().map(Day::get);
        let ago = |day: Day| today.unwrap_or(0).saturating_sub(day.get());
        let days = ledger.days().map(|(day, spent)| (ago(day), StoredDebit::new(spent)));
        Self {
            lifetime: StoredDebit::new(ledger.lifetime()),
            undated: StoredDebit::new(ledger.undated()),
            days: days.collect(),
            today,
        }
    }

    pub(super) fn into_ledger(self) -> Ledger {
        let today = self.today.map(Day::new);
        let mut undated = self.undated.into_debit();
        let mut days: BTreeMap<Day, Debit> = BTreeMap::new();
        for (ago, spent) in self.days {
            // Without a day of the server's there are none, and what has none is in every window.
            let all = match today {
                Some(today) => days.entry(today.back(ago)).or_default(),
                None => &mut undated,
            };
            *all = all.saturating_add(spent.into_debit());
        }
        Ledger::from_parts((self.lifetime.into_debit(), undated), days, today)
    }
}
