//! The tallies of single days, read beside whoever writes.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use bandana_shared::identity::{ArmIndex, Day};
use bandana_shared::tally::Tally;
use rusqlite::{Connection, OpenFlags, Row, params};

use super::sqlite::{BUSY_TIMEOUT, DATABASE_FILE, damaged, reading};
use super::{ExperimentKey, StoreError};

/// What the reports of one day add up to for one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailyTally {
    /// The day that the uploads carried.
    pub day: Day,
    /// The arm.
    pub arm: ArmIndex,
    /// Their tally.
    pub tally: Tally,
}

/// A reader of daily tallies. It has a connection of its own for every reading, so
/// the writer neither waits for it nor is waited for.
#[derive(Clone, Debug)]
pub struct DailyTallies {
    database: PathBuf,
}

impl DailyTallies {
    /// Reads the store in `directory`, which somebody has open.
    pub fn in_directory(directory: &Path) -> Self {
        Self { database: directory.join(DATABASE_FILE) }
    }

    /// The tallies of an experiment on these days, by day and then by arm, as they
    /// were committed at one moment.
    ///
    /// All at once, 24 bytes each: the log can't be shortened while somebody reads,
    /// and whoever asked may be slow.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn read(
        &self,
        experiment: ExperimentKey,
        days: &RangeInclusive<Day>,
    ) -> Result<Vec<DailyTally>, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.database, flags).map_err(reading)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(reading)?;
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
}

fn daily_tally(row: &Row<'_>) -> Result<DailyTally, StoreError> {
    let day = Day::new(row.get(0).map_err(reading)?);
    let arm = ArmIndex::new(row.get(1).map_err(reading)?).map_err(|e| damaged(e.to_string()))?;
    let (reports, ones) = (row.get(2).map_err(reading)?, row.get(3).map_err(reading)?);
    let tally = Tally::new(reports, ones).map_err(|error| damaged(error.to_string()))?;
    Ok(DailyTally { day, arm, tally })
}
