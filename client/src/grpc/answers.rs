//! Errors of gRPC calls, as a client takes them.

use std::time::Duration;

use tonic::{Code, Status};

#[cfg(feature = "relay")]
use crate::outbox::PUSHBACK_MAX;
use crate::outbox::UploadOutcome;

/// Metadata in which a server asks the client to wait, in milliseconds.
pub(super) const PUSHBACK: &str = "grpc-retry-pushback-ms";

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
