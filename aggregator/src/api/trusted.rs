//! The services for experiments with a trusted curator.

use std::sync::Arc;
use std::time::Duration;

use bandana_edge::admission::Admission;
use bandana_edge::auth::Caller;
use bandana_edge::clock::Clock;
use bandana_edge::memory::{Budget, SharedAnswer};
use bandana_edge::pages::Page;
use bandana_edge::pushback::exhausted;
use bandana_edge::status::{internal, unfinished};
use bandana_mechanisms::noise::secure_generator;
use bandana_shared::identity::{Day, ExperimentId, UploadId};
use bandana_shared::wire::v1::trusted_operator_server::TrustedOperator;
use bandana_shared::wire::v1::trusted_server::Trusted;
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    self, AdacGope, AdacUcb, DeleteExperimentResponse, DiscloseRequest, DiscloseResponse,
    DisclosureStatus, GetTrustedExperimentResponse, LazyRelease, ListTrustedExperimentsRequest,
    ListTrustedExperimentsResponse, RecommendRequest, RecommendResponse, ReleasedStatistics,
    TrustedExperimentName, TrustedSpecification, TrustedStatus, Vector, disclose_request,
};
use bandana_store::Transition;
use bandana_zcdp::adac_ucb::ReleasedMean;
use bandana_zcdp::state::{NoiseKey, SecretState};
use bandana_zcdp::{Action, AlgorithmSettings, Played, Shown, ZcdpError, actions_of};
use tonic::{Request, Response, Status};

use super::operator_messages::{decline, state_of};
use super::unanswered;
use crate::disclosures::{Creation, DisclosureWriterHandle, Step};
use crate::ingest::{Ingest, IngestError};
use crate::registry::Registry;
use crate::trusted::{Disclosure, DisclosureVerdict, TrustedExperiment};
use crate::trusted::{TrustedMetrics, status_of};

/// The delay asked of a client whose disclosure found the queue full. The client adds random
/// jitter.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

/// The service for devices and operators of trusted experiments.
#[derive(Clone, Debug)]
pub struct TrustedService {
    registry: Arc<Registry>,
    metrics: TrustedMetrics,
    disclosures: DisclosureWriterHandle,
    clock: Arc<dyn Clock>,
    budget: Budget,
}

impl TrustedService {
    /// The service over the registry's experiments. Answers that devices have not yet taken are
    /// charged to `budget`.
    pub fn new(
        registry: Arc<Registry>,
        ingest: &Ingest,
        disclosures: DisclosureWriterHandle,
        clock: Arc<dyn Clock>,
        budget: Budget,
    ) -> Self {
        Self { registry, metrics: ingest.metrics().trusted.clone(), disclosures, clock, budget }
    }

    async fn find(&self, name: String) -> Result<Arc<TrustedExperiment>, Status> {
        let id = id_of(name)?;
        let found = self.registry.find_trusted(&id).await;
        found.map_err(|error| unanswered(&error))?.ok_or_else(|| unknown(&id))
    }

    async fn change(
        &self,
        request: Request<TrustedExperimentName>,
        step: Step,
    ) -> Result<Response<TrustedStatus>, Status> {
        let caller = Caller::of(request.extensions());
        let experiment = self.find(request.into_inner().experiment_id).await?;
        let id = experiment.id.clone();
        let moved = self.disclosures.change(caller.to_string(), id, step).await;
        let moved = moved.map_err(|error| decline(&error))?;
        let moved = moved.ok_or_else(|| unknown(&experiment.id))?;
        let (state, done) = (moved.state.name(), done(step));
        tracing::info!(%caller, experiment = %moved.id, state, "trusted experiment {done}");
        Ok(Response::new(status(&moved)))
    }

    fn server_day(&self) -> u32 {
        self.clock.day().get()
    }
}

fn done(step: Step) -> &'static str {
    match step {
        Step::Move(_) => "moved",
        Step::Archive => "archived",
        Step::Unarchive => "unarchived",
        Step::Delete => "deleted",
    }
}

