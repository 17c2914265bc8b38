//! The public log in the embedded store.

use rusqlite::{Connection, Row, params};

use super::SqliteStore;
use super::sqlite::{committing, reading};
use crate::log::{EpochColumns, EpochToAdd, StoredEpoch};
use crate::{StoreError, StoreRefusal};

const COLUMNS: &str = "SELECT number, unix_seconds, entry, roots, content FROM intact_log_epoch";

impl SqliteStore {
    /// Adds an epoch to the log, durably.
    ///
    /// # Errors
    /// [`StoreRefusal::LogHasGrown`]; [`StoreError::Database`].
    pub fn add_epoch(&mut self, addition: &EpochToAdd) -> Result<(), StoreError> {
        let EpochToAdd { epoch, keep_from } = addition;
        let transaction = self.connection.transaction().map_err(committing)?;
        let next = "SELECT COALESCE(max(number) + 1, 0) FROM log_epoch";
        let next: u64 = transaction.query_row(next, [], |row| row.get(0)).map_err(reading)?;
        if next != epoch.number {
            return Err(StoreError::Refused(StoreRefusal::LogHasGrown));
        }
        let StoredEpoch { number, time, entry, content, .. } = epoch;
        let insert = "INSERT INTO log_epoch (number, unix_seconds, entry, roots, content)
            VALUES (?, ?, ?, ?, ?)";
        let values = params![number, time.get(), entry, epoch.roots(), content];
        transaction.execute(insert, values).map_err(committing)?;
        let forget = "UPDATE log_epoch SET content = x'' WHERE number < ? AND content <> x''";
        transaction.execute(forget, [keep_from]).map_err(committing)?;
        transaction.commit().map_err(committing)
    }
}

/// The last epoch.
pub(crate) fn last_epoch(connection: &Connection) -> Result<Option<StoredEpoch>, StoreError> {
    let select = format!("{COLUMNS} WHERE number = (SELECT max(number) FROM log_epoch)");
    let mut statement = connection.prepare(&select).map_err(reading)?;
    let mut rows = statement.query([]).map_err(reading)?;
    rows.next().map_err(reading)?.map(epoch).transpose()
}

/// Epochs from `first` on, at most `limit`.
pub(crate) fn epochs(
    connection: &Connection,
    first: u64,
    limit: u32,
) -> Result<Vec<StoredEpoch>, StoreError> {
    let select = format!("{COLUMNS} WHERE number >= ? ORDER BY number LIMIT ?");
    let mut statement = connection.prepare(&select).map_err(reading)?;
    let mut rows = statement.query(params![first, limit]).map_err(reading)?;
    let mut epochs = Vec::new();
    while let Some(row) = rows.next().map_err(reading)? {
        epochs.push(epoch(row)?);
    }
    Ok(epochs)
}

fn epoch(row: &Row<'_>) -> Result<StoredEpoch, StoreError> {
    let columns = || -> rusqlite::Result<EpochColumns> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
    };
    StoredEpoch::from_columns(columns().map_err(reading)?)
}
