//! Ingest leads from valid uploads to durable tallies.
//!
//! One thread owns the store. Everything that changes it goes through one
//! queue: uploads that wait while a commit is under way form the next group,
//! which is committed in one transaction and then acknowledged.

mod changes;
mod metrics;
mod room;
mod writer;

use bandana_shared::identity::ExperimentId;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

pub use metrics::IngestMetrics;
pub(crate) use writer::Today;
pub use writer::{Writer, WriterError};

use crate::store::{
    CuratorChange, ExperimentState, OpenFiles, StoreError, Transition, TrustedChange,
};
use bandana_learners::LearnerConfig;
use bandana_learners::LearnerError;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::registry::{Experiment, Revision};
use crate::store::{ValidUpload, Verdict};

/// Uploads that wait at most. Beyond it callers are told to come back.
pub(crate) const QUEUE_MAX: usize = 8192;

/// How often somebody looks after the files of the store.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A change that the writer is to make.
#[derive(Debug)]
enum Command {
    Upload(ValidUpload, oneshot::Sender<Result<Verdict, IngestError>>),
    Administer(ExperimentCommand, oneshot::Sender<Result<Arc<Experiment>, ExperimentChangeError>>),
    Curate(CuratorChange, oneshot::Sender<Result<(), ExperimentChangeError>>),
    Trust(Box<TrustedChange>, oneshot::Sender<Result<(), ExperimentChangeError>>),
    /// See [`crate::store::Store::check`].
    Look,
    Stop,
}

/// A change to an experiment, and who wants it.
#[derive(Clone, Debug)]
pub struct ExperimentCommand {
    /// Who, for the audit log.
    pub caller: String,
    /// The change.
    pub administration: ExperimentChange,
}

/// A change to an experiment.
#[derive(Clone, Debug)]
pub enum ExperimentChange {
    /// Add an experiment.
    Create {
        /// Its first revision.
        specification: Box<Specification>,
        /// How it is run.
        config: LearnerConfig,
        /// Whether it waits for [`Transition::Start`].
        is_draft: bool,
    },
    /// Move an experiment to another state.
    Move {
        /// The experiment.
        experiment: Arc<Experiment>,
        /// The step.
        transition: Transition,
    },
    /// Make the next revision from the current one.
    Revise {
        /// The experiment.
        experiment: Arc<Experiment>,
        /// The change.
        change: Revise,
    },
    /// Have lists leave an experiment out, or not any more.
    Archive {
        /// The experiment.
        experiment: Arc<Experiment>,
        /// Whether lists are to leave it out.
        is_archived: bool,
    },
    /// Delete an experiment.
    Delete {
        /// The experiment.
        experiment: Arc<Experiment>,
    },
    /// Add a signature to a revision that it fits.
    AddSignature {
        /// The revision.
        revision: Revision,
        /// The signature, verified.
        signature: Signature,
    },
}

impl ExperimentChange {
    /// The experiment that is to be changed. None: it is to be created.
    fn experiment(&self) -> Option<&Arc<Experiment>> {
        match self {
            Self::Create { .. } => None,
            Self::Move { experiment, .. }
            | Self::Revise { experiment, .. }
            | Self::Archive { experiment, .. }
            | Self::Delete { experiment } => Some(experiment),
            Self::AddSignature { revision, .. } => Some(&revision.experiment),
        }
    }
}

/// A change of the arms.
#[derive(Clone, Debug)]
pub enum Revise {
    /// Append an arm.
    Add(bandana_shared::specification::Arm),
    /// Retire an arm.
    Retire(bandana_shared::identity::ArmIndex),
}

/// The way into the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ingest {
    queue: mpsc::Sender<Command>,
    /// The ways of changes and of disclosures: the same queue, unless they have writers of their
    /// own.
    changes: mpsc::Sender<Command>,
    disclosures: mpsc::Sender<Command>,
    metrics: IngestMetrics,
}

impl Ingest {
    /// A queue, and its other end for [`Writer::run`].
    fn channel(max: usize, metrics: IngestMetrics) -> (Self, mpsc::Receiver<Command>) {
        let (queue, commands) = mpsc::channel(max);
        let [changes, disclosures] = [queue.clone(), queue.clone()];
        (Self { queue, changes, disclosures, metrics }, commands)
    }

    /// Gives changes and disclosures queues of their own, which uploads don't wait in.
    fn split(&mut self) -> [mpsc::Receiver<Command>; 2] {
        let (changes, of_changes) = mpsc::channel(QUEUE_MAX);
        let (disclosures, of_disclosures) = mpsc::channel(QUEUE_MAX);
        (self.changes, self.disclosures) = (changes, disclosures);
        [of_changes, of_disclosures]
    }

    /// Where uploads are counted.
    pub(crate) fn metrics(&self) -> &IngestMetrics {
        &self.metrics
    }

    /// How much waits in the queue, and how much may.
    pub(crate) fn queue(&self) -> (usize, usize) {
        let capacity = self.queue.max_capacity();
        (capacity - self.queue.capacity(), capacity)
    }

