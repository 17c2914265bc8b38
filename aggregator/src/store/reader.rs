//! Reading a store that a server has open.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use bandana_shared::identity::Day;
use rusqlite::{Connection, OpenFlags};

use super::audit::entries;
use super::daily_tallies::daily_tallies;
use super::sqlite::{BUSY_TIMEOUT, DATABASE_FILE, reading};
use super::{AuditQuery, AuditRecord, DailyTally, ExperimentKey, StoreError};

/// Reads what is committed, on connections of its own: nobody waits for it.
#[derive(Clone, Debug)]
pub struct StoreReader {
    database: PathBuf,
}

impl StoreReader {
    /// A reader of the store in `directory`, which must be open.
    pub fn new(directory: &Path) -> Self {
        Self { database: directory.join(DATABASE_FILE) }
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.database, flags).map_err(reading)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(reading)?;
        Ok(connection)
    }

    /// The entries of the audit log that a query asks for, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when something can't be read or understood.
    pub fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, StoreError> {
        entries(&self.connect()?, query)
    }

    /// The tallies of an experiment on these days, by day and then by arm, as they
    /// were committed at one moment.
    ///
    /// All at once, 24 bytes each: the log can't be shortened while somebody reads,
    /// and whoever asked may be slow.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn daily_tallies(
        &self,
        experiment: ExperimentKey,
        days: &RangeInclusive<Day>,
    ) -> Result<Vec<DailyTally>, StoreError> {
        daily_tallies(&self.connect()?, experiment, days)
    }
}
