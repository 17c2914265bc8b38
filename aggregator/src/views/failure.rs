//! Failures of what operators ask for: what they lack, and what a server says.

use thiserror::Error;
use tonic::{Code, Status};

/// A failure with an exit code of its own.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// What the command line and the files that it names lack.
    #[error("{0}")]
    Incomplete(String),
    /// What the server would not take, or what it must be told first.
    #[error("{0}")]
    Refused(String),
    /// A store is not as its server left it.
    #[error("{0}")]
    Damaged(String),
    /// The server answered, and not with a success.
    #[error("the server declined ({:?}): {}{}", _0.code(), _0.message(), hint(_0.code()))]
    Declined(Box<Status>),
}

/// What to do about it here.
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
