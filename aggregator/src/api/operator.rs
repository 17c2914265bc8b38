//! The operator service: experiments, estimates, the audit log.

use std::pin::Pin;
use std::sync::Arc;

use bandana_edge::auth::Caller;
use bandana_edge::clock::Clock;
use bandana_edge::pages::{Page, read_newest};
use bandana_edge::shutdown::ShutdownSignal;
use bandana_edge::status::internal;
use bandana_shared::identity::{ArmIndex, Digest, UnixSeconds};
use bandana_shared::participation::Millionths;
use bandana_shared::wire::v1::operator_server::Operator;
use bandana_shared::wire::v1::{
    self, AddArmRequest, AddSignatureRequest, CreateExperimentRequest, DeleteExperimentResponse,
    Estimates, EstimatesRequest, ExperimentName, ExperimentStatus, ExportTalliesRequest,
    ListAuditEntriesRequest, ListAuditEntriesResponse, ListExperimentsRequest,
    ListExperimentsResponse, RefreshPolicyResponse, RetireArmRequest, SetEnrolmentRequest,
    SetRecordRequest,
};
use bandana_store::{AuditQuery, ExperimentState, StoreError, StoreReader, Transition};
use futures_util::{Stream, StreamExt as _};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use super::alarm_watch::{AlarmWatch, news, ticks};
use super::audited_action::{AuditedAction, until_revoked};
use super::exports::{Exports, days};
use super::operator_messages::{
    added_arm, audit_entry, audit_query, check_control, creation, decline, listed, settings,
    signature_for, status_of,
};
use super::{find, unanswered, unreadable, until_end};
use crate::ingest::{ExperimentChange, ExperimentChangeError, ExperimentCommand, Ingest, Revise};
use crate::registry::ReplicaUnavailable;
use crate::registry::{Experiment, Registry};

/// The service that operators and their tools call.
#[derive(Clone, Debug)]
pub struct OperatorService {
    registry: Arc<Registry>,
    ingest: Ingest,
    reader: StoreReader,
    exports: Exports,
    clock: Arc<dyn Clock>,
    ending: ShutdownSignal,
    watch: AlarmWatch,
}

impl OperatorService {
    /// The service over these experiments. Streams end when the server shuts down.
    pub fn new(
        registry: Arc<Registry>,
        ingest: Ingest,
        reader: StoreReader,
        exports: Exports,
        clock: Arc<dyn Clock>,
        ending: ShutdownSignal,
    ) -> Self {
        let watch = AlarmWatch::new(ingest.metrics().clone(), Arc::clone(&clock));
        Self { registry, ingest, reader, exports, clock, ending, watch }
    }

    /// Makes a change, and logs its caller.
    async fn administer(
        &self,
        act: AuditedAction,
        administration: ExperimentChange,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let order = ExperimentCommand { caller: act.caller(), administration };
        let mut outcome = self.ingest.administer(order.clone()).await;
        if outcome.as_ref().is_err_and(ExperimentChangeError::is_by_what_was_known)
            && self.registry.hear().await.map_err(|error| unanswered(&error))?
        {
            outcome = self.ingest.administer(order).await;
        }
        let experiment = outcome.map_err(|error| decline(&error))?;
        act.log(&experiment);
        Ok(Response::new(self.status_of(&experiment)))
    }

    /// The experiment with this id, including all uploads that were acknowledged here.
    async fn find_counted(&self, name: String) -> Result<Arc<Experiment>, Status> {
        let experiment = find(&self.registry, name).await?;
        let caught_up = self.registry.catch_up(&experiment).await;
        caught_up.map_err(|error| unanswered(&error)).map(|()| experiment)
    }

    fn status_of(&self, experiment: &Experiment) -> ExperimentStatus {
        // Alarms after the state, so that no state is told without what has caused it.
        let status = status_of(experiment);
        ExperimentStatus { alarms: self.watch.alarms(experiment), ..status }
    }

    async fn step(
        &self,
        act: &'static str,
        request: Request<ExperimentName>,
        transition: Transition,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = AuditedAction::new(act, &request);
        let experiment = find(&self.registry, request.into_inner().experiment_id).await?;
        self.administer(act, ExperimentChange::Move { experiment, transition }).await
    }

