//! A store that fails on command, and runs checks before and after each write.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bandana_learners::LearnerConfig;
use bandana_shared::identity::{Day, Digest};
use bandana_shared::specification::Specification;
use bandana_store::{
    AuditEntry, Committed, CuratorChange, DatabaseError, EpochToAdd, ExpectedState,
    ExperimentChange, ExperimentRecord, ExperimentState, SqliteError, Store, StoreError,
    TrustedChange, ValidUpload, Window, WrittenRecord,
};

use super::life::{Fault, Point};
use super::place::Place;
use super::world::World;

/// The real store of a simulated server.
pub(crate) struct WatchedStore {
    pub(crate) store: Box<dyn Store>,
    pub(crate) place: Arc<Place>,
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) server: usize,
}

impl fmt::Debug for WatchedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// The outcome of a failed write of a simulated server.
enum Failure {
    /// The server dies.
    Crash,
    /// The outcome is unknown.
    Unknown,
    /// The store refused the write.
    Declined(StoreError),
    /// A check failed.
    Wrong(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Wrong(error)
    }
}

impl WatchedStore {
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts the outcome for the writer.
    fn tell<T>(&self, outcome: Result<T, Failure>) -> Result<T, StoreError> {
        outcome.map_err(|failure| match failure {
            // An error after which the writer can't continue.
            Failure::Crash => SqliteError::ForeignFile.into(),
            Failure::Unknown => {
                StoreError::Database(DatabaseError::Slow { doing: "failing on purpose" })
            }
            Failure::Declined(error) => error,
            Failure::Wrong(error) => {
                self.world().wrong.get_or_insert(error);
                SqliteError::ForeignFile.into()
            }
        })
    }

    /// Fails with this length of the log left.
    fn fail(&self, fault: Fault, log_length: u64) -> Result<Failure, anyhow::Error> {
        if fault.is_crash {
            self.place.crash(log_length)?;
            return Ok(Failure::Crash);
        }
        Ok(Failure::Unknown)
    }

    fn try_commit(&mut self, uploads: &[ValidUpload], today: Day) -> Result<Committed, Failure> {
        let before = self.place.log_length()?;
        let mut world = self.world();
        world.begin_commit(self.server, uploads, today)?;
        let fault = world.next_fault(self.server);
        drop(world);
        if let Some(fault) = fault.filter(|fault| fault.point == Point::Before) {
            let failure = self.fail(fault, before)?;
            if !fault.is_crash {
                self.world().expect_failure(self.server, uploads)?;
            }
            return Err(failure);
        }
        let committed = self.store.commit(uploads, today).map_err(anyhow::Error::from)?;
        let records = self.store.load().map_err(anyhow::Error::from)?;
        let after = self.place.log_length()?;
        let mut world = self.world();
        world.judge(uploads, today, &committed.verdicts)?;
        world.model.check_stored(&records)?;
        world.meanwhile(self.server)?;
        let Some(fault) = fault else {
            world.model.settle();
            world.expect(self.server, uploads, &committed)?;
            return Ok(committed);
        };
        let cut = world.cut(fault, before, after);
        if fault.is_crash {
            drop(world);
        } else {
            world.model.settle();
            world.expect_failure(self.server, uploads)?;
            drop(world);
        }
        Err(self.fail(fault, cut)?)
    }

    /// A change of an experiment.
    fn change(
        &mut self,
        change: impl FnOnce(&mut dyn Store) -> Result<ExperimentRecord, StoreError>,
    ) -> Result<ExperimentRecord, Failure> {
        let before = self.place.log_length()?;
        let mut world = self.world();
        world.check_nobody_knows(self.server)?;
        // The embedded store always knows the outcome of a change, or the server ends.
        let is_crash = self.place.is_embedded();
        let fault = world.next_fault(self.server);
        let fault = fault.map(|fault| Fault { is_crash: is_crash || fault.is_crash, ..fault });
        drop(world);
        if let Some(fault) = fault.filter(|fault| fault.point == Point::Before) {
            return Err(self.fail(fault, before)?);
        }
        let changed = change(&mut *self.store);
        let records = self.store.load().map_err(anyhow::Error::from)?;
        let after = self.place.log_length()?;
        let mut world = self.world();
        let record = match changed {
            Ok(record) => record,
            Err(error) => {
                world.model.check_stored(&records)?;
                return Err(Failure::Declined(error));
            }
        };
        if !world.model.restate(&records) {
            return Err(anyhow::anyhow!("a change that changes nothing").into());
        }
        world.model.check_stored(&records)?;
        let Some(fault) = fault else {
            world.count_change(self.server)?;
            return Ok(record);
        };
        drop(world);
        Err(self.fail(fault, after)?)
    }

    fn changed(
        &mut self,
        change: impl FnOnce(&mut dyn Store) -> Result<ExperimentRecord, StoreError>,
    ) -> Result<ExperimentRecord, StoreError> {
        let outcome = self.change(change);
        self.tell(outcome)
    }
}

impl Store for WatchedStore {
    fn add_epoch(&mut self, addition: &EpochToAdd) -> Result<(), StoreError> {
        self.store.add_epoch(addition)
    }

    fn load(&mut self) -> Result<Vec<ExperimentRecord>, StoreError> {
        let records = self.store.load()?;
        let checked = self.world().recover(&records);
        self.tell(checked.map(|()| records).map_err(Failure::Wrong))
    }

    fn window(&self, today: Day) -> Window {
        self.store.window(today)
    }

    fn commit(&mut self, uploads: &[ValidUpload], today: Day) -> Result<Committed, StoreError> {
        let outcome = self.try_commit(uploads, today);
        self.tell(outcome)
    }

    fn create_experiment_with(
        &mut self,
        specification: &Specification,
        settings: (LearnerConfig, &WrittenRecord),
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.changed(|store| store.create_experiment_with(specification, settings, state, entry))
    }

    fn apply_experiment_change(
        &mut self,
        change: ExperimentChange<'_>,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        match change {
            ExperimentChange::Revision(..) | ExperimentChange::State(..) => {
                self.changed(|store| store.apply_experiment_change(change, entry))
            }
            _ => self.store.apply_experiment_change(change, entry),
        }
    }

    fn delete(&mut self, standing: ExpectedState, entry: &AuditEntry) -> Result<(), StoreError> {
        self.store.delete(standing, entry)
    }

    fn deleted(&mut self) -> Result<Vec<Digest>, StoreError> {
        self.store.deleted()
    }

    fn apply_query_change(&mut self, change: &CuratorChange) -> Result<(), StoreError> {
        self.store.apply_query_change(change)
    }

    fn apply_trusted_change(&mut self, change: &TrustedChange) -> Result<(), StoreError> {
        self.store.apply_trusted_change(change)
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.store.close()
    }
}
