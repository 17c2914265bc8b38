//! The trusted experiments in memory, as of their last commits: the published view.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bandana_shared::identity::ExperimentId;
use bandana_store::{StoreError, TrustedRecord, TrustedVersion};

use super::engine::TrustedExperiment;

type ById = BTreeMap<ExperimentId, Arc<TrustedExperiment>>;

/// All trusted experiments. No lock is held during a commit.
#[derive(Debug, Default)]
pub struct TrustedExperiments(RwLock<ById>);

impl TrustedExperiments {
    /// The experiment with this name.
    pub fn get(&self, id: &ExperimentId) -> Option<Arc<TrustedExperiment>> {
        self.read().get(id).cloned()
    }

    /// The first matching experiments after a name, in the order of names.
    pub(crate) fn after(
        &self,
        name: Option<&str>,
        most: usize,
        wanted: impl Fn(&TrustedExperiment) -> bool,
    ) -> Vec<Arc<TrustedExperiment>> {
        let is_after = |id: &ExperimentId| name.is_none_or(|name| id.as_str() > name);
        let start = name.and_then(|name| ExperimentId::new(name).ok());
        let start = start.map_or(Bound::Unbounded, Bound::Excluded);
        let by_id = self.read();
        let after = by_id
            .range((start, Bound::Unbounded))
            .filter(|(id, _)| is_after(id))
            .map(|(_, experiment)| experiment);
        after.filter(|experiment| wanted(experiment)).take(most).cloned().collect()
    }

    /// All experiments, in the order of names.
    pub fn all(&self) -> Vec<Arc<TrustedExperiment>> {
        self.read().values().cloned().collect()
    }

    /// Publishes an experiment from its stored record.
    ///
    /// # Errors
    /// [`StoreError`] when the record can't be decoded.
    pub fn publish_record(
        &self,
        record: &TrustedRecord,
    ) -> Result<Arc<TrustedExperiment>, StoreError> {
        Ok(self.publish(TrustedExperiment::try_from(record)?))
    }

    /// Publishes a committed state.
    pub(crate) fn publish(&self, experiment: TrustedExperiment) -> Arc<TrustedExperiment> {
        let experiment = Arc::new(experiment);
        self.write().insert(experiment.id.clone(), Arc::clone(&experiment));
        experiment
    }

    /// Publishes the successor of version `from`, unless another version is published by now.
    pub(crate) fn advance(&self, experiment: TrustedExperiment, from: TrustedVersion) {
        let mut by_id = self.write();
        if by_id.get(&experiment.id).is_some_and(|shown| shown.version == from) {
            by_id.insert(experiment.id.clone(), Arc::new(experiment));
        }
    }

    /// Publishes the database's state, unless the published version has changed since the database
    /// was queried.
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

    /// Removes an experiment that the database does not have, if its version is still `known`.
    pub(crate) fn remove(&self, id: &ExperimentId, known: TrustedVersion) {
        let mut by_id = self.write();
        if by_id.get(id).is_some_and(|shown| shown.version == known) {
            by_id.remove(id);
        }
    }

    /// The published version of every experiment.
    pub(crate) fn versions(&self) -> HashMap<ExperimentId, TrustedVersion> {
        self.read().iter().map(|(id, experiment)| (id.clone(), experiment.version)).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, ById> {
        // No operation under the lock can leave the map inconsistent.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ById> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
