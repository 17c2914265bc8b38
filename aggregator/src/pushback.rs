//! Pushback: errors that tell a client when to come back.

use std::time::Duration;

use tonic::Status;

/// Metadata that tells a client how long to wait, in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// What a call hears that can't be served now, and when to come back.
pub(crate) fn exhausted(message: impl Into<String>, wait: Duration) -> Status {
    come_again(Status::resource_exhausted(message), wait)
}

/// Adds to an error when the same call may succeed.
pub(crate) fn come_again(mut status: Status, wait: Duration) -> Status {
    let milliseconds = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    status.metadata_mut().insert(PUSHBACK, milliseconds.into());
    status
}
