//! The writer: a state machine on a thread of its own, which owns the store.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_edge::day_guard::DayGuard;
use bandana_edge::explain::explain;
use bandana_edge::telemetry::LogLimit;
use bandana_learners::LearnerError;
use bandana_shared::identity::{Day, UnixSeconds};
use bandana_store::{
    Committed, ExperimentKey, Outcome, Routing, Store, StoreError, ValidUpload, Verdict, Window,
};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use super::commits::Commits;
use super::room::Room;
use super::{Command, Ingest, IngestError, QUEUE_MAX};
use crate::ingest::IngestMetrics;
use crate::registry::{Experiment, Registry};

/// Most commands taken from the queue at once, and so most uploads in a group.
const GROUP_MAX: usize = 4096;

/// The number of uploads in a group after which the next one is held for others. While fewer
/// arrive during a commit, nobody waits for anybody.
const BUSY: usize = 8;

/// The number of uploads for which no others are waited.
const ENOUGH: usize = 64;

/// The time between two looks at a group that is held, and the most of them: a millisecond in all,
/// where calls at this load take longer than that.
const HOLD: Duration = Duration::from_micros(250);
const HOLDS_MAX: u32 = 4;

/// How far the clock may be behind without a warning: at midnight, the clocks of replicas and
/// devices differ.
const BEHIND_MAX: Duration = Duration::from_hours(1);

/// Owns the store: decides about uploads, commits and publishes them.
#[derive(Debug)]
pub struct Writer {
    pub(super) store: Box<dyn Store>,
    pub(super) registry: Arc<Registry>,
    today: DayGuard,
    commands: mpsc::Receiver<Command>,
    /// Experiments that are due for a new policy.
    due: std_mpsc::Sender<Arc<Experiment>>,
    room: Room,
    commits: Commits,
    metrics: IngestMetrics,
    /// Limits log lines about failures, which callers repeat while the store is unusable.
    failures: LogLimit,
}

/// The number of uploads that came together, and the channel for their verdicts.
type Waiting = (usize, oneshot::Sender<Result<Vec<Verdict>, IngestError>>);

impl Writer {
    /// Fills the registry from the store.
    ///
    /// # Errors
    /// [`WriterError`] when the store can't be read.
    pub fn open(
        store: Box<dyn Store>,
        registry: Arc<Registry>,
        clock: Arc<dyn Clock>,
        due: std_mpsc::Sender<Arc<Experiment>>,
        metrics: IngestMetrics,
    ) -> Result<(Self, Ingest), WriterError> {
        Self::open_with_queue(QUEUE_MAX, store, registry, clock, due, metrics)
    }

