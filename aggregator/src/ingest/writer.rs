//! The writer owns the store: a state machine, which a thread of its own runs.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use bandana_learners::LearnerError;
use bandana_shared::identity::{Day, UnixSeconds};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use super::room::Room;
use super::{Command, Ingest, IngestError, QUEUE_MAX};
use crate::clock::Clock;
use crate::explain::explain;
use crate::ingest::IngestMetrics;
use crate::registry::{Experiment, Registry};
use crate::store::{Committed, DatabaseError, ExperimentKey, Outcome, Store, StoreError, Window};
use crate::store::{ValidUpload, Verdict};
use crate::telemetry::Lines;

/// Commands that are taken from the queue at once, and so uploads in a group.
const GROUP_MAX: usize = 4096;

/// By how much a clock may be behind without a word: at midnight, replicas and devices differ.
const BEHIND_MAX: Duration = Duration::from_hours(1);

/// Owns the store, decides about uploads, commits and publishes.
#[derive(Debug)]
pub struct Writer {
    pub(super) store: Box<dyn Store>,
    pub(super) registry: Arc<Registry>,
    today: Today,
    commands: mpsc::Receiver<Command>,
    /// Experiments that are due for a new policy.
    due: std_mpsc::Sender<Arc<Experiment>>,
    room: Room,
    metrics: IngestMetrics,
    /// What callers cause by coming again while the store can't be used.
    failures: Lines,
}

