use std::pin::Pin;
use std::sync::Arc;

use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::Estimand;
use bandana_shared::identity::{ArmIndex, Digest, Revision, UnixSeconds};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::limits::SIGNATURE_DAYS_MAX;
use bandana_shared::signing::Signature;
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::wire::v1::operator_server::Operator;
use bandana_shared::wire::v1::{
    self, AddArmRequest, AddSignatureRequest, CreateExperimentRequest, Estimates, EstimatesRequest,
    ExperimentName, ExperimentStatus, ListExperimentsRequest, ListExperimentsResponse,
    RefreshPolicyResponse, RetireArmRequest,
};
use futures_util::{Stream, StreamExt as _};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use super::act::{Act, until_revoked};
use super::{GOING_DOWN, explain, find, internal, until_end};
use crate::clock::Clock;
use crate::ending::Ending;
use crate::estimates::{EstimatesSettings, estimates};
use crate::ingest::{Administration, AdministrationError, Ingest, Revise};
use crate::learner::Learner;
use crate::registry::{Experiment, Registry};
use crate::security::Caller;
use crate::store::{Conduct, ExperimentState, StoreError};

/// What operators and their tools call.
#[derive(Clone, Debug)]
pub struct OperatorService {
    registry: Arc<Registry>,
    ingest: Ingest,
    clock: Arc<dyn Clock>,
    ending: Ending,
}

impl OperatorService {
    /// The service over these experiments. Streams end when the server goes
    /// down.
    pub fn new(
        registry: Arc<Registry>,
        ingest: Ingest,
        clock: Arc<dyn Clock>,
        ending: Ending,
    ) -> Self {
        Self { registry, ingest, clock, ending }
    }

    /// Makes a change, and logs who made it.
    async fn administer(
        &self,
        act: Act,
        administration: Administration,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let experiment = self.ingest.administer(administration).await.map_err(|e| decline(&e))?;
        act.log(&experiment);
        Ok(Response::new(status_of(&experiment)))
    }

    async fn set_state(
        &self,
        act: Act,
        name: ExperimentName,
        from: &'static [ExperimentState],
        to: ExperimentState,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let experiment = find(&self.registry, name.experiment_id)?;
        self.administer(act, Administration::SetState { experiment, from, to }).await
    }
}

/// Checks a request for a new experiment and computes the floor.
fn creation(request: CreateExperimentRequest) -> Result<(Specification, Conduct), Status> {
    let learner = match request.learner() {
        v1::Learner::LdpTs => Learner::LdpTs,
        v1::Learner::LdpUcb => Learner::LdpUcb,
        v1::Learner::Unspecified => {
            return Err(Status::invalid_argument("the field `learner` must be set"));
        }
    };
    let invalid = |error: &dyn std::error::Error| Status::invalid_argument(explain(error));
    let missing = || Status::invalid_argument("the field `specification` must be set");
    let mut message = request.specification.ok_or_else(missing)?;
    if message.revision > Revision::FIRST.get() || message.floor != 0 {
        return Err(Status::invalid_argument(
            "a new experiment has revision 0 or 1 and floor 0; the server sets both",
        ));
    }
    let epsilon = Epsilon::new(message.epsilon).map_err(|error| invalid(&error))?;
    message.revision = Revision::FIRST.get();
    message.floor = Floor::for_epsilon(epsilon).get();
    let specification = Specification::try_from(&message).map_err(|error| invalid(&error))?;
    if message.attribution_window_seconds == 0 && !message.simulation {
        return Err(Status::invalid_argument(
            "real users take time to react: `attribution_window_seconds` must be at least 1 (3600 \
             would be an hour); only simulations may do without",
        ));
    }
    if specification.estimand() == Estimand::MeanCurvedReward && !request.accept_nonlinear_estimand
    {
        return Err(Status::invalid_argument(
            "with a nonlinear curve and rewards between the ends of their range, the server learns \
             the mean of g(reward) and may prefer an arm whose mean reward is lower; use the linear \
             mechanism, or set `accept_nonlinear_estimand`",
        ));
    }
    Ok((specification, Conduct { learner, floor_weight: request.floor_weight }))
}

