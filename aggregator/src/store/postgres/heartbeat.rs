//! The heartbeat asks the database for a sign of life, again and again, on its own connection.
//!
//! It is a circuit breaker: while there is no sign, all that is under way is given up, and nothing
//! else is begun. While uploads are being committed, or nothing was answered before, the sign is a
//! commit, since a database whose disk or standby hangs still reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::connection::{PgConnection, Target, Waits};
use crate::explain::explain;
use crate::store::{DatabaseError, StoreError, postgres};

/// Pause from one answer to the next question. With the time that an answer may take, it is how
/// long a database can hang before that is known.
const INTERVAL: Duration = Duration::from_millis(500);

/// The same while there is no answer: the first one is what everybody waits for.
const INTERVAL_LOST: Duration = Duration::from_millis(100);

/// Asks nothing, and is answered.
const READ: &str = "SELECT 1";

/// Changes nothing, and is committed.
const WRITE: &str = "UPDATE bandana_schema SET version = version";

/// Asks for signs of life.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    link: PgConnection,
    answers: watch::Sender<bool>,
    commits: Arc<AtomicUsize>,
}

/// What the heartbeat hears. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    answers: watch::Receiver<bool>,
    /// Groups of uploads that are being committed.
    commits: Arc<AtomicUsize>,
}

impl Pulse {
    /// Whether there was no sign of life when there should have been one.
    pub(crate) fn is_lost(&self) -> bool {
        !*self.answers.borrow()
    }

    /// Waits until there is no sign of life.
    pub(crate) async fn lost(&mut self) {
        if self.answers.wait_for(|answers| !answers).await.is_err() {
            // Nobody asks any more, so nobody knows.
            std::future::pending::<()>().await;
        }
    }

    /// Tells whether the database answers.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.answers.clone()
    }

    /// Notes that uploads are being committed, until the note is dropped.
    pub(super) fn committing(&self) -> Committing {
        self.commits.fetch_add(1, Ordering::Relaxed);
        Committing(Arc::clone(&self.commits))
    }
}

/// Uploads are being committed.
#[derive(Debug)]
pub(super) struct Committing(Arc<AtomicUsize>);

impl Drop for Committing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Heartbeat {
    /// A heartbeat that has not begun, and what it will hear. Until then all is well.
    pub(crate) fn new(target: Arc<Target>) -> Result<(Self, Pulse), StoreError> {
        let link = PgConnection::new(target, Waits::HEARTBEAT)?;
        let (answers, hears) = watch::channel(true);
        let commits = Arc::default();
        let pulse = Pulse { answers: hears, commits: Arc::clone(&commits) };
        Ok((Self { link, answers, commits }, pulse))
    }

    /// Asks until nobody wants to know.
    ///
    /// Must not be called where asynchronous code runs.
    pub(crate) fn run(mut self) {
        while !self.answers.is_closed() {
            let outcome = self.beat();
            let pause = if outcome.is_ok() { INTERVAL } else { INTERVAL_LOST };
            self.tell(outcome);
            std::thread::sleep(pause);
        }
    }

    fn beat(&mut self) -> Result<(), StoreError> {
        let is_at_work = self.commits.load(Ordering::Relaxed) > 0;
        let question = if is_at_work || !*self.answers.borrow() { WRITE } else { READ };
        let was_open = self.link.is_open();
        match self.ask(question) {
            // The connection may have been lost long ago, and the database be well.
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
            // Somebody changes the tables, and the database says so.
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
        match outcome {
            Err(error) if changed => {
                let error = explain(&error);
                tracing::error!(
                    error,
                    "the database does not answer; calls that need it are turned away"
                );
            }
            Ok(()) if changed => tracing::info!("the database answers again"),
            _ => {}
        }
    }
}
