//! The thread that owns the store.

use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use bandana_shared::identity::{Day, UnixSeconds};
use bandana_shared::signing::Signature;
use bandana_shared::tally::Tally;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use super::plan::{Arrival, Situation, Verdict, plan};
use super::{Administration, AdministrationError, Command, Ingest, Revise};
use crate::clock::Clock;
use crate::learner::LearnerError;
use crate::registry::{Experiment, Registry, Revision};
use crate::seen::SeenIds;
use crate::store::{ExperimentRecord, ExperimentState, SqliteStore, StoreError};
use crate::telemetry::metrics::IngestMetrics;

/// Commands that are taken from the queue at once, and so uploads in a group.
const GROUP_MAX: usize = 4096;

/// Limits of the writer.
#[derive(Clone, Copy, Debug)]
pub struct WriterSettings {
    /// Days whose uploads are taken: today and those before it, at least 1.
    pub replay_window_days: u32,
    /// Most upload ids that are remembered, about 40 bytes of memory each.
    pub ids_max: usize,
}

/// Owns the store, decides about uploads, commits and publishes.
#[derive(Debug)]
pub struct Writer {
    store: SqliteStore,
    registry: Arc<Registry>,
    seen: SeenIds,
    oldest: Day,
    today: Today,
    settings: WriterSettings,
    commands: mpsc::Receiver<Command>,
    /// Experiments that are due for a new policy.
    due: std_mpsc::Sender<Arc<Experiment>>,
    metrics: IngestMetrics,
}

/// An upload that waits for its verdict.
type Waiting = oneshot::Sender<Verdict>;

impl Writer {
    /// Fills the registry and the set of ids from the store.
    ///
    /// # Errors
    /// [`WriterError`] when the store can't be read.
    pub fn open(
        store: SqliteStore,
        registry: Arc<Registry>,
        clock: Arc<dyn Clock>,
        settings: WriterSettings,
        due: std_mpsc::Sender<Arc<Experiment>>,
        metrics: IngestMetrics,
    ) -> Result<(Self, Ingest), WriterError> {
        for record in store.experiments()? {
            registry.add(record)?;
        }
        let seen = SeenIds::load(&store)?;
        let oldest = store.oldest_day()?;
        let today = Today::new(clock);
        if oldest > today.day {
            tracing::error!(
                %oldest, today = %today.day,
                "the replay window begins after today: the clock is wrong now, or was when the \
                 window was moved; no uploads are taken"
            );
        }
        let taken = oldest.max(today.day.back(settings.replay_window_days.saturating_sub(1)));
        metrics.opened(seen.len(), settings.ids_max, taken);
        let (ingest, commands) = Ingest::channel(metrics.clone());
        let writer =
            Self { store, registry, seen, oldest, today, settings, commands, due, metrics };
        Ok((writer, ingest))
    }

    /// Number of upload ids that are remembered.
    pub fn ids(&self) -> usize {
        self.seen.len()
    }