fn status_of(experiment: &Experiment) -> ExperimentStatus {
    let serving = experiment.serving();
    let conduct = experiment.conduct();
    let state = match serving.state {
        ExperimentState::Running => v1::ExperimentState::Running,
        ExperimentState::Paused => v1::ExperimentState::Paused,
        ExperimentState::Stopped => v1::ExperimentState::Stopped,
    };
    let learner = match conduct.learner {
        Learner::LdpTs => v1::Learner::LdpTs,
        Learner::LdpUcb => v1::Learner::LdpUcb,
    };
    ExperimentStatus {
        specification: Some((&*serving.specification).into()),
        digest: serving.specification.digest().as_bytes().to_vec().into(),
        state: state.into(),
        learner: learner.into(),
        floor_weight: conduct.floor_weight,
        reports: experiment.tallies().iter().map(|tally| tally.reports()).sum(),
        policy_version: serving.policy.version,
        certified_epsilon: serving.specification.certified_epsilon(),
        signatures: serving.signatures.iter().map(Into::into).collect(),
    }
}

/// What to say of a change that was not made.
fn decline(error: &AdministrationError) -> Status {
    let message = explain(error);
    match error {
        AdministrationError::Store(StoreError::ExperimentExists(_)) => {
            Status::already_exists(message)
        }
        AdministrationError::Specification(_) | AdministrationError::Learner(_) => {
            Status::invalid_argument(message)
        }
        AdministrationError::State { .. }
        | AdministrationError::Store(StoreError::TooManySignatures) => {
            Status::failed_precondition(message)
        }
        AdministrationError::Store(_) | AdministrationError::Ended => {
            Status::unavailable(GOING_DOWN)
        }
    }
}

/// Reads a signature and checks that it is good for `revision` at `now`.
fn signature_for(
    revision: &Specification,
    message: Option<&v1::SpecificationSignature>,
    now: UnixSeconds,
) -> Result<Signature, Status> {
    let invalid = |error: &dyn std::error::Error| Status::invalid_argument(explain(error));
    let missing = || Status::invalid_argument("the field `signature` must be set");
    let signature = Signature::try_from(message.ok_or_else(missing)?).map_err(|e| invalid(&e))?;
    signature.verify(revision, now).map_err(|error| invalid(&error))?;
    // One day more, for the clock of whoever signed.
    if signature.expires() > now.after_days(SIGNATURE_DAYS_MAX + 1) {
        return Err(Status::invalid_argument(format!(
            "the signature is good until {}, and one may be good for at most {SIGNATURE_DAYS_MAX} \
             days; sign for a shorter time",
            signature.expires()
        )));
    }
    Ok(signature)
}

fn settings(request: &EstimatesRequest) -> Result<EstimatesSettings, Status> {
    let EstimatesRequest { alpha, dishonest_share, .. } = *request;
    let alpha = if alpha == 0.0 {
        ErrorLevel::FIVE_PERCENT
    } else {
        ErrorLevel::new(alpha).map_err(|error| Status::invalid_argument(error.to_string()))?
    };
    if !(0.0..=1.0).contains(&dishonest_share) {
        return Err(Status::invalid_argument("dishonest_share must be a number from 0 to 1"));
    }
    Ok(EstimatesSettings { alpha, dishonest_share })
}

#[tonic::async_trait]
impl Operator for OperatorService {
    async fn create_experiment(
        &self,
        request: Request<CreateExperimentRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = Act::new("experiment created", &request);
        let (specification, conduct) = creation(request.into_inner())?;
        self.administer(act, Administration::Create(Box::new(specification), conduct)).await
    }

    async fn list_experiments(
        &self,
        _: Request<ListExperimentsRequest>,
    ) -> Result<Response<ListExperimentsResponse>, Status> {
        let experiments = self.registry.all();
        let experiments = experiments.iter().map(|experiment| status_of(experiment)).collect();
        Ok(Response::new(ListExperimentsResponse { experiments }))
    }

    async fn get_experiment_status(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let experiment = find(&self.registry, request.into_inner().experiment_id)?;
        Ok(Response::new(status_of(&experiment)))
    }

