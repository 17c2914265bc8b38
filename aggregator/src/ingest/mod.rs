//! Ingest: from valid uploads to durable tallies.
//!
//! One thread owns the store. All changes of the store go through one queue. Uploads that arrive
//! during a commit form the next group, which is committed in one transaction and then
//! acknowledged. Under load a group waits a moment for others.

mod cells;
mod changes;
mod commits;
mod harm;
mod metrics;
mod room;
mod writer;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bandana_learners::{LearnerConfig, LearnerError};
use bandana_shared::identity::ExperimentId;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::SetRecordRequest;
use bandana_store::{
    CuratorChange, EpochToAdd, ExperimentState, OpenFiles, RecordError, StoreError, StoreRefusal,
    Transition, TrustedChange, ValidUpload, Verdict, WrittenRecord,
};
use futures_util::future::join_all;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use crate::registry::{Experiment, Revision};

use cells::CellQueues;
pub(crate) use commits::try_again;
pub use harm::HarmWatch;
pub use metrics::IngestMetrics;
pub use writer::{Writer, WriterError};

/// Most waiting uploads. Further callers are told to come back.
pub(crate) const QUEUE_MAX: usize = 8192;

/// The time between two checks of the store's files, or of the day.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A command to the writer.
#[derive(Debug)]
enum Command {
    /// Uploads that came together, and are answered together.
    Uploads(Vec<ValidUpload>, oneshot::Sender<Result<Vec<Verdict>, IngestError>>),
    Administer(ExperimentCommand, oneshot::Sender<Result<Arc<Experiment>, ExperimentChangeError>>),
    Curate(CuratorChange, oneshot::Sender<Result<(), ExperimentChangeError>>),
    Trust(Box<TrustedChange>, oneshot::Sender<Result<(), ExperimentChangeError>>),
    Log(Box<EpochToAdd>, oneshot::Sender<Result<(), StoreError>>),
    /// See [`bandana_store::Store::check`].
    Look,
    Stop,
}

impl Command {
    /// The number of its uploads.
    fn uploads(&self) -> usize {
        if let Self::Uploads(uploads, _) = self { uploads.len() } else { 0 }
    }
}

/// A change of an experiment, with its caller.
#[derive(Clone, Debug)]
pub struct ExperimentCommand {
    /// The caller, for the audit log.
    pub caller: String,
    /// The change.
    pub administration: ExperimentChange,
}

/// A change of an experiment.
#[derive(Clone, Debug)]
pub enum ExperimentChange {
    /// Add an experiment.
    Create {
        /// The first revision.
        specification: Box<Specification>,
        /// The configuration of its learner.
        config: LearnerConfig,
        /// What is known of its arms, and what they cost.
        record: Box<WrittenRecord>,
        /// Whether the experiment waits for [`Transition::Start`].
        is_draft: bool,
    },
    /// Move an experiment to another state.
    Move {
        /// The experiment.
        experiment: Arc<Experiment>,
        /// The transition.
        transition: Transition,
    },
    /// Derive the next revision from the current one.
    Revise {
        /// The experiment.
        experiment: Arc<Experiment>,
        /// The change.
        change: Revise,
    },
    /// Archive or unarchive an experiment.
    Archive {
        /// The experiment.
        experiment: Arc<Experiment>,
        /// Whether the experiment becomes archived.
        is_archived: bool,
    },
    /// Write the record of an experiment.
    Record {
        /// The experiment.
        experiment: Arc<Experiment>,
        /// What changes in the record.
        request: Box<SetRecordRequest>,
    },
    /// Pause an experiment for arms that do harm, unless it was paused for them before.
    PauseForHarm {
        /// The experiment.
        experiment: Arc<Experiment>,
    },
    /// Delete an experiment.
    Delete {
        /// The experiment.
        experiment: Arc<Experiment>,
    },
    /// Add a signature to the revision that it signs.
    AddSignature {
        /// The revision.
        revision: Revision,
        /// The verified signature.
        signature: Signature,
    },
}

impl ExperimentChange {
    /// The experiment to change. None: the change creates one.
    fn experiment(&self) -> Option<&Arc<Experiment>> {
        match self {
            Self::Create { .. } => None,
            Self::Move { experiment, .. }
            | Self::Revise { experiment, .. }
            | Self::Archive { experiment, .. }
            | Self::Record { experiment, .. }
            | Self::PauseForHarm { experiment }
            | Self::Delete { experiment } => Some(experiment),
            Self::AddSignature { revision, .. } => Some(&revision.experiment),
        }
    }
}

/// A change of the arms, or of who takes part.
#[derive(Clone, Debug)]
pub enum Revise {
    /// Append an arm.
    Add(bandana_shared::specification::Arm),
    /// Retire an arm.
    Retire(bandana_shared::identity::ArmIndex),
    /// Enrol another share of the installations.
    Enrol(bandana_shared::participation::Millionths),
}

