//! The experiments in memory: what is served, as of the last commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bandana_shared::identity::{ArmIndex, Digest, ExperimentId};
use bandana_shared::limits::ARMS_MAX;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use tokio::sync::watch;

use crate::learner::pending::Flow;
use crate::learner::{LearnerError, Situation};
use crate::store::{Conduct, ExperimentKey, ExperimentRecord, ExperimentState};

/// Seconds after which a device should ask for a new policy.
const TIME_TO_LIVE_SECONDS: u32 = 60;

/// Fewest new reports after which a policy is recomputed at once.
const REPORTS_PER_POLICY_MIN: u64 = 100;

/// One experiment.
#[derive(Debug)]
pub struct Experiment {
    key: ExperimentKey,
    id: ExperimentId,
    conduct: Conduct,
    serving: ArcSwap<Serving>,
    tallies: Mutex<Vec<Tally>>,
    /// How often each arm was drawn here, since the start of the process.
    selections: Box<[AtomicU64]>,
    flow: Mutex<Flow>,
    /// Held while a policy is computed, so that none overtakes a newer one.
    computing: Mutex<()>,
    policy_version: watch::Sender<u64>,
}

/// What devices get, all of one piece.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The current revision.
    pub specification: Arc<Specification>,
    /// Its signatures; expired ones too.
    pub signatures: Arc<[Signature]>,
    /// Where the experiment stands.
    pub state: ExperimentState,
    /// The current policy, with a weight for every arm of the revision.
    pub policy: Arc<Policy>,
    /// Reports that the policy was computed from.
    pub policy_reports: u64,
}

impl Experiment {
    fn new(record: ExperimentRecord, version: u64) -> Result<Self, LearnerError> {
        let ExperimentRecord { key, conduct, state, revisions, signatures, tallies } = record;
        let newest = revisions.into_iter().next_back().ok_or(LearnerError::NoActiveArm)?;
        let policy = make_policy(conduct, &newest, &tallies, &[], version)?;
        let serving = Serving {
            state,
            policy: Arc::new(policy),
            policy_reports: reports(&tallies),
            specification: Arc::new(newest),
            signatures: signatures.into(),
        };
        let timing = serving.specification.timing();
        Ok(Self {
            key,
            conduct,
            selections: std::iter::repeat_with(AtomicU64::default).take(ARMS_MAX).collect(),
            flow: Mutex::new(Flow::new(timing.mean_lag())),
            id: serving.specification.experiment_id().clone(),
            serving: ArcSwap::from_pointee(serving),
            tallies: Mutex::new(tallies),
            computing: Mutex::new(()),
            policy_version: watch::Sender::new(version),
        })
    }

    /// Its key in the store.
    pub fn key(&self) -> ExperimentKey {
        self.key
    }

    /// Its name.
    pub fn id(&self) -> &ExperimentId {
        &self.id
    }

    /// How it is run.
    pub fn conduct(&self) -> Conduct {
        self.conduct
    }

    /// What devices get now.
    pub fn serving(&self) -> Arc<Serving> {
        self.serving.load_full()
    }

    /// The committed tally of every arm.
    pub fn tallies(&self) -> Vec<Tally> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an arm that was drawn for a device.
    pub(crate) fn count_selection(&self, arm: ArmIndex) {
        self.selections[arm.get()].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note of how much has come and gone, from which [`Self::recompute`] estimates
    /// what is on its way.
    pub(crate) fn observe(&self, now: Duration) {
        let mut flow = self.flow.lock().unwrap_or_else(PoisonError::into_inner);
        if flow.is_immediate() {
            return;
        }
        let tallies = self.tallies();
        let counts = self.selections.iter().take(tallies.len());
        let selections = counts.map(|count| count.load(Ordering::Relaxed)).collect();
        flow.observe(now, reports(&tallies), selections);
    }

    /// Publishes what a commit added. `true` when so much has come since the
    /// last policy that a new one is due: 1% of its reports, and at least
    /// [`REPORTS_PER_POLICY_MIN`].
    pub(crate) fn add(&self, deltas: impl Iterator<Item = (ArmIndex, Tally)>) -> bool {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        for (arm, tally) in deltas {
            if tallies.len() <= arm.get() {
                tallies.resize(arm.get() + 1, Tally::EMPTY);
            }
            tallies[arm.get()] += tally;
        }
        self.is_due_with(reports(&tallies))
    }

    /// Whether a new policy is due, as [`Self::add`] tells.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due_with(reports(&self.tallies()))
    }

    fn is_due_with(&self, reports: u64) -> bool {
        let used = self.serving.load().policy_reports;
        reports.saturating_sub(used) >= reports_until_policy(used)
    }

    /// Whether reports have come since the last policy.
    pub(crate) fn has_news(&self) -> bool {
        reports(&self.tallies()) != self.serving.load().policy_reports
    }

    /// Computes the policy from all committed reports and serves it. Without
    /// news the old one stays.
    ///
    /// # Errors
    /// [`LearnerError`], which valid specifications and conducts do not cause.
    pub fn recompute(&self) -> Result<Arc<Serving>, LearnerError> {
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.has_news() {
            return Ok(self.serving());
        }
        let serving = self.serving();
        let specification = Arc::clone(&serving.specification);
        self.serve(specification, serving.state)
    }

