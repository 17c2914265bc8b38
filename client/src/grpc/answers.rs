//! Answers of a server, as a client takes them.

use std::time::Duration;

use bandana_shared::identity::{Day, StoreId};
use bandana_shared::policy::Policy;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{GetExperimentResponse, UploadResponse, UploadStatus};
use bandana_shared::wire::{WireError, signatures};
use tonic::{Code, Status};

use crate::core::Fetched;
#[cfg(feature = "relay")]
use crate::outbox::PUSHBACK_MAX;
use crate::outbox::UploadOutcome;

/// Metadata in which a server asks the client to wait, in milliseconds.
pub(super) const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Shortest wait before a report is sent again that the server does not take for now.
pub(crate) const LATER: Duration = Duration::from_mins(1);

pub(super) fn fetched(response: &GetExperimentResponse) -> Result<Fetched, WireError> {
    let (Some(experiment), Some(policy)) = (&response.experiment, &response.policy) else {
        let is_missing = if response.experiment.is_none() { "experiment" } else { "policy" };
        return Err(WireError::Missing(is_missing));
    };
    Ok(Fetched {
        specification: Specification::try_from(experiment)?,
        signatures: signatures(&experiment.signatures),
        policy: Policy::try_from(policy)?,
        day: Day::new(response.server_day),
        store: match &response.store_id[..] {
            // Old servers send no store.
            [] => None,
            id => Some(StoreId::try_from(id)?),
        },
    })
}

pub(super) fn outcome_of_response(response: UploadResponse) -> UploadOutcome {
    let store = StoreId::try_from(&response.store_id[..]).ok();
    outcome(response.status(), store, response.message)
}

fn outcome(status: UploadStatus, store: Option<StoreId>, message: String) -> UploadOutcome {
    match status {
        UploadStatus::Accepted => UploadOutcome::Accepted,
        UploadStatus::Duplicate => UploadOutcome::Duplicate,
        // A future day: the server's clock has been set back since the client received the day.
        UploadStatus::Paused | UploadStatus::FutureDay => {
            UploadOutcome::Retry { retry_after: Some(LATER) }
        }
        // Newer servers may send a status that this client does not know.
        UploadStatus::Unspecified => UploadOutcome::Retry { retry_after: None },
        UploadStatus::UnknownSpecification => {
            UploadOutcome::UnknownSpecification { store, message }
        }
        UploadStatus::Malformed
        | UploadStatus::UnknownArm
        | UploadStatus::TooManyReports
        | UploadStatus::Expired
        | UploadStatus::Stopped => UploadOutcome::Refused { message },
    }
}

/// The outcome of a call that failed. Only an answer about the upload itself is final. An error may
/// come from anything between here and the store, so the upload is kept. This includes a refused
/// app key, which may be a mistake of the server's operator.
pub(super) fn outcome_of_error(status: &Status) -> UploadOutcome {
    UploadOutcome::Unanswered { retry_after: pushback(status) }
}

/// The outcome of a call to a relay that shuffles. That it holds another key than the app believes,
/// or that it does not shuffle, is about these reports only, and may be a slip of its operator's: they
/// wait, and nothing else does.
#[cfg(feature = "relay")]
pub(super) fn outcome_of_relay_error(status: &Status) -> UploadOutcome {
    match status.code() {
        Code::InvalidArgument | Code::Unimplemented => {
            UploadOutcome::Retry { retry_after: Some(PUSHBACK_MAX) }
        }
        // It is full: other calls are not for its store.
        Code::ResourceExhausted => UploadOutcome::Retry { retry_after: pushback(status) },
        _ => outcome_of_error(status),
    }
}

/// The wait that the server asks for.
pub(crate) fn pushback(status: &Status) -> Option<Duration> {
    let pushback = status.metadata().get(PUSHBACK).and_then(|value| value.to_str().ok());
    pushback.and_then(|value| value.parse().ok()).map(Duration::from_millis)
}

/// Codes that a server returns for a fetch that it received and refuses.
pub(crate) fn is_about_the_question(code: Code) -> bool {
    matches!(
        code,
        Code::NotFound | Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated
    )
}
