//! Pushback: errors that tell a client when to come back.

use std::time::Duration;

use tonic::Status;

/// The metadata with the time that a client should wait, in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The message of a call that was refused since the server is starting. No service has seen the call.
pub const STARTING: &str = "the aggregator is starting; call again";

/// The status of a call that can't be served now, with the time to wait.
pub fn exhausted(message: impl Into<String>, wait: Duration) -> Status {
    come_again(Status::resource_exhausted(message), wait)
}

/// The time that the caller of a call with this status should wait, if it is given one.
pub fn pushback(status: &Status) -> Option<Duration> {
    let milliseconds = status.metadata().get(PUSHBACK)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_millis(milliseconds))
}

/// Adds the time to wait to an error of a call that may succeed later.
pub fn come_again(mut status: Status, wait: Duration) -> Status {
    let milliseconds = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    status.metadata_mut().insert(PUSHBACK, milliseconds.into());
    status
}
