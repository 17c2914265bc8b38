//! Groups: the rows that a commit of uploads adds.

use bandana_shared::alphabet::Symbol;
use bandana_shared::identity::{CellIndex, Day, Revision, UploadId};
use bandana_shared::stored::{Older, Stored, StoredError};
use bandana_shared::tally::Tally;
use serde::{Deserialize, Serialize};

use super::{ExperimentKey, StoreError, damaged};

/// The addition of one committed upload, or of a group of them, to one cell's tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The experiment.
    pub experiment: ExperimentKey,
    /// The revision that the uploads named; none in groups of a store that did not keep it yet.
    pub revision: Option<Revision>,
    /// The cell.
    pub cell: CellIndex,
    /// The tally to add.
    pub tally: Tally,
}

/// The uploads of one group that carry the same day: one row of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The day that the uploads carry.
    pub day: Day,
    /// The ids of the uploads, sorted, so that their order reveals nothing.
    pub ids: Vec<UploadId>,
    /// The sum of the uploads' deltas, with at most one entry for an experiment's cell.
    pub deltas: Vec<Delta>,
}

/// The number of a cell and a revision in the columns called `arm`: the index of the cell, plus 65,536
/// times the revision. Stores that did not keep the revision have the index alone.
pub(super) fn stored_arm(revision: Option<Revision>, cell: CellIndex) -> u32 {
    let revision = revision.map_or(0, Revision::get).min(REVISION_MAX);
    revision << ARM_BITS | cell.to_u32()
}

/// The revision and the index in a number of [`stored_arm`].
pub(super) fn revision_and_cell(stored: u32) -> Result<(Option<Revision>, CellIndex), StoreError> {
    let index = (stored & ((1 << ARM_BITS) - 1)) as usize;
    let cell = CellIndex::new(index).map_err(|error| damaged(error.to_string()))?;
    Ok((Revision::new(stored >> ARM_BITS).ok(), cell))
}

/// The bits of the index, and the last revision that has a number of its own: PostgreSQL's integers
/// have a sign.
const ARM_BITS: u32 = 16;
const REVISION_MAX: u32 = (1 << 15) - 1;

/// A row's deltas as stored beside the ids: experiment, the number of [`stored_arm`], reports, reports of symbol 1, and
/// reports of each symbol beyond 1.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredDeltas(Vec<StoredDelta>);

type StoredDelta = (i64, u32, u64, u64, Vec<(u8, u64)>);

impl Stored for StoredDeltas {
    const MAGIC: [u8; 4] = *b"BDdl";
    const VERSION: u16 = 2;

    fn from_older(older: &Older<'_>) -> Result<Option<Self>, StoredError> {
        if older.version() != 1 {
            return Ok(None);
        }
        // Version 1 had bits only.
        let bits: Vec<(i64, u32, u64, u64)> = older.decode()?;
        let delta = |(key, arm, reports, ones)| (key, arm, reports, ones, Vec::new());
        Ok(Some(Self(bits.into_iter().map(delta).collect())))
    }
}

impl StoredDeltas {
    pub(super) fn new(deltas: &[Delta]) -> Self {
        let delta = |Delta { experiment, revision, cell, tally }: &Delta| {
            let beyond = tally.beyond_bits().map(|(symbol, count)| (symbol.get(), count));
            let arm = stored_arm(*revision, *cell);
            (experiment.0, arm, tally.reports(), tally.ones(), beyond.collect())
        };
        Self(deltas.iter().map(delta).collect())
    }

    /// The experiment, the number of [`stored_arm`], and the tally to add.
    pub(super) fn tallies(self) -> Result<Vec<(i64, u32, Tally)>, StoreError> {
        let tally = |(experiment, arm, reports, ones, beyond): StoredDelta| {
            let beyond = beyond.into_iter().map(|(number, count)| {
                let unknown = || damaged(format!("a symbol {number}"));
                Ok((Symbol::new(number).ok_or_else(unknown)?, count))
            });
            let beyond = beyond.collect::<Result<Vec<_>, StoreError>>()?;
            let counts = std::iter::once((Symbol::from(true), ones)).chain(beyond);
            let tally = Tally::with_symbols(reports, counts);
            Ok((experiment, arm, tally.map_err(|error| damaged(error.to_string()))?))
        };
        self.0.into_iter().map(tally).collect()
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::stored;

    use super::*;

    /// Written by version 1: magic, version, checksum, then two entries.
    const GOLDEN_1: &[u8] = b"BDdl\x01\x00\x26\xf7\x9f\x35\
        \x02\
        \x02\x03\xfb\x2c\x01\x07\
        \x50\x00\xfc\x70\x11\x01\x00\x00";

    /// Written by version 2: the same with two symbols and with none beyond bits.
    const GOLDEN_2: &[u8] = b"BDdl\x02\x00\xa8\x7c\x06\x51\
        \x02\
        \x02\x03\xfb\x2c\x01\x07\x02\x02\x05\x0f\xfb\x18\x01\
        \x50\x00\xfc\x70\x11\x01\x00\x00\x00";

    #[test]
    fn golden_bytes_of_every_version_of_stored_deltas() {
        let deltas = vec![(1, 3, 300, 7, vec![]), (40, 0, 70_000, 0, vec![])];
        assert_eq!(stored::from_bytes::<StoredDeltas>(GOLDEN_1).unwrap().0, deltas);
        let deltas = vec![(1, 3, 300, 7, vec![(2, 5), (15, 280)]), (40, 0, 70_000, 0, vec![])];
        assert_eq!(stored::from_bytes::<StoredDeltas>(GOLDEN_2).unwrap().0, deltas);
        assert_eq!(stored::to_bytes(&StoredDeltas(deltas)).unwrap(), GOLDEN_2);
    }
}
