//! The thread that accepts disclosures, decides about them and commits them.
//!
//! Queued disclosures are processed in batches. Those of one experiment form one commit, which ends
//! where a statistic becomes due. The release is a commit of its own, with a key that was durable
//! before. Every commit names the version that it is based on: if the store has another version by
//! then, nothing is committed, and everything is decided anew from the current version.
//!
//! If several replicas receive disclosures to one experiment, one of them commits all of these
//! (`sharing.rs`).
//!
//! Releases are slow, so they come last: first all disclosures of a batch, to any experiment, that
//! need no release are answered.

mod changes;
mod handle;
mod sharing;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bandana_edge::clock::Clock;
use bandana_edge::day_guard::DayGuard;
use bandana_edge::explain::explain;
use bandana_edge::telemetry::LogLimit;
use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_store::{
    DISCLOSURES_MAX, ExperimentState, Handover, StoreError, StoreReader, TrustedVersion,
};
use bandana_zcdp::state::{NoiseKey, ReleaseError};
use tokio::sync::mpsc;

use self::handle::{Answer, Command};
use self::sharing::Sharing;
use crate::ingest::{Ingest, IngestError, QUEUE_MAX};
use crate::registry::Registry;
use crate::trusted::TrustedMetrics;
use crate::trusted::{
    Disclosure, DisclosureContext, DisclosureVerdict, GroupDecision, TrustedExperiment, plan,
};

pub use handle::{Creation, DisclosureWriterHandle, Step};

/// Maximum number of attempts after collisions with another replica.
const ATTEMPTS: usize = 50;

/// Maximum number of attempts with unknown outcome. Each may wait for the timeout of an
/// unresponsive database, and uploads wait as well.
const BLIND_ATTEMPTS: usize = 3;

/// Accepts disclosures to all experiments.
#[derive(Debug)]
pub struct DisclosureWriter {
    commands: mpsc::Receiver<Command>,
    registry: Arc<Registry>,
    ingest: Ingest,
    reader: StoreReader,
    clock: Arc<dyn Clock>,
    today: DayGuard,
    /// Length of the window of accepted days.
    window_days: u32,
    metrics: TrustedMetrics,
    /// Versions from which no statistic can be released, with the reason.
    halted: HashMap<ExperimentId, (TrustedVersion, String)>,
    /// None: there are no other replicas.
    sharing: Option<Sharing>,
    /// Rate limit of log lines that callers cause by retrying while the store is unusable.
    failures: LogLimit,
}

/// The reason why a change was not committed.
#[derive(Debug)]
enum Setback {
    /// Another replica changed the experiment first.
    Moved,
    /// The outcome is unknown, and the change is not in the store.
    Unknown,
    /// These disclosures count already.
    Known(Vec<(Day, UploadId)>),
    /// The current day in the database, which is earlier than the local one.
    Future(Day),
    /// The server is shutting down.
    Ended,
    /// The store is unresponsive or failed, or no statistic can be released.
    Store,
}

/// Facts learned while a group is processed.
#[derive(Debug, Default)]
struct Findings {
    known: HashSet<(Day, UploadId)>,
    /// The latest day by the clock of the database.
    latest: Option<Day>,
    /// Whether moving the window was attempted.
    window_moved: bool,
    /// The version for which the disclosures that count already were looked up.
    looked_up: Option<TrustedVersion>,
}

/// Disclosures to one experiment.
#[derive(Debug)]
struct Group {
    waiting: VecDeque<(Disclosure, Answer)>,
    findings: Findings,
    /// Maximum number of disclosures in one commit. It is halved after a collision with another
    /// replica: small groups commit sooner.
    most: usize,
    setbacks: usize,
    unknown: usize,
    /// Whether this replica decides about the group even if another one leads.
    is_own: bool,
}

impl Default for Group {
    fn default() -> Self {
        let (waiting, findings) = Default::default();
        let (setbacks, unknown, is_own) = Default::default();
        Self { waiting, findings, most: DISCLOSURES_MAX, setbacks, unknown, is_own }
    }
}

impl DisclosureWriter {
    /// A disclosure writer for the experiments in the registry, which commits through `ingest` and
    /// accepts disclosures of the last `window_days` days.
    pub fn new(
        registry: Arc<Registry>,
        ingest: Ingest,
        reader: StoreReader,
        clock: Arc<dyn Clock>,
        window_days: u32,
    ) -> (Self, DisclosureWriterHandle) {
        let (queue, commands) = mpsc::channel(QUEUE_MAX);
        let metrics = ingest.metrics().trusted.clone();
        let today = DayGuard::new(Arc::clone(&clock));
        let failures = LogLimit::new(&clock);
        let disclosures = Self {
            commands,
            registry,
            ingest,
            reader,
            clock,
            today,
            window_days,
            metrics,
            halted: HashMap::new(),
            sharing: None,
            failures,
        };
        (disclosures, DisclosureWriterHandle(queue))
    }

