//! One experiment in memory: its tallies, and the served policy and revision.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bandana_edge::clock::Clock;
use bandana_learners::LearnerConfig;
use bandana_learners::LearnerError;
use bandana_learners::pending::PendingEstimator;
use bandana_learners::terms::ArmTerms;
use bandana_learners::{TallySnapshot, reports_until_policy};
use bandana_shared::identity::{ArmIndex, CellIndex, Day, ExperimentId, Revision};
use bandana_shared::limits::ARMS_MAX;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::shuffling::BatchSize;
use bandana_shared::signing::Signature;
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::tally::Tally;
use bandana_store::{
    ExpectedState, ExperimentKey, ExperimentRecord, ExperimentState, StoredPolicy, UploadTarget,
    WrittenRecord, served_policy,
};
use tokio::sync::watch;

use super::answers::ExperimentAnswers;
use super::drift::DriftWatch;
use super::monitor::{monitor_of, pauses_in_words, probability_best};
use crate::alarms::{Alarm, AlarmQuery, ExperimentMonitor, harm, layers};

/// The least time between two policies of an experiment with batches, unless it is a simulation.
const BETWEEN_SHUFFLED_POLICIES: Duration = Duration::from_mins(1);

/// The least number of batches of a cell between two policies that know of them.
const BATCHES_BETWEEN_POLICIES: u64 = 2;

/// An experiment in memory.
#[derive(Debug)]
pub struct Experiment {
    key: ExperimentKey,
    id: ExperimentId,
    config: LearnerConfig,
    /// The number of arms of the first revision.
    initial_arms: usize,
    serving: ArcSwap<PublishedExperiment>,
    counted: Mutex<TallySnapshot>,
    /// What policies of an experiment with batches are computed from; see [`Self::usable`].
    used: Mutex<TallySnapshot>,
    /// The number of groups with uploads to the experiment that were acknowledged here, and the
    /// number of those that the tallies include. Used when the store provides the tallies.
    acknowledged: AtomicU64,
    heard_of: AtomicU64,
    /// The number of selections of each arm by this process.
    selections: Box<[AtomicU64]>,
    flow: Mutex<PendingEstimator>,
    monitor: Mutex<ExperimentMonitor>,
    drift: DriftWatch,
    /// Held while a policy is computed, so that an older one does not replace a newer one.
    computing: Mutex<()>,
    /// The experiments that this one's layer is to keep apart from it, and does not.
    overlaps: ArcSwap<Vec<String>>,
    policy_version: watch::Sender<u64>,
    /// The encoded answers about the served state.
    answers: ExperimentAnswers,
    clock: Arc<dyn Clock>,
}

/// The state that devices are served, replaced as a whole.
#[derive(Clone, Debug)]
pub struct PublishedExperiment {
    /// The current revision.
    pub specification: Arc<Specification>,
    /// The revision's signatures, including expired ones.
    pub signatures: Arc<[Signature]>,
    /// The experiment's state.
    pub state: ExperimentState,
    /// Whether lists leave the experiment out.
    pub is_archived: bool,
    /// What people have written about the experiment, which devices are not served.
    pub written: Arc<WrittenRecord>,
    /// The current policy, with a weight for every arm of the revision.
    pub policy: Arc<Policy>,
    /// The number of reports that the policy was computed from.
    pub policy_reports: u64,
    /// The time at which the policy was computed, by the monotonic clock.
    pub policy_since: Duration,
}

impl PublishedExperiment {
    /// The state to expect for a change of this experiment.
    pub(crate) fn expected(&self, key: ExperimentKey) -> ExpectedState {
        ExpectedState { key, state: self.state, digest: self.specification.digest() }
    }