/// A handle to the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ingest {
    queue: mpsc::Sender<Command>,
    /// The queues of changes and of disclosures: the same as `queue`, unless they have writers of
    /// their own.
    changes: mpsc::Sender<Command>,
    disclosures: mpsc::Sender<Command>,
    /// The queues of store cells. None: there are no routes to them.
    cells: Option<Arc<CellQueues>>,
    metrics: IngestMetrics,
}

impl Ingest {
    /// A queue, with the receiver for [`Writer::run`].
    fn channel(max: usize, metrics: IngestMetrics) -> (Self, mpsc::Receiver<Command>) {
        let (queue, commands) = mpsc::channel(max);
        let [changes, disclosures] = [queue.clone(), queue.clone()];
        (Self { queue, changes, disclosures, cells: None, metrics }, commands)
    }

    /// Gives changes and disclosures queues of their own, so that they don't share one with
    /// uploads.
    fn split(&mut self) -> [mpsc::Receiver<Command>; 2] {
        let (changes, of_changes) = mpsc::channel(QUEUE_MAX);
        let (disclosures, of_disclosures) = mpsc::channel(QUEUE_MAX);
        (self.changes, self.disclosures) = (changes, disclosures);
        [of_changes, of_disclosures]
    }

    /// The metrics of uploads.
    pub(crate) fn metrics(&self) -> &IngestMetrics {
        &self.metrics
    }

    /// The number of waiting commands, and the most that may wait.
    pub(crate) fn queue(&self) -> (usize, usize) {
        let mut queues = vec![&self.queue];
        queues.extend(self.cells.iter().flat_map(|cells| cells.all()));
        let capacity = queues.iter().map(|queue| queue.max_capacity()).sum();
        (capacity - queues.iter().map(|queue| queue.capacity()).sum::<usize>(), capacity)
    }

    /// Submits an upload, and waits until its group is committed. A caller that goes away meanwhile
    /// does not affect the other uploads.
    ///
    /// # Errors
    /// [`IngestError::QueueFull`]: nothing was done. [`IngestError::Ended`] and
    /// [`IngestError::Store`]: it is unknown whether the upload was counted.
    pub async fn submit(&self, upload: ValidUpload) -> Result<Verdict, IngestError> {
        self.submit_together(vec![upload]).await.pop().unwrap_or(Err(IngestError::Ended))
    }

    /// Submits uploads that came together, as [`Self::submit`] does with one: outcomes in their order.
    pub(crate) async fn submit_together(
        &self,
        uploads: Vec<ValidUpload>,
    ) -> Vec<Result<Verdict, IngestError>> {
        let mut outcomes = vec![Err(IngestError::Ended); uploads.len()];
        let mut parts: Vec<(&mpsc::Sender<Command>, Vec<usize>, Vec<ValidUpload>)> = Vec::new();
        for (place, upload) in uploads.into_iter().enumerate() {
            let queue = match self.queue_of(&upload) {
                Ok(queue) => queue,
                Err(error) => {
                    outcomes[place] = Err(error);
                    continue;
                }
            };
            let part = parts.iter().position(|(other, ..)| other.same_channel(queue));
            let part = part.unwrap_or_else(|| {
                parts.push((queue, Vec::new(), Vec::new()));
                parts.len() - 1
            });
            parts[part].1.push(place);
            parts[part].2.push(upload);
        }
        let submitted = parts.into_iter().map(async |(queue, places, uploads)| {
            let verdicts = async {
                let (answer, verdicts) = oneshot::channel();
                enqueue(queue, Command::Uploads(uploads, answer))?;
                verdicts.await.map_err(|_| IngestError::Ended)?
            };
            (places, verdicts.await)
        });
        for (places, verdicts) in join_all(submitted).await {
            match verdicts {
                Ok(verdicts) => {
                    for (place, verdict) in places.into_iter().zip(verdicts) {
                        outcomes[place] = Ok(verdict);
                    }
                }
                Err(error) => places.into_iter().for_each(|place| outcomes[place] = Err(error)),
            }
        }
        for error in outcomes.iter().filter_map(|outcome| outcome.err()) {
            self.metrics.turned_away(error);
        }
        outcomes
    }

    /// The queue of the database that an upload belongs to.
    fn queue_of(&self, upload: &ValidUpload) -> Result<&mpsc::Sender<Command>, IngestError> {
        match &self.cells {
            Some(cells) => Ok(cells.of(upload)?.unwrap_or(&self.queue)),
            None => Ok(&self.queue),
        }
    }