/// An upload that waits for its verdict.
type Waiting = oneshot::Sender<Result<Verdict, IngestError>>;

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
    /// As there.
    pub fn open_with_queue(
        queue_max: usize,
        mut store: Box<dyn Store>,
        registry: Arc<Registry>,
        clock: Arc<dyn Clock>,
        due: std_mpsc::Sender<Arc<Experiment>>,
        metrics: IngestMetrics,
    ) -> Result<(Self, Ingest), WriterError> {
        for record in store.load()? {
            registry.publish(record)?;
        }
        registry.remember_deleted(&store.deleted()?);
        let today = Today::new(clock);
        let window = store.window(today.day);
        let Window { oldest, ids, .. } = window;
        let behind = today.behind(&window);
        if oldest > today.day {
            tracing::error!(
                %oldest, today = %today.day,
                "the replay window begins after today: the clock is wrong now, or was when the \
                 window was moved; no uploads are taken"
            );
        } else if behind > BEHIND_MAX {
            tracing::warn!(
                newest = window.newest.map(tracing::field::display), today = %today.day,
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
        let failures = Lines::new(&today.clock);
        Ok((Self { store, registry, today, commands, due, room, metrics, failures }, ingest))
    }

    /// Two further writers, of changes and of disclosures, over these stores: whatever they wait
    /// for there, uploads don't. For stores that can be written to side by side.
    pub(crate) fn beside(
        &self,
        ingest: &mut Ingest,
        stores: [Box<dyn Store>; 2],
    ) -> impl Iterator<Item = Self> {
        let queues = stores.into_iter().zip(ingest.split());
        queues.map(|(store, commands)| Self {
            store,
            commands,
            registry: Arc::clone(&self.registry),
            today: Today::new(Arc::clone(&self.today.clock)),
            due: self.due.clone(),
            room: Room::new(),
            metrics: self.metrics.clone(),
            failures: Lines::new(&self.today.clock),
        })
    }

    /// Works until [`Ingest::stop`], then closes the store.
    ///
    /// # Errors
    /// [`WriterError`] after a failed commit that the store can't go on after. Nobody of
    /// that group was acknowledged; the process must end, since it is not known what is
    /// on the disk.
    pub fn run(mut self) -> Result<(), WriterError> {
        let mut batch = Vec::with_capacity(GROUP_MAX);
        while self.commands.blocking_recv_many(&mut batch, GROUP_MAX) > 0 {
            if self.work(batch.drain(..))?.is_break() {
                break;
            }
        }
        self.close()
    }

    /// What [`Self::run`] does, for whoever has the time in their own hands: does `most` of
    /// the commands that wait, and waits for none. Breaks after [`Ingest::stop`].
    ///
    /// # Errors
    /// As there.
    pub fn turn(&mut self, most: usize) -> Result<ControlFlow<()>, WriterError> {
        let waiting = std::iter::from_fn(|| self.commands.try_recv().ok());
        let batch: Vec<Command> = waiting.take(most).collect();
        self.work(batch.into_iter())
    }

    /// Closes the store. Whoever waits still hears that the writer has ended.
    ///
    /// # Errors
    /// [`WriterError`]; what was committed stays so.
    pub fn close(self) -> Result<(), WriterError> {
        Ok(self.store.close()?)
    }

    /// Uploads form one group until the next change.
    fn work(
        &mut self,
        batch: impl Iterator<Item = Command>,
    ) -> Result<ControlFlow<()>, WriterError> {
        let mut group: (Vec<ValidUpload>, Vec<Waiting>) = (Vec::new(), Vec::new());
        for command in batch {
            match command {
                Command::Upload(upload, waiting) => {
                    group.0.push(upload);
                    group.1.push(waiting);
                }
                Command::Administer(order, answer) => {
                    self.commit(std::mem::take(&mut group))?;
                    let outcome = self.administer(order)?;
                    // Whoever asked may have gone away.
                    answer.send(outcome).ok();
                }
                Command::Curate(change, answer) => {
                    self.commit(std::mem::take(&mut group))?;
                    let outcome = self.curate(&change)?;
                    answer.send(outcome).ok();
                }
                Command::Trust(change, answer) => {
                    self.commit(std::mem::take(&mut group))?;
                    let outcome = self.trust(&change)?;
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
        // Whoever asked may have gone away.
        match committed {
            Ok(committed) => {
                self.note(begin, &arrivals, &committed);
                self.publish(&arrivals, &committed);
                for (verdict, waiting) in committed.verdicts.into_iter().zip(waiting) {
                    waiting.send(Ok(verdict)).ok();
                }
            }
            Err(error) => {
                let uploads = arrivals.len();
                if matches!(error, StoreError::Database(DatabaseError::Silent)) {
                    // The log says it already.
                    tracing::debug!(uploads, "uploads were turned away");
                } else if let Some(more) = self.failures.next() {
                    let error = explain(&error);
                    tracing::error!(uploads, error, more, "uploads were not acknowledged");
                }
                for waiting in waiting {
                    waiting.send(Err(IngestError::Store)).ok();
                }
            }
        }
        Ok(())
    }

    fn today(&mut self) -> Day {
        self.today.get(self.store.window(self.today.day).oldest)
    }

    /// Notes how many ids are remembered, and of which days.
    fn note_window(&mut self) {
        let Window { oldest, ids, .. } = self.store.window(self.today.day);
        let (ids, ids_max) = ids.unwrap_or_default();
        self.metrics.remembered(ids, oldest);
        self.room.note(ids, ids_max);
    }

    /// Whether there is room for further ids, for whoever wants to know when that changes.
    pub(crate) fn room(&self) -> watch::Receiver<bool> {
        self.room.watch()
    }

    /// Counts what a commit has done.
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
        self.metrics.judged_by(self.today.ahead);
        let window = self.store.window(self.today.day);
        self.metrics.is_behind(self.today.behind(&window));
        self.note_window();
        self.metrics.decided(&committed.verdicts);
    }

    fn publish(&self, arrivals: &[ValidUpload], committed: &Committed) {
        let touched: BTreeSet<ExperimentKey> =
            arrivals.iter().map(|a| a.experiment.key()).collect();
        for key in touched {
            // None: it was deleted meanwhile.
            let Some(experiment) = self.registry.by_key(key) else { continue };
            if committed.deltas.is_empty() {
                experiment.acknowledge();
            }
            let own = committed.deltas.iter().filter(|(_, delta)| delta.experiment == key);
            let mut own = own.map(|(day, delta)| (*day, delta.arm, delta.tally)).peekable();
            if own.peek().is_some() && experiment.add(own) {
                // The policy thread ends after this one.
                self.due.send(experiment).ok();
            }
        }
    }

    /// Logs why a change is not known to be made, or how often that was not logged.
    pub(super) fn complain(&self, error: &StoreError, what: &str) {
        if let Some(more) = self.failures.next() {
            tracing::error!(error = explain(error), more, "{what}");
        }
    }

    /// The time, for the audit log and the end of signatures.
    pub(super) fn now(&self) -> UnixSeconds {
        UnixSeconds::new(self.today.clock.unix_seconds())
    }
}

/// The day by which uploads are judged.
///
/// Within a process it never goes back, so that a device that has just heard a
/// day is not told that it is in the future. Nor does it run ahead of the time
/// that has passed by more than a day: a clock that jumps into the future would
/// take the replay window with it, for good. Only a clock that is before the window is
/// known to be wrong: nothing is made of it, and it is followed once it is right.
#[derive(Debug)]
pub(crate) struct Today {
    clock: Arc<dyn Clock>,
    start: (Day, Duration),
    day: Day,
    /// Days by which the clock is ahead of what is believed.
    ahead: u32,
}

impl Today {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let day = clock.day();
        Self { start: (day, clock.monotonic()), clock, day, ahead: 0 }
    }

    /// How far the clock is at least behind what it, or that of a replica, has been before, by the
    /// uploads that were counted then.
    fn behind(&self, window: &Window) -> Duration {
        let newest = window.newest.map_or(0, |newest| u64::from(newest.get()) * 86_400);
        Duration::from_secs(newest.saturating_sub(self.clock.unix_seconds()))
    }

    /// Today, for whoever has a window that begins with `oldest`.
    pub(crate) fn get(&mut self, oldest: Day) -> Day {
        let (first, since) = self.start;
        let passed = self.clock.monotonic().saturating_sub(since).as_secs() / 86_400;
        let latest = first.forward(u32::try_from(passed).unwrap_or(u32::MAX)).forward(1);
        let day = self.clock.day();
        if self.day < oldest && day >= oldest {
            self.start = (day, self.clock.monotonic());
            (self.day, self.ahead) = (day, 0);
            return day;
        }
        if day > latest && self.day < latest {
            tracing::error!(
                %day, %latest,
                "the clock has jumped ahead of the time that has passed; the later day is not \
                 used. If the clock is right, the host of this machine has paused it: restart \
                 the server"
            );
        }
        self.ahead = day.get().saturating_sub(latest.get());
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
