//! State known to other replicas: a handle to the follower of the database, and queries to it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use bandana_learners::LearnerError;
use bandana_shared::identity::{Digest, ExperimentId};
use bandana_store::ExperimentState;
use thiserror::Error;
use tokio::sync::oneshot;

use super::{Experiment, PublishedExperiment, Registry, Revision};
use crate::trusted::TrustedExperiment;

/// Most waiting questions. Further callers are told to come back.
const QUESTIONS_MAX: usize = 1024;

/// A request to a follower, beside its periodic work.
#[derive(Debug)]
pub(crate) enum FollowerQuestion {
    /// Signal when the registry shows all that the database had at the time of the request.
    ChangeFeed(oneshot::Sender<()>),
    /// Compute a policy from all reports that the database had at the time of the request.
    Policy(Arc<Experiment>, oneshot::Sender<Arc<PublishedExperiment>>),
    /// Give up the lease and end.
    End,
}

/// A handle to a follower.
#[derive(Clone, Debug)]
pub(crate) struct FollowerHandle(SyncSender<FollowerQuestion>);

impl FollowerHandle {
    pub(crate) fn channel() -> (Self, Receiver<FollowerQuestion>) {
        let (questions, asked) = sync_channel(QUESTIONS_MAX);
        (Self(questions), asked)
    }

    /// Asks the follower. The database is queried once for all concurrent callers.
    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> FollowerQuestion,
    ) -> Result<T, ReplicaUnavailable> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(question(answer)).map_err(|error| match error {
            TrySendError::Full(_) => ReplicaUnavailable::Busy,
            TrySendError::Disconnected(_) => ReplicaUnavailable::Database,
        })?;
        answered.await.map_err(|_| ReplicaUnavailable::Database)
    }
}

/// The reason why the state of other replicas is unavailable.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplicaUnavailable {
    /// Too many questions wait.
    #[error("too many calls wait; try again later")]
    Busy,
    /// The database does not answer.
    #[error("the aggregator can't answer this now; try again later")]
    Database,
    /// The policy could not be computed.
    #[error("the policy could not be computed")]
    Policy(#[source] LearnerError),
}

/// Look-ups that include other replicas: the database is queried before an experiment is reported
/// as unknown.
impl Registry {
    /// The experiment with this id.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: the answer is unknown.
    pub async fn find(
        &self,
        id: &ExperimentId,
    ) -> Result<Option<Arc<Experiment>>, ReplicaUnavailable> {
        match (self.by_id(id), self.follower()) {
            (None, Some(follower)) => {
                follower.ask(FollowerQuestion::ChangeFeed).await?;
                Ok(self.by_id(id))
            }
            (known, _) => Ok(known),
        }
    }

    /// The trusted experiment with this id.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: the answer is unknown.
    pub async fn find_trusted(
        &self,
        id: &ExperimentId,
    ) -> Result<Option<Arc<TrustedExperiment>>, ReplicaUnavailable> {
        match (self.trusted().get(id), self.follower()) {
            (None, Some(follower)) => {
                follower.ask(FollowerQuestion::ChangeFeed).await?;
                Ok(self.trusted().get(id))
            }
            (known, _) => Ok(known),
        }
    }

    /// The experiment with a revision of this digest.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: the answer is unknown.
    pub async fn find_revision(
        &self,
        digest: Digest,
    ) -> Result<Option<Revision>, ReplicaUnavailable> {
        match (self.by_digest(digest), self.follower()) {
            (None, Some(follower)) => {
                follower.ask(FollowerQuestion::ChangeFeed).await?;
                Ok(self.by_digest(digest))
            }
            (known, _) => Ok(known),
        }
    }

    /// Whether an experiment is a draft. Another replica may just have started it.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: the answer is unknown.
    pub async fn is_draft(&self, experiment: &Experiment) -> Result<bool, ReplicaUnavailable> {
        let is_draft = || experiment.serving().state == ExperimentState::Draft;
        Ok(is_draft() && (!self.hear().await? || is_draft()))
    }

    /// Waits until the shown state of an experiment includes every upload that was acknowledged
    /// here before the call.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: the database does not answer.
    pub async fn catch_up(&self, experiment: &Experiment) -> Result<(), ReplicaUnavailable> {
        match self.follower() {
            Some(follower) if experiment.is_behind() => {
                follower.ask(FollowerQuestion::ChangeFeed).await
            }
            _ => Ok(()),
        }
    }

    /// Waits until the registry shows the changes that other replicas have made so far. `false`:
    /// there are no other replicas.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: the database does not answer.
    pub async fn hear(&self) -> Result<bool, ReplicaUnavailable> {
        let Some(follower) = self.follower() else { return Ok(false) };
        follower.ask(FollowerQuestion::ChangeFeed).await.map(|()| true)
    }

    /// Makes the follower, if there is one, give up its lease and end.
    pub(crate) fn end_following(&self) {
        if let Some(FollowerHandle(questions)) = self.follower() {
            // A follower with a full queue does not reach the database. Its lease expires.
            questions.try_send(FollowerQuestion::End).ok();
        }
    }

    /// Has a policy computed from all committed reports, and serves it.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: the policy was not computed.
    pub async fn refresh_policy(
        &self,
        experiment: &Arc<Experiment>,
    ) -> Result<Arc<PublishedExperiment>, ReplicaUnavailable> {
        let experiment = Arc::clone(experiment);
        if let Some(follower) = self.follower() {
            return follower.ask(|answer| FollowerQuestion::Policy(experiment, answer)).await;
        }
        let computed = tokio::task::spawn_blocking(move || experiment.recompute()).await;
        computed.map_err(|_| ReplicaUnavailable::Busy)?.map_err(ReplicaUnavailable::Policy)
    }
}
