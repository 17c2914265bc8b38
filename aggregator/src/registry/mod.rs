//! The registry: experiments in memory, as served since the last commit.

pub(crate) mod answers;
mod drift;
mod experiment;
mod follower_handle;
mod monitor;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bandana_edge::clock::Clock;
use bandana_learners::LearnerError;
use bandana_shared::identity::{Digest, ExperimentId};
use bandana_shared::participation::Layer;
use bandana_shared::specification::Specification;
use bandana_store::{ExperimentKey, ExperimentRecord, overlaps};

use crate::trusted::TrustedExperiments;
use experiment::lists;

pub(crate) use experiment::shares;
pub use experiment::{Experiment, PublishedExperiment};
pub use follower_handle::ReplicaUnavailable;
pub(crate) use follower_handle::{FollowerHandle, FollowerQuestion};

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

#[derive(Debug, Default)]
struct Index {
    by_id: BTreeMap<ExperimentId, Arc<Experiment>>,
    by_key: HashMap<ExperimentKey, Arc<Experiment>>,
    by_digest: HashMap<Digest, Revision>,
    /// The revisions of deleted experiments.
    deleted: HashSet<Digest>,
}

#[cfg(test)]
thread_local! {
    /// Experiments that copies of an index had on this thread.
    static COPIED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Index {
    /// A copy, which costs in proportion to the number of experiments.
    fn copy(&self) -> Self {
        #[cfg(test)]
        COPIED.set(COPIED.get() + self.by_key.len());
        let Self { by_id, by_key, by_digest, deleted } = self;
        Self {
            by_id: by_id.clone(),
            by_key: by_key.clone(),
            by_digest: by_digest.clone(),
            deleted: deleted.clone(),
        }
    }

    fn add(&mut self, experiment: &Arc<Experiment>, revisions: &[Arc<Specification>]) {
        self.by_id.entry(experiment.id().clone()).or_insert_with(|| Arc::clone(experiment));
        self.by_key.insert(experiment.key(), Arc::clone(experiment));
        for specification in revisions {
            self.add_revision(experiment, specification);
        }
    }

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
        // A name that is no id is compared with all of them.
        let start = name.and_then(|name| ExperimentId::new(name).ok());
        let start = start.map_or(Bound::Unbounded, Bound::Excluded);
        let is_after = |id: &ExperimentId| name.is_none_or(|name| id.as_str() > name);
        let after = index.by_id.range((start, Bound::Unbounded)).filter(|(id, _)| is_after(id));
        let wanted =
            after.map(|(_, experiment)| experiment).filter(|experiment| wanted(experiment));
        wanted.take(most).cloned().collect()
    }

    /// Removes an experiment that the store no longer has.
    pub(crate) fn remove(&self, experiment: &Arc<Experiment>) {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        self.index.rcu(|index| {
            let mut index = index.copy();
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
        self.compare_layers();
    }

    /// Remembers the revisions of deleted experiments.
    pub(crate) fn remember_deleted(&self, digests: &[Digest]) {
        self.index.rcu(|index| {
            let mut index = index.copy();
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
        self.publish_all(vec![record])?.pop().ok_or(LearnerError::NoActiveArm)
    }

    /// Publishes experiments as stored, new or changed. The index is copied once for all of them,
    /// if one is new or has a new revision.
    ///
    /// # Errors
    /// As [`Self::publish`]; nothing new is published then.
    pub fn publish_all(
        &self,
        records: Vec<ExperimentRecord>,
    ) -> Result<Vec<Arc<Experiment>>, LearnerError> {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.index.load_full();
        let (mut published, mut added) = (Vec::new(), Vec::new());
        let mut changed = Vec::new();
        for record in records {
            let newest = record.revisions.last().ok_or(LearnerError::NoActiveArm)?;
            let known = index.by_id.get(newest.experiment_id()).cloned();
            // A revision can be found before it is served, but not the other way round.
            let is_new =
                |revision: &&Specification| !index.by_digest.contains_key(&revision.digest());
            let news: Vec<_> =
                record.revisions.iter().filter(is_new).cloned().map(Arc::new).collect();
            let experiment = match &known {
                Some(experiment) => Arc::clone(experiment),
                None => {
                    Arc::new(Experiment::new(&record, self.first_version, Arc::clone(&self.clock))?)
                }
            };
            published.push(Arc::clone(&experiment));
            if known.is_none() || !news.is_empty() {
                added.push((Arc::clone(&experiment), news));
            }
            if known.is_some() {
                changed.push((experiment, record));
            }
        }
        if !added.is_empty() {
            self.index.rcu(|index| {
                let mut index = index.copy();
                for (experiment, news) in &added {
                    index.add(experiment, news);
                }
                index
            });
        }
        for (experiment, record) in changed {
            experiment.apply_record(record)?;
        }
        if published.iter().any(|experiment| layer_of(experiment).is_some()) {
            self.compare_layers();
        }
        Ok(published)
    }

    /// Has each experiment know those that overlap with it.
    fn compare_layers(&self) {
        let all = self.all();
        let layered = all.iter().filter_map(|one| Some((one, one.serving().state, layer_of(one)?)));
        let layered: Vec<_> = layered.collect();
        let mut others: HashMap<ExperimentKey, Vec<String>> = HashMap::new();
        let parts = layered.iter().map(|(experiment, state, part)| (*experiment, *state, part));
        for [(one, part), (other, other_part)] in overlaps(parts) {
            let mut note = |of: &Experiment, other: &Experiment, part: &Layer| {
                others.entry(of.key()).or_default().push(format!("{} ({part})", other.id()));
            };
            note(one, other, other_part);
            note(other, one, part);
        }
        for (experiment, ..) in &layered {
            experiment.set_overlaps(others.remove(&experiment.key()).unwrap_or_default());
        }
    }
}

/// The part of a layer that an experiment is for.
fn layer_of(experiment: &Experiment) -> Option<Layer> {
    experiment.serving().specification.participation().layer.clone()
}

#[cfg(test)]
mod tests {
    use bandana_learners::history::History;
    use bandana_learners::window::Days;
    use bandana_learners::{Learner, LearnerConfig};
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::identity::{CellIndex, Day};
    use bandana_shared::rewards::Rewards;
    use bandana_shared::shuffling::BatchSize;
    use bandana_shared::specification::{Arm, ReleaseTiming};
    use bandana_shared::tally::Tally;

    use super::*;
    use bandana_edge::clock::ManualClock;
    use bandana_store::{ExperimentState, WrittenRecord};

    fn record(number: i64) -> ExperimentRecord {
        let arms = ["a", "b"].map(|label| Arm::new(label).unwrap());
        let specification = Specification::first(
            ExperimentId::new(format!("e{number:04}")).unwrap(),
            Epsilon::new(1.0).unwrap(),
            Rewards::binary(),
            Mechanism::Linear,
            arms.to_vec(),
            ReleaseTiming::IMMEDIATE,
        );
        ExperimentRecord {
            key: ExperimentKey(number),
            config: LearnerConfig { floor_weight: 0.1, ..LearnerConfig::new(Learner::LdpTs) },
            state: ExperimentState::Running,
            is_archived: false,
            written: WrittenRecord::default(),
            revisions: vec![specification.unwrap()],
            signatures: Vec::new(),
            tallies: Vec::new(),
            days: Days::default(),
            history: History::default(),
            policy: None,
        }
    }

    #[test]
    fn a_start_with_many_experiments_copies_none_of_them() {
        let registry = Registry::new(1, Arc::new(ManualClock::at_day(Day::new(1))));
        let before = COPIED.get();
        registry.publish_all((0..300).map(record).collect()).unwrap();
        assert_eq!(registry.all().len(), 300);
        assert_eq!(COPIED.get() - before, 0);
        // One more costs one copy, and a change of a known one none.
        registry.publish(record(300)).unwrap();
        registry.publish_all((0..300).map(record).collect()).unwrap();
        assert_eq!(COPIED.get() - before, 300);
        let page = registry.after(Some("e0297"), 2, |_| true);
        assert_eq!(page.iter().map(|e| e.key().0).collect::<Vec<_>>(), [298, 299]);
        assert_eq!(registry.after(Some("E, which is no id"), 1, |_| true)[0].key().0, 0);
    }

    #[test]
    fn policies_of_batches_are_a_minute_and_two_batches_of_an_arm_apart() {
        const BATCH: u32 = 100;
        let of_batches = |batches: u32| u64::from(batches * BATCH);
        let clock = Arc::new(ManualClock::at_day(Day::new(1)));
        let registry = Registry::new(1, Arc::<ManualClock>::clone(&clock));
        let mut record = record(1);
        let batch = BatchSize::new(BATCH).unwrap();
        record.revisions = vec![record.revisions[0].clone().in_batches(batch).unwrap()];
        record.tallies = vec![Tally::EMPTY; 2];
        let experiment = registry.publish(record).unwrap();
        let count = |arm: usize, ones: u64| {
            let delta = (
                Day::new(1),
                None,
                CellIndex::new(arm).unwrap(),
                Tally::new(BATCH.into(), ones).unwrap(),
            );
            experiment.add([delta].into_iter());
        };
        let version = || experiment.recompute().unwrap().policy.version;
        let first = version();
        clock.set_day(Day::new(2));
        // One batch of each arm: neither is in a policy, however long it lies there.
        count(0, 90);
        count(1, 20);
        clock.set_day(Day::new(3));
        assert!(version() == first && !experiment.has_news() && !experiment.is_due());
        // The second one of an arm.
        count(0, 90);
        assert!(experiment.has_news());
        let policy = experiment.recompute().unwrap();
        assert_eq!((policy.policy.version, policy.policy_reports), (first + 1, of_batches(2)));
        // Two more, and the second one of the other arm, at once.
        count(0, 90);
        count(0, 90);
        count(1, 20);
        assert_eq!(version(), first + 1);
        clock.set_day(Day::new(4));
        let policy = experiment.recompute().unwrap();
        assert_eq!((policy.policy.version, policy.policy_reports), (first + 2, of_batches(6)));
        // Coarse: with two arms in steps of 1/64.
        assert_eq!(policy.policy.weights.get(0) % (1 << 26), 0);
        assert_eq!(experiment.reports(), of_batches(6));
    }
}
