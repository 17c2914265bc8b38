//! Refusals and failures of the service, in the words that callers hear.

use bandana_edge::explain::explain;
use bandana_edge::status::{GOING_DOWN, UNREADABLE, with_cause};
use bandana_mechanisms::queries::QueryError;
use bandana_store::{CuratorRefusal, DamageError, Outcome, StoreError, StoreRefusal};
use tonic::Status;

use super::dataset_cache::DatasetCacheError;
use crate::changes::ChangeError;

/// The status for a caller when the store can't be read; the cause is logged.
pub(super) fn unreadable(cause: StoreError) -> Status {
    let status = match cause {
        StoreError::Damage(DamageError::Ended) => Status::unavailable(cause.to_string()),
        _ => Status::unavailable(UNREADABLE),
    };
    with_cause(status, cause)
}

/// Whether another caller's change was stored first, so that there is new state to read.
pub(super) fn is_overtaken(error: &ChangeError) -> bool {
    let ChangeError::Store(StoreError::Refused(StoreRefusal::Curator(refusal))) = error else {
        return false;
    };
    matches!(**refusal, CuratorRefusal::SessionMoved | CuratorRefusal::Answered)
}

/// The status for a question without an answer.
#[expect(clippy::needless_pass_by_value, reason = "for errors that are mapped")]
pub(super) fn refuse(error: QueryError) -> Status {
    match error {
        QueryError::SessionExhausted { .. } => Status::failed_precondition(error.to_string()),
        _ => Status::invalid_argument(error.to_string()),
    }
}

/// The status for unavailable rows. Positions in the file are for the log alone.
pub(super) fn uncached(error: &DatasetCacheError) -> Status {
    match error {
        DatasetCacheError::NoDirectory | DatasetCacheError::Changed { .. } => {
            Status::failed_precondition(error.to_string())
        }
        DatasetCacheError::NotAName { .. } | DatasetCacheError::NotRegular { .. } => {
            Status::invalid_argument(error.to_string())
        }
        DatasetCacheError::Missing { .. } => Status::not_found(error.to_string()),
        DatasetCacheError::Read(cause) => {
            tracing::info!(error = explain(cause), "a file can't be read as a data set");
            Status::invalid_argument(cause.for_callers())
        }
    }
}

/// The status for a change that was not made.
pub(super) fn decline(error: &ChangeError) -> Status {
    match error {
        ChangeError::Store(StoreError::Refused(StoreRefusal::Curator(refusal))) => {
            let message = refusal.to_string();
            match **refusal {
                CuratorRefusal::DataSetExists(_)
                | CuratorRefusal::ContentRegistered(_)
                | CuratorRefusal::SessionExists(_) => Status::already_exists(message),
                CuratorRefusal::NoDataSet(_) | CuratorRefusal::NoSession(_) => {
                    Status::not_found(message)
                }
                CuratorRefusal::Exhausted { .. } | CuratorRefusal::PartExhausted { .. } => {
                    Status::failed_precondition(message)
                }
                CuratorRefusal::SessionMoved | CuratorRefusal::Answered => Status::aborted(message),
            }
        }
        ChangeError::Store(error) if error.outcome() == Outcome::Unmade => Status::unavailable(
            "the database can't make the change now: nothing was taken, and nothing is \
                 answered; try again",
        ),
        ChangeError::Store(error) if error.outcome() == Outcome::Unknown => Status::unavailable(
            "the database can't be reached; the price may have been taken, and nothing is \
                 answered. A question that has an id may be asked again: it is paid for once",
        ),
        ChangeError::Store(_) | ChangeError::Ended => Status::unavailable(GOING_DOWN),
    }
}