    /// What each arm costs, on the scale of 0..=1 of what is reported, before it is debiased.
    pub(crate) fn costs(&self) -> Vec<f64> {
        let specification = &*self.specification;
        let terms = terms_of(&self.written, specification);
        // As the learner weighs them, also those of an earlier version that are no rewards.
        let range = specification.rewards().range();
        let scale = specification.channel().contrast() / (range.high() - range.low());
        (0..specification.arms().len()).map(|arm| scale * terms.cost(arm)).collect()
    }
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
        let ExperimentRecord { key, config, tallies, days, history, .. } = record;
        let (days, history) = (days.clone(), history.clone());
        let counted = TallySnapshot { tallies: tallies.clone(), days, history };
        let newest = Arc::new(record.revisions.last().ok_or(LearnerError::NoActiveArm)?.clone());
        let terms = terms_of(&record.written, &newest);
        let initial_arms = record.revisions.first().map_or(0, |first| first.arms().len());
        let StoredPolicy { policy, reports } = match &record.policy {
            Some(policy) => policy.clone(),
            None => StoredPolicy {
                policy: served_policy(
                    version,
                    config.weigh_on(&newest, (initial_arms, &terms), &counted, &[])?,
                ),
                reports: reports(tallies),
            },
        };
        let version = policy.version;
        let serving = PublishedExperiment {
            state: record.state,
            is_archived: record.is_archived,
            written: Arc::new(record.written.clone()),
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
            drift: DriftWatch::default(),
            id: serving.specification.experiment_id().clone(),
            serving: ArcSwap::from_pointee(serving),
            used: Mutex::new(counted.clone()),
            counted: Mutex::new(counted),
            acknowledged: AtomicU64::new(0),
            heard_of: AtomicU64::new(0),
            computing: Mutex::new(()),
            overlaps: ArcSwap::default(),
            policy_version: watch::Sender::new(version),
            answers: ExperimentAnswers::default(),
            clock,
        })
    }

    /// The experiment's key in the store.
    pub fn key(&self) -> ExperimentKey {
        self.key
    }

    /// The experiment's id.
    pub fn id(&self) -> &ExperimentId {
        &self.id
    }

    /// The configuration of the learner.
    pub fn config(&self) -> LearnerConfig {
        self.config
    }

    /// The number of arms at the start; later arms were added.
    pub fn initial_arms(&self) -> usize {
        self.initial_arms
    }

    /// The state that devices are served now.
    pub fn serving(&self) -> Arc<PublishedExperiment> {
        self.serving.load_full()
    }

    /// The encoded answers about the served state.
    pub(crate) fn answers(&self) -> &ExperimentAnswers {
        &self.answers
    }

    /// The committed tally of every cell; without segments and metrics these are the arms.
    pub fn tallies(&self) -> Vec<Tally> {
        self.counted().tallies.clone()
    }

    fn counted(&self) -> MutexGuard<'_, TallySnapshot> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The committed tallies, with those of each day and revision.
    pub(crate) fn snapshot(&self) -> TallySnapshot {
        self.counted().clone()
    }

    /// The number of committed reports of all arms.
    pub(crate) fn reports(&self) -> u64 {
        reports(&self.tallies())
    }

    /// Records, after a commit and before its acknowledgement, that the store will report more
    /// tallies.
    pub(crate) fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of acknowledgements here whose tallies the store will report.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Records that the tallies include everything up to this number of acknowledgements.
    pub(crate) fn heard_of(&self, acknowledged: u64) {
        self.heard_of.fetch_max(acknowledged, Ordering::SeqCst);
    }

    /// Whether the tallies may lack an upload that was acknowledged here.
    pub(crate) fn is_behind(&self) -> bool {
        self.heard_of.load(Ordering::SeqCst) < self.acknowledged()
    }

    /// Counts an arm that was drawn for a device.
    pub(crate) fn count_selection(&self, arm: ArmIndex) {
        self.selections[arm.get()].fetch_add(1, Ordering::Relaxed);
    }

    /// The estimated number of pending reports for each arm.
    fn pending(&self) -> Vec<f64> {
        let arms = self.serving.load().policy.weights.len();
        self.flow.lock().unwrap_or_else(PoisonError::into_inner).pending(arms)
    }

    /// Records the numbers of reports and selections. [`Self::recompute`] estimates pending reports
    /// from them, and [`Self::alarms`] finds anomalies.
    pub(crate) fn observe(&self, now: Duration) {
        self.sample(&mut self.monitor(), now);
        let mut flow = self.flow.lock().unwrap_or_else(PoisonError::into_inner);
        if flow.is_immediate() {
            return;
        }
        let tallies = self.tallies();
        let arms = self.serving.load().specification.arms().len();
        let counts = self.selections.iter().take(arms);
        let selections = counts.map(|count| count.load(Ordering::Relaxed)).collect();
        flow.observe(now, reports(&tallies), selections);
    }

    fn monitor(&self) -> MutexGuard<'_, ExperimentMonitor> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sample(&self, monitor: &mut ExperimentMonitor, now: Duration) {
        let serving = self.serving.load();
        let reports = serving.specification.cells().reports_of_arms(&self.tallies());
        // Reading the places of arms that there aren't would be most of the work.
        let counts = self.selections.iter().take(serving.specification.arms().len());
        let selections = counts.map(|count| count.load(Ordering::Relaxed)).sum();
        let is_running = serving.state == ExperimentState::Running;
        monitor.observe(now, &reports, selections, is_running);
    }

    /// Notes the experiments that overlap with this one.
    pub(super) fn set_overlaps(&self, others: Vec<String>) {
        if **self.overlaps.load() != others {
            self.overlaps.store(Arc::new(others));
        }
    }

    /// The alarms that ring now; a draft has none.
    pub fn alarms(&self) -> Vec<Alarm> {
        let serving = self.serving();
        if serving.state == ExperimentState::Draft {
            return Vec::new();
        }
        let now = self.clock.monotonic();
        let mut monitor = self.monitor();
        self.sample(&mut monitor, now);
        let arms = serving.specification.arms();
        let paused = pauses_in_words(&serving, Duration::from_secs(self.clock.unix_seconds()));
        let mut alarms = monitor.alarms(AlarmQuery {
            now,
            is_running: serving.state == ExperimentState::Running,
            best: |arm| {
                let counted = (self.initial_arms, &self.snapshot());
                probability_best(&serving, counted, arm)
            },
            label: |arm| arms.get(arm).map_or_else(String::new, |arm: &Arm| arm.label().to_owned()),
        });
        drop(monitor);
        alarms.extend(self.drift(&serving.specification));
        alarms.extend(harm::alarm(&paused));
        alarms.extend(layers::alarm(&self.overlaps.load()));
        alarms
    }

    /// The alarm of moved rewards, if it rings and nothing is forgotten.
    fn drift(&self, specification: &Specification) -> Option<Alarm> {
        if !self.config.memory.is_everything() {
            return None;
        }
        let counted = self.counted();
        let now = (counted.reports(), counted.days.last_key_value().map(|(day, _)| *day));
        drop(counted);
        let counted = || self.counted().clone();
        let unix_seconds = self.clock.unix_seconds();
        self.drift.alarm(specification, self.initial_arms, counted, now, unix_seconds)
    }

    /// Publishes the deltas of a commit. Returns `true` when the reports since the last policy make
    /// a new one due: 1% of the policy's reports, and at least [`REPORTS_PER_POLICY_MIN`].
    pub(crate) fn add(
        &self,
        deltas: impl Iterator<Item = (Day, Option<Revision>, CellIndex, Tally)>,
    ) -> bool {
        let mut counted = self.counted();
        for delta in deltas {
            counted.add(self.config.memory, delta);
        }
        self.is_due_with(reports(&counted.tallies))
    }

    /// Whether a new policy is due, as [`Self::add`] defines it.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due_with(self.reports()) && self.has_news()
    }

    fn is_due_with(&self, reports: u64) -> bool {
        let used = self.serving.load().policy_reports;
        reports.saturating_sub(used) >= reports_until_policy(used)
    }

    /// Whether reports have come since the last policy, and there may be another one: of an experiment
    /// with batches, after a minute and several batches.
    pub(crate) fn has_news(&self) -> bool {
        let serving = self.serving.load();
        let Some(batch) = serving.specification.batch() else {
            return self.reports() != serving.policy_reports;
        };
        let age = self.clock.monotonic().saturating_sub(serving.policy_since);
        if age < BETWEEN_SHUFFLED_POLICIES && !serving.specification.is_simulation() {
            return false;
        }
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = self.counted();
        let before = used.tallies.iter().map(|tally| tally.reports()).chain(std::iter::repeat(0));
        let now = counted.tallies.iter().map(|tally| tally.reports());
        now.zip(before).any(|(now, before)| now < before || are_batches(batch, now - before))
    }

    /// The tallies that a policy of `specification` may be computed from. Of an experiment with batches,
    /// those of a cell count once several of its batches are new.
    ///
    /// # Privacy
    /// A policy is a function of tallies, and a relay that shuffles can read it. If it could have a
    /// policy after each batch, it would put one report beside its own, and see what that one says. It
    /// needs several batches of its own now, and a change of a coarse weight; what is left is the local
    /// loss.
    fn usable(&self, specification: &Specification) -> TallySnapshot {
        let Some(batch) = specification.batch() else { return self.counted().clone() };
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.advance(&self.counted(), |reports| are_batches(batch, reports));
        used.clone()
    }

    /// Computes the policy from all committed reports and serves it. Without new reports the old
    /// one stays.
    ///
    /// # Errors
    /// [`LearnerError`], which valid specifications and configurations do not cause.
    pub fn recompute(&self) -> Result<Arc<PublishedExperiment>, LearnerError> {
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.has_news() {
            return Ok(self.serving());
        }
        let serving = self.serving();
        let specification = Arc::clone(&serving.specification);
        self.serve(specification, serving.state, Arc::clone(&serving.signatures))
    }

    /// Replaces the tallies by the store's, unless those are older.
    pub(crate) fn set_counted(&self, mut newer: TallySnapshot) {
        let mut counted = self.counted();
        if reports(&newer.tallies) >= reports(&counted.tallies) {
            let cells = newer.tallies.len().max(counted.tallies.len());
            newer.tallies.resize(cells, Tally::EMPTY);
            if newer.days.is_empty() && self.config.memory.is_everything() {
                // A poll has no days of an unlimited memory; they come with the next policy.
                newer.days = std::mem::take(&mut counted.days);
            }
            *counted = newer;
        }
    }

    /// Replaces the tallies by fewer, since the store has lost reports. `known` is the number of
    /// reports before the store was queried; if it has grown since, the tallies stay.
    pub(crate) fn reduce_counted(&self, known: u64, mut fewer: TallySnapshot) {
        let mut counted = self.counted();
        if reports(&counted.tallies) == known {
            let cells = fewer.tallies.len().max(counted.tallies.len());
            fewer.tallies.resize(cells, Tally::EMPTY);
            *counted = fewer;
        }
    }

    /// The weights that the learner gives the arms of `specification` now, and the number of
    /// reports that they are based on.
    ///
    /// # Errors
    /// [`LearnerError`], which valid specifications and configurations do not cause.
    pub(crate) fn weigh(
        &self,
        specification: &Specification,
    ) -> Result<(Weights, u64), LearnerError> {
        let counted = self.usable(specification);
        let pending = self.pending();
        let terms = terms_of(&self.serving.load().written, specification);
        let initial = (self.initial_arms, &terms);
        let weights = self.config.weigh_on(specification, initial, &counted, &pending)?;
        Ok((weights, reports(&counted.tallies)))
    }

    /// Serves stored weights as the policy after `before`, unless a newer policy is served already.
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

    /// Serves the state in a record of this experiment, unless the record is older.
    pub(super) fn apply_record(&self, record: ExperimentRecord) -> Result<(), LearnerError> {
        let ExperimentRecord { state, revisions, signatures, tallies, policy, .. } = record;
        let (days, history) = (record.days, record.history);
        let (is_archived, written) = (record.is_archived, Arc::new(record.written));
        let newest = revisions.into_iter().next_back().ok_or(LearnerError::NoActiveArm)?;
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.serving();
        if let Some(StoredPolicy { policy, reports }) = policy {
            self.set_counted(TallySnapshot { tallies, days, history });
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
                    written,
                    policy,
                    policy_reports,
                    policy_since,
                };
                self.publish(serving);
            }
            return Ok(());
        }
        let signatures: Arc<[Signature]> = signatures.into();
        let serving = PublishedExperiment::clone(&before);
        let (of_store, kept) = (Arc::clone(&signatures), written);
        self.serving.store(Arc::new(PublishedExperiment {
            signatures: of_store,
            is_archived,
            written: kept,
            ..serving
        }));
        let is_served = before.state == state && before.specification.digest() == newest.digest();
        let (then, now) = (before.written.message(), self.serving.load().written.clone());
        if is_served && then.arm_costs == now.message().arm_costs {
            return Ok(());
        }
        let mut known = self.counted();
        let cells = known.tallies.len().max(newest.cells().len());
        known.tallies.resize(cells, Tally::EMPTY);
        drop(known);
        self.serve(Arc::new(newest), state, signatures).map(drop)
    }

    /// Computes a policy and serves it. Must be called with `computing` held.
    fn serve(
        &self,
        specification: Arc<Specification>,
        state: ExperimentState,
        signatures: Arc<[Signature]>,
    ) -> Result<Arc<PublishedExperiment>, LearnerError> {
        let counted = self.usable(&specification);
        let version = *self.policy_version.borrow() + 1;
        let pending = self.pending();
        let terms = terms_of(&self.serving.load().written, &specification);
        let initial = (self.initial_arms, &terms);
        let weights = self.config.weigh_on(&specification, initial, &counted, &pending)?;
        let policy = Arc::new(served_policy(version, weights));
        let policy_reports = reports(&counted.tallies);
        let policy_since = self.clock.monotonic();
        let serving = PublishedExperiment {
            specification,
            signatures,
            state,
            // Both were replaced before, if they have changed.
            is_archived: self.serving.load().is_archived,
            written: Arc::clone(&self.serving.load().written),
            policy,
            policy_reports,
            policy_since,
        };
        Ok(self.publish(serving))
    }

    /// Replaces the served state. Must be called with `computing` held.
    fn publish(&self, serving: PublishedExperiment) -> Arc<PublishedExperiment> {
        let (version, serving) = (serving.policy.version, Arc::new(serving));
        self.monitor().serve_lists(serving.policy_since, &lists(&serving));
        let mut flow = self.flow.lock().unwrap_or_else(PoisonError::into_inner);
        flow.serve(serving.policy_since, shares(&serving.policy.weights));
        drop(flow);
        self.serving.store(Arc::clone(&serving));
        self.policy_version.send_replace(version);
        serving
    }

    /// A watch of the version of the served policy.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.policy_version.subscribe()
    }
}

