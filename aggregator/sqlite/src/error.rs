//! Errors of a database in a directory, which name the file and the remedy.

use std::error::Error;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::DATABASE_FILE;

/// Free bytes below which a disk counts as full. SQLite needs 32 KiB at once, and reports only
/// "input/output error" when it does not get them.
const FREE_BYTES_MIN: u64 = 1 << 20;

/// A failure of a database in a directory. The database must not be used any further.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// The data directory can't be used.
    #[error("the data directory {} can't be used", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A database file can't be read at all.
    #[error("can't read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another process holds the lock on the data directory.
    #[error(
        "the data directory {} is in use by another process; stop that one or use another directory",
        path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The database was written by a newer program.
    #[error(
        "the database has schema version {found}, this program knows up to {known}; use a newer \
         program"
    )]
    NewerSchema {
        /// Version found.
        found: i64,
        /// Newest version known.
        known: i64,
    },
    /// The file is a database of some other program.
    #[error("the database file does not belong to Bandana")]
    ForeignFile,
    /// The directory holds no store, and one is required.
    #[error(
        "there is no store in {}. If there should be one, see whether its disk is mounted and \
         where bandana.sqlite3 is; make a new store with `bandana init`", path.display()
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// The database file is empty: it was cut off.
    #[error(
        "{} is empty, and no store ever is: it was cut off. Restore it from a backup; to begin \
         with a new store, move it away first", path.display()
    )]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// A file of a store without its database.
    #[error(
        "{} is of a store whose bandana.sqlite3 is gone. Put that back, or restore a backup in an \
         empty directory; to begin with a new store, move what is left of the old one away first",
        path.display()
    )]
    Leftover {
        /// The file.
        path: PathBuf,
    },
    /// A store exists where none may be.
    #[error("there is a store in {} already; it was left as it is", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A stored value can't be understood.
    #[error("the database holds damaged data: {what}")]
    Data {
        /// The damage, in words.
        what: String,
    },
    /// The database file is damaged.
    #[error(
        "the database file {} is damaged; restore it from a backup. Without one, docs/failures.md \
         says what may be saved", path.display()
    )]
    DamagedFile {
        /// The file.
        path: PathBuf,
        /// The error that revealed the damage.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The database failed.
    #[error("the database failed while {doing}")]
    Failed {
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The disk is full.
    #[error(
        "the disk that holds {} is full; make room and start again: what was acknowledged is \
         there, and devices keep the rest", path.display()
    )]
    DiskFull {
        /// The data directory.
        path: PathBuf,
        /// The error that revealed it.
        source: Box<SqliteError>,
    },
    /// The data directory can't be read or written.
    #[error(
        "the data directory {} can't be read or written; see to the disk, its permissions, quotas \
         and limits of file size, and start again: what was acknowledged is there", path.display()
    )]
    Unusable {
        /// The data directory.
        path: PathBuf,
        /// The error that revealed it.
        source: Box<SqliteError>,
    },
    /// Another program has locked the database file, which only a server may write.
    #[error(
        "another program has locked the database file {}; end it, or its transaction, and start \
         again: what was acknowledged is there, and devices keep the rest", path.display()
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// The error that revealed it.
        source: Box<SqliteError>,
    },
    /// A file of the store was moved, removed or replaced while it was open.
    #[error(
        "{} is not the file any more that this server has open: it was moved, removed or replaced, \
         or its disk was unmounted. Nothing was acknowledged since that was noticed; put the files \
         back as they were, or restore a backup, and start again", path.display()
    )]
    Replaced {
        /// The file.
        path: PathBuf,
        /// The error when the file at this path is compared with the open one.
        #[source]
        source: std::io::Error,
    },
}

impl SqliteError {
    /// A data directory that can't be used.
    pub fn directory(path: &Path, source: std::io::Error) -> Self {
        Self::Directory { path: path.to_owned(), source }
    }

    /// Whether stored data differs from what was written.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Data { .. } | Self::DamagedFile { .. } => true,
            Self::Failed { source, .. } => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            ),
            _ => false,
        }
    }

    /// Whether there is no store where one must be, or one where none may be.
    pub fn is_of_presence(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. }
                | Self::EmptyFile { .. }
                | Self::Leftover { .. }
                | Self::Exists { .. }
        )
    }

    /// Wraps the error of a database in `directory` in one that names the directory and, when the disk
    /// is the cause, the remedy.
    #[must_use]
    pub fn located(self, directory: &Path) -> Self {
        self.of_file(&directory.join(DATABASE_FILE))
    }

    /// As [`Self::located`], for a single database file.
    #[must_use]
    pub fn of_file(self, file: &Path) -> Self {
        let code = match &self {
            Self::Data { .. } => return Self::of_damaged_file(self, file),
            Self::Failed { source, .. } => source.sqlite_error_code(),
            _ => None,
        };
        let file = file.to_owned();
        let directory = file.parent().unwrap_or(Path::new("."));
        let path = directory.to_owned();
        match code {
            Some(ErrorCode::DiskFull) => Self::DiskFull { path, source: Box::new(self) },
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) if is_full(directory) => {
                Self::DiskFull { path, source: Box::new(self) }
            }
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied,
            ) => Self::Unusable { path, source: Box::new(self) },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::of_damaged_file(self, &file)
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Busy { path: file, source: Box::new(self) }
            }
            _ => self,
        }
    }

    /// The damage of this file, which an error has revealed.
    pub fn of_damaged_file(revealed: impl Error + Send + Sync + 'static, file: &Path) -> Self {
        Self::DamagedFile { path: file.to_owned(), source: Box::new(revealed) }
    }
}

fn is_full(directory: &Path) -> bool {
    rustix::fs::statvfs(directory)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < FREE_BYTES_MIN)
}

/// The error of stored data that is not as it was written.
pub fn damaged(what: String) -> SqliteError {
    SqliteError::Data { what }
}

/// The error of a database that could not be opened.
pub fn opening(source: rusqlite::Error) -> SqliteError {
    SqliteError::Failed { doing: "opening", source }
}

/// The error of a read.
pub fn reading(source: rusqlite::Error) -> SqliteError {
    SqliteError::Failed { doing: "reading", source }
}

/// The error of a commit.
pub fn committing(source: rusqlite::Error) -> SqliteError {
    SqliteError::Failed { doing: "committing", source }
}