    /// Shares experiments with the disclosure writers of other replicas.
    pub(crate) fn sharing_by(mut self, way: Handover) -> Result<Self, StoreError> {
        self.sharing = Some(Sharing::new(way)?);
        Ok(self)
    }

    /// Releases statistics that were due at a crash, and then serves commands until all handles are
    /// dropped.
    ///
    /// Must not be called in an asynchronous context.
    pub fn run(mut self) {
        for experiment in self.registry.trusted().all() {
            // An error here recurs with the next disclosure, which reports it.
            self.settle(&experiment.id).ok();
        }
        let mut batch = Vec::with_capacity(DISCLOSURES_MAX);
        let mut groups: BTreeMap<ExperimentId, Group> = BTreeMap::new();
        while self.receive(&mut batch, groups.is_empty()) {
            for command in batch.drain(..) {
                match command {
                    Command::Disclose(id, disclosure, answer) => {
                        groups.entry(id).or_default().waiting.push_back((disclosure, answer));
                    }
                    // The caller may have gone.
                    Command::Create(creation, answer) => {
                        self.disclose_all(std::mem::take(&mut groups));
                        drop(answer.send(self.create(*creation)));
                    }
                    Command::Move(movement, answer) => {
                        self.disclose_all(std::mem::take(&mut groups));
                        drop(answer.send(self.move_to(&movement)));
                    }
                }
            }
            self.disclose_all(groups);
            groups = self.take_over();
            self.answer_decided();
        }
        self.leave();
    }

    fn disclose_all(&mut self, mut groups: BTreeMap<ExperimentId, Group>) {
        while !groups.is_empty() {
            for (id, group) in &mut groups {
                self.disclose(id, group);
            }
            for (id, group) in &mut groups {
                if self.settle(id).is_err() {
                    self.turn_away(id, group, IngestError::Store);
                }
            }
            groups.retain(|_, group| !group.waiting.is_empty());
        }
    }

    /// Answers the disclosures in a group until none is left or a statistic must be released first.
    fn disclose(&mut self, id: &ExperimentId, group: &mut Group) {
        while !group.waiting.is_empty() {
            if !group.is_own && self.hand_over(id, group) {
                return;
            }
            let Some(experiment) = self.registry.trusted().get(id) else {
                for (_, answer) in group.waiting.drain(..) {
                    self.answer(answer, Ok(DisclosureVerdict::Gone));
                }
                return;
            };
            if experiment.is_due() && self.halted(&experiment).is_none() {
                return;
            }
            match self.round(&experiment, group) {
                Ok(()) => {
                    group.setbacks = 0;
                    group.most = (2 * group.most).min(DISCLOSURES_MAX);
                }
                Err(setback) => {
                    if let Err(error) = self.overcome(id, group, setback) {
                        self.turn_away(id, group, error);
                    }
                }
            }
        }
    }

    fn turn_away(&self, id: &ExperimentId, group: &mut Group, error: IngestError) {
        // The error itself has been logged; callers can cause any number of these lines.
        let disclosures = group.waiting.len();
        tracing::debug!(experiment = %id, disclosures, %error, "disclosures were turned away");
        for (_, answer) in group.waiting.drain(..) {
            self.answer(answer, Err(error));
        }
    }

    /// Updates the group after a setback, or gives up with an error for its callers.
    fn overcome(
        &mut self,
        id: &ExperimentId,
        group: &mut Group,
        setback: Setback,
    ) -> Result<(), IngestError> {
        group.setbacks += 1;
        match setback {
            Setback::Ended => return Err(IngestError::Ended),
            Setback::Store => return Err(IngestError::Store),
            Setback::Known(names) => group.findings.known.extend(names),
            Setback::Future(day) => group.findings.latest = Some(day),
            Setback::Moved => {
                self.metrics.collided();
                group.most = (group.most.min(group.waiting.len()) / 2).max(1);
                self.reload(id).map_err(|_| IngestError::Store)?;
                if !group.is_own {
                    self.contend(id);
                }
            }
            Setback::Unknown => group.unknown += 1,
        }
        let gives_up = group.setbacks > ATTEMPTS || group.unknown >= BLIND_ATTEMPTS;
        if gives_up {
            let attempts = group.setbacks;
            tracing::error!(experiment = %id, attempts, "disclosures can't be committed");
            return Err(IngestError::Store);
        }
        Ok(())
    }

