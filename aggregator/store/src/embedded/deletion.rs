//! Deleted experiments in the embedded store.
//!
//! Upload groups in the replay window still refer to the key of a deleted experiment until their
//! days expire. Queries that read experiments or sum up groups leave its row out.

use rusqlite::Connection;

use super::SqliteStore;
use super::sqlite::committing;
use crate::{AuditEntry, ExperimentKey, StoreError, audit};

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

/// The keys of deleted experiments.
pub(super) fn deleted_keys(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let query = format!("SELECT key FROM intact_experiment e WHERE {DELETED} ORDER BY key");
    let mut statement = connection.prepare_cached(&query)?;
    let keys = statement.query_map([], |row| row.get(0))?;
    keys.collect()
}

impl SqliteStore {
    /// Deletes an experiment, in one transaction with its audit entry.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn delete(&mut self, key: ExperimentKey, entry: &AuditEntry) -> Result<(), StoreError> {
        // Tallies are private, and must rest neither in free pages nor in the log.
        self.zero_freed_pages(true).map_err(committing)?;
        let outcome = self.change(async |db| {
            for part in PARTS {
                db.execute(part, [key.0]).map_err(committing)?;
            }
            audit::append(db, entry).await
        });
        self.zero_freed_pages(false).map_err(committing)?;
        self.erase().map_err(committing)?;
        outcome
    }
}
