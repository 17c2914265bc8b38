//! The registry: experiments in memory, as served since the last commit.

pub(crate) mod answers;
mod elsewhere;
mod experiment;
mod monitor;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bandana_shared::identity::{Digest, ExperimentId};
use bandana_shared::specification::Specification;

pub use elsewhere::ReplicaUnavailable;
pub(crate) use elsewhere::{FollowerHandle, FollowerQuestion};
use experiment::lists;
pub(crate) use experiment::shares;
pub use experiment::{Experiment, PublishedExperiment};

use crate::clock::Clock;
use crate::store::{ExperimentKey, ExperimentRecord};
use crate::trusted::TrustedExperiments;
use bandana_learners::LearnerError;

/// All experiments, by name and by the digest of every revision.
#[derive(Debug)]
pub struct Registry {
    index: ArcSwap<Index>,
    /// Held while an experiment is published, so that none is added twice.
    publishing: Mutex<()>,
    /// The version of the first policy of every experiment.
    first_version: u64,
    /// The follower, which is asked about experiments that are unknown here.
    follower: OnceLock<FollowerHandle>,
    trusted: TrustedExperiments,
    clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug, Default)]
struct Index {
    by_id: BTreeMap<ExperimentId, Arc<Experiment>>,
    by_key: HashMap<ExperimentKey, Arc<Experiment>>,
    by_digest: HashMap<Digest, Revision>,
    /// The revisions of deleted experiments.
    deleted: HashSet<Digest>,
}

impl Index {
    fn add_revision(&mut self, experiment: &Arc<Experiment>, revision: &Arc<Specification>) {
        let (experiment, specification) = (Arc::clone(experiment), Arc::clone(revision));
        self.deleted.remove(&revision.digest());
        self.by_digest.insert(revision.digest(), Revision { experiment, specification });
    }
}

/// An experiment in one of its revisions.
#[derive(Clone, Debug)]
pub struct Revision {
    /// The experiment.
    pub experiment: Arc<Experiment>,
    /// The revision.
    pub specification: Arc<Specification>,
}

impl Registry {
    /// An empty registry. `random` makes the policy versions of this process differ from those
    /// before a restart. `clock` measures the age of policies.
    pub fn new(random: u64, clock: Arc<dyn Clock>) -> Self {
        // Half of the numbers are left for later versions.
        let first_version = (random >> 1).max(1);
        Self {
            index: ArcSwap::default(),
            publishing: Mutex::default(),
            first_version,
            clock,
            follower: OnceLock::new(),
            trusted: TrustedExperiments::default(),
        }
    }

    /// The trusted experiments.
    pub fn trusted(&self) -> &TrustedExperiments {
        &self.trusted
    }

    /// Sets the follower to ask about experiments that are unknown here.
    pub(crate) fn follow(&self, follower: FollowerHandle) {
        // There is one follower for each registry.
        self.follower.set(follower).ok();
    }

    pub(crate) fn follower(&self) -> Option<&FollowerHandle> {
        self.follower.get()
    }

    /// The experiment with this id.
    pub fn by_id(&self, id: &ExperimentId) -> Option<Arc<Experiment>> {
        self.index.load().by_id.get(id).cloned()
    }

    /// The experiment with this key in the store.
    pub(crate) fn by_key(&self, key: ExperimentKey) -> Option<Arc<Experiment>> {
        self.index.load().by_key.get(&key).cloned()
    }

    /// The experiment with a revision of this digest.
    pub fn by_digest(&self, digest: Digest) -> Option<Revision> {
        self.index.load().by_digest.get(&digest).cloned()
    }

    /// The first wanted experiments, by id, after an id.
    pub(crate) fn after(
        &self,
        name: Option<&str>,
        most: usize,
        wanted: impl Fn(&Experiment) -> bool,
    ) -> Vec<Arc<Experiment>> {
        let index = self.index.load();
        let is_after = |id: &ExperimentId| name.is_none_or(|name| id.as_str() > name);
        let after = index.by_id.iter().filter(|(id, _)| is_after(id));
        let wanted =
            after.map(|(_, experiment)| experiment).filter(|experiment| wanted(experiment));
        wanted.take(most).cloned().collect()
    }

    /// Removes an experiment that the store no longer has.
    pub(crate) fn remove(&self, experiment: &Arc<Experiment>) {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        self.index.rcu(|index| {
            let mut index = Index::clone(index);
            if index.by_id.get(experiment.id()).is_some_and(|shown| Arc::ptr_eq(shown, experiment))
            {
                index.by_id.remove(experiment.id());
            }
            index.by_key.remove(&experiment.key());
            let Index { by_digest, deleted, .. } = &mut index;
            by_digest.retain(|digest, revision| {
                let stays = !Arc::ptr_eq(&revision.experiment, experiment);
                if !stays {
                    deleted.insert(*digest);
                }
                stays
            });
            index
        });
    }

    /// Remembers the revisions of deleted experiments.
    pub(crate) fn remember_deleted(&self, digests: &[Digest]) {
        self.index.rcu(|index| {
            let mut index = Index::clone(index);
            index.deleted.extend(digests);
            index
        });
    }

    /// Whether a revision of a deleted experiment had this digest.
    pub fn was_deleted(&self, digest: Digest) -> bool {
        self.index.load().deleted.contains(&digest)
    }

    /// Whether this is the experiment that the registry has under its id.
    pub(crate) fn shows(&self, experiment: &Arc<Experiment>) -> bool {
        self.by_id(experiment.id()).is_some_and(|shown| Arc::ptr_eq(&shown, experiment))
    }

    /// All experiments, by id.
    pub fn all(&self) -> Vec<Arc<Experiment>> {
        self.index.load().by_id.values().cloned().collect()
    }

    /// Publishes an experiment as stored, new or changed.
    ///
    /// # Errors
    /// [`LearnerError`], which valid records do not cause.
    pub fn publish(&self, record: ExperimentRecord) -> Result<Arc<Experiment>, LearnerError> {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = record.revisions.last().ok_or(LearnerError::NoActiveArm)?;
        let known = self.by_id(newest.experiment_id());
        // A revision can be found before it is served, but not the other way round.
        let experiment = match &known {
            Some(experiment) => Arc::clone(experiment),
            None => {
                Arc::new(Experiment::new(&record, self.first_version, Arc::clone(&self.clock))?)
            }
        };
        let index = self.index.load();
        let is_new = |revision: &&Specification| !index.by_digest.contains_key(&revision.digest());
        let news: Vec<_> = record.revisions.iter().filter(is_new).cloned().map(Arc::new).collect();
        if known.is_none() || !news.is_empty() {
            self.index.rcu(|index| {
                let mut index = Index::clone(index);
                index
                    .by_id
                    .entry(experiment.id().clone())
                    .or_insert_with(|| Arc::clone(&experiment));
                index.by_key.insert(experiment.key(), Arc::clone(&experiment));
                for specification in &news {
                    index.add_revision(&experiment, specification);
                }
                index
            });
        }
        if known.is_some() {
            experiment.apply_record(record)?;
        }
        Ok(experiment)
    }
}
