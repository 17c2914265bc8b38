//! The tallies of single days in the embedded store.

use std::ops::RangeInclusive;

use bandana_shared::identity::{CellIndex, Day, Revision};
use rusqlite::{Connection, Row, params};

use super::sqlite::reading;
use crate::counts::{CountRow, Counts};
use crate::{DailyTally, ExperimentKey, RevisionTally, StoreError, revision_and_cell};

/// The days of these on which an experiment has tallies, and how many.
pub(crate) fn days_with_tallies(
    connection: &Connection,
    experiment: ExperimentKey,
    days: &RangeInclusive<Day>,
) -> Result<Vec<(Day, u64)>, StoreError> {
    let query = "SELECT day, count(*) FROM intact_tally
        WHERE experiment = ?1 AND day BETWEEN ?2 AND ?3 GROUP BY day ORDER BY day";
    let mut statement = connection.prepare_cached(query).map_err(reading)?;
    let values = params![experiment.0, days.start().get(), days.end().get()];
    let day = |row: &Row<'_>| Ok((Day::new(row.get(0)?), row.get(1)?));
    let rows = statement.query_map(values, day).map_err(reading)?;
    rows.collect::<Result<_, _>>().map_err(reading)
}

/// The tallies of an experiment on these days, by day, revision and cell.
pub(crate) fn daily_tallies(
    connection: &Connection,
    experiment: ExperimentKey,
    days: &RangeInclusive<Day>,
) -> Result<Vec<RevisionTally>, StoreError> {
    // A single statement sees a single state.
    let query = "SELECT day, arm, 1, reports, ones FROM intact_tally
        WHERE experiment = ?1 AND day BETWEEN ?2 AND ?3
        UNION ALL SELECT day, arm, symbol, 0, reports FROM intact_symbol_tally
        WHERE experiment = ?1 AND day BETWEEN ?2 AND ?3";
    let mut statement = connection.prepare_cached(query).map_err(reading)?;
    let values = params![experiment.0, days.start().get(), days.end().get()];
    let mut rows = statement.query(values).map_err(reading)?;
    let mut counts: Counts<(Day, Option<Revision>, CellIndex)> = Counts::new();
    while let Some(row) = rows.next().map_err(reading)? {
        let day = Day::new(row.get(0).map_err(reading)?);
        let (revision, cell) = revision_and_cell(row.get(1).map_err(reading)?)?;
        let symbol = row.get(2).map_err(reading)?;
        let (reports, count) = (row.get(3).map_err(reading)?, row.get(4).map_err(reading)?);
        counts.add((day, revision, cell), CountRow { symbol, reports, count })?;
    }
    let daily = |((day, revision, cell), tally)| RevisionTally {
        revision,
        daily: DailyTally { day, cell, tally },
    };
    Ok(counts.tallies()?.into_iter().map(daily).collect())
}
