//! The handle of the disclosure writer: its requests, and their answers.

use std::sync::Arc;

use bandana_shared::identity::ExperimentId;
use bandana_zcdp::AlgorithmSettings;
use bandana_zcdp::state::SecretState;
use tokio::sync::{mpsc, oneshot};

use super::sharing::Outcomes;
use crate::ingest::{ExperimentChangeError, IngestError};
use crate::store::Transition;
use crate::trusted::{Disclosure, DisclosureVerdict, TrustedExperiment};

/// What the disclosure writer is to do.
#[derive(Debug)]
pub(super) enum Command {
    Disclose(ExperimentId, Disclosure, Answer),
    Create(Box<Creation>, oneshot::Sender<Result<Arc<TrustedExperiment>, ExperimentChangeError>>),
    Move(Movement, oneshot::Sender<Result<Option<Arc<TrustedExperiment>>, ExperimentChangeError>>),
}

/// Where to tell what became of a disclosure.
#[derive(Debug)]
pub(super) enum Answer {
    /// To whoever has called here.
    Caller(oneshot::Sender<Result<DisclosureVerdict, IngestError>>),
    /// To the replica that has handed it over, at this place.
    Partner(Arc<Outcomes>, usize),
}

impl Answer {
    /// Whether whoever waits for it has called here.
    pub(super) fn is_of_caller(&self) -> bool {
        matches!(self, Self::Caller(_))
    }
}

/// A new experiment, and who wants it.
#[derive(Debug)]
pub struct Creation {
    /// Who, for the audit log.
    pub caller: String,
    /// Its name.
    pub id: ExperimentId,
    /// What it is run by.
    pub plan: AlgorithmSettings,
    /// Its first state, made from that.
    pub secret: SecretState,
}

/// What is to become of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It moves to another state.
    Move(Transition),
    /// Lists leave it out. Stopped ones only.
    Archive,
    /// Lists show it again. Stopped ones only.
    Unarchive,
    /// It goes. Stopped ones only.
    Delete,
}

impl Step {
    /// Whether the experiment is archived after it. None: as before it.
    pub(super) fn archives(self) -> Option<bool> {
        match self {
            Self::Archive => Some(true),
            Self::Unarchive => Some(false),
            Self::Move(_) | Self::Delete => None,
        }
    }
}

/// A change of an experiment, and who wants it.
#[derive(Debug)]
pub(super) struct Movement {
    pub(super) caller: String,
    pub(super) id: ExperimentId,
    pub(super) step: Step,
}

/// The way to the disclosure writer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DisclosureWriterHandle(pub(super) mpsc::Sender<Command>);

impl DisclosureWriterHandle {
    /// Hands in a disclosure, and waits until it is durable.
    ///
    /// # Errors
    /// [`IngestError::QueueFull`]: nothing happened. With others it is not known whether it
    /// counts.
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

    /// Adds an experiment, which runs.
    ///
    /// # Errors
    /// [`ExperimentChangeError`] says why not.
    pub async fn create(
        &self,
        creation: Creation,
    ) -> Result<Arc<TrustedExperiment>, ExperimentChangeError> {
        let (answer, outcome) = oneshot::channel();
        let command = Command::Create(Box::new(creation), answer);
        self.0.send(command).await.map_err(|_| ExperimentChangeError::Ended)?;
        outcome.await.map_err(|_| ExperimentChangeError::Ended)?
    }

    /// Changes an experiment, and returns it as it is then, or was. None: there is no such
    /// experiment.
    ///
    /// # Errors
    /// [`ExperimentChangeError`] says why not.
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