    /// Serves another revision or state, with a policy of its own.
    pub(crate) fn replace(
        &self,
        specification: Arc<Specification>,
        state: ExperimentState,
    ) -> Result<Arc<Serving>, LearnerError> {
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let arms = tallies.len().max(specification.arms().len());
        tallies.resize(arms, Tally::EMPTY);
        drop(tallies);
        self.serve(specification, state)
    }

    /// Serves other signatures, if the revision with this digest is the current one.
    pub(crate) fn publish_signatures(&self, digest: Digest, signatures: Vec<Signature>) {
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        let serving = Serving::clone(&self.serving());
        if serving.specification.digest() == digest {
            self.serving.store(Arc::new(Serving { signatures: signatures.into(), ..serving }));
        }
    }

    /// Must be called with `computing` held.
    fn serve(
        &self,
        specification: Arc<Specification>,
        state: ExperimentState,
    ) -> Result<Arc<Serving>, LearnerError> {
        let tallies = self.tallies();
        let version = *self.policy_version.borrow() + 1;
        let before = self.serving();
        let weights = &before.policy.weights;
        let shares: Vec<f64> = (0..weights.len()).map(|arm| weights.share(arm)).collect();
        let flow = self.flow.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = flow.pending(&shares);
        drop(flow);
        let policy = make_policy(self.conduct, &specification, &tallies, &pending, version)?;
        let policy = Arc::new(policy);
        let policy_reports = reports(&tallies);
        // Nobody can have signed a revision that did not exist yet.
        let same_revision = before.specification.digest() == specification.digest();
        let signatures = if same_revision { Arc::clone(&before.signatures) } else { [].into() };
        let serving =
            Arc::new(Serving { specification, signatures, state, policy, policy_reports });
        self.serving.store(Arc::clone(&serving));
        self.policy_version.send_replace(version);
        Ok(serving)
    }

    /// Tells of every new policy.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.policy_version.subscribe()
    }
}

fn reports(tallies: &[Tally]) -> u64 {
    tallies.iter().copied().sum::<Tally>().reports()
}

/// New reports after which a policy that was computed from so many is replaced at once.
fn reports_until_policy(used: u64) -> u64 {
    REPORTS_PER_POLICY_MIN.max(used / 100)
}

fn make_policy(
    conduct: Conduct,
    specification: &Specification,
    tallies: &[Tally],
    pending: &[f64],
    version: u64,
) -> Result<Policy, LearnerError> {
    let situation = Situation::new(tallies, &specification.active_arms(), specification.floor())
        .with_pending(pending)
        .with_ahead(reports_until_policy(reports(tallies)) as f64)
        .with_floor_weight(conduct.floor_weight);
    let weights: Weights = conduct.learner.weights(&situation)?;
    Ok(Policy { version, weights, time_to_live_seconds: TIME_TO_LIVE_SECONDS })
}

/// All experiments, by name and by the digest of every revision.
#[derive(Debug)]
pub struct Registry {
    index: ArcSwap<Index>,
    /// Version of the first policy of every experiment.
    first_version: u64,
}

#[derive(Clone, Debug, Default)]
struct Index {
    by_id: BTreeMap<ExperimentId, Arc<Experiment>>,
    by_digest: HashMap<Digest, Revision>,
}

impl Index {
    fn add_revision(&mut self, experiment: &Arc<Experiment>, revision: &Arc<Specification>) {
        let (experiment, specification) = (Arc::clone(experiment), Arc::clone(revision));
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
    /// An empty registry. `random` makes the versions of this process's policies
    /// differ from those before a restart.
    pub fn new(random: u64) -> Self {
        // Half of the numbers are left for counting up.
        Self { index: ArcSwap::default(), first_version: (random >> 1).max(1) }
    }

    /// The experiment of this name.
    pub fn by_id(&self, id: &ExperimentId) -> Option<Arc<Experiment>> {
        self.index.load().by_id.get(id).cloned()
    }

    /// The experiment with a revision of this digest.
    pub fn by_digest(&self, digest: Digest) -> Option<Revision> {
        self.index.load().by_digest.get(&digest).cloned()
    }

    /// All experiments, by name.
    pub fn all(&self) -> Vec<Arc<Experiment>> {
        self.index.load().by_id.values().cloned().collect()
    }

    /// Adds an experiment from the store.
    ///
    /// # Errors
    /// [`LearnerError`], which valid records do not cause.
    pub(crate) fn add(&self, record: ExperimentRecord) -> Result<Arc<Experiment>, LearnerError> {
        let revisions: Vec<_> = record.revisions.iter().cloned().map(Arc::new).collect();
        let experiment = Arc::new(Experiment::new(record, self.first_version)?);
        self.index.rcu(|index| {
            let mut index = Index::clone(index);
            index.by_id.insert(experiment.id.clone(), Arc::clone(&experiment));
            for specification in &revisions {
                index.add_revision(&experiment, specification);
            }
            index
        });
        Ok(experiment)
    }

    /// Adds a new revision.
    pub(crate) fn add_revision(&self, experiment: &Arc<Experiment>, revision: &Arc<Specification>) {
        self.index.rcu(|index| {
            let mut index = Index::clone(index);
            index.add_revision(experiment, revision);
            index
        });
    }
}
