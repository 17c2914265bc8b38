//! Mapping of errors to ones that name the data directory and the remedy.

use std::path::Path;

use rusqlite::ErrorCode;

use super::sqlite::DATABASE_FILE;
use crate::{DamageError, DatabaseError, StoreError};

/// Free bytes below which a disk counts as full. SQLite needs 32 KiB at once, and reports only
/// "input/output error" when it does not get them.
const FREE_BYTES_MIN: u64 = 1 << 20;

impl StoreError {
    /// Wraps the error of a store in `directory` in one that names the directory and, when the disk
    /// is the cause, the remedy.
    #[must_use]
    pub fn located(self, directory: &Path) -> Self {
        self.of_file(&directory.join(DATABASE_FILE))
    }

    /// Wraps an error of this file if it is damage; leaves others as they are.
    #[must_use]
    pub(crate) fn of_damaged_file(self, file: &Path) -> Self {
        if self.is_damage() { self.of_file(file) } else { self }
    }

    /// As [`Self::located`], for a single database file.
    #[must_use]
    pub(super) fn of_file(self, file: &Path) -> Self {
        let file = file.to_owned();
        let directory = file.parent().unwrap_or(Path::new("."));
        let path = directory.to_owned();
        let code = match &self {
            Self::Damage(DamageError::Data { .. } | DamageError::Stored(_)) => {
                Some(ErrorCode::DatabaseCorrupt)
            }
            Self::Database(DatabaseError::Sqlite { source, .. }) => source.sqlite_error_code(),
            _ => None,
        };
        let source = Box::new(self);
        match code {
            Some(ErrorCode::DiskFull) => DatabaseError::DiskFull { path, source }.into(),
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) if is_full(directory) => {
                DatabaseError::DiskFull { path, source }.into()
            }
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied,
            ) => DatabaseError::Unusable { path, source }.into(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                DamageError::File { path: file, source }.into()
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                DatabaseError::Busy { path: file, source }.into()
            }
            _ => *source,
        }
    }
}

fn is_full(directory: &Path) -> bool {
    rustix::fs::statvfs(directory)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < FREE_BYTES_MIN)
}
