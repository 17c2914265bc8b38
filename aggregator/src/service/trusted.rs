//! The services for experiments with a trusted curator.

use std::sync::{Arc, Mutex, PoisonError};

use bandana_shared::identity::{ExperimentId, UploadId};
use bandana_shared::wire::v1::trusted_operator_server::TrustedOperator;
use bandana_shared::wire::v1::trusted_server::Trusted;
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    self, AdacGope, AdacOful, AdacUcb, DiscloseRequest, DiscloseResponse, RecommendRequest,
    RecommendResponse, ReleasedStatistics, TrustedExperimentName, TrustedSpecification, Vector,
    disclose_request,
};
use tonic::{Request, Response, Status};

use super::explain;
use crate::security::Caller;
use crate::trusted::adac_gope::{GopeSettings, PhaseLength};
use crate::trusted::adac_oful::OfulSettings;
use crate::trusted::adac_ucb::{ARMS_MAX, Memory, ReleasedMean, UcbSettings};
use crate::trusted::estimator::Placement;
use crate::trusted::keeper::{Disclosed, KeeperError, Plan, Played, Released};
use crate::trusted::shelf::Shelf;
use crate::trusted::{Action, Protection, RewardRange, TrustedError};

/// Answers devices and operators about trusted experiments.
#[derive(Clone, Debug)]
pub struct TrustedService {
    shelf: Option<Arc<Mutex<Shelf>>>,
}

impl TrustedService {
    /// Over these experiments. None: the server has no directory to keep any in.
    pub fn new(shelf: Option<Arc<Mutex<Shelf>>>) -> Self {
        Self { shelf }
    }

