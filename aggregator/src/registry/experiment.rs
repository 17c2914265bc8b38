//! One experiment in memory: its tallies, and the policy and revision that are served.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bandana_learners::LearnerConfig;
use bandana_learners::LearnerError;
use bandana_learners::pending::PendingEstimator;
use bandana_learners::{TallySnapshot, reports_until_policy};
use bandana_shared::identity::{ArmIndex, Day, ExperimentId};
use bandana_shared::limits::ARMS_MAX;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::signing::Signature;
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::tally::Tally;
use tokio::sync::watch;

use super::answers::ExperimentAnswers;
use super::monitor::{monitor_of, probability_best};
use crate::alarms::{Alarm, AlarmQuery, ExperimentMonitor};
use crate::clock::Clock;
use crate::store::{ExperimentKey, ExperimentRecord, ExperimentState, StoredPolicy};
use crate::store::{UploadTarget, served_policy};

/// One experiment.
#[derive(Debug)]
pub struct Experiment {
    key: ExperimentKey,
    id: ExperimentId,
    config: LearnerConfig,
    /// Arms of the first revision.
    initial_arms: usize,
    serving: ArcSwap<PublishedExperiment>,
    counted: Mutex<TallySnapshot>,
    /// Groups with uploads to it that were acknowledged here, and those of them that the tallies
    /// include, where the tallies are the store's to tell.
    acknowledged: AtomicU64,
    heard_of: AtomicU64,
    /// How often each arm was drawn here, since the start of the process.
    selections: Box<[AtomicU64]>,
    flow: Mutex<PendingEstimator>,
    monitor: Mutex<ExperimentMonitor>,
    /// Held while a policy is computed, so that none overtakes a newer one.
    computing: Mutex<()>,
    policy_version: watch::Sender<u64>,
    /// What devices are told of what is served.
    answers: ExperimentAnswers,
    clock: Arc<dyn Clock>,
}

/// What devices get, all of one piece.
#[derive(Clone, Debug)]
pub struct PublishedExperiment {
    /// The current revision.
    pub specification: Arc<Specification>,
    /// Its signatures; expired ones too.
    pub signatures: Arc<[Signature]>,
    /// Where the experiment stands.
    pub state: ExperimentState,
    /// Whether lists leave it out.
    pub is_archived: bool,
    /// The current policy, with a weight for every arm of the revision.
    pub policy: Arc<Policy>,
    /// Reports that the policy was computed from.
    pub policy_reports: u64,
    /// When the policy was computed, by the monotonic clock.
    pub policy_since: Duration,
}

impl UploadTarget for Experiment {
    fn key(&self) -> ExperimentKey {
        self.key
    }

    fn state(&self) -> ExperimentState {
        self.serving.load().state
    }
}

