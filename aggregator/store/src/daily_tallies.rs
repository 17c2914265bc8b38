//! Tallies of single days and revisions.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use bandana_shared::identity::{CellIndex, Day, Revision};
use bandana_shared::tally::Tally;

use crate::counts::{CountRow, Counts};
use crate::database::{Database, Row};
use crate::{ExperimentKey, StoreError, revision_and_cell};

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

/// The days of these on which an experiment has tallies, and how many.
pub(crate) async fn days_with_tallies(
    db: &impl Database,
    experiment: ExperimentKey,
    days: &RangeInclusive<Day>,
) -> Result<Vec<(Day, u64)>, StoreError> {
    let query = "SELECT day, count(DISTINCT arm) FROM intact_tally
        WHERE experiment = $1 AND day BETWEEN $2 AND $3 GROUP BY day ORDER BY day";
    let values = [experiment.0.into(), (*days.start()).into(), (*days.end()).into()];
    let of_day = |row: &Row| Ok((row.get(0)?, row.get(1)?));
    db.rows(query, &values).await?.iter().map(of_day).collect()
}

/// The tallies of an experiment on these days, by day, revision and cell.
pub(crate) async fn daily_tallies(
    db: &impl Database,
    experiment: ExperimentKey,
    days: &RangeInclusive<Day>,
) -> Result<Vec<RevisionTally>, StoreError> {
    // A single statement sees a single state.
    let query = "SELECT day, arm, 1, CAST(sum(reports) AS bigint), CAST(sum(ones) AS bigint)
        FROM intact_tally WHERE experiment = $1 AND day BETWEEN $2 AND $3 GROUP BY day, arm
        UNION ALL SELECT day, arm, symbol, 0, CAST(sum(reports) AS bigint)
        FROM intact_symbol_tally WHERE experiment = $1 AND day BETWEEN $2 AND $3
        GROUP BY day, arm, symbol";
    let values = [experiment.0.into(), (*days.start()).into(), (*days.end()).into()];
    let mut counts: Counts<(Day, u32)> = Counts::new();
    for row in db.rows(query, &values).await? {
        let (symbol, reports, count) = (row.get(2)?, row.get(3)?, row.get(4)?);
        counts.add((row.get(0)?, row.get(1)?), CountRow { symbol, reports, count })?;
    }
    let daily = |((day, stored), tally)| {
        let (revision, cell) = revision_and_cell(stored)?;
        Ok(RevisionTally { revision, daily: DailyTally { day, cell, tally } })
    };
    counts.tallies()?.into_iter().map(daily).collect()
}
