//! Failures of operators' requests: incomplete input, or a server's refusal.

use std::error::Error as _;

use anyhow::Chain;
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
    /// The server answered with an error, or the connection broke before it did.
    #[error("{}", declined(_0))]
    Declined(Box<Status>),
}

fn declined(status: &Status) -> String {
    // A status from the server has no source; one from a broken connection has.
    let Some(cause) = status.source().and_then(|source| Chain::new(source).last()) else {
        let (code, says) = (status.code(), visible(status.message()));
        return format!("the server declined ({code:?}): {says}{}", hint(code));
    };
    format!(
        "there was no answer: {}; what was asked may have been done all the same. See whether the server is up \
         and its address right, which begins with https:// if the port has TLS",
        visible(&cause.to_string())
    )
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

#[cfg(test)]
mod tests {
    use std::io::Error;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_connection_that_breaks_is_no_word_of_the_server() {
        let mut status = Status::unknown("transport error");
        let said = Failure::from(status.clone()).to_string();
        assert_eq!(said, "the server declined (Unknown): transport error");
        status.set_source(Arc::new(Error::other(Error::other("broken\u{1b} pipe"))));
        let said = Failure::from(status).to_string();
        assert!(said.starts_with("there was no answer: broken"), "{said}");
        assert!(said.contains("https://") && !said.contains('\u{1b}'), "{said}");
    }
}
