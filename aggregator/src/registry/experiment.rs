//! One experiment in memory: its tallies, and the policy and revision that are served.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bandana_learners::pending::Flow;
use bandana_learners::window::Days;
use bandana_learners::{Evidence, LearnerError, Situation};
use bandana_shared::identity::{ArmIndex, Day, ExperimentId};
use bandana_shared::limits::ARMS_MAX;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::signing::Signature;
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::tally::Tally;
use tokio::sync::watch;

use crate::alarms::experiments::{probability_best, vigil_over};
use crate::alarms::{Alarm, Question, Vigil};
use crate::clock::Clock;
use crate::experiment_answers::ExperimentAnswers;
use crate::store::{Conduct, ExperimentKey, ExperimentRecord, ExperimentState, StoredPolicy};

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
    /// Arms of the first revision.
    initial_arms: usize,
    serving: ArcSwap<Serving>,
    counted: Mutex<Counted>,
    /// Groups with uploads to it that were acknowledged here, and those of them that the tallies
    /// include, where the tallies are the store's to tell.
    acknowledged: AtomicU64,
    heard_of: AtomicU64,
    /// How often each arm was drawn here, since the start of the process.
    selections: Box<[AtomicU64]>,
    flow: Mutex<Flow>,
    vigil: Mutex<Vigil>,
    /// Held while a policy is computed, so that none overtakes a newer one.
    computing: Mutex<()>,
    policy_version: watch::Sender<u64>,
    /// What devices are told of what is served.
    answers: ExperimentAnswers,
    clock: Arc<dyn Clock>,
}

/// The committed tallies of an experiment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// Of every arm, all days together.
    pub(crate) tallies: Vec<Tally>,
    /// The same by day, of the days that its memory reaches; empty when it keeps
    /// everything.
    pub(crate) days: Days,
}

impl Counted {
    fn add(&mut self, conduct: Conduct, (day, arm, tally): (Day, ArmIndex, Tally)) {
        add_to(&mut self.tallies, arm, tally);
        if !conduct.memory.is_everything() {
            let is_new = !self.days.contains_key(&day);
            add_to(self.days.entry(day).or_default(), arm, tally);
            if is_new {
                conduct.memory.prune(&mut self.days);
            }
        }
    }
}

fn add_to(tallies: &mut Vec<Tally>, arm: ArmIndex, tally: Tally) {
    if tallies.len() <= arm.get() {
        tallies.resize(arm.get() + 1, Tally::EMPTY);
    }
    tallies[arm.get()] += tally;
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
    /// Whether lists leave it out.
    pub is_archived: bool,
    /// The current policy, with a weight for every arm of the revision.
    pub policy: Arc<Policy>,
    /// Reports that the policy was computed from.
    pub policy_reports: u64,
    /// When the policy was computed, by the monotonic clock.
    pub policy_since: Duration,
}

