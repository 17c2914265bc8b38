//! Errors of a store, and what each says about it.

use std::path::PathBuf;

use bandana_shared::identity::{ExperimentId, StoreId};
use bandana_shared::limits::SIGNATURES_MAX;
use bandana_shared::stored::StoredError;
use rusqlite::ErrorCode;
use thiserror::Error;

use super::{CuratorRefusal, ExperimentRecord, TrustedRefusal};
use crate::tls::TlsError;

/// A failure of a store, or a refusal by it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What is read from it is not what was written.
    #[error(transparent)]
    Damage(#[from] DamageError),
    /// Its database failed while it read or committed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// It refuses a change.
    #[error(transparent)]
    Refused(#[from] StoreRefusal),
}

/// A store that can't be opened, read-only or not.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory can't be used.
    #[error("the data directory {} can't be used", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A database can't be read at all.
    #[error("can't read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the directory.
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
    /// The file is some other program's database.
    #[error("the database file does not belong to Bandana")]
    ForeignFile,
    /// The database server lacks what is needed.
    #[error("the database server is PostgreSQL {found}; version 13 or a later one is needed")]
    OldServer {
        /// Its version.
        found: i32,
    },
    /// There can be no TLS to the database.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The database's password can't be read.
    #[error("can't read the database's password from {}", path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// What a connection needs of the operating system is not there.
    #[error("the operating system gives no connection to the database")]
    Thread {
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The database has none of our tables.
    #[error(
        "there is no store in the database: it has no tables of Bandana. Name the database of a \
         server, or make a new store with `bandana init`"
    )]
    Empty,
    /// There should be a store.
    #[error(
        "there is no store in {}. If there should be one, see whether its disk is mounted and \
         where bandana.sqlite3 is; make a new store with `bandana init`", path.display()
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// There should be a store in this file, and nothing is in it.
    #[error(
        "{} is empty, and no store ever is: it was cut off. Restore it from a backup; to begin \
         with a new store, move it away first", path.display()
    )]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// The log of a database that is not there.
    #[error(
        "{} is the log of a store whose bandana.sqlite3 is gone. Put that back, or restore a \
         backup in an empty directory; to begin with a new store, move the log away first",
        path.display()
    )]
    Leftover {
        /// The log.
        path: PathBuf,
    },
    /// There should be no store.
    #[error("there is a store in {place} already; it was left as it is")]
    Exists {
        /// Where it is.
        place: String,
    },
}

/// Something that is not as it was written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DamageError {
    /// Something that was stored can't be understood.
    #[error("the database holds damaged data: {what}")]
    Data {
        /// What is wrong.
        what: String,
    },
    /// Deltas that can't be written, or can't be read back.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// The database file is not as it was written.
    #[error(
        "the database file {} is damaged; restore it from a backup, or see what `sqlite3 FILE \
         .recover` can save", path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What was noticed.
        source: Box<StoreError>,
    },
    /// The database that replicas share is not as it was written.
    #[error(
        "the database is damaged; end all replicas, see what `bandana verify` names, and restore a \
         backup, or mend it by hand and have `bandana seal` take what is there"
    )]
    Database {
        /// What was noticed.
        source: Box<StoreError>,
    },
    /// Damage was noticed, and whoever runs the server has been told of it.
    #[error("the store is damaged, and the server ends; its log says what is wrong")]
    Ended,
}

/// A database, its disk or its network that failed in an open store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The database failed.
    #[error("the database failed while {doing}")]
    Sqlite {
        /// What was being done.
        doing: &'static str,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The database that replicas share failed, or can't be reached.
    #[error("the database failed while {doing}")]
    Postgres {
        /// What was being done.
        doing: &'static str,
        /// The cause.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The database that replicas share did not answer in time.
    #[error("the database did not answer in time while {doing}")]
    Slow {
        /// What was being done.
        doing: &'static str,
    },
    /// The database that replicas share does not answer, as the heartbeat knows; it was not asked.
    #[error("the database does not answer; try again later")]
    Silent,
    /// The operating system has no randomness.
    #[error("the operating system's random source failed")]
    Entropy {
        /// The cause.
        #[source]
        source: getrandom::Error,
    },
    /// There is no room on the disk.
    #[error(
        "the disk that holds {} is full; make room and start again: what was acknowledged is \
         there, and devices keep the rest", path.display()
    )]
    DiskFull {
        /// The data directory.
        path: PathBuf,
        /// What failed.
        source: Box<StoreError>,
    },
    /// The disk does not do what it should.
    #[error(
        "the data directory {} can't be read or written; see to the disk, its permissions, quotas \
         and limits of file size, and start again: what was acknowledged is there", path.display()
    )]
    Unusable {
        /// The data directory.
        path: PathBuf,
        /// What failed.
        source: Box<StoreError>,
    },
    /// Another program writes to the database, which only a server may.
    #[error(
        "another program has locked the database file {}; end it, or its transaction, and start \
         again: what was acknowledged is there, and devices keep the rest", path.display()
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: Box<StoreError>,
    },
    /// A file of the store was removed or replaced while it was open.
    #[error(
        "{} is not the file any more that this server has open: it was moved, removed or replaced, \
         or its disk was unmounted. Nothing was acknowledged since that was noticed; put the files \
         back as they were, or restore a backup, and start again", path.display()
    )]
    Replaced {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        #[source]
        source: std::io::Error,
    },
    /// The database is another store than the one that this replica serves.
    #[error(
        "the database is another store than the one that this replica has opened: {found} instead \
         of {expected}. Put the right one back, or start the replica anew"
    )]
    OtherStore {
        /// The id that it has.
        found: StoreId,
        /// The id that it had.
        expected: StoreId,
    },
    /// The database can't be asked, or has refused before anything was to be committed.
    #[error("nothing was changed")]
    Unmade {
        /// The cause.
        #[source]
        source: Box<StoreError>,
    },
}

