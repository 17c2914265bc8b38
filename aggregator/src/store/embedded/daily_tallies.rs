//! The tallies of single days in the embedded store.

use std::ops::RangeInclusive;

use bandana_shared::identity::{ArmIndex, Day};
use bandana_shared::tally::Tally;
use rusqlite::{Connection, Row, params};

use super::sqlite::reading;
use crate::store::{DailyTally, ExperimentKey, StoreError, damaged};

/// Reads the tallies of an experiment on these days, by day and then by arm.
pub(in crate::store) fn daily_tallies(
    connection: &Connection,
    experiment: ExperimentKey,
    days: &RangeInclusive<Day>,
) -> Result<Vec<DailyTally>, StoreError> {
    // A single statement sees a single state.
    let query = "SELECT day, arm, reports, ones FROM tally
        WHERE experiment = ? AND day BETWEEN ? AND ? ORDER BY day, arm";
    let mut statement = connection.prepare(query).map_err(reading)?;
    let values = params![experiment.0, days.start().get(), days.end().get()];
    let mut rows = statement.query(values).map_err(reading)?;
    let mut tallies = Vec::new();
    while let Some(row) = rows.next().map_err(reading)? {
        tallies.push(daily_tally(row)?);
    }
    Ok(tallies)
}

fn daily_tally(row: &Row<'_>) -> Result<DailyTally, StoreError> {
    let day = Day::new(row.get(0).map_err(reading)?);
    let arm = ArmIndex::new(row.get(1).map_err(reading)?).map_err(|e| damaged(e.to_string()))?;
    let (reports, ones) = (row.get(2).map_err(reading)?, row.get(3).map_err(reading)?);
    let tally = Tally::new(reports, ones).map_err(|error| damaged(error.to_string()))?;
    Ok(DailyTally { day, arm, tally })
}