impl Experiment {
    pub(super) fn new(
        record: &ExperimentRecord,
        version: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LearnerError> {
        let ExperimentRecord { key, conduct, tallies, days, .. } = record;
        let counted = Counted { tallies: tallies.clone(), days: days.clone() };
        let newest = Arc::new(record.revisions.last().ok_or(LearnerError::NoActiveArm)?.clone());
        let initial_arms = record.revisions.first().map_or(0, |first| first.arms().len());
        let StoredPolicy { policy, reports } = match &record.policy {
            Some(policy) => policy.clone(),
            None => StoredPolicy {
                policy: policy(version, weigh(*conduct, &newest, initial_arms, &counted, &[])?),
                reports: reports(tallies),
            },
        };
        let version = policy.version;
        let serving = Serving {
            state: record.state,
            is_archived: record.is_archived,
            policy: Arc::new(policy),
            policy_reports: reports,
            specification: newest,
            signatures: record.signatures.clone().into(),
            policy_since: clock.monotonic(),
        };
        let mut flow = Flow::new(serving.specification.timing().mean_lag());
        flow.serve(serving.policy_since, shares(&serving.policy.weights));
        let vigil = vigil_over(record, &serving);
        Ok(Self {
            key: *key,
            conduct: *conduct,
            initial_arms,
            selections: std::iter::repeat_with(AtomicU64::default).take(ARMS_MAX).collect(),
            flow: Mutex::new(flow),
            vigil: Mutex::new(vigil),
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
    pub fn conduct(&self) -> Conduct {
        self.conduct
    }

    /// How many arms there were from the start; those after them have been added.
    pub fn initial_arms(&self) -> usize {
        self.initial_arms
    }

    /// What devices get now.
    pub fn serving(&self) -> Arc<Serving> {
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

    fn counted(&self) -> MutexGuard<'_, Counted> {
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
        self.look(&mut self.vigil(), now);
        let mut flow = self.flow.lock().unwrap_or_else(PoisonError::into_inner);
        if flow.is_immediate() {
            return;
        }
        let tallies = self.tallies();
        let counts = self.selections.iter().take(tallies.len());
        let selections = counts.map(|count| count.load(Ordering::Relaxed)).collect();
        flow.observe(now, reports(&tallies), selections);
    }

    fn vigil(&self) -> MutexGuard<'_, Vigil> {
        self.vigil.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, vigil: &mut Vigil, now: Duration) {
        let reports: Vec<u64> = self.tallies().iter().map(|tally| tally.reports()).collect();
        let selections = self.selections.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        let is_running = self.serving.load().state == ExperimentState::Running;
        vigil.observe(now, &reports, selections, is_running);
    }

    /// The alarms that ring now; none of a draft.
    pub fn alarms(&self) -> Vec<Alarm> {
        let serving = self.serving();
        if serving.state == ExperimentState::Draft {
            return Vec::new();
        }
        let now = self.clock.monotonic();
        let mut vigil = self.vigil();
        self.look(&mut vigil, now);
        let arms = serving.specification.arms();
        vigil.alarms(Question {
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
            counted.add(self.conduct, delta);
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
    pub fn recompute(&self) -> Result<Arc<Serving>, LearnerError> {
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.has_news() {
            return Ok(self.serving());
        }
        let serving = self.serving();
        let specification = Arc::clone(&serving.specification);
        self.serve(specification, serving.state, Arc::clone(&serving.signatures))
    }

    /// Replaces the tallies by what the store says, unless that is older.
    pub(crate) fn set_counted(&self, mut newer: Counted) {
        let mut counted = self.counted();
        if reports(&newer.tallies) >= reports(&counted.tallies) {
            let arms = newer.tallies.len().max(counted.tallies.len());
            newer.tallies.resize(arms, Tally::EMPTY);
            *counted = newer;
        }
    }

    /// Replaces the tallies, which had so many reports before the store was asked, by fewer:
    /// it has lost some. Leaves them if more have become known since.
    pub(crate) fn take_back_counted(&self, known: u64, mut fewer: Counted) {
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
        let weights = weigh(self.conduct, specification, self.initial_arms, &counted, &pending)?;
        Ok((weights, reports(&counted.tallies)))
    }

    /// Serves weights that were stored as the policy after `before`, unless something newer
    /// is served already.
    pub(crate) fn adopt(&self, before: u64, version: u64, weights: Weights, reports: u64) {
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        let serving = Serving::clone(&self.serving());
        if serving.policy.version == before {
            let policy = Arc::new(policy(version, weights));
            let policy_since = self.clock.monotonic();
            self.show(Serving { policy, policy_reports: reports, policy_since, ..serving });
        }
    }

    /// Serves what a record of this experiment says, unless that is older.
    pub(super) fn take(&self, record: ExperimentRecord) -> Result<(), LearnerError> {
        let ExperimentRecord { state, revisions, signatures, tallies, days, policy, .. } = record;
        let is_archived = record.is_archived;
        let newest = revisions.into_iter().next_back().ok_or(LearnerError::NoActiveArm)?;
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.serving();
        if let Some(StoredPolicy { policy, reports }) = policy {
            self.set_counted(Counted { tallies, days });
            if policy.version > before.policy.version {
                let signatures = signatures.into();
                let (policy, specification) = (Arc::new(policy), Arc::new(newest));
                let policy_reports = reports;
                let policy_since = self.clock.monotonic();
                let serving = Serving {
                    specification,
                    signatures,
                    state,
                    is_archived,
                    policy,
                    policy_reports,
                    policy_since,
                };
                self.show(serving);
            }
            return Ok(());
        }
        if before.state == state && before.specification.digest() == newest.digest() {
            let serving = Serving::clone(&before);
            let signatures = signatures.into();
            self.serving.store(Arc::new(Serving { signatures, is_archived, ..serving }));
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
    ) -> Result<Arc<Serving>, LearnerError> {
        let counted = self.counted().clone();
        let version = *self.policy_version.borrow() + 1;
        let pending = self.pending();
        let weights = weigh(self.conduct, &specification, self.initial_arms, &counted, &pending)?;
        let policy = Arc::new(policy(version, weights));
        let policy_reports = reports(&counted.tallies);
        let policy_since = self.clock.monotonic();
        let serving = Serving {
            specification,
            signatures,
            state,
            // Nothing but a change of the store archives an experiment, and that changes no policy.
            is_archived: self.serving.load().is_archived,
            policy,
            policy_reports,
            policy_since,
        };
        Ok(self.show(serving))
    }

    /// Must be called with `computing` held.
    fn show(&self, serving: Serving) -> Arc<Serving> {
        let (version, serving) = (serving.policy.version, Arc::new(serving));
        self.vigil().serve(serving.policy_since, &shares(&serving.policy.weights));
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

/// New reports after which a policy that was computed from so many is replaced at once.
fn reports_until_policy(used: u64) -> u64 {
    REPORTS_PER_POLICY_MIN.max(used / 100)
}

/// A policy as all are served.
pub(crate) fn policy(version: u64, weights: Weights) -> Policy {
    Policy { version, weights, time_to_live_seconds: TIME_TO_LIVE_SECONDS }
}

/// The weights that a learner gives the arms of a specification, of which the first
/// `initial_arms` were there from the start.
pub(crate) fn weigh(
    conduct: Conduct,
    specification: &Specification,
    initial_arms: usize,
    counted: &Counted,
    pending: &[f64],
) -> Result<Weights, LearnerError> {
    let active = specification.active_arms();
    let channel = specification.channel();
    let Counted { tallies, days } = counted;
    let arms = active.len().max(tallies.len());
    let evidence = if conduct.memory.is_everything() {
        // Arms that nobody has reported on have none.
        let tally = |arm| tallies.get(arm).copied().unwrap_or(Tally::EMPTY);
        (0..arms).map(|arm| Evidence::of(&tally(arm), channel.alphabet())).collect()
    } else {
        conduct.memory.evidence(days, arms, channel.alphabet())
    };
    let burning_in = conduct.guardrails.burning_in(tallies, &active, initial_arms);
    let situation = Situation::of(evidence, &active, channel)
        .with_pending(pending)
        .with_ahead(reports_until_policy(reports(tallies)) as f64)
        .with_floor_weight(conduct.floor_weight)
        .with_burning_in(burning_in)
        .with_holdout_share(conduct.guardrails.holdout_share);
    conduct.learner.weights(&situation)
}
