//! The heartbeat: repeated queries on a separate connection that tell whether the database answers.
//!
//! The heartbeat is a circuit breaker: without an answer, running operations are given up and no
//! others begin. While uploads are being committed, or after a missing answer, the query is a
//! commit, since a database whose disk or standby hangs still answers reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bandana_edge::explain::explain;
use tokio::sync::watch;

use super::connection::{PgConnection, Target, Waits};
use crate::cells::StoreCell;
use crate::{DatabaseError, StoreError, postgres};

/// The pause between an answer and the next query. Together with the timeout for an answer, it
/// limits how long a hang goes unnoticed.
const INTERVAL: Duration = Duration::from_millis(500);

/// The pause while there is no answer: shorter, since all operations wait for the first one.
const INTERVAL_LOST: Duration = Duration::from_millis(100);

/// A query without effect.
const READ: &str = "SELECT 1";

/// A commit that changes nothing.
const WRITE: &str = "UPDATE bandana_schema SET version = version";

/// Queries the database again and again.
#[derive(Debug)]
pub struct Heartbeat {
    link: PgConnection,
    answers: watch::Sender<bool>,
    commits: Arc<AtomicUsize>,
    /// The store cell that the database is.
    cell: Option<StoreCell>,
}

/// The heartbeat's result. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connectivity {
    answers: watch::Receiver<bool>,
    /// Groups of uploads that are being committed.
    commits: Arc<AtomicUsize>,
}

impl Connectivity {
    /// Whether the last answer is overdue.
    pub(crate) fn is_lost(&self) -> bool {
        !*self.answers.borrow()
    }

    /// Waits until an answer is overdue.
    pub(crate) async fn lost(&mut self) {
        if self.answers.wait_for(|answers| !answers).await.is_err() {
            // The heartbeat has ended, so the state is unknown.
            std::future::pending::<()>().await;
        }
    }

    /// A channel that tells whether the database answers.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.answers.clone()
    }

    /// Counts a commit of uploads as running until the returned guard is dropped.
    pub(super) fn committing(&self) -> Committing {
        self.commits.fetch_add(1, Ordering::Relaxed);
        Committing(Arc::clone(&self.commits))
    }
}

/// A running commit of uploads.
#[derive(Debug)]
pub(super) struct Committing(Arc<AtomicUsize>);

impl Drop for Committing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Heartbeat {
    /// A heartbeat that has not begun, and its connectivity. Until it begins, the connectivity counts as good.
    ///
    /// # Errors
    /// [`StoreError::Open`] when its runtime can't start.
    pub fn new(target: Arc<Target>) -> Result<(Self, Connectivity), StoreError> {
        let link = PgConnection::new(target, Waits::HEARTBEAT)?;
        let (answers, hears) = watch::channel(true);
        let commits = Arc::default();
        let connectivity = Connectivity { answers: hears, commits: Arc::clone(&commits) };
        Ok((Self { link, answers, commits, cell: None }, connectivity))
    }

    /// Makes the log name this store cell.
    pub(super) fn of_cell(self, cell: StoreCell) -> Self {
        Self { cell: Some(cell), ..self }
    }

    /// Runs until every connectivity has been dropped.
    ///
    /// Blocks; must not be called from asynchronous code.
    pub fn run(mut self) {
        while !self.answers.is_closed() {
            let outcome = self.beat();
            let is_lost = outcome.is_err();
            self.tell(outcome);
            // Others connect again once there is an answer, and then to where it comes from.
            if is_lost {
                self.link.leave_host();
            }
            let pause = if is_lost { INTERVAL_LOST } else { INTERVAL };
            std::thread::sleep(pause);
        }
    }

    fn beat(&mut self) -> Result<(), StoreError> {
        let is_at_work = self.commits.load(Ordering::Relaxed) > 0;
        let question = if is_at_work || !*self.answers.borrow() { WRITE } else { READ };
        let was_open = self.link.is_open();
        match self.ask(question) {
            // The connection may have been lost long ago while the database works.
            Err(error)
                if was_open
                    && !matches!(error, StoreError::Database(DatabaseError::Slow { .. })) =>
            {
                self.ask(question)
            }
            outcome => outcome,
        }
    }

    fn ask(&mut self, question: &'static str) -> Result<(), StoreError> {
        let doing = "giving a sign of life";
        let asked = self.link.run(doing, async |session| {
            session.client.batch_execute(question).await.map_err(postgres(doing))
        });
        match asked {
            // A schema change holds the lock: the database answers.
            Err(error) if error.is_locked() => Ok(()),
            outcome => outcome,
        }
    }

    fn tell(&self, outcome: Result<(), StoreError>) {
        let answers = outcome.is_ok();
        let changed = self.answers.send_if_modified(|told| {
            let differs = *told != answers;
            *told = answers;
            differs
        });
        let cell = self.cell.map(tracing::field::display);
        match outcome {
            Err(error) if changed => {
                let error = explain(&error);
                tracing::error!(
                    cell,
                    error,
                    "the database does not answer; calls that need it are turned away"
                );
            }
            Ok(()) if changed => tracing::info!(cell, "the database answers again"),
            _ => {}
        }
    }
}
