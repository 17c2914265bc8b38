//! The handle of the disclosure writer: requests and their answers.

use std::sync::Arc;

use bandana_shared::identity::ExperimentId;
use bandana_store::Transition;
use bandana_zcdp::AlgorithmSettings;
use bandana_zcdp::state::SecretState;
use tokio::sync::{mpsc, oneshot};

use super::sharing::Outcomes;
use crate::ingest::{ExperimentChangeError, IngestError};
use crate::trusted::{Disclosure, DisclosureVerdict, TrustedExperiment};

/// A command to the disclosure writer.
#[derive(Debug)]
pub(super) enum Command {
    Disclose(ExperimentId, Disclosure, Answer),
    Create(Box<Creation>, oneshot::Sender<Result<Arc<TrustedExperiment>, ExperimentChangeError>>),
    Move(Movement, oneshot::Sender<Result<Option<Arc<TrustedExperiment>>, ExperimentChangeError>>),
}

/// The recipient of a disclosure's outcome.
#[derive(Debug)]
pub(super) enum Answer {
    /// A caller of this replica.
    Caller(oneshot::Sender<Result<DisclosureVerdict, IngestError>>),
    /// The replica that handed the disclosure over, with its index in the batch.
    Partner(Arc<Outcomes>, usize),
}

impl Answer {
    /// Whether the recipient is a caller of this replica.
    pub(super) fn is_of_caller(&self) -> bool {
        matches!(self, Self::Caller(_))
    }
}

/// A request to create an experiment.
#[derive(Debug)]
pub struct Creation {
    /// The caller, for the audit log.
    pub caller: String,
    /// The experiment's name.
    pub id: ExperimentId,
    /// The algorithm's settings.
    pub plan: AlgorithmSettings,
    /// The initial state, made from the settings.
    pub secret: SecretState,
}

/// A change of an experiment's lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A transition to another state.
    Move(Transition),
    /// Hides a stopped experiment from lists.
    Archive,
    /// Shows a stopped, archived experiment in lists again.
    Unarchive,
    /// Deletes a stopped experiment.
    Delete,
}

impl Step {
    /// Whether the experiment is archived afterwards. None: unchanged.
    pub(super) fn archives(self) -> Option<bool> {
        match self {
            Self::Archive => Some(true),
            Self::Unarchive => Some(false),
            Self::Move(_) | Self::Delete => None,
        }
    }
}

/// A request to change an experiment.
#[derive(Debug)]
pub(super) struct Movement {
    pub(super) caller: String,
    pub(super) id: ExperimentId,
    pub(super) step: Step,
}

/// The handle of the disclosure writer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DisclosureWriterHandle(pub(super) mpsc::Sender<Command>);

impl DisclosureWriterHandle {
    /// Submits a disclosure, and waits until it is durable.
    ///
    /// # Errors
    /// [`IngestError::QueueFull`]: the disclosure was not accepted. With any other error it is
    /// unknown whether it counts.
    pub async fn disclose(
        &self,
        id: ExperimentId,
        disclosure: Disclosure,
    ) -> Result<DisclosureVerdict, IngestError> {
        let (answer, verdict) = oneshot::channel();
        let command = Command::Disclose(id, disclosure, Answer::Caller(answer));
        self.0.try_send(command).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => IngestError::QueueFull,
            mpsc::error::TrySendError::Closed(_) => IngestError::Ended,
        })?;
        verdict.await.map_err(|_| IngestError::Ended)?
    }

    /// Creates an experiment, in the state running.
    ///
    /// # Errors
    /// [`ExperimentChangeError`] with the reason.
    pub async fn create(
        &self,
        creation: Creation,
    ) -> Result<Arc<TrustedExperiment>, ExperimentChangeError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Create(Box::new(creation), answer);
        self.0.send(command).await.map_err(|_| ExperimentChangeError::Ended)?;
        outcome.await.map_err(|_| ExperimentChangeError::Ended)?
    }

    /// Changes an experiment, and returns its new state, or its last one if it was deleted. None:
    /// there is no such experiment.
    ///
    /// # Errors
    /// [`ExperimentChangeError`] with the reason.
    pub async fn change(
        &self,
        caller: String,
        id: ExperimentId,
        step: Step,
    ) -> Result<Option<Arc<TrustedExperiment>>, ExperimentChangeError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Move(Movement { caller, id, step }, answer);
        self.0.send(command).await.map_err(|_| ExperimentChangeError::Ended)?;
        outcome.await.map_err(|_| ExperimentChangeError::Ended)?
    }
}