    /// Works until [`Ingest::stop`], then closes the store.
    ///
    /// # Errors
    /// [`WriterError`] after a failed commit. Nobody of that group was
    /// acknowledged; the process must end, since it is not known what is on the
    /// disk.
    pub fn run(mut self) -> Result<(), WriterError> {
        let mut batch = Vec::with_capacity(GROUP_MAX);
        'work: while self.commands.blocking_recv_many(&mut batch, GROUP_MAX) > 0 {
            let mut group: (Vec<Arrival>, Vec<Waiting>) = (Vec::new(), Vec::new());
            for command in batch.drain(..) {
                match command {
                    Command::Upload(arrival, waiting) => {
                        group.0.push(arrival);
                        group.1.push(waiting);
                    }
                    Command::Administer(administration, answer) => {
                        self.commit(std::mem::take(&mut group))?;
                        let outcome = self.administer(administration)?;
                        // Whoever asked may have gone away.
                        answer.send(outcome).ok();
                    }
                    Command::Stop => {
                        self.commit(group)?;
                        break 'work;
                    }
                }
            }
            self.commit(group)?;
        }
        Ok(self.store.close()?)
    }

    /// Plans, commits, publishes and acknowledges a group, in this order.
    fn commit(&mut self, group: (Vec<Arrival>, Vec<Waiting>)) -> Result<(), WriterError> {
        let (arrivals, waiting) = group;
        if arrivals.is_empty() {
            return Ok(());
        }
        let today = self.today.get();
        self.expire(today)?;
        let situation = Situation {
            seen: &self.seen,
            ids_max: self.settings.ids_max,
            oldest: self.oldest,
            today,
        };
        let plan = plan(&arrivals, &situation);
        if !plan.rows.is_empty() {
            let _span = tracing::debug_span!("commit", uploads = arrivals.len()).entered();
            let begin = self.metrics.now();
            self.store.commit_group(&plan.rows)?;
            self.metrics.committed(begin, &plan);
        }
        for row in &plan.rows {
            for id in &row.ids {
                self.seen.insert(row.day, *id);
            }
        }
        for (key, experiment) in &plan.touched {
            let deltas = plan.rows.iter().flat_map(|row| &row.deltas);
            let own = deltas.filter(|d| d.experiment == *key).map(|d| (d.arm, d.tally));
            if experiment.add(own) {
                // The policy thread ends after this one.
                self.due.send(Arc::clone(experiment)).ok();
            }
        }
        self.metrics.remembered(self.seen.len(), self.oldest);
        self.metrics.decided(&plan.verdicts);
        for (verdict, waiting) in plan.verdicts.into_iter().zip(waiting) {
            // Whoever asked may have gone away.
            waiting.send(verdict).ok();
        }
        Ok(())
    }

    /// Moves the replay window on when a new day has begun.
    fn expire(&mut self, today: Day) -> Result<(), WriterError> {
        let oldest = today.back(self.settings.replay_window_days.saturating_sub(1));
        if oldest > self.oldest {
            self.store.expire_before(oldest)?;
            self.seen.forget_before(oldest);
            self.oldest = oldest;
        }
        Ok(())
    }

    /// The outer error ends the writer, the inner one is the caller's.
    fn administer(
        &mut self,
        administration: Administration,
    ) -> Result<Result<Arc<Experiment>, AdministrationError>, WriterError> {
        let outcome = match administration {
            Administration::Create(specification, conduct) => {
                // The learner must be able to work before anything is stored.
                let arms = vec![Tally::EMPTY; specification.arms().len()];
                let active = specification.active_arms();
                match conduct.learner.weights(&arms, &active, conduct.floor_weight) {
                    Ok(_) => self.create(*specification, conduct),
                    Err(error) => Err(error.into()),
                }
            }
            Administration::SetState { experiment, from, to } => {
                self.set_state(&experiment, from, to).map(|()| experiment)
            }
            Administration::Revise { experiment, change } => {
                self.revise(&experiment, change).map(|()| experiment)
            }
            Administration::AddSignature { revision, signature, now } => {
                self.add_signature(&revision, &signature, now).map(|()| revision.experiment)
            }
        };
        match outcome {
            // These changed nothing. What else goes wrong in the store is fatal.
            Err(AdministrationError::Store(
                declined @ (StoreError::ExperimentExists(_) | StoreError::TooManySignatures),
            )) => Ok(Err(declined.into())),
            Err(AdministrationError::Store(fatal)) => Err(fatal.into()),
            other => Ok(other),
        }
    }

    fn create(
        &mut self,
        specification: bandana_shared::specification::Specification,
        conduct: crate::store::Conduct,
    ) -> Result<Arc<Experiment>, AdministrationError> {
        let key = self.store.create_experiment(&specification, conduct)?;
        let tallies = vec![Tally::EMPTY; specification.arms().len()];
        let state = ExperimentState::Running;
        let (revisions, signatures) = (vec![specification], Vec::new());
        let record = ExperimentRecord { key, conduct, state, revisions, signatures, tallies };
        Ok(self.registry.add(record)?)
    }

    fn set_state(
        &mut self,
        experiment: &Experiment,
        from: &'static [ExperimentState],
        to: ExperimentState,
    ) -> Result<(), AdministrationError> {
        let serving = experiment.serving();
        if !from.contains(&serving.state) {
            return Err(AdministrationError::State { state: serving.state, from });
        }
        self.store.set_state(experiment.key(), to)?;
        experiment.replace(Arc::clone(&serving.specification), to)?;
        Ok(())
    }

    fn revise(
        &mut self,
        experiment: &Arc<Experiment>,
        change: Revise,
    ) -> Result<(), AdministrationError> {
        const OPEN: &[ExperimentState] = &[ExperimentState::Running, ExperimentState::Paused];
        let serving = experiment.serving();
        if !OPEN.contains(&serving.state) {
            return Err(AdministrationError::State { state: serving.state, from: OPEN });
        }
        let current = &serving.specification;
        let revised = match change {
            Revise::Add(arm) => current.with_arm(arm)?,
            Revise::Retire(arm) => current.without_arm(arm)?,
        };
        let conduct = experiment.conduct();
        let empty = vec![Tally::EMPTY; revised.arms().len()];
        conduct.learner.weights(&empty, &revised.active_arms(), conduct.floor_weight)?;
        let revised = Arc::new(revised);
        self.store.add_revision(experiment.key(), &revised)?;
        self.registry.add_revision(experiment, &revised);
        experiment.replace(revised, serving.state)?;
        Ok(())
    }

    fn add_signature(
        &mut self,
        revision: &Revision,
        signature: &Signature,
        now: UnixSeconds,
    ) -> Result<(), AdministrationError> {
        let signatures = self.store.add_signature(&revision.specification, signature, now)?;
        revision.experiment.publish_signatures(revision.specification.digest(), signatures);
        Ok(())
    }
}

/// The day by which uploads are judged.
///
/// Within a process it never goes back, so that a device that has just heard a
/// day is not told that it is in the future. Nor does it run ahead of the time
/// that has passed by more than a day: a clock that jumps into the future would
/// take the replay window with it, for good.
#[derive(Debug)]
struct Today {
    clock: Arc<dyn Clock>,
    start: (Day, Duration),
    day: Day,
}

impl Today {
    fn new(clock: Arc<dyn Clock>) -> Self {
        let day = clock.day();
        Self { start: (day, clock.monotonic()), clock, day }
    }

    fn get(&mut self) -> Day {
        let (first, since) = self.start;
        let passed = self.clock.monotonic().saturating_sub(since).as_secs() / 86_400;
        let latest = first.forward(u32::try_from(passed).unwrap_or(u32::MAX)).forward(1);
        let day = self.clock.day();
        if day > latest && self.day < latest {
            tracing::error!(%day, %latest, "the clock has jumped ahead; the later day is not used");
        }
        self.day = self.day.max(day.min(latest));
        self.day
    }
}

/// Why the writer ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriterError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored experiment can't be run.
    #[error("a stored experiment can't be run")]
    Learner(#[from] LearnerError),
}
