//! Messages of the aggregator, as a client takes them, whatever brought them.

use std::time::Duration;

use bandana_shared::identity::{Day, StoreId};
use bandana_shared::policy::Policy;
use bandana_shared::specification::Specification;
use bandana_shared::transparency::View;
use bandana_shared::wire::v1::{GetExperimentResponse, UploadResponse, UploadStatus};
use bandana_shared::wire::{WireError, signatures};

use crate::core::Fetched;
use crate::outbox::UploadOutcome;

/// Shortest wait before a report is sent again that the server does not take for now.
pub(crate) const LATER: Duration = Duration::from_mins(1);

pub(crate) fn fetched(response: &GetExperimentResponse) -> Result<Fetched, WireError> {
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
        view: response.view.as_ref().map(View::try_from).transpose()?,
    })
}

pub(crate) fn outcome_of_response(response: UploadResponse) -> UploadOutcome {
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
