//! Experiments that are archived or deleted: the audit log says which.
//!
//! So neither needs a column, and what nobody can change says what became of an id. Of a deleted
//! experiment its row stays, with its id and key, which none may have again: groups of uploads of
//! the replay window go on to name the key, until their days are over. Whoever reads
//! experiments, or adds up what groups hold, leaves it out. Of its revisions the digests stay: who
//! names one is told that the experiment has ended.

use bandana_shared::identity::{Digest, ExperimentId};
use rusqlite::{Connection, Transaction};

use super::sqlite::{committing, reading};
use super::{SqliteStore, audit};
use crate::store::{AuditEntry, ExperimentKey, StoreError, damaged};

/// Whether the experiment of the row `e` is archived, by the last word on it. All of its entries
/// are read, and so checked: a damaged one may say something else than it did.
pub(super) const ARCHIVED: &str = "COALESCE(
    (SELECT max(CASE a.action WHEN 'archive' THEN a.key END)
            > COALESCE(max(CASE a.action WHEN 'unarchive' THEN a.key END), 0)
        FROM intact_audit a WHERE a.experiment = e.id), FALSE)";

/// Whether it was deleted.
pub(super) const DELETED: &str = "COALESCE(
    (SELECT max(a.action = 'delete') FROM intact_audit a WHERE a.experiment = e.id), FALSE)";

/// What goes with an experiment, in an order in which nothing refers to what is gone.
const PARTS: [&str; 6] = [
    "DELETE FROM signature
        WHERE digest IN (SELECT digest FROM specification WHERE experiment = ?)",
    "UPDATE specification SET bytes = x'' WHERE experiment = ?",
    "DELETE FROM symbol_tally WHERE experiment = ?",
    "DELETE FROM tally WHERE experiment = ?",
    "DELETE FROM symbol_checkpoint WHERE experiment = ?",
    "DELETE FROM checkpoint WHERE experiment = ?",
];

/// Whether this was the id of an experiment, of either kind, that was deleted.
pub(super) fn was_deleted(connection: &Connection, id: &ExperimentId) -> rusqlite::Result<bool> {
    let query = format!("SELECT {DELETED} FROM (SELECT ? AS id) e");
    connection.prepare_cached(&query)?.query_row([id.as_str()], |row| row.get(0))
}

/// The keys of the experiments that were deleted.
pub(super) fn deleted_keys(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let query = format!("SELECT key FROM intact_experiment e WHERE {DELETED} ORDER BY key");
    let mut statement = connection.prepare_cached(&query)?;
    let keys = statement.query_map([], |row| row.get(0))?;
    keys.collect()
}

impl SqliteStore {
    /// The digests of all revisions of deleted experiments.
    ///
    /// # Errors
    /// [`StoreError`] when something can't be read or understood.
    pub fn deleted(&self) -> Result<Vec<Digest>, StoreError> {
        let query = "SELECT digest, length(bytes) FROM intact_specification";
        let mut statement = self.connection.prepare(query).map_err(reading)?;
        let mut rows = statement.query([]).map_err(reading)?;
        let mut deleted = Vec::new();
        while let Some(row) = rows.next().map_err(reading)? {
            let (digest, bytes): (Vec<u8>, u64) =
                (row.get(0).map_err(reading)?, row.get(1).map_err(reading)?);
            if bytes == 0 {
                deleted.push(Digest::try_from(&digest[..]).map_err(|e| damaged(e.to_string()))?);
            }
        }
        Ok(deleted)
    }

    /// Notes that an experiment is archived, or not any more.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn archive(&mut self, entry: &AuditEntry) -> Result<(), StoreError> {
        audit::append(&self.connection, entry).map_err(committing)
    }

    /// Deletes an experiment, in one transaction with its entry.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn delete(&mut self, key: ExperimentKey, entry: &AuditEntry) -> Result<(), StoreError> {
        // Tallies are private, and must not rest in pages that are free, nor in the log.
        self.zero_freed_pages(true).map_err(committing)?;
        let outcome = self.delete_parts(key, entry);
        self.zero_freed_pages(false).map_err(committing)?;
        self.erase().map_err(committing)?;
        outcome.map_err(committing)
    }

    fn delete_parts(&mut self, key: ExperimentKey, entry: &AuditEntry) -> rusqlite::Result<()> {
        let transaction: Transaction<'_> = self.connection.transaction()?;
        for part in PARTS {
            transaction.execute(part, [key.0])?;
        }
        audit::append(&transaction, entry)?;
        transaction.commit()
    }
}
