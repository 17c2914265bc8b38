//! The thread that takes disclosures, decides about them and has them committed.
//!
//! Disclosures that wait are taken together; those of one experiment are one commit, which ends
//! where a statistic becomes due. The release is a commit of its own, with a key that was
//! durable before. Every commit names the version that it was made from: if the store has
//! another one by then, nothing happens, and all is decided anew from what is there.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use bandana_shared::identity::{Day, ExperimentId, UnixSeconds, UploadId};
use bandana_shared::stored;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};

use super::algorithm::Plan;
use super::engine::{Disclosure, DisclosureVerdict, GroupPlan, Situation, TrustedExperiment, plan};
use super::state::{NoiseKey, ReleaseError, SecretState};
use crate::clock::Clock;
use crate::ingest::{AdministrationError, Ingest, IngestError, QUEUE_MAX, Today};
use crate::registry::Registry;
use crate::service::explain;
use crate::store::{
    AuditAction, AuditEntry, DISCLOSURES_MAX, ExperimentState, Outcome, StoreError, StoreReader,
    Transition, TrustedChange, TrustedCommit, TrustedRecord, TrustedRefusal, TrustedVersion,
};
use crate::telemetry::metrics::TrustedMetrics;

/// How often something is decided about anew, because another replica was faster or the
/// outcome of a commit was unknown.
const ATTEMPTS: usize = 50;

/// What the keeper is to do.
#[derive(Debug)]
enum Command {
    Disclose(ExperimentId, Disclosure, Answer),
    Create(Box<Creation>, oneshot::Sender<Result<Arc<TrustedExperiment>, AdministrationError>>),
    Move(Movement, oneshot::Sender<Result<Option<Arc<TrustedExperiment>>, AdministrationError>>),
}

type Answer = oneshot::Sender<Result<DisclosureVerdict, IngestError>>;

type Waiting = VecDeque<(Disclosure, Answer)>;

/// A new experiment, and who wants it.
#[derive(Debug)]
pub struct Creation {
    /// Who, for the audit log.
    pub caller: String,
    /// Its name.
    pub id: ExperimentId,
    /// What it is run by.
    pub plan: Plan,
    /// Its first state, made from that.
    pub secret: SecretState,
}

/// A change of an experiment's state, and who wants it.
#[derive(Debug)]
struct Movement {
    caller: String,
    id: ExperimentId,
    transition: Transition,
}

/// The way to the keeper. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KeeperHandle(mpsc::Sender<Command>);

impl KeeperHandle {
    /// Hands in a disclosure, and waits until it is durable.
    ///
    /// # Errors
    /// [`IngestError::QueueFull`]: nothing happened. With others it is not known whether it
    /// counts.
    pub async fn disclose(
        &self,
        id: ExperimentId,
        disclosure: Disclosure,
    ) -> Result<DisclosureVerdict, IngestError> {
        let (answer, verdict) = oneshot::channel();
        let command = Command::Disclose(id, disclosure, answer);
        self.0.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => IngestError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => IngestError::Ended,
        })?;
        verdict.await.map_err(|_| IngestError::Ended)?
    }

    /// Adds an experiment, which runs.
    ///
    /// # Errors
    /// [`AdministrationError`] says why not.
    pub async fn create(
        &self,
        creation: Creation,
    ) -> Result<Arc<TrustedExperiment>, AdministrationError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Create(Box::new(creation), answer);
        self.0.send(command).await.map_err(|_| AdministrationError::Ended)?;
        outcome.await.map_err(|_| AdministrationError::Ended)?
    }

    /// Moves an experiment to another state. None: there is no such experiment.
    ///
    /// # Errors
    /// [`AdministrationError`] says why not.
    pub async fn move_to(
        &self,
        caller: String,
        id: ExperimentId,
        transition: Transition,
    ) -> Result<Option<Arc<TrustedExperiment>>, AdministrationError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Move(Movement { caller, id, transition }, answer);
        self.0.send(command).await.map_err(|_| AdministrationError::Ended)?;
        outcome.await.map_err(|_| AdministrationError::Ended)?
    }
}

/// Takes disclosures to all experiments.
#[derive(Debug)]
pub struct Keeper {
    commands: mpsc::Receiver<Command>,
    registry: Arc<Registry>,
    ingest: Ingest,
    reader: StoreReader,
    clock: Arc<dyn Clock>,
    today: Today,
    /// Days whose disclosures are taken.
    window_days: u32,
    metrics: TrustedMetrics,
}

/// What keeps a change from being made.
#[derive(Debug)]
enum Setback {
    /// Somebody else was first.
    Moved,
    /// These count already.
    Known(Vec<(Day, UploadId)>),
    /// The database knows no later day.
    Future(Day),
    /// The server goes down.
    Ended,
    /// The store does not answer, or nothing can be released.
    Store,
}