    /// One attempt to commit and answer the first disclosures of a group.
    fn round(
        &mut self,
        experiment: &Arc<TrustedExperiment>,
        group: &mut Group,
    ) -> Result<(), Setback> {
        let Group { waiting, findings, most, .. } = group;
        let today = self.today.get(experiment.oldest);
        let today = findings.latest.map_or(today, |latest| latest.min(today));
        let back = self.window_days.saturating_sub(1);
        let begin = today.back(back);
        // Evidence that the clock is right: with a wrong clock no disclosure falls in the window,
        // since devices learn the day from servers only.
        let is_borne_out = || waiting.iter().any(|(d, _)| (begin..=today).contains(&d.day));
        if !findings.window_moved && begin > experiment.oldest && is_borne_out() {
            findings.window_moved = true;
            return self.move_window(experiment, today, back);
        }
        let halted = self.halted(experiment).map(str::to_owned);
        if (experiment.state != ExperimentState::Running || halted.is_some())
            && findings.looked_up != Some(experiment.version)
        {
            let names: Vec<_> = waiting.iter().map(|(d, _)| (d.day, d.id)).collect();
            findings.known.extend(self.look_up(&experiment.id, &names)?);
            findings.looked_up = Some(experiment.version);
        }
        let verdicts = if let Some(reason) = halted {
            let judge = |name| {
                let is_known = findings.known.contains(&name);
                let halted = || DisclosureVerdict::Halted(reason.clone());
                if is_known { DisclosureVerdict::Duplicate } else { halted() }
            };
            waiting.iter().map(|(d, _)| judge((d.day, d.id))).collect()
        } else {
            let context = DisclosureContext { today, known: &findings.known };
            let mut group = waiting.iter().take(*most).map(|(disclosure, _)| disclosure);
            let GroupDecision { verdicts, counted, next } = plan(experiment, &mut group, context);
            if let Some(next) = next {
                self.commit(experiment, next, counted)?;
                self.metrics.committed();
            }
            verdicts
        };
        let answered = waiting.drain(..verdicts.len()).map(|(_, answer)| answer);
        for (answer, verdict) in answered.zip(verdicts) {
            self.answer(answer, Ok(verdict));
        }
        Ok(())
    }

    /// The reason why no statistic can be released from this version of an experiment, if known.
    fn halted(&self, experiment: &TrustedExperiment) -> Option<&str> {
        let (version, reason) = self.halted.get(&experiment.id)?;
        (*version == experiment.version).then_some(reason)
    }

    /// Releases all statistics that are due.
    fn settle(&mut self, id: &ExperimentId) -> Result<(), Setback> {
        let mut unknown = 0;
        for _ in 0..ATTEMPTS {
            let Some(experiment) = self.registry.trusted().get(id) else { return Ok(()) };
            if !experiment.is_due() || self.halted(&experiment).is_some() {
                return Ok(());
            }
            match self.release(&experiment) {
                Ok(()) => {}
                Err(Setback::Moved) => drop(self.reload(id).map_err(|_| Setback::Store)?),
                Err(Setback::Unknown) if unknown + 1 < BLIND_ATTEMPTS => unknown += 1,
                Err(setback) => return Err(setback),
            }
        }
        Err(Setback::Moved)
    }

    /// Releases the statistic that is due, in a commit of its own.
    fn release(&mut self, experiment: &Arc<TrustedExperiment>) -> Result<(), Setback> {
        let Some(mut next) = experiment.secret.clone() else { return Err(Setback::Moved) };
        let released = NoiseKey::secure().map_err(ReleaseError::from);
        if let Err(error) = released.and_then(|key| next.release(key)) {
            let id = experiment.id.clone();
            let reason = explain(&error);
            tracing::error!(experiment = %id, error = reason, "a statistic can't be released");
            if matches!(error, ReleaseError::NoEntropy(_)) {
                return Err(Setback::Store);
            }
            // Retrying is pointless: the same state fails in the same way.
            self.halted.insert(id, (experiment.version, reason));
            return Ok(());
        }
        self.commit(experiment, next, Vec::new())?;
        self.metrics.released();
        Ok(())
    }

    fn answer(&self, answer: Answer, outcome: Result<DisclosureVerdict, IngestError>) {
        let answer = match answer {
            Answer::Caller(answer) => answer,
            // The replica that answers the caller counts the outcome in its metrics.
            Answer::Partner(outcomes, place) => return outcomes.note(place, &outcome),
        };
        match &outcome {
            Ok(verdict) => self.metrics.decided(verdict),
            Err(_) => self.metrics.turned_away(),
        }
        // The caller may have gone.
        answer.send(outcome).ok();
    }
}