    /// Hands in an upload, and waits until its group is committed. A caller that
    /// goes away in the meantime changes nothing for the others.
    ///
    /// # Errors
    /// [`IngestError::QueueFull`]: nothing happened. [`IngestError::Ended`] and
    /// [`IngestError::Store`]: it is not known whether the upload was counted.
    pub async fn submit(&self, upload: ValidUpload) -> Result<Verdict, IngestError> {
        let verdict = self.verdict(upload).await;
        verdict.inspect_err(|error| self.metrics.turned_away(*error))
    }

    async fn verdict(&self, upload: ValidUpload) -> Result<Verdict, IngestError> {
        let (answer, verdict) = oneshot::channel();
        self.queue.try_send(Command::Upload(upload, answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => IngestError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => IngestError::Ended,
        })?;
        verdict.await.map_err(|_| IngestError::Ended)?
    }

    /// Makes a change to an experiment, and waits until it is durable.
    ///
    /// # Errors
    /// [`ExperimentChangeError`] says why it was not made.
    pub async fn administer(
        &self,
        order: ExperimentCommand,
    ) -> Result<Arc<Experiment>, ExperimentChangeError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Administer(order, answer);
        self.changes.send(command).await.map_err(|_| ExperimentChangeError::Ended)?;
        outcome.await.map_err(|_| ExperimentChangeError::Ended)?
    }

    /// Makes a change for the curator, and waits until it is durable.
    ///
    /// # Errors
    /// [`ExperimentChangeError`]: what was to be paid for must not be given away.
    pub async fn curate(&self, change: CuratorChange) -> Result<(), ExperimentChangeError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Curate(change, answer);
        self.changes.send(command).await.map_err(|_| ExperimentChangeError::Ended)?;
        outcome.await.map_err(|_| ExperimentChangeError::Ended)?
    }

    /// Makes a change of a trusted experiment, and waits until it is durable.
    ///
    /// Must not be called where asynchronous code runs.
    ///
    /// # Errors
    /// [`ExperimentChangeError`] says why it was not made, or that this is not known.
    pub(crate) fn trust(&self, change: TrustedChange) -> Result<(), ExperimentChangeError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Trust(Box::new(change), answer);
        self.disclosures.blocking_send(command).map_err(|_| ExperimentChangeError::Ended)?;
        outcome.blocking_recv().map_err(|_| ExperimentChangeError::Ended)?
    }

    /// Looks after the files of the writer's store once a second, and has the writer do so when
    /// they are gone: that is to be noticed too while nobody calls. So is it that a new day makes
    /// room for ids: a server without room may not be called any more.
    pub(crate) async fn look_after(self, files: Weak<OpenFiles>, room: watch::Receiver<bool>) {
        // Whoever does nothing else keeps no queue open.
        let queue = self.queue.downgrade();
        drop(self);
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let Some(queue) = queue.upgrade() else { return };
            // They are closed with the store.
            let Some(looked) = files.upgrade() else { return };
            let looked = tokio::task::spawn_blocking(move || looked.check()).await;
            let is_gone = !matches!(looked, Ok(Ok(())));
            let is_full = !*room.borrow();
            if (is_gone || is_full) && queue.send(Command::Look).await.is_err() {
                // A writer that has ended needs no telling.
                return;
            }
        }
    }

    /// Lets every writer commit what is queued by now, and end.
    pub async fn stop(&self) {
        // A queue without a writer has ended already.
        self.queue.send(Command::Stop).await.ok();
        for other in [&self.changes, &self.disclosures] {
            if !other.same_channel(&self.queue) {
                other.send(Command::Stop).await.ok();
            }
        }
    }
}

/// Why an upload got no verdict.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IngestError {
    /// Too many uploads wait.
    #[error("too many uploads are waiting; send the same bytes again later")]
    QueueFull,
    /// The server is going down.
    #[error("the aggregator is going down; send the same bytes again")]
    Ended,
    /// The store does not answer.
    #[error("the aggregator can't store uploads now; send the same bytes again later")]
    Store,
}

/// Why an experiment was not changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExperimentChangeError {
    /// The id is taken, or the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The specification can't be changed so.
    #[error(transparent)]
    Specification(#[from] bandana_shared::specification::SpecificationError),
    /// The learner can't work with it.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// The change does not fit the experiment's state.
    #[error("the experiment is {}; this needs one that is {}", state.name(), expected(from))]
    State {
        /// Where it stands.
        state: ExperimentState,
        /// States that would allow the change.
        from: &'static [ExperimentState],
    },
    /// Somebody has deleted it.
    #[error("there is no experiment {0} any more")]
    Gone(ExperimentId),
    /// The server is going down.
    #[error("the aggregator is going down")]
    Ended,
}

impl ExperimentChangeError {
    /// Whether it was refused by what was known here of the experiment, which another replica
    /// may have changed since.
    pub(crate) fn is_by_what_was_known(&self) -> bool {
        matches!(self, Self::State { .. } | Self::Specification(_) | Self::Learner(_))
    }
}

fn expected(states: &[ExperimentState]) -> String {
    states.iter().map(|state| state.name()).collect::<Vec<_>>().join(" or ")
}