/// A change that can't be made as things are; nothing was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreRefusal {
    /// The id of a new experiment is taken.
    #[error("an experiment named {0} exists already; choose another id")]
    ExperimentExists(ExperimentId),
    /// The id of a new experiment was that of one that is gone.
    #[error(
        "{0} was the id of an experiment that was deleted, and devices may still hold reports for \
         it; choose another id"
    )]
    ExperimentWasDeleted(ExperimentId),
    /// The experiment is gone.
    #[error("the experiment {0} was deleted")]
    ExperimentGone(ExperimentId),
    /// The experiment does not stand as the caller thinks, but so.
    #[error("the experiment was changed by somebody else at the same time; try again")]
    Outdated(Box<ExperimentRecord>),
    /// What the curator may not do.
    #[error(transparent)]
    Curator(Box<CuratorRefusal>),
    /// A change of a trusted experiment that can't be made as things are.
    #[error(transparent)]
    Trusted(Box<TrustedRefusal>),
    /// As many signatures as a revision can have.
    #[error(
        "this revision has {max} signatures by other keys that have not expired, and can't have \
         more; sign with one of those keys, or make a new revision", max = SIGNATURES_MAX
    )]
    TooManySignatures,
}

/// What an error of a store says about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was changed, and nothing is wrong.
    Declined,
    /// Nothing was changed, since the store can't do it just now. It can go on.
    Unmade,
    /// It is not known what was changed. The store can go on.
    Unknown,
    /// It is not known what was changed, and the store must not be used any further.
    Fatal,
}

impl StoreError {
    /// As the reason why a change was not even tried.
    pub(crate) fn unmade(self) -> Self {
        DatabaseError::Unmade { source: Box::new(self) }.into()
    }

    /// Whether something is not as it was written.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damage(_) => true,
            Self::Database(DatabaseError::Sqlite { source, .. }) => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            ),
            Self::Database(_) | Self::Open(_) | Self::Refused(_) => false,
        }
    }

    /// What it says about the store.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Open(_) | Self::Damage(_) => Outcome::Fatal,
            Self::Database(error) => error.outcome(),
            Self::Refused(_) => Outcome::Declined,
        }
    }
}

impl DatabaseError {
    /// What it says about the store. A new error states its own: none is taken for another one.
    fn outcome(&self) -> Outcome {
        match self {
            // It may be the right one again, or answer again.
            Self::Unmade { .. } | Self::OtherStore { .. } | Self::Silent => Outcome::Unmade,
            // The connection is replaced; the next commit finds out.
            Self::Postgres { .. } | Self::Slow { .. } | Self::Entropy { .. } => Outcome::Unknown,
            Self::Sqlite { .. }
            | Self::DiskFull { .. }
            | Self::Unusable { .. }
            | Self::Busy { .. }
            | Self::Replaced { .. } => Outcome::Fatal,
        }
    }
}

impl From<StoredError> for StoreError {
    fn from(error: StoredError) -> Self {
        DamageError::from(error).into()
    }
}

impl From<TlsError> for StoreError {
    fn from(error: TlsError) -> Self {
        OpenError::from(error).into()
    }
}

pub(super) fn damaged(what: String) -> StoreError {
    DamageError::Data { what }.into()
}

pub(super) fn postgres(doing: &'static str) -> impl Fn(tokio_postgres::Error) -> StoreError + Copy {
    move |source| DatabaseError::Postgres { doing, source }.into()
}