    async fn pause_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = Act::new("experiment paused", &request);
        let from = &[ExperimentState::Running];
        self.set_state(act, request.into_inner(), from, ExperimentState::Paused).await
    }

    async fn resume_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = Act::new("experiment resumed", &request);
        let from = &[ExperimentState::Paused];
        self.set_state(act, request.into_inner(), from, ExperimentState::Running).await
    }

    async fn stop_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = Act::new("experiment stopped", &request);
        let from = &[ExperimentState::Running, ExperimentState::Paused];
        self.set_state(act, request.into_inner(), from, ExperimentState::Stopped).await
    }

    async fn add_arm(
        &self,
        request: Request<AddArmRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = Act::new("arm added", &request);
        let request = request.into_inner();
        let experiment = find(&self.registry, request.experiment_id)?;
        let arm = Arm::new(request.label).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let change = Revise::Add(arm);
        self.administer(act, Administration::Revise { experiment, change }).await
    }

    async fn retire_arm(
        &self,
        request: Request<RetireArmRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = Act::new("arm retired", &request);
        let request = request.into_inner();
        let experiment = find(&self.registry, request.experiment_id)?;
        let arm = ArmIndex::new(request.arm as usize)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let change = Revise::Retire(arm);
        self.administer(act, Administration::Revise { experiment, change }).await
    }

    async fn add_signature(
        &self,
        request: Request<AddSignatureRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = Act::new("signature added", &request);
        let request = request.into_inner();
        let experiment = find(&self.registry, request.experiment_id)?;
        let digest = Digest::try_from(&request.digest[..])
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let known = self.registry.by_digest(digest);
        let revision = known.filter(|r| r.experiment.id() == experiment.id()).ok_or_else(|| {
            let id = experiment.id();
            Status::not_found(format!("the experiment {id} has no revision with digest {digest}"))
        })?;
        let now = UnixSeconds::new(self.clock.unix_seconds());
        let signature = signature_for(&revision.specification, request.signature.as_ref(), now)?;
        self.administer(act, Administration::AddSignature { revision, signature, now }).await
    }

    async fn get_estimates(
        &self,
        request: Request<EstimatesRequest>,
    ) -> Result<Response<Estimates>, Status> {
        let request = request.into_inner();
        let settings = settings(&request)?;
        let experiment = find(&self.registry, request.experiment_id)?;
        Ok(Response::new(estimates(&experiment, settings)))
    }

    type WatchEstimatesStream =
        Pin<Box<dyn Stream<Item = Result<Estimates, Status>> + Send + 'static>>;

    async fn watch_estimates(
        &self,
        request: Request<EstimatesRequest>,
    ) -> Result<Response<Self::WatchEstimatesStream>, Status> {
        let caller = Caller::of(request.extensions());
        let request = request.into_inner();
        let settings = settings(&request)?;
        let experiment = find(&self.registry, request.experiment_id)?;
        let end = Box::pin(self.ending.clone().wait());
        let versions = WatchStream::new(experiment.watch()).take_until(end);
        let stream = versions.map(move |_| Ok(estimates(&experiment, settings)));
        Ok(Response::new(until_revoked(until_end(stream, self.ending.clone()), caller)))
    }

    async fn refresh_policy(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<RefreshPolicyResponse>, Status> {
        let act = Act::new("policy refreshed", &request);
        let experiment = find(&self.registry, request.into_inner().experiment_id)?;
        let computed = Arc::clone(&experiment);
        let serving = tokio::task::spawn_blocking(move || computed.recompute())
            .await
            .map_err(|error| internal("the policy could not be computed", error))?
            .map_err(|error| internal("the policy could not be computed", error))?;
        act.log(&experiment);
        Ok(Response::new(RefreshPolicyResponse {
            policy_version: serving.policy.version,
            reports: serving.policy_reports,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_hear_nothing_of_the_store() {
        let path = "/srv/secret-place".into();
        let source = std::io::Error::other("disk of the secret");
        let sql = rusqlite::Error::InvalidColumnName("secret".to_owned());
        for error in [
            StoreError::Directory { path, source },
            StoreError::Database { doing: "committing the secret", source: sql },
            StoreError::Damaged { what: "secret".to_owned() },
        ] {
            let status = decline(&error.into());
            assert!(!format!("{:?}", status.message()).contains("secret"), "{status}");
        }
    }
}
