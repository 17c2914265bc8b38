//! The embedded store: SQLite, and in memory the ids that were counted.
//!
//! One process has it, so what that process has decided is all that there is to know.

mod audit;
mod schema;
mod seen;
mod signatures;
mod sqlite;

use std::path::Path;

use bandana_shared::identity::{Day, UnixSeconds};
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;

pub(super) use audit::entries;
pub use seen::SeenIds;
pub use sqlite::SqliteStore;
pub(super) use sqlite::{DATABASE_FILE, opening};

use super::{
    AuditEntry, Committed, Conduct, ExperimentKey, ExperimentRecord, ExperimentState, Standing,
    Store, StoreError, Window,
};
use crate::ingest::{Arrival, Situation, plan};

/// Limits of the embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedSettings {
    /// Days whose uploads are taken: today and those before it, at least 1.
    pub replay_window_days: u32,
    /// Most upload ids that are remembered, about 40 bytes of memory each.
    pub ids_max: usize,
}

/// A database in a directory, with the exact set of its ids in memory.
#[derive(Debug)]
pub struct EmbeddedStore {
    database: SqliteStore,
    seen: SeenIds,
    oldest: Day,
    settings: EmbeddedSettings,
}

impl EmbeddedStore {
    /// Opens the store in `directory`, creating both when they are missing.
    ///
    /// # Errors
    /// As [`SqliteStore::open`], and when what it holds can't be read.
    pub fn open(directory: &Path, settings: EmbeddedSettings) -> Result<Self, StoreError> {
        Self::over(SqliteStore::open(directory)?, settings)
    }

    /// A store over a database that is open.
    ///
    /// # Errors
    /// [`StoreError`] when what it holds can't be read.
    pub fn over(database: SqliteStore, settings: EmbeddedSettings) -> Result<Self, StoreError> {
        let (seen, oldest) = (SeenIds::load(&database)?, database.oldest_day()?);
        Ok(Self { database, seen, oldest, settings })
    }

    /// Moves the replay window on when a new day has begun.
    fn expire(&mut self, today: Day) -> Result<(), StoreError> {
        let oldest = today.back(self.settings.replay_window_days.saturating_sub(1));
        if oldest > self.oldest {
            self.database.expire_before(oldest)?;
            self.seen.forget_before(oldest);
            self.oldest = oldest;
        }
        Ok(())
    }

    fn check(&self, standing: Standing) -> Result<(), StoreError> {
        let record = self.database.experiment(standing.key)?;
        let stands = record.standing() == Some(standing);
        stands.then_some(()).ok_or_else(|| StoreError::Outdated(Box::new(record)))
    }
}

impl Store for EmbeddedStore {
    fn load(&mut self) -> Result<Vec<ExperimentRecord>, StoreError> {
        self.database.experiments()
    }

    fn window(&self) -> Window {
        Window { oldest: self.oldest, ids: Some((self.seen.len(), self.settings.ids_max)) }
    }

    fn commit(&mut self, uploads: &[Arrival], today: Day) -> Result<Committed, StoreError> {
        self.expire(today)?;
        let situation = Situation {
            seen: &self.seen,
            ids_max: self.settings.ids_max,
            oldest: self.oldest,
            today,
        };
        let plan = plan(uploads, &situation);
        if !plan.rows.is_empty() {
            self.database.commit_group(&plan.rows)?;
        }
        for row in &plan.rows {
            for id in &row.ids {
                self.seen.insert(row.day, *id);
            }
        }
        let deltas = plan.rows.into_iter().flat_map(|row| row.deltas).collect();
        Ok(Committed { verdicts: plan.verdicts, deltas })
    }

    fn create_experiment(
        &mut self,
        specification: &Specification,
        conduct: Conduct,
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        let key = self.database.create_experiment(specification, conduct, state, entry)?;
        self.database.experiment(key)
    }

    fn add_revision(
        &mut self,
        standing: Standing,
        specification: &Specification,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.check(standing)?;
        self.database.add_revision(standing.key, specification, entry)?;
        self.database.experiment(standing.key)
    }

    fn set_state(
        &mut self,
        standing: Standing,
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.check(standing)?;
        self.database.set_state(standing.key, state, entry)?;
        self.database.experiment(standing.key)
    }

    fn add_signature(
        &mut self,
        key: ExperimentKey,
        specification: &Specification,
        signature: &Signature,
        now: UnixSeconds,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.database.add_signature(specification, signature, now, entry)?;
        self.database.experiment(key)
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.database.close()
    }
}