    /// Makes a change to an experiment, and waits until it is durable.
    ///
    /// # Errors
    /// [`ExperimentChangeError`] with the reason why the change was not made.
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
    /// [`ExperimentChangeError`]: the answer that the change pays for must not be sent.
    pub async fn apply_query_change(
        &self,
        change: CuratorChange,
    ) -> Result<(), ExperimentChangeError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Curate(change, answer);
        self.changes.send(command).await.map_err(|_| ExperimentChangeError::Ended)?;
        outcome.await.map_err(|_| ExperimentChangeError::Ended)?
    }

    /// Adds an epoch to the public log, and waits until it is durable. `None`: the writer has ended.
    pub(crate) async fn add_epoch(&self, addition: EpochToAdd) -> Option<Result<(), StoreError>> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Log(Box::new(addition), answer);
        self.changes.send(command).await.ok()?;
        outcome.await.ok()
    }

    /// Makes a change of a trusted experiment, and waits until it is durable.
    ///
    /// Blocks; must not be called from asynchronous code.
    ///
    /// # Errors
    /// [`ExperimentChangeError`] with the reason why the change was not made, or is not known to
    /// be.
    pub(crate) fn apply_trusted_change(
        &self,
        change: TrustedChange,
    ) -> Result<(), ExperimentChangeError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Trust(Box::new(change), answer);
        self.disclosures.blocking_send(command).map_err(|_| ExperimentChangeError::Ended)?;
        outcome.blocking_recv().map_err(|_| ExperimentChangeError::Ended)?
    }

    /// Checks the files of the writer's store once a second, and has the writer check the store
    /// when they are gone, so that this is noticed without calls. Does the same while there is no
    /// room for ids, so that a new day, which makes room, is noticed too.
    pub(crate) async fn look_after(self, files: Weak<OpenFiles>, room: watch::Receiver<bool>) {
        // This task alone must not keep the queue open.
        let queue = self.queue.downgrade();
        drop(self);
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let Some(queue) = queue.upgrade() else { return };
            // The files are closed with the store.
            let Some(looked) = files.upgrade() else { return };
            let looked = tokio::task::spawn_blocking(move || looked.check()).await;
            let is_gone = !matches!(looked, Ok(Ok(())));
            let is_full = !*room.borrow();
            if (is_gone || is_full) && queue.send(Command::Look).await.is_err() {
                // A writer that has ended needs no command.
                return;
            }
        }
    }

    /// Makes every writer commit the commands queued so far, and end.
    pub async fn stop(&self) {
        // A queue without a receiver has ended already.
        self.queue.send(Command::Stop).await.ok();
        let cells = self.cells.iter().flat_map(|cells| cells.all());
        for other in [&self.changes, &self.disclosures].into_iter().chain(cells) {
            if !other.same_channel(&self.queue) {
                other.send(Command::Stop).await.ok();
            }
        }
    }
}

fn enqueue(queue: &mpsc::Sender<Command>, uploads: Command) -> Result<(), IngestError> {
    queue.try_send(uploads).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => IngestError::QueueFull,
        mpsc::error::TrySendError::Closed(_) => IngestError::Ended,
    })
}

/// The reason why an upload got no verdict.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IngestError {
    /// The queue is full.
    #[error("too many uploads are waiting; send the same bytes again later")]
    QueueFull,
    /// The server is shutting down.
    #[error("the aggregator is going down; send the same bytes again")]
    Ended,
    /// The store, or the store cell that the upload belongs to, does not answer.
    #[error("the aggregator can't store uploads now; send the same bytes again later")]
    Store,
}

/// The reason why an experiment was not changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExperimentChangeError {
    /// The store refused the change, or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The specification does not allow the change.
    #[error(transparent)]
    Specification(#[from] bandana_shared::specification::SpecificationError),
    /// The learner can't work with the changed experiment.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// The record can't be written so.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The change does not fit the experiment's state.
    #[error("the experiment is {}; this needs one that is {}", state.name(), expected(from))]
    State {
        /// The experiment's state.
        state: ExperimentState,
        /// States that would allow the change.
        from: &'static [ExperimentState],
    },
    /// The experiment was deleted.
    #[error("there is no experiment {0} any more")]
    Gone(ExperimentId),
    /// The server is shutting down.
    #[error("the aggregator is going down")]
    Ended,
}

impl ExperimentChangeError {
    /// Whether the change was refused because of this process's view of the experiment, which
    /// another replica may have changed since.
    pub(crate) fn is_by_what_was_known(&self) -> bool {
        matches!(
            self,
            Self::State { .. }
                | Self::Specification(_)
                | Self::Learner(_)
                | Self::Record(_)
                | Self::Store(StoreError::Refused(StoreRefusal::LayerOverlap { .. }))
        )
    }
}

fn expected(states: &[ExperimentState]) -> String {
    let names: Vec<_> = states.iter().map(|state| state.name()).collect();
    let how = match states {
        [ExperimentState::Stopped] => ": stop it first",
        _ => "",
    };
    names.join(" or ") + how
}
