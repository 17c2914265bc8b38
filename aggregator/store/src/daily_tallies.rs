//! Tallies of single days and revisions.

use std::collections::BTreeMap;

use bandana_shared::identity::{CellIndex, Day, Revision};
use bandana_shared::tally::Tally;

/// The tally of one cell for one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailyTally {
    /// The day that the uploads carried.
    pub day: Day,
    /// The cell.
    pub cell: CellIndex,
    /// The tally of that day's reports.
    pub tally: Tally,
}

/// The tally of one cell for one day and one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevisionTally {
    /// The revision that the uploads named; none where the store did not keep it yet.
    pub revision: Option<Revision>,
    /// The tally of that revision's reports.
    pub daily: DailyTally,
}

/// The sums over all revisions, by day and then by cell.
pub fn over_revisions(rows: Vec<RevisionTally>) -> Vec<RevisionTally> {
    let mut sums: BTreeMap<(Day, CellIndex), Tally> = BTreeMap::new();
    for RevisionTally { daily: DailyTally { day, cell, tally }, .. } in rows {
        *sums.entry((day, cell)).or_default() += tally;
    }
    let sum = |((day, cell), tally)| RevisionTally {
        revision: None,
        daily: DailyTally { day, cell, tally },
    };
    sums.into_iter().map(sum).collect()
}
