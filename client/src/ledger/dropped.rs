//! Debits of reports that were dropped while they may have been under way.

use bandana_shared::identity::Day;

use crate::debit::Debit;

/// The debits of reports that the device forgot, by an opt-out or since they were too old, and that
/// may still arrive: each was handed out, and no answer had come.
///
/// A debit must get no day before that of its report's arrival. So these wait until a server has told
/// a day that is later than the first one it told after the drop. By the end of the first such day the
/// calls must have ended: they take two minutes, and end with the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Dropped {
    debits: Debit,
    /// Number of the last fetch that was handed out before the last drop.
    fetches: u64,
    /// The first day that a server has told since: in answer to a later fetch.
    first: Option<Day>,
}

impl Dropped {
    /// The sum of the debits. They can get no day yet.
    pub(crate) fn debits(self) -> Debit {
        self.debits
    }

    /// Adds debits, after the fetch with this number.
    pub(crate) fn add(&mut self, debits: Debit, fetches: u64) {
        if debits != Debit::ZERO {
            let debits = self.debits.saturating_add(debits);
            *self = Self { debits, fetches, first: None };
        }
    }

    /// Hears the day that a server has told the fetch with this number. After a later day than the
    /// first, the debits are as good as those of reports that have arrived.
    pub(crate) fn hear(&mut self, fetch: u64, day: Day) {
        if fetch > self.fetches && self.debits != Debit::ZERO {
            match self.first {
                None => self.first = Some(day),
                Some(first) if first < day => *self = Self::default(),
                Some(_) => {}
            }
        }
    }
}
