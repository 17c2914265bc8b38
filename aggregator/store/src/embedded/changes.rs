//! Changes of the tables that both databases have, each durable in a transaction of its own.

use super::SqliteStore;
use super::sqlite::committing;
use crate::{
    AuditEntry, CuratorChange, EpochToAdd, ExperimentChange, ExperimentState, StoreError,
    TrustedChange, audit, experiments, log, queries, trusted,
};

impl SqliteStore {
    /// Adds an epoch to the log.
    ///
    /// # Errors
    /// [`StoreRefusal::LogHasGrown`](crate::StoreRefusal::LogHasGrown); [`StoreError::Database`].
    pub fn add_epoch(&mut self, addition: &EpochToAdd) -> Result<(), StoreError> {
        self.change(async |db| log::add(db, addition).await)
    }

    /// Makes a change of an experiment.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; [`StoreError::Database`] also for a signature whose expiry is beyond
    /// the range of the database.
    pub fn apply_experiment_change(
        &mut self,
        change: &ExperimentChange<'_>,
        entry: &AuditEntry,
    ) -> Result<(), StoreError> {
        self.change(async |db| {
            experiments::change(db, change).await?;
            audit::append(db, entry).await
        })
    }

    /// Makes a change for the curator.
    ///
    /// # Errors
    /// [`StoreError::Refused`]: nothing was changed. [`StoreError::Database`].
    pub fn apply_query_change(&mut self, change: &CuratorChange) -> Result<(), StoreError> {
        self.change(async |db| queries::change(db, change).await)
    }

    /// Makes a change of a trusted experiment.
    ///
    /// # Errors
    /// [`StoreError::Refused`]: nothing was changed.
    /// [`StoreError::Database`].
    pub fn apply_trusted_change(&mut self, change: &TrustedChange) -> Result<(), StoreError> {
        // Replaced or erased rewards must not rest in free pages.
        self.zero_freed_pages(true).map_err(committing)?;
        let outcome = self.change(async |db| trusted::change(db, change).await);
        self.zero_freed_pages(false).map_err(committing)?;
        let is_stopped = matches!(
            change,
            TrustedChange::Move { state: ExperimentState::Stopped, .. }
                | TrustedChange::Delete { .. }
        );
        // Removes the erased rewards from the log too.
        let erased = if is_stopped { self.erase() } else { self.erase_rest() };
        erased.map_err(committing)?;
        outcome
    }
}