fn id_of(name: String) -> Result<ExperimentId, Status> {
    ExperimentId::new(name).map_err(|error| Status::invalid_argument(error.to_string()))
}

fn unknown(id: &ExperimentId) -> Status {
    Status::not_found(format!("there is no trusted experiment {id}"))
}

fn invalid(error: impl std::error::Error) -> Status {
    Status::invalid_argument(error.to_string())
}

/// Checks the form of a disclosure. Error messages never contain a reward.
fn disclosure(
    experiment: &TrustedExperiment,
    request: DiscloseRequest,
) -> Result<Disclosure, String> {
    let id = UploadId::try_from(&request.disclosure_id[..])
        .map_err(|_| "`disclosure_id` must have 16 bytes".to_owned())?;
    let explain = |error: ZcdpError| error.to_string();
    let played = match request.played {
        Some(disclose_request::Played::Arm(arm)) => {
            Played::Arm(usize::try_from(arm).unwrap_or(usize::MAX))
        }
        Some(disclose_request::Played::Action(Vector { coordinates })) => {
            let action = Action::new(&coordinates, coordinates.len(), 0);
            Played::Vector(action.map_err(explain)?)
        }
        None => return Err("the field `played` must be set".to_owned()),
    };
    let reward = experiment.released.check(&played, request.reward).map_err(explain)?;
    Ok(Disclosure { id, day: Day::new(request.day), played, reward })
}

/// The answer to a decided disclosure.
fn answer(
    verdict: &DisclosureVerdict,
    id: &ExperimentId,
) -> Result<(DisclosureStatus, String), Status> {
    let message = match verdict {
        DisclosureVerdict::Counted => String::new(),
        DisclosureVerdict::Duplicate => "this disclosure was counted before".to_owned(),
        DisclosureVerdict::Malformed(error) | DisclosureVerdict::Full(error) => error.to_string(),
        DisclosureVerdict::Expired { oldest } => {
            format!("the oldest day that is taken is {oldest}")
        }
        DisclosureVerdict::FutureDay { today } => format!("the server's day is {today}"),
        DisclosureVerdict::Paused => "the experiment is paused; try again later".to_owned(),
        DisclosureVerdict::Stopped => "the experiment has ended".to_owned(),
        DisclosureVerdict::Halted(reason) => format!("the experiment can't go on: {reason}"),
        DisclosureVerdict::ClockBehind => return Err(clock_is_wrong()),
        DisclosureVerdict::Gone => return Err(unknown(id)),
    };
    Ok((status_of(verdict).ok_or_else(clock_is_wrong)?, message))
}

fn clock_is_wrong() -> Status {
    Status::unavailable("the server's clock is wrong; try again later")
}

/// The status for a disclosure without a decision.
fn turn_away(error: IngestError) -> Status {
    match error {
        IngestError::QueueFull => {
            let message = "too many disclosures are waiting; send the same bytes again later";
            exhausted(message, NO_ROOM_WAIT)
        }
        IngestError::Ended => {
            Status::unavailable("the aggregator is going down; send the same bytes again")
        }
        IngestError::Store => Status::unavailable(
            "the aggregator can't store disclosures now; send the same bytes again later",
        ),
    }
}

fn status(experiment: &TrustedExperiment) -> TrustedStatus {
    TrustedStatus {
        specification: Some(experiment.specification.clone()),
        state: state_of(experiment.state).into(),
        rewards: experiment.released.rewards(),
        releases: experiment.released.releases(),
        arm_count: arm_count(&experiment.specification),
        archived: experiment.is_archived,
    }
}

fn arm_count(specification: &TrustedSpecification) -> u32 {
    match &specification.algorithm {
        Some(
            Algorithm::AdacUcb(AdacUcb { arms, .. }) | Algorithm::LazyRelease(LazyRelease { arms }),
        ) => *arms,
        Some(Algorithm::AdacGope(AdacGope { actions, .. })) => {
            u32::try_from(actions.len()).unwrap_or(u32::MAX)
        }
        Some(Algorithm::AdacOful(_)) | None => 0,
    }
}

