//! Archived and deleted experiments, as recorded in the audit log.
//!
//! So neither needs a column, and an append-only log decides about an id. The row of a deleted
//! experiment stays with its id and key, which no other experiment may get: upload groups in the
//! replay window still refer to the key until their days expire. Queries that read experiments or
//! sum up groups leave that row out. The digests of its revisions stay too, so that a client that
//! names one is told that the experiment has ended.

use bandana_shared::identity::{Digest, ExperimentId};
use rusqlite::{Connection, Transaction};

use super::sqlite::{committing, reading};
use super::{SqliteStore, audit};
use crate::{AuditEntry, ExperimentKey, StoreError, damaged};

/// SQL: whether the experiment of the row `e` is archived, by its latest entry. The query reads,
/// and so checks, all of its entries: a damaged one may have changed its meaning.
pub(super) const ARCHIVED: &str = "COALESCE(
    (SELECT max(CASE a.action WHEN 'archive' THEN a.key END)
            > COALESCE(max(CASE a.action WHEN 'unarchive' THEN a.key END), 0)
        FROM intact_audit a WHERE a.experiment = e.id), FALSE)";

/// SQL: whether the experiment of the row `e` was deleted.
pub(super) const DELETED: &str = "COALESCE(
    (SELECT max(a.action = 'delete') FROM intact_audit a WHERE a.experiment = e.id), FALSE)";

/// Statements that delete an experiment's parts, ordered so that no reference dangles.
const PARTS: [&str; 7] = [
    "DELETE FROM signature
        WHERE digest IN (SELECT digest FROM specification WHERE experiment = ?)",
    "UPDATE specification SET bytes = x'' WHERE experiment = ?",
    "DELETE FROM symbol_tally WHERE experiment = ?",
    "DELETE FROM tally WHERE experiment = ?",
    "DELETE FROM symbol_checkpoint WHERE experiment = ?",
    "DELETE FROM checkpoint WHERE experiment = ?",
    "UPDATE experiment SET record = x'' WHERE key = ?",
];

/// Whether a deleted experiment, of either kind, had this id.
pub(super) fn was_deleted(connection: &Connection, id: &ExperimentId) -> rusqlite::Result<bool> {
    let query = format!("SELECT {DELETED} FROM (SELECT ? AS id) e");
    connection.prepare_cached(&query)?.query_row([id.as_str()], |row| row.get(0))
}

/// The keys of deleted experiments.
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

    /// Archives or unarchives an experiment; the action of `entry` says which.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn archive(&mut self, entry: &AuditEntry) -> Result<(), StoreError> {
        audit::append(&self.connection, entry).map_err(committing)
    }

    /// Deletes an experiment, in one transaction with its audit entry.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn delete(&mut self, key: ExperimentKey, entry: &AuditEntry) -> Result<(), StoreError> {
        // Tallies are private, and must rest neither in free pages nor in the log.
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
