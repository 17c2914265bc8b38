//! Counts of the reports of an installation that may lie in one batch of a shuffling relay.
//!
//! A relay hands on what came for one specification and cell, and nobody on the device knows when. So
//! all of them count as one group, see `bandana_shared::accounting::shuffling`.

use std::collections::BTreeMap;

use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::identity::{CellIndex, Digest};
use sha2::{Digest as _, Sha256};

use crate::debit::Debit;

/// What stands for a specification and a cell: a hash, so that it names neither after an opt-out.
pub(crate) type BatchCode = [u8; 16];

/// Reports that may lie in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchReports {
    pub(crate) reports: u32,
    /// The price of the first, by the terms of its time.
    pub(crate) first: Debit,
}

/// All reports that were ever paid for as shuffled ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnReports(BTreeMap<BatchCode, BatchReports>);

impl OwnReports {
    /// Restores what [`Self::all`] gave.
    #[cfg(feature = "storage")]
    pub(crate) fn from_parts(counts: impl Iterator<Item = (BatchCode, BatchReports)>) -> Self {
        Self(counts.collect())
    }

    /// The count of every batch.
    #[cfg(feature = "storage")]
    pub(crate) fn all(&self) -> impl Iterator<Item = (&BatchCode, &BatchReports)> {
        self.0.iter()
    }

    /// Counts a report that was paid for. One that nobody shuffles is in no count, and one that was paid
    /// as such hides behind no other.
    pub(crate) fn count(&mut self, digest: Digest, cell: CellIndex, price: Debit) {
        if price == Debit::unshuffled(price.local) {
            return;
        }
        let own =
            self.0.entry(name(digest, cell)).or_insert(BatchReports { reports: 0, first: price });
        own.reports = own.reports.saturating_add(1);
    }

    /// The number of earlier reports that one may lie in a batch with, if all were paid for by the terms
    /// by which the first costs `first`; `None` if not. `spent` is the δ of a lifetime: what no count
    /// explains, since an earlier version or a lost file did not count it, may be in any.
    pub(crate) fn before(
        &self,
        digest: Digest,
        cell: CellIndex,
        (first, spent): (Debit, DeltaUnits),
    ) -> Option<u32> {
        let explained =
            |own: &BatchReports| own.first.delta.get().saturating_mul(own.reports.into());
        let explained = self.0.values().map(explained).fold(0, u64::saturating_add);
        let unexplained = spent.get().saturating_sub(explained).div_ceil(first.delta.get().max(1));
        let unexplained = u32::try_from(unexplained).unwrap_or(u32::MAX);
        match self.0.get(&name(digest, cell)) {
            None => Some(unexplained),
            Some(own) if own.first == first => Some(own.reports.saturating_add(unexplained)),
            Some(_) => None,
        }
    }
}

fn name(digest: Digest, cell: CellIndex) -> BatchCode {
    let mut hasher = Sha256::new();
    hasher.update(b"bandana.v1.pile\0");
    hasher.update(digest.as_bytes());
    hasher.update(cell.to_u32().to_be_bytes());
    let hash: [u8; 32] = hasher.finalize().into();
    let mut name = BatchCode::default();
    name.copy_from_slice(&hash[..16]);
    name
}

#[cfg(test)]
mod tests {
    use bandana_shared::accounting::nano_nats::NanoNats;

    use super::*;

    const DIGEST: Digest = Digest::new([7; 16]);
    const FIRST: Debit = Debit {
        local: NanoNats::new(1000),
        central: NanoNats::new(100),
        delta: DeltaUnits::new(3),
    };

    #[test]
    fn what_no_pile_explains_may_be_in_any() {
        let cell = |index| CellIndex::new(index).unwrap();
        let mut own_reports = OwnReports::default();
        let before = |own_reports: &OwnReports, at, first, spent| {
            own_reports.before(DIGEST, cell(at), (first, DeltaUnits::new(spent)))
        };
        assert_eq!(before(&own_reports, 0, FIRST, 0), Some(0));
        // A later report costs more, and only the terms of the first are kept.
        own_reports.count(DIGEST, cell(0), FIRST);
        own_reports.count(DIGEST, cell(0), Debit { central: NanoNats::new(120), ..FIRST });
        own_reports.count(DIGEST, cell(1), Debit::unshuffled(FIRST.local));
        assert_eq!(before(&own_reports, 0, FIRST, 6), Some(2));
        assert_eq!(before(&own_reports, 1, FIRST, 6), Some(0));
        assert_eq!(
            own_reports.before(Digest::new([8; 16]), cell(0), (FIRST, DeltaUnits::new(6))),
            Some(0)
        );
        // Seven units more are three reports that nobody counted.
        assert_eq!(before(&own_reports, 0, FIRST, 13), Some(5));
        assert_eq!(before(&own_reports, 1, FIRST, 13), Some(3));
        // The app's terms have changed.
        assert_eq!(before(&own_reports, 0, Debit { delta: DeltaUnits::new(4), ..FIRST }, 6), None);
    }
}
