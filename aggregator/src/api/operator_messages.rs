//! The messages of the operator service, read and written as values.

use bandana_edge::explain::explain;
use bandana_edge::status::GOING_DOWN;
use bandana_learners::Learner;
use bandana_learners::LearnerConfig;
use bandana_learners::guardrails::Guardrails;
use bandana_learners::window::Memory;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::Estimand;
use bandana_shared::identity::{ExperimentId, Revision, UnixSeconds};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::limits::SIGNATURE_DAYS_MAX;
use bandana_shared::signing::Signature;
use bandana_shared::specification::{Arm, Specification, SpecificationParts, smallest_floor};
use bandana_shared::wire::v1::create_experiment_request::Memory as WireMemory;
use bandana_shared::wire::v1::{
    self, CreateExperimentRequest, EstimatesRequest, ExperimentStatus, ListAuditEntriesRequest,
    experiment_status,
};
use bandana_store::{
    AuditAction, AuditQuery, AuditRecord, ExperimentState, Outcome, StoreError, StoreRefusal,
    WrittenRecord,
};
use tonic::Status;

use crate::estimates::EstimatesSettings;
use crate::ingest::ExperimentChangeError;
use crate::labels;
use crate::registry::Experiment;

/// The number of audit entries in an answer by default.
const AUDIT_ENTRIES: u32 = 100;

/// Most entries of the audit log in one answer.
const AUDIT_ENTRIES_MAX: u32 = 1000;

/// What is wrong with nonlinear curves on bounded rewards, as measured with `study regret`: see
/// `docs/studies/regret-study.md`.
pub(crate) const NONLINEAR: &str = "\
with a nonlinear curve and rewards between the ends of their range, the server learns the mean of \
g(reward), and the best arm by that may have a lower mean reward. In simulations, convex curves \
preferred arms of mean 0.5 that vary more to a steady arm of mean 0.6, and a concave curve missed \
the best of the 20 arms of the papers: regret then grows with every user. Such curves help only \
where all arms vary alike and lie near the upper end of the range";

/// Checks the label of an arm that an experiment gets.
pub(super) fn added_arm(experiment: &Experiment, label: &str) -> Result<Arm, Status> {
    let invalid = |error: &dyn std::error::Error| Status::invalid_argument(explain(error));
    let label = labels::normalized(label).map_err(|error| invalid(&error))?;
    // Those of earlier versions may look like each other.
    for arm in experiment.serving().specification.arms() {
        let both = [arm.label(), label.as_ref()];
        labels::check_distinct(both).map_err(|error| invalid(&error))?;
    }
    Arm::new(label).map_err(|error| invalid(&error))
}

/// Checks a request for a new experiment and computes the floor.
pub(super) fn creation(
    mut request: CreateExperimentRequest,
) -> Result<(Specification, LearnerConfig, WrittenRecord), Status> {
    let unset = || Status::invalid_argument("the field `learner` must be set");
    let learner = Learner::from_wire(request.learner()).ok_or_else(unset)?;
    let invalid = |error: &dyn std::error::Error| Status::invalid_argument(explain(error));
    let missing = || Status::invalid_argument("the field `specification` must be set");
    let mut message = request.specification.take().ok_or_else(missing)?;
    if message.revision > Revision::FIRST.get() || message.floor != 0 {
        return Err(Status::invalid_argument(
            "a new experiment must have revision 0 or 1 and floor 0, since the server sets both; \
             leave them out",
        ));
    }
    let epsilon = Epsilon::new(message.epsilon).map_err(|error| invalid(&error))?;
    message.revision = Revision::FIRST.get();
    for arm in &mut message.arms {
        arm.label = labels::normalized(&arm.label).map_err(|error| invalid(&error))?.into_owned();
    }
    let labels = message.arms.iter().map(|arm| arm.label.as_str());
    labels::check_distinct(labels).map_err(|error| invalid(&error))?;
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
            "{NONLINEAR}. Use the linear mechanism, or set `accept_nonlinear_estimand` \
             (--accept-nonlinear-estimand) if that is what you want"
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
    let record = WrittenRecord::beginning(&request, &specification);
    let record = record.map_err(|error| invalid(&error))?;
    Ok((specification, LearnerConfig { learner, floor_weight, memory, guardrails }, record))
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
pub(super) fn status_of(experiment: &Experiment) -> ExperimentStatus {
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
pub(super) fn listed(status: ExperimentStatus, view: v1::ExperimentView) -> ExperimentStatus {
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
        | ExperimentChangeError::Store(StoreError::Refused(
            StoreRefusal::TooManySignatures | StoreRefusal::LayerOverlap { .. },
        )) => Status::failed_precondition(message),
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
pub(super) fn signature_for(
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
            "the signature is good until {}, and may be good for at most {SIGNATURE_DAYS_MAX} \
             days; sign for a shorter time",
            signature.expires()
        )));
    }
    Ok(signature)
}

/// What estimates are asked for with: the error level, the share of dishonest devices, the control arm.
pub(super) fn settings(request: &EstimatesRequest) -> Result<EstimatesSettings, Status> {
    let EstimatesRequest { alpha, dishonest_share, control_arm, .. } = *request;
    let alpha = if alpha == 0.0 {
        ErrorLevel::FIVE_PERCENT
    } else {
        ErrorLevel::new(alpha).map_err(|error| Status::invalid_argument(error.to_string()))?
    };
    if !(0.0..=1.0).contains(&dishonest_share) {
        return Err(Status::invalid_argument("dishonest_share must be a number from 0 to 1"));
    }
    Ok(EstimatesSettings { alpha, dishonest_share, control_arm })
}

/// Checks that there is an arm to compare others with.
pub(super) fn check_control(experiment: &Experiment, control: Option<u32>) -> Result<(), Status> {
    let arms = experiment.serving().specification.arms().len();
    match control.filter(|arm| *arm as usize >= arms) {
        None => Ok(()),
        Some(arm) => Err(Status::invalid_argument(format!(
            "control_arm is {arm}, and the experiment has the arms 0 to {}",
            arms.saturating_sub(1)
        ))),
    }
}

/// The entries of the audit log that are asked for.
pub(super) fn audit_query(request: ListAuditEntriesRequest) -> Result<AuditQuery, Status> {
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

/// An entry of the audit log, in the wire's terms.
pub(super) fn audit_entry(record: AuditRecord) -> v1::AuditEntry {
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
        AuditAction::WithdrawDataSet => v1::AuditAction::WithdrawDataSet,
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

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_store::{DamageError, SqliteError};

    #[test]
    fn callers_hear_nothing_of_the_store() {
        let path = "/srv/secret-place".into();
        let source = std::io::Error::other("disk of the secret");
        let sql = rusqlite::Error::InvalidColumnName("secret".to_owned());
        for error in [
            SqliteError::Directory { path, source }.into(),
            SqliteError::Failed { doing: "committing the secret", source: sql }.into(),
            StoreError::Damage(DamageError::Data { what: "secret".to_owned() }),
        ] {
            let status = decline(&error.into());
            assert!(!format!("{:?}", status.message()).contains("secret"), "{status}");
        }
    }
}