/// An experiment as an item of a list.
fn listed(mut status: TrustedStatus, view: v1::ExperimentView) -> TrustedStatus {
    let algorithm = status.specification.as_mut().and_then(|s| s.algorithm.as_mut());
    if let (Some(Algorithm::AdacGope(gope)), false) = (algorithm, view == v1::ExperimentView::Full)
    {
        gope.actions.clear();
    }
    status
}

fn statistics(experiment: &TrustedExperiment) -> ReleasedStatistics {
    let mean = |mean: Option<ReleasedMean>| {
        mean.map_or_else(v1::ReleasedMean::default, |mean| v1::ReleasedMean {
            mean: Some(mean.mean),
            rewards: mean.rewards,
            noise_deviation: mean.noise_deviation,
        })
    };
    let action = |mean| v1::ReleasedMean { mean, ..Default::default() };
    let (means, parameter) = match experiment.released.shown() {
        Shown::Means(means) => (means.into_iter().map(mean).collect(), None),
        Shown::Actions(means) => (means.into_iter().map(action).collect(), None),
        Shown::Parameter(coordinates) => (Vec::new(), Some(Vector { coordinates })),
    };
    ReleasedStatistics {
        rewards: experiment.released.rewards(),
        means,
        parameter,
        experiment: Some(status(experiment)),
    }
}

#[tonic::async_trait]
impl Trusted for TrustedService {
    async fn get_trusted_experiment(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<GetTrustedExperimentResponse>, Status> {
        let experiment = self.find(request.into_inner().experiment_id).await?;
        let (specification, day) = (&experiment.specification, self.server_day());
        let shared = experiment.answers.answer(specification, day, &self.budget);
        // Replaces this empty answer, which is not encoded.
        let mut answer = Response::new(GetTrustedExperimentResponse::default());
        answer.extensions_mut().insert(SharedAnswer(shared));
        Ok(answer)
    }

    async fn recommend(
        &self,
        request: Request<RecommendRequest>,
    ) -> Result<Response<RecommendResponse>, Status> {
        let RecommendRequest { experiment_id, actions } = request.into_inner();
        let experiment = self.find(experiment_id).await?;
        let actions =
            if actions.is_empty() { Vec::new() } else { actions_of(&actions).map_err(invalid)? };
        let mut rng = secure_generator().map_err(|error| {
            let mut status = Status::unavailable("the server's random source failed");
            status.set_source(Arc::new(error));
            status
        })?;
        let arm = experiment.released.recommend(&actions, &mut rng).map_err(invalid)?;
        let arm = u32::try_from(arm).unwrap_or(u32::MAX);
        Ok(Response::new(RecommendResponse { arm, server_day: self.server_day() }))
    }

    async fn disclose(
        &self,
        request: Request<DiscloseRequest>,
    ) -> Result<Response<DiscloseResponse>, Status> {
        let passed = Admission::of(request.extensions()).pass();
        passed.inspect_err(|_| self.metrics.over_rate())?;
        let mut request = request.into_inner();
        let experiment = self.find(std::mem::take(&mut request.experiment_id)).await?;
        let (status, message) = match disclosure(&experiment, request) {
            Ok(disclosure) => {
                let id = experiment.id.clone();
                let verdict = self.disclosures.disclose(id, disclosure).await;
                let verdict = verdict.map_err(|error| {
                    // The disclosure writer only counts disclosures that reach it.
                    if error == IngestError::QueueFull {
                        self.metrics.turned_away();
                    }
                    turn_away(error)
                })?;
                answer(&verdict, &experiment.id)?
            }
            Err(message) => {
                self.metrics.refused(DisclosureStatus::Malformed);
                (DisclosureStatus::Malformed, message)
            }
        };
        let server_day = self.server_day();
        Ok(Response::new(DiscloseResponse { status: status.into(), message, server_day }))
    }
}

#[tonic::async_trait]
impl TrustedOperator for TrustedService {
    async fn create_trusted_experiment(
        &self,
        request: Request<TrustedSpecification>,
    ) -> Result<Response<TrustedStatus>, Status> {
        let caller = Caller::of(request.extensions());
        let message = request.into_inner();
        let id = id_of(message.experiment_id.clone())?;
        let plan = AlgorithmSettings::try_from(&message).map_err(invalid)?;
        let key = NoiseKey::secure();
        let key = key.map_err(|error| internal("the random source failed", error))?;
        // Computing a design for many actions takes time.
        let first = plan.clone();
        let made = tokio::task::spawn_blocking(move || SecretState::new(first, key)).await;
        let made = made.map_err(|error| unfinished("the call failed", error))?;
        let secret = made.map_err(invalid)?;
        let creation = Creation { caller: caller.to_string(), id, plan, secret };
        let created = self.disclosures.create(creation).await.map_err(|error| decline(&error))?;
        tracing::info!(%caller, experiment = %created.id, "trusted experiment created");
        Ok(Response::new(status(&created)))
    }