    /// As [`Self::open`], with a queue for this many commands.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with_queue(
        queue_max: usize,
        mut store: Box<dyn Store>,
        registry: Arc<Registry>,
        clock: Arc<dyn Clock>,
        due: std_mpsc::Sender<Arc<Experiment>>,
        metrics: IngestMetrics,
    ) -> Result<(Self, Ingest), WriterError> {
        registry.publish_all(store.load()?)?;
        registry.remember_deleted(&store.deleted()?);
        let today = DayGuard::new(clock);
        let window = store.window(today.day());
        let Window { oldest, ids, .. } = window;
        let behind = today.behind(window.newest);
        if oldest > today.day() {
            tracing::error!(
                %oldest, today = %today.day(),
                "the replay window begins after today, so no uploads are taken: the clock is wrong \
                 now, or was when the window was moved"
            );
        } else if behind > BEHIND_MAX {
            tracing::warn!(
                newest = window.newest.map(tracing::field::display), today = %today.day(),
                "uploads of a later day than today were counted: the clock is behind, or was ahead \
                 then; uploads of the days between are refused as of the future"
            );
        }
        metrics.is_behind(behind);
        let (ids, ids_max) = ids.unwrap_or_default();
        metrics.opened(ids, ids_max, oldest);
        let mut room = Room::new();
        room.note(ids, ids_max);
        let (ingest, commands) = Ingest::channel(queue_max, metrics.clone());
        let failures = LogLimit::new(today.clock());
        let commits = Commits::new();
        let writer =
            Self { store, registry, today, commands, due, room, commits, metrics, failures };
        Ok((writer, ingest))
    }

    /// Two further writers, for changes and for disclosures, over these stores, so that uploads
    /// don't wait for either. For stores with concurrent writers.
    pub(crate) fn beside(
        &self,
        ingest: &mut Ingest,
        stores: [Box<dyn Store>; 2],
    ) -> impl Iterator<Item = Self> {
        let queues = stores.into_iter().zip(ingest.split());
        queues.map(|(store, commands)| self.with(store, commands))
    }

    /// Further writers for the uploads of these store cells.
    pub(crate) fn of_cells(
        &self,
        ingest: &mut Ingest,
        routing: &Arc<Routing>,
        cells: Vec<Box<dyn Store>>,
    ) -> impl Iterator<Item = Self> {
        let clock = Arc::clone(self.today.clock());
        let queues = ingest.route(Arc::clone(routing), clock, cells.len());
        cells.into_iter().zip(queues).map(|(store, commands)| self.with(store, commands))
    }

    /// A writer as this one, over this store and this queue.
    fn with(&self, store: Box<dyn Store>, commands: mpsc::Receiver<Command>) -> Self {
        Self {
            store,
            commands,
            registry: Arc::clone(&self.registry),
            today: DayGuard::new(Arc::clone(self.today.clock())),
            due: self.due.clone(),
            room: Room::new(),
            commits: Commits::new(),
            metrics: self.metrics.clone(),
            failures: LogLimit::new(self.today.clock()),
        }
    }

    /// Works until [`Ingest::stop`], then closes the store.
    ///
    /// # Errors
    /// [`WriterError`] after a failed commit with a fatal outcome. No upload of that group was
    /// acknowledged. The process must end, since the state on disk is unknown.
    pub fn run(mut self) -> Result<(), WriterError> {
        let mut batch = Vec::with_capacity(GROUP_MAX);
        let mut last = 0;
        while self.commands.blocking_recv_many(&mut batch, GROUP_MAX) > 0 {
            if last >= BUSY {
                self.hold(&mut batch);
            }
            last = uploads_in(&batch);
            if self.work(batch.drain(..))?.is_break() {
                break;
            }
        }
        self.close()
    }

    /// Waits for further commands for a moment. A commit costs as much for one upload as for many,
    /// and at this load others are on their way.
    fn hold(&mut self, batch: &mut Vec<Command>) {
        for _ in 0..HOLDS_MAX {
            if uploads_in(batch) + self.commands.len() >= ENOUGH {
                break;
            }
            std::thread::sleep(HOLD);
        }
        let room = GROUP_MAX - batch.len();
        batch.extend(std::iter::from_fn(|| self.commands.try_recv().ok()).take(room));
    }

    /// A step of [`Self::run`], for callers with a scheduler of their own: executes at most `most`
    /// of the waiting commands, and does not block. Breaks after [`Ingest::stop`].
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn turn(&mut self, most: usize) -> Result<ControlFlow<()>, WriterError> {
        let waiting = std::iter::from_fn(|| self.commands.try_recv().ok());
        let batch: Vec<Command> = waiting.take(most).collect();
        self.work(batch.into_iter())
    }

    /// Closes the store. Waiting callers learn that the writer has ended.
    ///
    /// # Errors
    /// [`WriterError`]; committed data stays committed.
    pub fn close(self) -> Result<(), WriterError> {
        Ok(self.store.close()?)
    }

    /// Executes commands. Uploads up to the next change form one group.
    fn work(
        &mut self,
        batch: impl Iterator<Item = Command>,
    ) -> Result<ControlFlow<()>, WriterError> {
        let mut group: (Vec<ValidUpload>, Vec<Waiting>) = (Vec::new(), Vec::new());
        for command in batch {
            match command {
                Command::Uploads(uploads, waiting) => {
                    group.1.push((uploads.len(), waiting));
                    group.0.extend(uploads);
                }
                Command::Administer(order, answer) => {
                    self.commit(std::mem::take(&mut group))?;
                    let outcome = self.administer(order)?;
                    // The caller may be gone.
                    answer.send(outcome).ok();
                }
                Command::Curate(change, answer) => {
                    self.commit(std::mem::take(&mut group))?;
                    let outcome = self.apply_query_change(&change)?;
                    answer.send(outcome).ok();
                }
                Command::Trust(change, answer) => {
                    self.commit(std::mem::take(&mut group))?;
                    let outcome = self.apply_trusted_change(&change)?;
                    answer.send(outcome).ok();
                }
                Command::Log(addition, answer) => {
                    self.commit(std::mem::take(&mut group))?;
                    let outcome = self.add_epoch(&addition)?;
                    answer.send(outcome).ok();
                }
                Command::Look => {
                    let today = self.today();
                    self.store.check(today)?;
                    self.note_window();
                }
                Command::Stop => {
                    self.commit(group)?;
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        self.commit(group)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Commits, publishes and acknowledges a group, in this order.
    fn commit(&mut self, group: (Vec<ValidUpload>, Vec<Waiting>)) -> Result<(), WriterError> {
        let (arrivals, waiting) = group;
        if arrivals.is_empty() {
            return Ok(());
        }
        let today = self.today();
        let _span = tracing::debug_span!("commit", uploads = arrivals.len()).entered();
        let begin = self.metrics.now();
        let committed = match self.store.commit(&arrivals, today) {
            Err(error) if error.outcome() == Outcome::Fatal => return Err(error.into()),
            committed => committed,
        };
        match committed {
            Ok(committed) => {
                self.commits.note(self.metrics.now(), true);
                self.note(begin, &arrivals, &committed);
                self.publish(&arrivals, &committed);
                let mut verdicts = committed.verdicts.into_iter();
                for (uploads, answer) in waiting {
                    // The caller may be gone.
                    answer.send(Ok(verdicts.by_ref().take(uploads).collect())).ok();
                }
            }
            Err(error) => {
                let uploads = arrivals.len();
                if error.is_silence() {
                    // An earlier line of the log has the cause.
                    tracing::debug!(uploads, "uploads were turned away");
                } else if let Some(more) = self.failures.next() {
                    let error = explain(&error);
                    tracing::error!(uploads, error, more, "uploads were not acknowledged");
                }
                if error.is_of_answer() {
                    self.commits.note(self.metrics.now(), false);
                }
                for (_, answer) in waiting {
                    answer.send(Err(IngestError::Store)).ok();
                }
            }
        }
        Ok(())
    }

    fn today(&mut self) -> Day {
        self.today.get(self.store.window(self.today.day()).oldest)
    }

    /// Records the number of remembered ids and their first day.
    fn note_window(&mut self) {
        let Window { oldest, ids, .. } = self.store.window(self.today.day());
        let (ids, ids_max) = ids.unwrap_or_default();
        self.metrics.remembered(ids, oldest);
        self.room.note(ids, ids_max);
    }

    /// A watch of whether there is room for further ids.
    pub(crate) fn room(&self) -> watch::Receiver<bool> {
        self.room.watch()
    }

    /// A channel that tells whether commits of uploads succeed.
    pub(crate) fn commits(&self) -> watch::Sender<bool> {
        self.commits.channel()
    }

    /// Records the results of a commit.
    fn note(&mut self, begin: Duration, arrivals: &[ValidUpload], committed: &Committed) {
        let with_verdicts = arrivals.iter().zip(&committed.verdicts);
        let accepted = with_verdicts.filter(|(_, verdict)| **verdict == Verdict::Accepted);
        let (mut uploads, mut reports) = (0, 0);
        for (upload, _) in accepted {
            uploads += 1;
            reports += upload.tallies.iter().map(|(_, tally)| tally.reports()).sum::<u64>();
        }
        if uploads > 0 {
            self.metrics.committed(begin, uploads, reports);
        }
        self.metrics.judged_by(self.today.ahead());
        let window = self.store.window(self.today.day());
        self.metrics.is_behind(self.today.behind(window.newest));
        self.note_window();
        self.metrics.decided(&committed.verdicts);
    }

    fn publish(&self, arrivals: &[ValidUpload], committed: &Committed) {
        let touched: BTreeSet<ExperimentKey> =
            arrivals.iter().map(|a| a.experiment.key()).collect();
        for key in touched {
            // None: the experiment was deleted meanwhile.
            let Some(experiment) = self.registry.by_key(key) else { continue };
            if committed.deltas.is_empty() {
                experiment.acknowledge();
            }
            let own = committed.deltas.iter().filter(|(_, delta)| delta.experiment == key);
            let mut own =
                own.map(|(day, delta)| (*day, delta.revision, delta.cell, delta.tally)).peekable();
            if own.peek().is_some() && experiment.add(own) {
                // The policy thread ends after the writer.
                self.due.send(experiment).ok();
            }
        }
    }

    /// Logs why the outcome of a change is unknown, or how many such lines were suppressed.
    pub(super) fn log_limited(&self, error: &StoreError, what: &str) {
        if let Some(more) = self.failures.next() {
            tracing::error!(error = explain(error), more, "{what}");
        }
    }

    /// The present time, for the audit log and the expiry of signatures.
    pub(super) fn now(&self) -> UnixSeconds {
        UnixSeconds::new(self.today.clock().unix_seconds())
    }
}

fn uploads_in(batch: &[Command]) -> usize {
    batch.iter().map(Command::uploads).sum()
}

/// The reason why the writer ended.
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