/// What is found out while a group is worked at.
#[derive(Debug, Default)]
struct Findings {
    known: HashSet<(Day, UploadId)>,
    /// The latest day by the clock of the database.
    latest: Option<Day>,
    /// Whether the window was moved, as far as it could be.
    window_moved: bool,
    /// For which version it was looked up what counts already.
    looked_up: Option<TrustedVersion>,
}

impl Keeper {
    /// A keeper of the experiments in the registry, which writes by `ingest` and takes
    /// disclosures of so many days.
    pub fn new(
        registry: Arc<Registry>,
        ingest: Ingest,
        reader: StoreReader,
        clock: Arc<dyn Clock>,
        window_days: u32,
    ) -> (Self, KeeperHandle) {
        let (queue, commands) = mpsc::channel(QUEUE_MAX);
        let metrics = ingest.metrics().trusted.clone();
        let today = Today::new(Arc::clone(&clock));
        let keeper =
            Self { commands, registry, ingest, reader, clock, today, window_days, metrics };
        (keeper, KeeperHandle(queue))
    }

    /// Releases what a crash has left due, and works until nobody can ask any more.
    ///
    /// Must not be called where asynchronous code runs.
    pub fn run(mut self) {
        for experiment in self.registry.trusted().all() {
            self.settle(&experiment.id);
        }
        let mut batch = Vec::with_capacity(DISCLOSURES_MAX);
        while self.commands.blocking_recv_many(&mut batch, DISCLOSURES_MAX) > 0 {
            let mut groups: BTreeMap<ExperimentId, Waiting> = BTreeMap::new();
            for command in batch.drain(..) {
                match command {
                    Command::Disclose(id, disclosure, answer) => {
                        groups.entry(id).or_default().push_back((disclosure, answer));
                    }
                    // Whoever asked may have gone away.
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
        }
    }

    fn disclose_all(&mut self, groups: BTreeMap<ExperimentId, Waiting>) {
        for (id, waiting) in groups {
            self.disclose(&id, waiting);
        }
    }

    fn disclose(&mut self, id: &ExperimentId, mut waiting: Waiting) {
        let mut findings = Findings::default();
        let mut setbacks = 0;
        while !waiting.is_empty() {
            let Some(experiment) = self.registry.trusted().get(id) else {
                for (_, answer) in waiting.drain(..) {
                    self.answer(answer, Ok(DisclosureVerdict::Gone));
                }
                return;
            };
            let setback = match self.round(&experiment, &mut waiting, &mut findings) {
                Ok(()) => {
                    setbacks = 0;
                    continue;
                }
                Err(setback) => setback,
            };
            setbacks += 1;
            let error = match setback {
                Setback::Ended => Some(IngestError::Ended),
                _ if setbacks > ATTEMPTS => Some(IngestError::Store),
                Setback::Known(names) => {
                    findings.known.extend(names);
                    None
                }
                Setback::Future(day) => {
                    findings.latest = Some(day);
                    None
                }
                Setback::Moved => self.reload(id).err().map(|()| IngestError::Store),
                Setback::Store => Some(IngestError::Store),
            };
            if let Some(error) = error {
                tracing::error!(experiment = %id, %error, "disclosures were not acknowledged");
                for (_, answer) in waiting.drain(..) {
                    self.answer(answer, Err(error));
                }
            }
        }
    }

    /// One step towards an answer for those who wait.
    fn round(
        &mut self,
        experiment: &Arc<TrustedExperiment>,
        waiting: &mut Waiting,
        findings: &mut Findings,
    ) -> Result<(), Setback> {
        if experiment.is_due() {
            return self.release(experiment);
        }
        let today = self.today.get(experiment.oldest);
        let today = findings.latest.map_or(today, |latest| latest.min(today));
        let back = self.window_days.saturating_sub(1);
        let begin = today.back(back);
        // A clock that is wrong finds no disclosure of its days, since devices hear of days
        // from servers alone.
        let is_borne_out = || waiting.iter().any(|(d, _)| (begin..=today).contains(&d.day));
        let moves = !findings.window_moved && begin > experiment.oldest && is_borne_out();
        if moves && experiment.state == ExperimentState::Running {
            findings.window_moved = true;
            return self.move_window(experiment, today, back);
        }
        if experiment.state != ExperimentState::Running
            && findings.looked_up != Some(experiment.version)
        {
            let names: Vec<_> = waiting.iter().map(|(d, _)| (d.day, d.id)).collect();
            findings.known.extend(self.look_up(&experiment.id, &names)?);
            findings.looked_up = Some(experiment.version);
        }
        let situation = Situation { today, known: &findings.known };
        let GroupPlan { verdicts, counted, next } =
            plan(experiment, &mut waiting.iter().map(|(disclosure, _)| disclosure), situation);
        if let Some(next) = next {
            self.commit(experiment, next, counted)?;
            self.settle(&experiment.id);
        }
        let answered = waiting.drain(..verdicts.len()).map(|(_, answer)| answer);
        for (answer, verdict) in answered.collect::<Vec<_>>().into_iter().zip(verdicts) {
            self.answer(answer, Ok(verdict));
        }
        Ok(())
    }

    /// Releases what is due, as far as that is possible now.
    fn settle(&mut self, id: &ExperimentId) {
        for _ in 0..ATTEMPTS {
            let Some(experiment) = self.registry.trusted().get(id) else { return };
            if !experiment.is_due() {
                return;
            }
            match self.release(&experiment) {
                Ok(()) => {}
                Err(Setback::Moved) if self.reload(id).is_ok() => {}
                // The next disclosure comes to it again.
                Err(_) => return,
            }
        }
    }

    /// Releases the statistic that is due, in a commit of its own.
    fn release(&self, experiment: &Arc<TrustedExperiment>) -> Result<(), Setback> {
        let Some(mut next) = experiment.secret.clone() else { return Err(Setback::Moved) };
        let released = NoiseKey::secure().map_err(ReleaseError::from);
        released.and_then(|key| next.release(key)).map_err(|error| {
            let (experiment, error) = (&experiment.id, explain(&error));
            tracing::error!(%experiment, error, "a statistic can't be released");
            Setback::Store
        })?;
        self.commit(experiment, next, Vec::new())?;
        self.metrics.released();
        Ok(())
    }

    fn commit(
        &self,
        experiment: &Arc<TrustedExperiment>,
        next: SecretState,
        disclosures: Vec<(Day, UploadId)>,
    ) -> Result<(), Setback> {
        let (id, from) = (experiment.id.clone(), experiment.version);
        let to = from.next().map_err(|error| unmade(&id, &error))?;
        let (private, released) = encode(&next).map_err(|error| unmade(&id, &error))?;
        let commit = TrustedCommit { id, from, to, private, released, disclosures };
        self.trust(&experiment.id, to, TrustedChange::Commit(commit))?;
        let shown = self.registry.trusted().get(&experiment.id);
        if shown.is_none_or(|shown| shown.version != to) {
            self.registry.trusted().publish(experiment.with(to, next));
        }
        Ok(())
    }

    fn move_window(
        &self,
        experiment: &Arc<TrustedExperiment>,
        today: Day,
        back: u32,
    ) -> Result<(), Setback> {
        let (id, from) = (experiment.id.clone(), experiment.version);
        let to = from.next().map_err(|error| unmade(&id, &error))?;
        self.trust(&experiment.id, to, TrustedChange::Window { id, from, to, today, back })?;
        // The database may know an earlier day.
        self.reload(&experiment.id).map_err(|()| Setback::Store)
    }

    /// Has a change made that leads to a version. When its outcome is unknown, the store is asked
    /// whether it has that version.
    fn trust(
        &self,
        id: &ExperimentId,
        to: TrustedVersion,
        change: TrustedChange,
    ) -> Result<(), Setback> {
        let error = match self.ingest.trust(change) {
            Ok(()) => return Ok(()),
            Err(AdministrationError::Store(StoreError::Trusted(refusal))) => {
                return Err(match *refusal {
                    TrustedRefusal::Moved => Setback::Moved,
                    TrustedRefusal::Known(names) => Setback::Known(names),
                    TrustedRefusal::Future { latest } => Setback::Future(latest),
                });
            }
            Err(AdministrationError::Store(error)) if error.outcome() == Outcome::Unknown => error,
            Err(_) => return Err(Setback::Ended),
        };
        tracing::warn!(experiment = %id, error = explain(&error), "the outcome is unknown; looking");
        self.reload(id).map_err(|()| Setback::Store)?;
        let found = self.registry.trusted().get(id).map(|experiment| experiment.version);
        if found == Some(to) { Ok(()) } else { Err(Setback::Moved) }
    }

    /// Shows an experiment as the store has it.
    fn reload(&self, id: &ExperimentId) -> Result<(), ()> {
        let experiments = self.registry.trusted();
        let read = self.reader.trusted(Some(id));
        let found =
            read.and_then(|found| found.first().map(TrustedExperiment::try_from).transpose());
        match found {
            Ok(Some(experiment)) => drop(experiments.publish(experiment)),
            Ok(None) => {
                if let Some(shown) = experiments.get(id) {
                    experiments.remove(id, shown.version);
                }
            }
            Err(error) => {
                tracing::error!(experiment = %id, error = explain(&error), "it can't be read");
                return Err(());
            }
        }
        Ok(())
    }

    fn look_up(
        &self,
        id: &ExperimentId,
        names: &[(Day, UploadId)],
    ) -> Result<Vec<(Day, UploadId)>, Setback> {
        self.reader.disclosed(id, names).map_err(|error| unmade(id, &error))
    }

    fn answer(&self, answer: Answer, outcome: Result<DisclosureVerdict, IngestError>) {
        match &outcome {
            Ok(verdict) => self.metrics.decided(verdict),
            Err(_) => self.metrics.turned_away(),
        }
        // Whoever asked may have gone away.
        answer.send(outcome).ok();
    }

    fn entry(
        &self,
        caller: &str,
        action: AuditAction,
        id: &ExperimentId,
        detail: String,
    ) -> AuditEntry {
        let at = UnixSeconds::new(self.clock.unix_seconds());
        AuditEntry { at, caller: caller.to_owned(), action, experiment: id.clone(), detail }
    }

    fn create(&self, creation: Creation) -> Result<Arc<TrustedExperiment>, AdministrationError> {
        let Creation { caller, id, plan, secret } = creation;
        let version = TrustedVersion { sequence: 0, stamp: 0 }.next()?;
        let (private, released) = encode(&secret)?;
        let record = TrustedRecord {
            id: id.clone(),
            specification: plan.message(&id).encode_to_vec(),
            state: ExperimentState::Running,
            version,
            oldest: Day::new(0),
            private: Some(private),
            released,
        };
        let experiment = TrustedExperiment::try_from(&record)?;
        let entry = self.entry(&caller, AuditAction::Create, &id, plan.words());
        let change = TrustedChange::Create(record, entry);
        if let Err(error) = self.ingest.trust(change) {
            self.resolve(&id, version, error)?;
        }
        Ok(self.registry.trusted().publish(experiment))
    }

    fn move_to(
        &self,
        movement: &Movement,
    ) -> Result<Option<Arc<TrustedExperiment>>, AdministrationError> {
        let Movement { caller, id, transition } = movement;
        let mut is_fresh = false;
        for _ in 0..ATTEMPTS {
            let Some(experiment) = self.registry.trusted().get(id) else { return Ok(None) };
            let (from, to) = (transition.from(), transition.to());
            if !from.contains(&experiment.state) && !is_fresh {
                // Another replica may have moved it just now.
                self.reload(id).map_err(|()| AdministrationError::Ended)?;
                is_fresh = true;
                continue;
            }
            if !from.contains(&experiment.state) {
                return Err(AdministrationError::State { state: experiment.state, from });
            }
            let detail = format!("trusted, {} -> {}", experiment.state.name(), to.name());
            let entry = self.entry(caller, transition.action(), id, detail);
            let (from, version) = (experiment.version, experiment.version.next()?);
            let id = id.clone();
            let change = TrustedChange::Move { id, from, to: version, state: to, entry };
            match self.ingest.trust(change) {
                Ok(()) => {
                    let secret =
                        experiment.secret.clone().filter(|_| to != ExperimentState::Stopped);
                    let moved =
                        TrustedExperiment { version, state: to, secret, ..(*experiment).clone() };
                    return Ok(Some(self.registry.trusted().publish(moved)));
                }
                Err(AdministrationError::Store(StoreError::Trusted(_))) => {
                    self.reload(&experiment.id).map_err(|()| AdministrationError::Ended)?;
                }
                Err(error) => {
                    self.resolve(&experiment.id, version, error)?;
                    return Ok(self.registry.trusted().get(&experiment.id));
                }
            }
        }
        Err(StoreError::from(TrustedRefusal::Moved).into())
    }

    /// After an unknown outcome, whether the store has this version; any other error as it is.
    fn resolve(
        &self,
        id: &ExperimentId,
        version: TrustedVersion,
        error: AdministrationError,
    ) -> Result<(), AdministrationError> {
        let is_unknown = matches!(
            &error,
            AdministrationError::Store(error) if error.outcome() == Outcome::Unknown
        );
        let is_made = || {
            self.reload(id).is_ok()
                && self.registry.trusted().get(id).is_some_and(|shown| shown.version == version)
        };
        if is_unknown && is_made() { Ok(()) } else { Err(error) }
    }
}

/// The secret state and what may be shown of it, as they are stored.
fn encode(secret: &SecretState) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
    Ok((stored::to_bytes(secret)?, stored::to_bytes(&secret.released())?))
}

/// Nothing was changed, for a reason that the log tells.
fn unmade(id: &ExperimentId, error: &StoreError) -> Setback {
    tracing::error!(experiment = %id, error = explain(error), "nothing was committed");
    Setback::Store
}
