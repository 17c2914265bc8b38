//! The operator service: experiments, estimates, the audit log.

use std::pin::Pin;
use std::sync::Arc;

use bandana_learners::Learner;
use bandana_learners::LearnerConfig;
use bandana_learners::guardrails::Guardrails;
use bandana_learners::window::Memory;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::Estimand;
use bandana_shared::identity::{ArmIndex, Digest, ExperimentId, Revision, UnixSeconds};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::limits::SIGNATURE_DAYS_MAX;
use bandana_shared::participation::Millionths;
use bandana_shared::signing::Signature;
use bandana_shared::specification::{Arm, Specification, SpecificationParts, smallest_floor};
use bandana_shared::wire::v1::create_experiment_request::Memory as WireMemory;
use bandana_shared::wire::v1::operator_server::Operator;
use bandana_shared::wire::v1::{
    self, AddArmRequest, AddSignatureRequest, CreateExperimentRequest, DeleteExperimentResponse,
    Estimates, EstimatesRequest, ExperimentName, ExperimentStatus, ExportTalliesRequest,
    ListAuditEntriesRequest, ListAuditEntriesResponse, ListExperimentsRequest,
    ListExperimentsResponse, RefreshPolicyResponse, RetireArmRequest, SetEnrolmentRequest,
    SetRecordRequest, experiment_status,
};
use futures_util::{Stream, StreamExt as _};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use super::alarm_watch::{AlarmWatch, news, ticks};
use super::audited_action::{AuditedAction, until_revoked};
use super::exports::{Exports, days};
use super::pages::{Page, newest};
use super::{GOING_DOWN, find, internal, unanswered, unreadable, until_end};
use crate::auth::Caller;
use crate::clock::Clock;
use crate::estimates::EstimatesSettings;
use crate::explain::explain;
use crate::ingest::{ExperimentChange, ExperimentChangeError, ExperimentCommand, Ingest, Revise};
use crate::registry::ReplicaUnavailable;
use crate::registry::{Experiment, Registry};
use crate::shutdown::ShutdownSignal;
use crate::store::{
    AuditAction, AuditQuery, AuditRecord, ExperimentState, Outcome, StoreError, StoreReader,
    StoreRefusal, Transition,
};
use crate::views::draft::NONLINEAR;

/// The number of audit entries in an answer by default.
const AUDIT_ENTRIES: u32 = 100;