    /// Works with the experiments, on a thread that may wait for the disk. A call that is given
    /// up is carried out all the same.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Shelf) -> Result<T, KeeperError> + Send + 'static,
    ) -> Result<T, Status> {
        let shelf = self.shelf.clone().ok_or_else(|| {
            Status::failed_precondition(
                "this server keeps its store in a database that replicas share; trusted \
                 experiments need one with a data directory",
            )
        })?;
        let locked = move || {
            // The keeper says itself when it is unsure of its state.
            work(&mut shelf.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let done = tokio::task::spawn_blocking(locked).await;
        done.map_err(|cause| super::internal("the call failed", cause))?.map_err(refusal)
    }
}

/// What a caller hears. Messages name no reward.
fn refusal(error: KeeperError) -> Status {
    match &error {
        KeeperError::Unknown(_) => Status::not_found(error.to_string()),
        KeeperError::Exists(_) => Status::already_exists(error.to_string()),
        KeeperError::Trusted(TrustedError::Full { .. }) => {
            Status::failed_precondition(error.to_string())
        }
        KeeperError::Trusted(_) | KeeperError::Arm | KeeperError::Vector => {
            Status::invalid_argument(error.to_string())
        }
        _ => {
            tracing::error!(error = explain(&error), "the trusted experiments failed");
            let mut status = Status::unavailable("the trusted experiments can't be kept now");
            status.set_source(Arc::new(error));
            status
        }
    }
}

fn id_of(name: String) -> Result<ExperimentId, Status> {
    ExperimentId::new(name).map_err(|error| Status::invalid_argument(error.to_string()))
}

fn refused(error: &TrustedError) -> Status {
    Status::invalid_argument(error.to_string())
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// Checks a request for a new experiment.
fn plan_of(message: &TrustedSpecification) -> Result<Plan, Status> {
    if !message.rewards_are_disclosed {
        return Err(Status::invalid_argument(
            "`rewards_are_disclosed` must be true: in a trusted experiment rewards reach the \
             server; for private bits create an ordinary experiment",
        ));
    }
    let protection = Protection::concentrated(message.rho).map_err(|error| refused(&error))?;
    let unset = || Status::invalid_argument("the field `algorithm` must be set");
    Ok(match message.algorithm.as_ref().ok_or_else(unset)? {
        Algorithm::AdacUcb(AdacUcb { arms, beta }) => Plan::Ucb(UcbSettings {
            arms: count(*arms),
            protection,
            exploration: *beta,
            memory: Memory::Forgetting,
        }),
        Algorithm::AdacGope(AdacGope { actions, delta }) => Plan::Gope(GopeSettings {
            actions: actions_of(actions)?,
            range: RewardRange::Symmetric,
            protection,
            failure: *delta,
            length: PhaseLength::Exact,
            placement: Placement::Shaped,
        }),
        Algorithm::AdacOful(AdacOful { dimension }) => {
            Plan::Oful(OfulSettings::published(count(*dimension), protection))
        }
    })
}

fn actions_of(vectors: &[Vector]) -> Result<Vec<Action>, Status> {
    let count = vectors.len();
    if count > ARMS_MAX {
        return Err(refused(&TrustedError::Arms { count, max: ARMS_MAX }));
    }
    let vectors: Vec<_> = vectors.iter().map(|vector| vector.coordinates.clone()).collect();
    Action::list(&vectors).map_err(|error| refused(&error))
}

fn specification_of(id: &ExperimentId, plan: &Plan) -> TrustedSpecification {
    let (protection, algorithm) = match plan {
        Plan::Ucb(settings) => {
            let UcbSettings { arms, protection, exploration, .. } = settings;
            let ucb = AdacUcb { arms: number(*arms), beta: *exploration };
            (*protection, Algorithm::AdacUcb(ucb))
        }
        Plan::Gope(settings) => {
            let vector = |action: &Action| Vector { coordinates: action.coordinates().collect() };
            let actions = settings.actions.iter().map(vector).collect();
            let gope = AdacGope { actions, delta: settings.failure };
            (settings.protection, Algorithm::AdacGope(gope))
        }
        Plan::Oful(OfulSettings { dimension, protection, .. }) => {
            let oful = AdacOful { dimension: number(*dimension) };
            (*protection, Algorithm::AdacOful(oful))
        }
    };
    TrustedSpecification {
        experiment_id: id.to_string(),
        rewards_are_disclosed: true,
        rho: protection.rho().get(),
        algorithm: Some(algorithm),
    }
}

fn statistics(rewards: u64, released: Released) -> ReleasedStatistics {
    let mean = |mean: Option<ReleasedMean>| {
        mean.map_or_else(v1::ReleasedMean::default, |mean| v1::ReleasedMean {
            mean: Some(mean.mean),
            rewards: mean.rewards,
            noise_deviation: mean.noise_deviation,
        })
    };
    let action = |mean| v1::ReleasedMean { mean, ..Default::default() };
    let (means, parameter) = match released {
        Released::Means(means) => (means.into_iter().map(mean).collect(), None),
        Released::Actions(means) => (means.into_iter().map(action).collect(), None),
        Released::Parameter(coordinates) => (Vec::new(), Some(Vector { coordinates })),
    };
    ReleasedStatistics { rewards, means, parameter }
}

#[tonic::async_trait]
impl Trusted for TrustedService {
    async fn get_trusted_experiment(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<TrustedSpecification>, Status> {
        let id = id_of(request.into_inner().experiment_id)?;
        let found = self
            .with(move |shelf| Ok(specification_of(&id, &shelf.keeper_of(&id)?.plan(&id)?)))
            .await?;
        Ok(Response::new(found))
    }

    async fn recommend(
        &self,
        request: Request<RecommendRequest>,
    ) -> Result<Response<RecommendResponse>, Status> {
        let RecommendRequest { experiment_id, actions } = request.into_inner();
        let id = id_of(experiment_id)?;
        let actions = if actions.is_empty() { Vec::new() } else { actions_of(&actions)? };
        let arm = self.with(move |shelf| shelf.keeper_of(&id)?.recommend(&id, &actions)).await?;
        Ok(Response::new(RecommendResponse { arm: number(arm) }))
    }

    async fn disclose(
        &self,
        request: Request<DiscloseRequest>,
    ) -> Result<Response<DiscloseResponse>, Status> {
        let request = request.into_inner();
        let id = id_of(request.experiment_id)?;
        let disclosure = UploadId::try_from(&request.disclosure_id[..])
            .map_err(|_| Status::invalid_argument("`disclosure_id` must have 16 bytes"))?;
        let played = match request.played {
            Some(disclose_request::Played::Arm(arm)) => Played::Arm(count(arm)),
            Some(disclose_request::Played::Action(Vector { coordinates })) => {
                let action = Action::new(&coordinates, coordinates.len(), 0);
                Played::Vector(action.map_err(|error| refused(&error))?)
            }
            None => return Err(Status::invalid_argument("the field `played` must be set")),
        };
        let reward = request.reward;
        let disclosed = self
            .with(move |shelf| shelf.keeper_of(&id)?.disclose(&id, disclosure, &played, reward));
        let disclosed = disclosed.await?;
        Ok(Response::new(DiscloseResponse { duplicate: disclosed == Disclosed::Duplicate }))
    }
}

#[tonic::async_trait]
impl TrustedOperator for TrustedService {
    async fn create_trusted_experiment(
        &self,
        request: Request<TrustedSpecification>,
    ) -> Result<Response<TrustedSpecification>, Status> {
        let caller = Caller::of(request.extensions());
        let message = request.into_inner();
        let id = id_of(message.experiment_id.clone())?;
        let plan = plan_of(&message)?;
        let name = id.clone();
        let create = move |shelf: &mut Shelf| {
            let keeper = shelf.keeper()?;
            keeper.create(&id, plan)?;
            Ok(specification_of(&id, &keeper.plan(&id)?))
        };
        let created = self.with(create).await?;
        tracing::info!(%caller, experiment = %name, "trusted experiment created");
        Ok(Response::new(created))
    }

    async fn get_released(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<ReleasedStatistics>, Status> {
        let id = id_of(request.into_inner().experiment_id)?;
        let read = move |shelf: &mut Shelf| {
            let keeper = shelf.keeper_of(&id)?;
            Ok(statistics(keeper.rewards(&id)?, keeper.released(&id)?))
        };
        Ok(Response::new(self.with(read).await?))
    }
}