    /// Archives or unarchives an experiment.
    async fn set_archived(
        &self,
        act: AuditedAction,
        request: Request<ExperimentName>,
        is_archived: bool,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let experiment = find(&self.registry, request.into_inner().experiment_id).await?;
        let serving = experiment.serving();
        if serving.state == ExperimentState::Stopped && serving.is_archived == is_archived {
            return Ok(Response::new(self.status_of(&experiment)));
        }
        self.administer(act, ExperimentChange::Archive { experiment, is_archived }).await
    }
}

#[tonic::async_trait]
impl Operator for OperatorService {
    async fn create_experiment(
        &self,
        request: Request<CreateExperimentRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = AuditedAction::new("experiment created", &request);
        let request = request.into_inner();
        let is_draft = request.draft;
        let (specification, config, record) = creation(request)?;
        let (specification, record) = (Box::new(specification), Box::new(record));
        let create = ExperimentChange::Create { specification, config, record, is_draft };
        self.administer(act, create).await
    }

    async fn list_experiments(
        &self,
        request: Request<ListExperimentsRequest>,
    ) -> Result<Response<ListExperimentsResponse>, Status> {
        let request = request.into_inner();
        let (view, all) = (request.view(), request.show_archived);
        let list = if all { "all experiments" } else { "experiments" };
        let page = Page::of(list, request.page_size, &request.page_token)?;
        let wanted = |experiment: &Experiment| all || !experiment.serving().is_archived;
        let experiments = self.registry.after(page.after.as_deref(), page.useful(), wanted);
        let (experiments, next_page_token) = page.fill(experiments.into_iter().map(|experiment| {
            (experiment.id().to_string(), listed(self.status_of(&experiment), view))
        }));
        Ok(Response::new(ListExperimentsResponse { experiments, next_page_token }))
    }

    async fn get_experiment_status(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let experiment = self.find_counted(request.into_inner().experiment_id).await?;
        Ok(Response::new(self.status_of(&experiment)))
    }