    async fn list_trusted_experiments(
        &self,
        request: Request<ListTrustedExperimentsRequest>,
    ) -> Result<Response<ListTrustedExperimentsResponse>, Status> {
        let request = request.into_inner();
        let (view, all) = (request.view(), request.show_archived);
        let list = if all { "all trusted experiments" } else { "trusted experiments" };
        let page = Page::of(list, request.page_size, &request.page_token)?;
        let wanted = |experiment: &TrustedExperiment| all || !experiment.is_archived;
        let trusted = self.registry.trusted();
        let experiments = trusted.after(page.after.as_deref(), page.useful(), wanted);
        let (experiments, next_page_token) =
            page.fill(experiments.iter().map(|e| (e.id.to_string(), listed(status(e), view))));
        Ok(Response::new(ListTrustedExperimentsResponse { experiments, next_page_token }))
    }

    async fn get_trusted_status(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<TrustedStatus>, Status> {
        let experiment = self.find(request.into_inner().experiment_id).await?;
        Ok(Response::new(status(&experiment)))
    }

    async fn pause_trusted_experiment(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<TrustedStatus>, Status> {
        self.change(request, Step::Move(Transition::Pause)).await
    }

    async fn resume_trusted_experiment(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<TrustedStatus>, Status> {
        self.change(request, Step::Move(Transition::Resume)).await
    }

    async fn stop_trusted_experiment(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<TrustedStatus>, Status> {
        self.change(request, Step::Move(Transition::Stop)).await
    }

    async fn archive_trusted_experiment(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<TrustedStatus>, Status> {
        self.change(request, Step::Archive).await
    }

    async fn unarchive_trusted_experiment(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<TrustedStatus>, Status> {
        self.change(request, Step::Unarchive).await
    }

    async fn delete_trusted_experiment(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<DeleteExperimentResponse>, Status> {
        self.change(request, Step::Delete).await?;
        Ok(Response::new(DeleteExperimentResponse {}))
    }

    async fn get_released(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<ReleasedStatistics>, Status> {
        let experiment = self.find(request.into_inner().experiment_id).await?;
        Ok(Response::new(statistics(&experiment)))
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn an_overloaded_server_tells_when_to_come_back() {
        let status = turn_away(IngestError::QueueFull);
        assert_eq!(status.code(), Code::ResourceExhausted);
        let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap();
        assert!(pushback.to_str().unwrap().parse::<u32>().unwrap() > 0);
        let id = ExperimentId::new("headlines").unwrap();
        let behind = answer(&DisclosureVerdict::ClockBehind, &id).unwrap_err();
        for status in [behind, turn_away(IngestError::Ended), turn_away(IngestError::Store)] {
            assert_eq!(status.code(), Code::Unavailable);
        }
    }
}