/// Most entries of the audit log in one answer.
const AUDIT_ENTRIES_MAX: u32 = 1000;

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
    async fn shelve(
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

/// Checks a request for a new experiment and computes the floor.
fn creation(request: CreateExperimentRequest) -> Result<(Specification, LearnerConfig), Status> {
    let unset = || Status::invalid_argument("the field `learner` must be set");
    let learner = Learner::from_wire(request.learner()).ok_or_else(unset)?;
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
    let mut parts = SpecificationParts::try_from(&message).map_err(|error| invalid(&error))?;
    parts.floor = smallest_floor(parts.mechanism, epsilon);
    let specification = Specification::new(parts).map_err(|error| invalid(&error))?;
    if message.attribution_window_seconds == 0 && !message.simulation {
        return Err(Status::invalid_argument(
            "real users take time to react: `attribution_window_seconds` must be at least 1 (3600 \
             would be an hour); only simulations may do without",
        ));
    }
    if specification.estimand() == Estimand::MeanCurvedReward && !request.accept_nonlinear_estimand
    {
        return Err(Status::invalid_argument(format!(
            "{NONLINEAR}. Use the linear mechanism, or set `accept_nonlinear_estimand`"
        )));
    }
    if specification.estimand() == Estimand::Frequencies && learner != Learner::Uniform {
        return Err(Status::invalid_argument(
            "categories have no order, so no arm is better than another: use the learner `uniform`",
        ));
    }
    if specification.private_context().is_some() && learner != Learner::Uniform {
        return Err(Status::invalid_argument(
            "with a private context, devices choose arms, and those that explore give all arms in \
             play the same: use the learner `uniform`",
        ));
    }
    let memory = match request.memory {
        None => Ok(Memory::Everything),
        Some(WireMemory::WindowDays(days)) => Memory::days(days),
        Some(WireMemory::DiscountPerDay(factor)) => Memory::discount(factor),
    };
    let memory = memory.map_err(|error| invalid(&error))?;
    let guardrails = Guardrails::new(request.burn_in_reports, request.holdout_share);
    let guardrails = guardrails.map_err(|error| invalid(&error))?;
    let floor_weight = request.floor_weight;
    Ok((specification, LearnerConfig { learner, floor_weight, memory, guardrails }))
}

/// The state in the wire's terms.
pub(super) fn state_of(state: ExperimentState) -> v1::ExperimentState {
    match state {
        ExperimentState::Draft => v1::ExperimentState::Draft,
        ExperimentState::Running => v1::ExperimentState::Running,
        ExperimentState::Paused => v1::ExperimentState::Paused,
        ExperimentState::Stopped => v1::ExperimentState::Stopped,
    }
}

/// The status, without alarms.
fn status_of(experiment: &Experiment) -> ExperimentStatus {
    let serving = experiment.serving();
    let arms = serving.specification.arms();
    let count = |arms: usize| u32::try_from(arms).unwrap_or(u32::MAX);
    let config = experiment.config();
    ExperimentStatus {
        specification: Some((&*serving.specification).into()),
        digest: serving.specification.digest().as_bytes().to_vec().into(),
        state: state_of(serving.state).into(),
        learner: config.learner.to_wire().into(),
        floor_weight: config.floor_weight,
        reports: experiment.tallies().iter().map(|tally| tally.reports()).sum(),
        policy_version: serving.policy.version,
        certified_epsilon: serving.specification.certified_epsilon(),
        signatures: serving.signatures.iter().map(Into::into).collect(),
        memory: match config.memory {
            Memory::Everything => None,
            Memory::Days(days) => Some(experiment_status::Memory::WindowDays(days)),
            Memory::Discount(factor) => Some(experiment_status::Memory::DiscountPerDay(factor)),
        },
        burn_in_reports: config.guardrails.burn_in_reports,
        holdout_share: config.guardrails.holdout_share,
        alarms: Vec::new(),
        arm_count: count(arms.len()),
        arms_in_play: count(arms.iter().filter(|arm| !arm.is_retired()).count()),
        archived: serving.is_archived,
        record: Some(serving.written.message().clone()),
    }
}

/// An experiment as an item of a list.
fn listed(status: ExperimentStatus, view: v1::ExperimentView) -> ExperimentStatus {
    if view == v1::ExperimentView::Full {
        return status;
    }
    let without_arms = |specification| v1::Specification { arms: Vec::new(), ..specification };
    let specification = status.specification.map(without_arms);
    let in_brief = |record: v1::ExperimentRecord| v1::ExperimentRecord {
        hypothesis: String::new(),
        links: Vec::new(),
        decision: record.decision.map(|d| v1::Decision { reason: String::new(), ..d }),
        ..record
    };
    let record = status.record.map(in_brief);
    ExperimentStatus { specification, record, ..status }
}

/// The status for a change that was not made.
pub(super) fn decline(error: &ExperimentChangeError) -> Status {
    let message = explain(error);
    match error {
        ExperimentChangeError::Store(StoreError::Refused(
            StoreRefusal::ExperimentExists(_) | StoreRefusal::ExperimentWasDeleted(_),
        )) => Status::already_exists(message),
        ExperimentChangeError::Specification(_)
        | ExperimentChangeError::Learner(_)
        | ExperimentChangeError::Record(_) => Status::invalid_argument(message),
        ExperimentChangeError::Gone(_) => Status::not_found(message),
        ExperimentChangeError::State { .. }
        | ExperimentChangeError::LayerOverlap { .. }
        | ExperimentChangeError::Store(StoreError::Refused(StoreRefusal::TooManySignatures)) => {
            Status::failed_precondition(message)
        }
        ExperimentChangeError::Store(error) => match error.outcome() {
            Outcome::Declined => Status::aborted(message),
            Outcome::Unknown => Status::unavailable(
                "the database can't be reached, and it is not known whether the change was made; \
                 look before you try again",
            ),
            Outcome::Unmade => Status::unavailable(
                "the database can't make the change now, and nothing was changed; try again",
            ),
            Outcome::Fatal => Status::unavailable(GOING_DOWN),
        },
        ExperimentChangeError::Ended => Status::unavailable(GOING_DOWN),
    }
}

/// Reads a signature and checks that it is valid for `revision` at `now`.
fn signature_for(
    revision: &Specification,
    message: Option<&v1::SpecificationSignature>,
    now: UnixSeconds,
) -> Result<Signature, Status> {
    let invalid = |error: &dyn std::error::Error| Status::invalid_argument(explain(error));
    let missing = || Status::invalid_argument("the field `signature` must be set");
    let signature = Signature::try_from(message.ok_or_else(missing)?).map_err(|e| invalid(&e))?;
    signature.verify(revision, now).map_err(|error| invalid(&error))?;
    // One day more, in case the signer's clock was ahead.
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

/// Checks that there is an arm to compare others with.
fn check_control(experiment: &Experiment, control: Option<u32>) -> Result<(), Status> {
    let arms = experiment.serving().specification.arms().len();
    match control.filter(|arm| *arm as usize >= arms) {
        None => Ok(()),
        Some(arm) => Err(Status::invalid_argument(format!(
            "control_arm is {arm}, and the experiment has the arms 0 to {}",
            arms.saturating_sub(1)
        ))),
    }
}

fn audit_query(request: ListAuditEntriesRequest) -> Result<AuditQuery, Status> {
    let ListAuditEntriesRequest { experiment_id, limit, before } = request;
    let experiment = match &experiment_id[..] {
        "" => None,
        _ => Some(
            ExperimentId::new(experiment_id)
                .map_err(|error| Status::invalid_argument(error.to_string()))?,
        ),
    };
    let limit = match limit {
        0 => AUDIT_ENTRIES,
        1..=AUDIT_ENTRIES_MAX => limit,
        _ => {
            let message = format!(
                "limit must be at most {AUDIT_ENTRIES_MAX}; ask for the rest with `before`"
            );
            return Err(Status::invalid_argument(message));
        }
    };
    Ok(AuditQuery { experiment, limit, before: (before > 0).then_some(before) })
}

fn audit_entry(record: AuditRecord) -> v1::AuditEntry {
    let AuditRecord { number, entry } = record;
    let action = match entry.action {
        AuditAction::Create => v1::AuditAction::Create,
        AuditAction::Start => v1::AuditAction::Start,
        AuditAction::Pause => v1::AuditAction::Pause,
        AuditAction::Resume => v1::AuditAction::Resume,
        AuditAction::Stop => v1::AuditAction::Stop,
        AuditAction::AddArm => v1::AuditAction::AddArm,
        AuditAction::RetireArm => v1::AuditAction::RetireArm,
        AuditAction::SetEnrolment => v1::AuditAction::SetEnrolment,
        AuditAction::SetRecord => v1::AuditAction::SetRecord,
        AuditAction::AddSignature => v1::AuditAction::AddSignature,
        AuditAction::RegisterDataSet => v1::AuditAction::RegisterDataSet,
        AuditAction::RefuseDataSet => v1::AuditAction::RefuseDataSet,
        AuditAction::Archive => v1::AuditAction::Archive,
        AuditAction::Delete => v1::AuditAction::Delete,
        AuditAction::Unarchive => v1::AuditAction::Unarchive,
    };
    v1::AuditEntry {
        number,
        unix_seconds: entry.at.get(),
        caller: entry.caller,
        action: action.into(),
        experiment_id: entry.experiment.to_string(),
        detail: entry.detail,
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
        let (specification, config) = creation(request)?;
        let specification = Box::new(specification);
        self.administer(act, ExperimentChange::Create { specification, config, is_draft }).await
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
        self.shelve(AuditedAction::new("experiment archived", &request), request, true).await
    }

    async fn unarchive_experiment(
        &self,
        request: Request<ExperimentName>,
    ) -> Result<Response<ExperimentStatus>, Status> {
        self.shelve(AuditedAction::new("experiment unarchived", &request), request, false).await
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
        let arm = Arm::new(request.label).map_err(|e| Status::invalid_argument(e.to_string()))?;
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
        let (settings, control) = (settings(&request)?, request.control_arm);
        let experiment = self.find_counted(request.experiment_id).await?;
        check_control(&experiment, control)?;
        Ok(Response::new(self.watch.estimates(&experiment, settings, control)))
    }

    type WatchEstimatesStream =
        Pin<Box<dyn Stream<Item = Result<Estimates, Status>> + Send + 'static>>;

    async fn watch_estimates(
        &self,
        request: Request<EstimatesRequest>,
    ) -> Result<Response<Self::WatchEstimatesStream>, Status> {
        let caller = Caller::of(request.extensions());
        let request = request.into_inner();
        let (settings, control) = (settings(&request)?, request.control_arm);
        let experiment = self.find_counted(request.experiment_id).await?;
        check_control(&experiment, control)?;
        let end = Box::pin(self.ending.clone().wait());
        let versions = WatchStream::new(experiment.watch());
        let (watch, looker) = (self.watch.clone(), self.watch.clone());
        let looked_at = Arc::clone(&experiment);
        let news = news(versions, ticks(), move || looker.names(&looked_at)).take_until(end);
        let stream = news.map(move |()| Ok(watch.estimates(&experiment, settings, control)));
        Ok(Response::new(until_revoked(until_end(stream, self.ending.clone()), caller)))
    }

    async fn list_audit_entries(
        &self,
        request: Request<ListAuditEntriesRequest>,
    ) -> Result<Response<ListAuditEntriesResponse>, Status> {
        let query = audit_query(request.into_inner())?;
        let wanted = query.limit;
        let reader = self.reader.clone();
        let records = tokio::task::spawn_blocking(move || reader.audit(&query))
            .await
            .map_err(unreadable)?
            .map_err(unreadable)?;
        let entries = records.into_iter().map(audit_entry).collect();
        let (entries, next_before) = newest(entries, wanted, |entry| entry.number);
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
        let tallies = self.exports.tallies(&experiment, days).await?;
        let tallies = tallies.take_until(Box::pin(self.ending.clone().wait()));
        Ok(Response::new(until_revoked(until_end(tallies, self.ending.clone()), caller)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{DamageError, DatabaseError, OpenError};

    #[test]
    fn callers_hear_nothing_of_the_store() {
        let path = "/srv/secret-place".into();
        let source = std::io::Error::other("disk of the secret");
        let sql = rusqlite::Error::InvalidColumnName("secret".to_owned());
        for error in [
            StoreError::Open(OpenError::Directory { path, source }),
            StoreError::Database(DatabaseError::Sqlite {
                doing: "committing the secret",
                source: sql,
            }),
            StoreError::Damage(DamageError::Data { what: "secret".to_owned() }),
        ] {
            let status = decline(&error.into());
            assert!(!format!("{:?}", status.message()).contains("secret"), "{status}");
        }
    }
}
