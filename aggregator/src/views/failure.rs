//! Failures of operators' requests: incomplete input, or a server's refusal.

use thiserror::Error;
use tonic::{Code, Status};

use super::table::visible;

/// A failure with a specific exit code.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// Missing input on the command line or in the files that it names.
    #[error("{0}")]
    Incomplete(String),
    /// Input that the server would refuse, or that needs explicit consent.
    #[error("{0}")]
    Refused(String),
    /// A store is damaged.
    #[error("{0}")]
    Damaged(String),
    /// The server answered with an error.
    #[error("the server declined ({:?}): {}{}", _0.code(), visible(_0.message()), hint(_0.code()))]
    Declined(Box<Status>),
}

/// The hint on an error code.
fn hint(code: Code) -> &'static str {
    match code {
        Code::Unauthenticated => {
            "; show the token that `bandana token new` printed, with --token-file FILE or in \
             $BANDANA_OPERATOR_TOKEN"
        }
        _ => "",
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Declined(Box::new(status))
    }
}