impl Experiment {
    pub(super) fn new(
        record: &ExperimentRecord,
        version: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LearnerError> {
        let ExperimentRecord { key, config, tallies, days, .. } = record;
        let counted = TallySnapshot { tallies: tallies.clone(), days: days.clone() };
        let newest = Arc::new(record.revisions.last().ok_or(LearnerError::NoActiveArm)?.clone());
        let initial_arms = record.revisions.first().map_or(0, |first| first.arms().len());
        let StoredPolicy { policy, reports } = match &record.policy {
            Some(policy) => policy.clone(),
            None => StoredPolicy {
                policy: served_policy(version, config.weigh(&newest, initial_arms, &counted, &[])?),
                reports: reports(tallies),
            },
        };
        let version = policy.version;
        let serving = PublishedExperiment {
            state: record.state,
            is_archived: record.is_archived,
            policy: Arc::new(policy),
            policy_reports: reports,
            specification: newest,
            signatures: record.signatures.clone().into(),
            policy_since: clock.monotonic(),
        };
        let mut flow = PendingEstimator::new(serving.specification.timing().mean_lag());
        flow.serve(serving.policy_since, shares(&serving.policy.weights));
        let monitor = monitor_of(record, &serving);
        Ok(Self {
            key: *key,
            config: *config,
            initial_arms,
            selections: std::iter::repeat_with(AtomicU64::default).take(ARMS_MAX).collect(),
            flow: Mutex::new(flow),
            monitor: Mutex::new(monitor),
            id: serving.specification.experiment_id().clone(),
            serving: ArcSwap::from_pointee(serving),
            counted: Mutex::new(counted),
            acknowledged: AtomicU64::new(0),
            heard_of: AtomicU64::new(0),
            computing: Mutex::new(()),
            policy_version: watch::Sender::new(version),
            answers: ExperimentAnswers::default(),
            clock,
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
    pub fn config(&self) -> LearnerConfig {
        self.config
    }

    /// How many arms there were from the start; those after them have been added.
    pub fn initial_arms(&self) -> usize {
        self.initial_arms
    }

    /// What devices get now.
    pub fn serving(&self) -> Arc<PublishedExperiment> {
        self.serving.load_full()
    }

    /// What devices are told of what is served.
    pub(crate) fn answers(&self) -> &ExperimentAnswers {
        &self.answers
    }

    /// The committed tally of every arm.
    pub fn tallies(&self) -> Vec<Tally> {
        self.counted().tallies.clone()
    }

    fn counted(&self) -> MutexGuard<'_, TallySnapshot> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Committed reports, all arms together.
    pub(crate) fn reports(&self) -> u64 {
        reports(&self.tallies())
    }

    /// Notes, after a commit and before it is acknowledged, that the store will tell of more.
    pub(crate) fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
    }

    /// How often something was acknowledged here that the store tells of.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Notes that the tallies have all that had been acknowledged so often.
    pub(crate) fn heard_of(&self, acknowledged: u64) {
        self.heard_of.fetch_max(acknowledged, Ordering::SeqCst);
    }

    /// Whether something was acknowledged here that the tallies may lack.
    pub(crate) fn is_behind(&self) -> bool {
        self.heard_of.load(Ordering::SeqCst) < self.acknowledged()
    }

    /// Counts an arm that was drawn for a device.
    pub(crate) fn count_selection(&self, arm: ArmIndex) {
        self.selections[arm.get()].fetch_add(1, Ordering::Relaxed);
    }

    /// What is on its way for each arm, as far as that can be known.
    fn pending(&self) -> Vec<f64> {
        let arms = self.serving.load().policy.weights.len();
        self.flow.lock().unwrap_or_else(PoisonError::into_inner).pending(arms)
    }

    /// Takes note of how much has come and gone, from which [`Self::recompute`] estimates
    /// what is on its way, and [`Self::alarms`] tells what should not be.
    pub(crate) fn observe(&self, now: Duration) {
        self.sample(&mut self.monitor(), now);
        let mut flow = self.flow.lock().unwrap_or_else(PoisonError::into_inner);
        if flow.is_immediate() {
            return;
        }
        let tallies = self.tallies();
        let counts = self.selections.iter().take(tallies.len());
        let selections = counts.map(|count| count.load(Ordering::Relaxed)).collect();
        flow.observe(now, reports(&tallies), selections);
    }

    fn monitor(&self) -> MutexGuard<'_, ExperimentMonitor> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sample(&self, monitor: &mut ExperimentMonitor, now: Duration) {
        let reports: Vec<u64> = self.tallies().iter().map(|tally| tally.reports()).collect();
        let selections = self.selections.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        let is_running = self.serving.load().state == ExperimentState::Running;
        monitor.observe(now, &reports, selections, is_running);
    }

    /// The alarms that ring now; none of a draft.
    pub fn alarms(&self) -> Vec<Alarm> {
        let serving = self.serving();
        if serving.state == ExperimentState::Draft {
            return Vec::new();
        }
        let now = self.clock.monotonic();
        let mut monitor = self.monitor();
        self.sample(&mut monitor, now);
        let arms = serving.specification.arms();
        monitor.alarms(AlarmQuery {
            now,
            is_running: serving.state == ExperimentState::Running,
            best: |arm| probability_best(&serving.specification, &self.tallies(), arm),
            label: |arm| arms.get(arm).map_or_else(String::new, |arm: &Arm| arm.label().to_owned()),
        })
    }

    /// Publishes what a commit added. `true` when so much has come since the
    /// last policy that a new one is due: 1% of its reports, and at least
    /// [`REPORTS_PER_POLICY_MIN`].
    pub(crate) fn add(&self, deltas: impl Iterator<Item = (Day, ArmIndex, Tally)>) -> bool {
        let mut counted = self.counted();
        for delta in deltas {
            counted.add(self.config.memory, delta);
        }
        self.is_due_with(reports(&counted.tallies))
    }

    /// Whether a new policy is due, as [`Self::add`] tells.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due_with(self.reports())
    }

    fn is_due_with(&self, reports: u64) -> bool {
        let used = self.serving.load().policy_reports;
        reports.saturating_sub(used) >= reports_until_policy(used)
    }

    /// Whether reports have come since the last policy.
    pub(crate) fn has_news(&self) -> bool {
        self.reports() != self.serving.load().policy_reports
    }

    /// Computes the policy from all committed reports and serves it. Without
    /// news the old one stays.
    ///
    /// # Errors
    /// [`LearnerError`], which valid specifications and conducts do not cause.
    pub fn recompute(&self) -> Result<Arc<PublishedExperiment>, LearnerError> {
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.has_news() {
            return Ok(self.serving());
        }
        let serving = self.serving();
        let specification = Arc::clone(&serving.specification);
        self.serve(specification, serving.state, Arc::clone(&serving.signatures))
    }

    /// Replaces the tallies by what the store says, unless that is older.
    pub(crate) fn set_counted(&self, mut newer: TallySnapshot) {
        let mut counted = self.counted();
        if reports(&newer.tallies) >= reports(&counted.tallies) {
            let arms = newer.tallies.len().max(counted.tallies.len());
            newer.tallies.resize(arms, Tally::EMPTY);
            *counted = newer;
        }
    }

    /// Replaces the tallies, which had so many reports before the store was asked, by fewer:
    /// it has lost some. Leaves them if more have become known since.
    pub(crate) fn take_back_counted(&self, known: u64, mut fewer: TallySnapshot) {
        let mut counted = self.counted();
        if reports(&counted.tallies) == known {
            let arms = fewer.tallies.len().max(counted.tallies.len());
            fewer.tallies.resize(arms, Tally::EMPTY);
            *counted = fewer;
        }
    }

    /// The weights that the learner gives the arms of `specification` now, and the
    /// number of reports that it knows.
    ///
    /// # Errors
    /// [`LearnerError`], which valid specifications and conducts do not cause.
    pub(crate) fn weigh(
        &self,
        specification: &Specification,
    ) -> Result<(Weights, u64), LearnerError> {
        let counted = self.counted().clone();
        let pending = self.pending();
        let weights = self.config.weigh(specification, self.initial_arms, &counted, &pending)?;
        Ok((weights, reports(&counted.tallies)))
    }

    /// Serves weights that were stored as the policy after `before`, unless something newer
    /// is served already.
    pub(crate) fn apply_policy(&self, before: u64, version: u64, weights: Weights, reports: u64) {
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        let serving = PublishedExperiment::clone(&self.serving());
        if serving.policy.version == before {
            let policy = Arc::new(served_policy(version, weights));
            let policy_since = self.clock.monotonic();
            self.publish(PublishedExperiment {
                policy,
                policy_reports: reports,
                policy_since,
                ..serving
            });
        }
    }

    /// Serves what a record of this experiment says, unless that is older.
    pub(super) fn apply_record(&self, record: ExperimentRecord) -> Result<(), LearnerError> {
        let ExperimentRecord { state, revisions, signatures, tallies, days, policy, .. } = record;
        let is_archived = record.is_archived;
        let newest = revisions.into_iter().next_back().ok_or(LearnerError::NoActiveArm)?;
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.serving();
        if let Some(StoredPolicy { policy, reports }) = policy {
            self.set_counted(TallySnapshot { tallies, days });
            if policy.version > before.policy.version {
                let signatures = signatures.into();
                let (policy, specification) = (Arc::new(policy), Arc::new(newest));
                let policy_reports = reports;
                let policy_since = self.clock.monotonic();
                let serving = PublishedExperiment {
                    specification,
                    signatures,
                    state,
                    is_archived,
                    policy,
                    policy_reports,
                    policy_since,
                };
                self.publish(serving);
            }
            return Ok(());
        }
        if before.state == state && before.specification.digest() == newest.digest() {
            let serving = PublishedExperiment::clone(&before);
            let signatures = signatures.into();
            self.serving.store(Arc::new(PublishedExperiment {
                signatures,
                is_archived,
                ..serving
            }));
            return Ok(());
        }
        let mut known = self.counted();
        let arms = known.tallies.len().max(newest.arms().len());
        known.tallies.resize(arms, Tally::EMPTY);
        drop(known);
        self.serve(Arc::new(newest), state, signatures.into()).map(drop)
    }

    /// Must be called with `computing` held.
    fn serve(
        &self,
        specification: Arc<Specification>,
        state: ExperimentState,
        signatures: Arc<[Signature]>,
    ) -> Result<Arc<PublishedExperiment>, LearnerError> {
        let counted = self.counted().clone();
        let version = *self.policy_version.borrow() + 1;
        let pending = self.pending();
        let weights = self.config.weigh(&specification, self.initial_arms, &counted, &pending)?;
        let policy = Arc::new(served_policy(version, weights));
        let policy_reports = reports(&counted.tallies);
        let policy_since = self.clock.monotonic();
        let serving = PublishedExperiment {
            specification,
            signatures,
            state,
            // Nothing but a change of the store archives an experiment, and that changes no policy.
            is_archived: self.serving.load().is_archived,
            policy,
            policy_reports,
            policy_since,
        };
        Ok(self.publish(serving))
    }

    /// Must be called with `computing` held.
    fn publish(&self, serving: PublishedExperiment) -> Arc<PublishedExperiment> {
        let (version, serving) = (serving.policy.version, Arc::new(serving));
        self.monitor().serve(serving.policy_since, &shares(&serving.policy.weights));
        let mut flow = self.flow.lock().unwrap_or_else(PoisonError::into_inner);
        flow.serve(serving.policy_since, shares(&serving.policy.weights));
        drop(flow);
        self.serving.store(Arc::clone(&serving));
        self.policy_version.send_replace(version);
        serving
    }

    /// Tells of every new policy.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.policy_version.subscribe()
    }
}

pub(crate) fn shares(weights: &Weights) -> Vec<f64> {
    (0..weights.len()).map(|arm| weights.share(arm)).collect()
}

fn reports(tallies: &[Tally]) -> u64 {
    tallies.iter().copied().sum::<Tally>().reports()
}
