//! The trusted experiments in memory, as of their last commits: what is recommended and shown.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bandana_shared::identity::ExperimentId;

use super::engine::TrustedExperiment;
use crate::store::{StoreError, TrustedRecord, TrustedVersion};

type ById = BTreeMap<ExperimentId, Arc<TrustedExperiment>>;

/// All trusted experiments. No lock is held while anything is committed.
#[derive(Debug, Default)]
pub struct TrustedExperiments(RwLock<ById>);

impl TrustedExperiments {
    /// The experiment of this name.
    pub fn get(&self, id: &ExperimentId) -> Option<Arc<TrustedExperiment>> {
        self.read().get(id).cloned()
    }

    /// The first ones that are wanted, by name, after a name.
    pub(crate) fn after(
        &self,
        name: Option<&str>,
        most: usize,
        wanted: impl Fn(&TrustedExperiment) -> bool,
    ) -> Vec<Arc<TrustedExperiment>> {
        let is_after = |id: &ExperimentId| name.is_none_or(|name| id.as_str() > name);
        let by_id = self.read();
        let after = by_id.iter().filter(|(id, _)| is_after(id)).map(|(_, experiment)| experiment);
        after.filter(|experiment| wanted(experiment)).take(most).cloned().collect()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<TrustedExperiment>> {
        self.read().values().cloned().collect()
    }

    /// Shows an experiment as the store has it.
    ///
    /// # Errors
    /// [`StoreError`] when it can't be understood.
    pub fn publish_record(
        &self,
        record: &TrustedRecord,
    ) -> Result<Arc<TrustedExperiment>, StoreError> {
        Ok(self.publish(TrustedExperiment::try_from(record)?))
    }

    /// Shows what is durable now.
    pub(crate) fn publish(&self, experiment: TrustedExperiment) -> Arc<TrustedExperiment> {
        let experiment = Arc::new(experiment);
        self.write().insert(experiment.id.clone(), Arc::clone(&experiment));
        experiment
    }

    /// Shows what has become of a version, unless something else is shown by now.
    pub(crate) fn advance(&self, experiment: TrustedExperiment, from: TrustedVersion) {
        let mut by_id = self.write();
        if by_id.get(&experiment.id).is_some_and(|shown| shown.version == from) {
            by_id.insert(experiment.id.clone(), Arc::new(experiment));
        }
    }

    /// Shows what the database has, unless something else is shown by now than what was known
    /// when it was asked.
    pub(crate) fn follow(
        &self,
        record: TrustedRecord,
        known: Option<TrustedVersion>,
    ) -> Result<(), StoreError> {
        let experiment = TrustedExperiment::try_from(&record)?;
        let mut by_id = self.write();
        if by_id.get(&record.id).map(|shown| shown.version) == known {
            let shown = by_id.get(&record.id);
            let answers = shown.filter(|shown| shown.specification == experiment.specification);
            let answers = answers.map(|shown| Arc::clone(&shown.answers)).unwrap_or_default();
            by_id.insert(record.id, Arc::new(TrustedExperiment { answers, ..experiment }));
        }
        Ok(())
    }

    /// Shows no more of an experiment that the database does not have, if it is still as it
    /// was known.
    pub(crate) fn remove(&self, id: &ExperimentId, known: TrustedVersion) {
        let mut by_id = self.write();
        if by_id.get(id).is_some_and(|shown| shown.version == known) {
            by_id.remove(id);
        }
    }

    /// The versions of all.
    pub(crate) fn versions(&self) -> HashMap<ExperimentId, TrustedVersion> {
        self.read().iter().map(|(id, experiment)| (id.clone(), experiment.version)).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, ById> {
        // Nothing that is done under the lock can leave it half done.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ById> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
