//! Statuses of calls that a server can't serve.

use std::error::Error;
use std::sync::Arc;

use tokio::task::JoinError;
use tonic::Status;

/// The message to callers when the server shuts down.
pub const GOING_DOWN: &str = "the aggregator is going down; call again";

/// The message to callers when the store can't be read.
pub const UNREADABLE: &str = "the store can't be read now; try again";

/// An error inside the server. The caller gets the message; the cause is logged.
pub fn internal(message: &'static str, cause: impl Error + Send + Sync + 'static) -> Status {
    with_cause(Status::internal(message), cause)
}

/// Work that came to no end: it panicked, or the server ends.
pub fn unfinished(message: &'static str, cause: JoinError) -> Status {
    if cause.is_cancelled() { Status::unavailable(GOING_DOWN) } else { internal(message, cause) }
}

/// A status whose cause is logged, and not told to the caller.
pub fn with_cause(mut status: Status, cause: impl Error + Send + Sync + 'static) -> Status {
    status.set_source(Arc::new(cause));
    status
}
