//! The writer: a thread that owns the store of reports, and commits those of many devices at once.

use std::path::Path;
use std::sync::Arc;

use bandana_edge::clock::Clock;
use bandana_edge::day_guard::DayGuard;
use bandana_edge::telemetry::LogLimit;
use bandana_shared::identity::Digest;
use bandana_shared::shuffling::Envelope;
use bandana_sqlite::{Presence, SqliteError};
use tokio::sync::{Notify, mpsc, oneshot};

use super::ShuffleError;
use super::origins::Origin;
use super::store::{Batch, BatchKey, Dropped, ReportStore, ShuffleLimits, Verdict};

/// Most waiting commands. Further devices are told to come back.
const QUEUE_MAX: usize = 8192;

/// Most commands taken from the queue at once, and so most reports in a commit.
const GROUP_MAX: usize = 4096;

/// A command to the thread, with its answer.
#[derive(Debug)]
enum Command {
    Keep(Box<(Envelope, Origin)>, oneshot::Sender<Option<Verdict>>),
    Batches(oneshot::Sender<Vec<i64>>),
    Batch(i64, oneshot::Sender<Option<Batch>>),
    Settle(Batch, oneshot::Sender<()>),
    Piles(oneshot::Sender<Vec<(BatchKey, u32)>>),
    Drop(Digest, oneshot::Sender<Dropped>),
}

/// A handle to the thread, which ends with the last one.
#[derive(Clone, Debug)]
pub(super) struct ReportWriter {
    commands: mpsc::Sender<Command>,
    /// Notified when there may be a new batch.
    pub(super) filled: Arc<Notify>,
}

/// The reason why there is no answer. It is unknown whether the command was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotKept {
    /// Too many others wait; nothing was done.
    Full,
    /// The thread has ended.
    Ended,
}

/// The end of the thread: the store's error, if there was one.
pub(super) type Ended = oneshot::Receiver<Result<(), ShuffleError>>;

impl ReportWriter {
    /// Opens the store, and starts its thread.
    pub(super) fn start(
        presence: Presence,
        directory: &Path,
        limits: ShuffleLimits,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Ended), SqliteError> {
        let store = ReportStore::open(presence, directory, limits)?;
        let (commands, queue) = mpsc::channel(QUEUE_MAX);
        let (end, ended) = oneshot::channel();
        let filled = Arc::new(Notify::new());
        let (lines, shares) = (LogLimit::new(&clock), LogLimit::new(&clock));
        let (today, told) = (DayGuard::new(clock), Arc::clone(&filled));
        let work = Work { store, today, filled: told, lines, shares };
        let thread = std::thread::Builder::new().name("bandana-shuffle".to_owned());
        let run = move || {
            // Nobody may wait for it any more.
            end.send(work.run(queue)).ok();
        };
        thread.spawn(run).map_err(|source| SqliteError::directory(directory, source))?;
        Ok((Self { commands, filled }, ended))
    }

    /// Keeps a report. It is on the disk when this returns. None: its origin has its share of the batch.
    pub(super) async fn keep(
        &self,
        envelope: Envelope,
        origin: Origin,
    ) -> Result<Option<Verdict>, NotKept> {
        let (answer, verdict) = oneshot::channel();
        let sent = self.commands.try_send(Command::Keep(Box::new((envelope, origin)), answer));
        sent.map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotKept::Full,
            mpsc::error::TrySendError::Closed(_) => NotKept::Ended,
        })?;
        verdict.await.map_err(|_| NotKept::Ended)
    }

    /// The keys of all batches, in the order in which they were filled.
    pub(super) async fn batches(&self) -> Result<Vec<i64>, NotKept> {
        self.ask(Command::Batches).await
    }

    /// The batch with this key, unless it is settled.
    pub(super) async fn batch(&self, key: i64) -> Result<Option<Batch>, NotKept> {
        self.ask(|answer| Command::Batch(key, answer)).await
    }

    /// Forgets a batch.
    pub(super) async fn settle(&self, batch: Batch) -> Result<(), NotKept> {
        self.ask(|answer| Command::Settle(batch, answer)).await
    }

    /// The batches that wait for more reports, each with its number of reports.
    pub(super) async fn waiting_batches(&self) -> Result<Vec<(BatchKey, u32)>, NotKept> {
        self.ask(Command::Piles).await
    }

    /// Forgets all reports of an experiment.
    pub(super) async fn drop_experiment(&self, digest: Digest) -> Result<Dropped, NotKept> {
        self.ask(|answer| Command::Drop(digest, answer)).await
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, NotKept> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.map_err(|_| NotKept::Ended)?;
        answered.await.map_err(|_| NotKept::Ended)
    }
}

/// What the thread has.
struct Work {
    store: ReportStore,
    today: DayGuard,
    filled: Arc<Notify>,
    /// Limits the lines about a full store.
    lines: LogLimit,
    /// The same of addresses that have their share.
    shares: LogLimit,
}

impl Work {
    /// Carries out commands until there is no handle left, or the store fails.
    fn run(mut self, mut queue: mpsc::Receiver<Command>) -> Result<(), ShuffleError> {
        let mut commands = Vec::with_capacity(GROUP_MAX);
        while queue.blocking_recv_many(&mut commands, GROUP_MAX) > 0 {
            let (mut reports, mut waiting) = (Vec::new(), Vec::new());
            for command in commands.drain(..) {
                // Whoever asked may be gone.
                match command {
                    Command::Keep(report, answer) => {
                        reports.push(*report);
                        waiting.push(answer);
                    }
                    Command::Batches(answer) => {
                        answer.send(self.store.batches()?).ok();
                    }
                    Command::Batch(key, answer) => {
                        answer.send(self.store.batch(key)?).ok();
                    }
                    Command::Settle(batch, answer) => {
                        answer.send(self.store.settle(&batch)?).ok();
                    }
                    Command::Piles(answer) => {
                        answer.send(self.store.waiting_batches().collect()).ok();
                    }
                    Command::Drop(digest, answer) => {
                        answer.send(self.store.drop_experiment(digest)?).ok();
                    }
                }
            }
            if !reports.is_empty() {
                let today = self.today.get(self.store.oldest());
                let kept = self.store.keep(&reports, today)?;
                if kept.verdicts.contains(&Some(Verdict::Full))
                    && let Some(dropped) = self.lines.next()
                {
                    let (ids, reports) = self.store.kept();
                    tracing::error!(
                        ids,
                        reports,
                        dropped,
                        "the relay keeps as many reports, or remembers as many ids, as \
                         --reports-max allows; devices are told to come back"
                    );
                }
                if kept.verdicts.contains(&None)
                    && let Some(dropped) = self.shares.next()
                {
                    tracing::warn!(
                        dropped,
                        "an address has its share of a batch, and is told to come back; where many \
                         users have one address, let in more with --batch-share-per-address"
                    );
                }
                for (answer, verdict) in waiting.into_iter().zip(kept.verdicts) {
                    answer.send(verdict).ok();
                }
                if kept.is_batch_filled {
                    self.filled.notify_one();
                }
            }
        }
        Ok(())
    }
}
