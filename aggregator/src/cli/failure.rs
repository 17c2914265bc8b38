//! Failures of commands, each with an exit code that scripts can act on.

use std::error::Error as _;

use bandana_edge::operator_client::ConnectError;
use bandana_store::{BackupError, DatabaseError, OpenError, StoreError, WatermarkError};
use tonic::Code;

use crate::ingest::WriterError;
use crate::server::ServerError;
use crate::views::failure::Failure;

/// Help text on exit codes.
pub(super) const EXIT_CODES: &str = "Exit codes: 0 success, 1 failure, 2 wrong command line, 3 no \
                                     such experiment (or revision), 4 refused by the server's \
                                     rules, 5 the server (or its database) can't be reached, 6 the \
                                     store is damaged, 7 there is no store where one must be, or \
                                     there is one already.";

/// The exit code when what was asked can't be reached.
pub(super) const UNREACHABLE: u8 = 5;

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Incomplete(_) => 2,
            Self::Refused(_) => 4,
            Self::Damaged(_) => 6,
            Self::Declined(status) => match status.code() {
                Code::NotFound => 3,
                Code::InvalidArgument
                | Code::FailedPrecondition
                | Code::AlreadyExists
                | Code::OutOfRange
                | Code::PermissionDenied
                | Code::Unauthenticated => 4,
                Code::Unavailable | Code::DeadlineExceeded => UNREACHABLE,
                // A status from the server has no source; one from a broken connection has.
                _ if status.source().is_some() => UNREACHABLE,
                _ => 1,
            },
        }
    }
}

/// The exit code for an error.
pub(super) fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(error) => ConnectError::exit_code(error),
        None => match of_store(error) {
            Some(store) => code_of_store(store),
            None => error.downcast_ref::<Failure>().map_or(1, Failure::exit_code),
        },
    }
}

/// The store's error in this chain, if any.
fn of_store(error: &anyhow::Error) -> Option<&StoreError> {
    let of_server = match error.downcast_ref() {
        Some(ServerError::Store(store) | ServerError::Writer(WriterError::Store(store))) => {
            Some(store)
        }
        _ => None,
    };
    let of_backup = match error.downcast_ref() {
        Some(BackupError::Store(store)) => Some(store),
        _ => None,
    };
    let of_watermark = match error.downcast_ref() {
        Some(WatermarkError::Store(store)) => Some(store),
        _ => None,
    };
    error.downcast_ref().or(of_server).or(of_backup).or(of_watermark)
}

/// The exit code for an error of the store.
pub(super) fn code_of_store(error: &StoreError) -> u8 {
    match error {
        StoreError::Database(DatabaseError::Postgres { .. } | DatabaseError::Slow { .. }) => {
            UNREACHABLE
        }
        StoreError::Database(DatabaseError::Cell { source, .. }) => code_of_store(source),
        StoreError::Open(OpenError::Empty | OpenError::Exists { .. }) => 7,
        StoreError::Sqlite(error) if error.is_of_presence() => 7,
        _ if error.is_damage() => 6,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn codes_follow_from_what_the_server_says() {
        for (code, expected) in [
            (Code::NotFound, 3),
            (Code::InvalidArgument, 4),
            (Code::FailedPrecondition, 4),
            (Code::AlreadyExists, 4),
            (Code::Unavailable, 5),
            (Code::Internal, 1),
        ] {
            let error = anyhow::Error::new(Failure::from(Status::new(code, "because")));
            assert_eq!(exit_code(&error.context("more")), expected, "{code:?}");
        }
        assert_eq!(exit_code(&anyhow::anyhow!("anything else")), 1);
    }
}