    async fn start_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        self.step("experiment started", request, Transition::Start).await
    }

    async fn pause_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        self.step("experiment paused", request, Transition::Pause).await
    }

    async fn resume_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        self.step("experiment resumed", request, Transition::Resume).await
    }

    async fn stop_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        self.step("experiment stopped", request, Transition::Stop).await
    }

    async fn archive_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        self.set_archived(AuditedAction::new("experiment archived", &request), request, true).await
    }

    async fn unarchive_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        self.set_archived(AuditedAction::new("experiment unarchived", &request), request, false)
            .await
    }

    async fn delete_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<DeleteExperimentResponse>, Status> {
        let act = AuditedAction::new("experiment deleted", &request);
        let experiment = find(&self.registry, request.into_inner().experiment_id).await?;
        self.administer(act, ExperimentChange::Delete { experiment }).await?;
        Ok(Response::new(DeleteExperimentResponse {}))
    }

    async fn add_arm(
        &self,
        request: Request<AddArmRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = AuditedAction::new("arm added", &request);
        let request = request.into_inner();
        let experiment = find(&self.registry, request.experiment_id).await?;
        let arm = added_arm(&experiment, &request.label)?;
        let change = Revise::Add(arm);
        self.administer(act, ExperimentChange::Revise { experiment, change }).await
    }

    async fn retire_arm(
        &self,
        request: Request<RetireArmRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = AuditedAction::new("arm retired", &request);
        let request = request.into_inner();
        let experiment = find(&self.registry, request.experiment_id).await?;
        let arm = ArmIndex::new(request.arm as usize)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let change = Revise::Retire(arm);
        self.administer(act, ExperimentChange::Revise { experiment, change }).await
    }

    async fn set_enrolment(
        &self,
        request: Request<SetEnrolmentRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = AuditedAction::new("enrolment set", &request);
        let request = request.into_inner();
        let experiment = find(&self.registry, request.experiment_id).await?;
        let share = Millionths::new(request.enrolment_millionths)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let change = Revise::Enrol(share);
        self.administer(act, ExperimentChange::Revise { experiment, change }).await
    }

    async fn set_record(
        &self,
        request: Request<SetRecordRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = AuditedAction::new("record written", &request);
        let request = Box::new(request.into_inner());
        let experiment = find(&self.registry, request.experiment_id.clone()).await?;
        self.administer(act, ExperimentChange::Record { experiment, request }).await
    }

    async fn add_signature(
        &self,
        request: Request<AddSignatureRequest>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        let act = AuditedAction::new("signature added", &request);
        let request = request.into_inner();
        let experiment = find(&self.registry, request.experiment_id).await?;
        let digest = Digest::try_from(&request.digest[..])
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let known = self.registry.find_revision(digest).await;
        let known = known.map_err(|error| unanswered(&error))?;
        let revision = known.filter(|r| r.experiment.id() == experiment.id()).ok_or_else(|| {
            let id = experiment.id();
            Status::not_found(format!("the experiment {id} has no revision with digest {digest}"))
        })?;
        let now = UnixSeconds::new(self.clock.unix_seconds());
        let signature = signature_for(&revision.specification, request.signature.as_ref(), now)?;
        self.administer(act, ExperimentChange::AddSignature { revision, signature }).await
    }

    async fn get_estimates(
        &self,
        request: Request<EstimatesRequest>,
    ) -> Result<Response<Estimates>, Status> {
        let request = request.into_inner();
        let settings = settings(&request)?;
        let experiment = self.find_counted(request.experiment_id).await?;
        check_control(&experiment, settings.control_arm)?;
        Ok(Response::new(self.watch.estimates(&experiment, settings)))
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
        let experiment = self.find_counted(request.experiment_id).await?;
        check_control(&experiment, settings.control_arm)?;
        let end = Box::pin(self.ending.clone().wait());
        let versions = WatchStream::new(experiment.watch());
        let (watch, looker) = (self.watch.clone(), self.watch.clone());
        let looked_at = Arc::clone(&experiment);
        let news = news(versions, ticks(), move || looker.names(&looked_at)).take_until(end);
        let stream = news.map(move |()| Ok(watch.estimates(&experiment, settings)));
        Ok(Response::new(until_revoked(until_end(stream, self.ending.clone()), caller)))
    }

    async fn list_audit_entries(
        &self,
        request: Request<ListAuditEntriesRequest>,
    ) -> Result<Response<ListAuditEntriesResponse>, Status> {
        let query = audit_query(request.into_inner())?;
        let (wanted, before) = (query.limit, query.before);
        let reader = self.reader.clone();
        let read = move |before, limit| {
            let records = reader.audit(&AuditQuery { limit, before, ..query.clone() })?;
            Ok::<_, StoreError>(records.into_iter().map(audit_entry).collect())
        };
        let number = |entry: &v1::AuditEntry| entry.number;
        let newest = move || read_newest(wanted, before, number, read);
        let newest = tokio::task::spawn_blocking(newest).await.map_err(unreadable)?;
        let (entries, next_before) = newest.map_err(unreadable)?;
        Ok(Response::new(ListAuditEntriesResponse { entries, next_before }))
    }

    async fn refresh_policy(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<RefreshPolicyResponse>, Status> {
        let act = AuditedAction::new("policy refreshed", &request);
        let experiment = find(&self.registry, request.into_inner().experiment_id).await?;
        let refreshed = self.registry.refresh_policy(&experiment).await;
        let serving = refreshed.map_err(|error| match error {
            ReplicaUnavailable::Policy(_) => internal("the policy could not be computed", error),
            _ => unanswered(&error),
        })?;
        act.log(&experiment);
        Ok(Response::new(RefreshPolicyResponse {
            policy_version: serving.policy.version,
            reports: serving.policy_reports,
        }))
    }

    type ExportTalliesStream =
        Pin<Box<dyn Stream<Item = Result<v1::DailyTally, Status>> + Send + 'static>>;

    async fn export_tallies(
        &self,
        request: Request<ExportTalliesRequest>,
    ) -> Result<Response<Self::ExportTalliesStream>, Status> {
        let caller = Caller::of(request.extensions());
        let request = request.into_inner();
        let days = days(&request)?;
        let experiment = find(&self.registry, request.experiment_id).await?;
        let tallies = self.exports.tallies(&experiment, days, request.by_revision).await?;
        let tallies = tallies.take_until(Box::pin(self.ending.clone().wait()));
        Ok(Response::new(until_revoked(until_end(tallies, self.ending.clone()), caller)))
    }
}
