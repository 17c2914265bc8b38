//! Knowledge of other replicas: the way to whoever follows the database, and the questions to it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use bandana_learners::LearnerError;
use bandana_shared::identity::{Digest, ExperimentId};
use thiserror::Error;
use tokio::sync::oneshot;

use super::{Experiment, PublishedExperiment, Registry, Revision};
use crate::store::ExperimentState;
use crate::trusted::TrustedExperiment;

/// Questions that wait at most. Beyond it callers are told to come back.
const QUESTIONS_MAX: usize = 1024;

/// What a follower is asked for, beside what it does anyway.
#[derive(Debug)]
pub(crate) enum FollowerQuestion {
    /// To tell when the registry shows all that the database had when this was asked.
    ChangeFeed(oneshot::Sender<()>),
    /// A policy from all reports that the database has when this is asked.
    Policy(Arc<Experiment>, oneshot::Sender<Arc<PublishedExperiment>>),
    /// To give up the lease and end.
    End,
}

/// The way to a follower.
#[derive(Clone, Debug)]
pub(crate) struct FollowerHandle(SyncSender<FollowerQuestion>);

impl FollowerHandle {
    pub(crate) fn channel() -> (Self, Receiver<FollowerQuestion>) {
        let (questions, asked) = sync_channel(QUESTIONS_MAX);
        (Self(questions), asked)
    }

    /// However many ask at the same time, the database is asked once.
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

/// Why nothing can be said now about what is not known here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplicaUnavailable {
    /// Too many questions wait.
    #[error("too many calls wait; try again later")]
    Busy,
    /// The database does not answer.
    #[error("the aggregator can't answer this now; try again later")]
    Database,
    /// The policy can't be computed.
    #[error("the policy could not be computed")]
    Policy(#[source] LearnerError),
}

/// What is not known here may be known to another replica; where there are others, the
/// database is asked before anybody is told that there is no such thing.
impl Registry {
    /// The experiment of this name.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: nobody can say now.
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

    /// The trusted experiment of this name.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: nobody can say now.
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
    /// [`ReplicaUnavailable`]: nobody can say now.
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
    /// [`ReplicaUnavailable`]: nobody can say now.
    pub async fn is_draft(&self, experiment: &Experiment) -> Result<bool, ReplicaUnavailable> {
        let is_draft = || experiment.serving().state == ExperimentState::Draft;
        Ok(is_draft() && (!self.hear().await? || is_draft()))
    }

    /// Waits until what is shown of an experiment includes every upload that was acknowledged here
    /// before this was asked.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: the database does not tell now.
    pub async fn catch_up(&self, experiment: &Experiment) -> Result<(), ReplicaUnavailable> {
        match self.follower() {
            Some(follower) if experiment.is_behind() => {
                follower.ask(FollowerQuestion::ChangeFeed).await
            }
            _ => Ok(()),
        }
    }

    /// Hears what other replicas have done until now. `false`: there are none.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: the database does not tell now.
    pub async fn hear(&self) -> Result<bool, ReplicaUnavailable> {
        let Some(follower) = self.follower() else { return Ok(false) };
        follower.ask(FollowerQuestion::ChangeFeed).await.map(|()| true)
    }

    /// Lets a follower give up its lease and end, if there is one.
    pub(crate) fn end_following(&self) {
        if let Some(FollowerHandle(questions)) = self.follower() {
            // One with so many questions does not reach the database. Its lease runs out.
            questions.try_send(FollowerQuestion::End).ok();
        }
    }

    /// Has a policy computed from all reports that are committed, and serves it.
    ///
    /// # Errors
    /// [`ReplicaUnavailable`]: it was not computed.
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