/// What is known of the arms, and what they cost. The store has checked it.
fn terms_of(written: &WrittenRecord, specification: &Specification) -> ArmTerms {
    written.terms(specification).unwrap_or_default()
}

pub(crate) fn shares(weights: &Weights) -> Vec<f64> {
    (0..weights.len()).map(|arm| weights.share(arm)).collect()
}

/// The shares of the arms: for all installations, then for those of each segment.
pub(super) fn lists(serving: &PublishedExperiment) -> Vec<Vec<f64>> {
    let weights = &serving.policy.weights;
    // The lists of a private context are scores, by which no arm that reports is drawn.
    let is_private = serving.specification.private_context().is_some();
    let segments = if is_private { 0 } else { weights.segments() };
    let segments = [None].into_iter().chain((0..segments).map(Some));
    let shares = |segment| (0..weights.len()).map(|arm| weights.share_in(segment, arm)).collect();
    segments.map(shares).collect()
}

/// Whether so many new reports are batches enough for a policy.
fn are_batches(batch: BatchSize, reports: u64) -> bool {
    reports >= BATCHES_BETWEEN_POLICIES * u64::from(batch.get())
}

fn reports(tallies: &[Tally]) -> u64 {
    tallies.iter().copied().sum::<Tally>().reports()
}
