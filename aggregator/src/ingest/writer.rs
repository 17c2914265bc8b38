//! The thread that owns the store.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use bandana_shared::identity::{Day, UnixSeconds};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use super::plan::{Arrival, Situation, Verdict, plan};
use super::{Command, Ingest};
use crate::clock::Clock;
use crate::learner::LearnerError;
use crate::registry::{Experiment, Registry};
use crate::seen::SeenIds;
use crate::store::{SqliteStore, StoreError};
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
    pub(super) store: SqliteStore,
    pub(super) registry: Arc<Registry>,
    seen: SeenIds,
    oldest: Day,
    today: Today,
    /// Whether the window would leave behind all that is remembered, by a clock that
    /// was far ahead at the start and that no upload has borne out.
    doubted: bool,
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
        let doubted = is_doubtful(today.day, &seen, settings);
        let begin = if doubted { oldest } else { oldest.max(window_begin(today.day, settings)) };
        metrics.opened(seen.len(), settings.ids_max, begin);
        let (ingest, commands) = Ingest::channel(metrics.clone());
        let writer = Self {
            store,
            registry,
            seen,
            oldest,
            today,
            doubted,
            settings,
            commands,
            due,
            metrics,
        };
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
                    Command::Administer(order, answer) => {
                        self.commit(std::mem::take(&mut group))?;
                        let outcome = self.administer(order)?;
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
        let today = self.today();
        let window = window_begin(today, self.settings)..=today;
        self.doubted &= !arrivals.iter().any(|arrival| window.contains(&arrival.day));
        if !self.doubted {
            self.expire(*window.start())?;
        }
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

    /// The time, for the audit log and the end of signatures.
    pub(super) fn now(&self) -> UnixSeconds {
        UnixSeconds::new(self.today.clock.unix_seconds())
    }

    /// The server's day. When a clock that was behind is mended, all is as at a start.
    fn today(&mut self) -> Day {
        let was_behind = self.today.day < self.oldest;
        let today = self.today.get(self.oldest);
        if was_behind && today >= self.oldest {
            self.doubted = is_doubtful(today, &self.seen, self.settings);
        }
        today
    }

    /// Moves the replay window on when a new day has begun.
    fn expire(&mut self, oldest: Day) -> Result<(), WriterError> {
        if oldest > self.oldest {
            self.store.expire_before(oldest)?;
            self.seen.forget_before(oldest);
            self.oldest = oldest;
        }
        Ok(())
    }
}

/// The oldest day of the window that ends with `today`.
fn window_begin(today: Day, settings: WriterSettings) -> Day {
    today.back(settings.replay_window_days.saturating_sub(1))
}

/// Whether the window that ends with `today` would leave behind all that is remembered.
fn is_doubtful(today: Day, seen: &SeenIds, settings: WriterSettings) -> bool {
    let begin = window_begin(today, settings);
    let doubtful = seen.newest_day().is_some_and(|newest| newest < begin);
    if doubtful {
        tracing::warn!(
            %today,
            "no upload is as new as the replay window: the window stays where it is until one \
             comes, in case the clock is wrong"
        );
    }
    doubtful
}

/// The day by which uploads are judged.
///
/// Within a process it never goes back, so that a device that has just heard a
/// day is not told that it is in the future. Nor does it run ahead of the time
/// that has passed by more than a day: a clock that jumps into the future would
/// take the replay window with it, for good. Only a clock that is before the window is
/// known to be wrong: nothing is made of it, and it is followed once it is right.
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

    fn get(&mut self, oldest: Day) -> Day {
        let (first, since) = self.start;
        let passed = self.clock.monotonic().saturating_sub(since).as_secs() / 86_400;
        let latest = first.forward(u32::try_from(passed).unwrap_or(u32::MAX)).forward(1);
        let day = self.clock.day();
        if self.day < oldest && day >= oldest {
            self.start = (day, self.clock.monotonic());
            self.day = day;
            return day;
        }
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

impl WriterError {
    /// See [`StoreError::located`].
    #[must_use]
    pub fn located(self, directory: &Path) -> Self {
        match self {
            Self::Store(error) => Self::Store(error.located(directory)),
            other => other,
        }
    }
}
