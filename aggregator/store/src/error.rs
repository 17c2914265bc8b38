//! Errors of a store, and the outcome that each implies.

use std::path::PathBuf;

use bandana_edge::tls::TlsError;
use bandana_shared::identity::{ExperimentId, StoreId};
use bandana_shared::limits::SIGNATURES_MAX;
use bandana_shared::participation::Layer;
use bandana_shared::stored::StoredError;
use bandana_sqlite::SqliteError;
use thiserror::Error;

use super::ExperimentRecord;
use super::cells::{CellsError, StoreCell};
use super::refusal::{CuratorRefusal, TrustedRefusal};

/// A failure of a store, or a change that it refuses.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Stored data differs from what was written.
    #[error(transparent)]
    Damage(#[from] DamageError),
    /// The database failed during a read or a commit.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The database in the data directory can't be opened, is damaged, or failed.
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
    /// The store refuses a change.
    #[error(transparent)]
    Refused(#[from] StoreRefusal),
}

/// The reason why a store can't be opened, other than its data directory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
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
    /// The database server is too old.
    #[error("the database server is PostgreSQL {found}; version 13 or a later one is needed")]
    OldServer {
        /// The server's version.
        found: i32,
    },
    /// TLS to the database can't be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file with the database's password can't be read.
    #[error("can't read the database's password from {}", path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The operating system refuses a thread that a connection needs.
    #[error("the operating system gives no connection to the database")]
    Thread {
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The database has none of Bandana's tables.
    #[error(
        "there is no store in the database: it has no tables of Bandana. Name the database of a \
         server, or make a new store with `bandana init`"
    )]
    Empty,
    /// The databases are not the store cells that the store expects.
    #[error(transparent)]
    Cells(#[from] CellsError),
    /// A store exists where none may be.
    #[error("there is a store in {place} already; it was left as it is")]
    Exists {
        /// The place of the store.
        place: String,
    },
}

/// Stored data that differs from what was written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DamageError {
    /// A stored value can't be understood.
    #[error("the database holds damaged data: {what}")]
    Data {
        /// The damage, in words.
        what: String,
    },
    /// Stored deltas can't be encoded or decoded.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// The database that replicas share is damaged.
    #[error(
        "the database is damaged; end all replicas, and see what `bandana verify` names. Then \
         restore a backup, or mend the database by hand and let `bandana seal` take what is there"
    )]
    Database {
        /// The error that revealed the damage.
        source: Box<StoreError>,
    },
    /// Damage was noticed, and the operator has been told of it.
    #[error("the store is damaged, and the server ends; its log says what is wrong")]
    Ended,
}

/// A failure of an open store's database or network.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The database that replicas share failed, or can't be reached.
    #[error("the database failed while {doing}")]
    Postgres {
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The database that replicas share did not answer in time.
    #[error("the database did not answer in time while {doing}")]
    Slow {
        /// The operation that timed out.
        doing: &'static str,
    },
    /// The heartbeat knows that the database that replicas share does not answer; no query was
    /// sent.
    #[error("the database does not answer; try again later")]
    Silent,
    /// The operating system has no randomness.
    #[error("the operating system's random source failed")]
    Entropy {
        /// The cause.
        #[source]
        source: getrandom::Error,
    },
    /// The database holds another store than the one that this replica opened.
    #[error(
        "the database is another store than the one that this replica has opened: {found} instead \
         of {expected}. Put the right one back, or start the replica anew"
    )]
    OtherStore {
        /// The id of the store that is there now.
        found: StoreId,
        /// The id of the store that was opened.
        expected: StoreId,
    },
    /// A store cell failed.
    #[error("store cell {number}, {url}, can't be used")]
    Cell {
        /// The store cell.
        number: StoreCell,
        /// Its database.
        url: String,
        /// The cause.
        #[source]
        source: Box<StoreError>,
    },
    /// The database failed or refused before a commit was tried.
    #[error("nothing was changed")]
    Unmade {
        /// The cause.
        #[source]
        source: Box<StoreError>,
    },
}

/// A change that is not possible in the present state; nothing was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreRefusal {
    /// The id of a new experiment is taken.
    #[error("an experiment named {0} exists already; choose another id")]
    ExperimentExists(ExperimentId),
    /// The id of a new experiment is that of a deleted one.
    #[error(
        "{0} was the id of an experiment that was deleted, and devices may still hold reports for \
         it; choose another id"
    )]
    ExperimentWasDeleted(ExperimentId),
    /// The experiment was deleted.
    #[error("the experiment {0} was deleted")]
    ExperimentGone(ExperimentId),
    /// The experiment's state differs from the one that the caller expects. Its present record.
    #[error("the experiment was changed by somebody else at the same time; try again")]
    Outdated(Box<ExperimentRecord>),
    /// Both experiments could be given to the same installation, and their layer is to keep them
    /// apart.
    #[error(
        "the part {part} overlaps with {other_part}, of experiment {other}; take another part, or \
         stop that experiment"
    )]
    LayerOverlap {
        /// The part that was asked for.
        part: Layer,
        /// An experiment that has not been stopped.
        other: ExperimentId,
        /// Its part.
        other_part: Layer,
    },
    /// Another replica has added an epoch to the log.
    #[error("another replica has added to the public log")]
    LogHasGrown,
    /// A refused change for the curator.
    #[error(transparent)]
    Curator(Box<CuratorRefusal>),
    /// A refused change of a trusted experiment.
    #[error(transparent)]
    Trusted(Box<TrustedRefusal>),
    /// The revision has the most signatures that it can have.
    #[error(
        "this revision has {max} signatures by other keys that have not expired, and can't have \
         more; sign with one of those keys, or make a new revision", max = SIGNATURES_MAX
    )]
    TooManySignatures,
}

impl From<CuratorRefusal> for StoreError {
    fn from(refusal: CuratorRefusal) -> Self {
        StoreRefusal::Curator(Box::new(refusal)).into()
    }
}

impl From<TrustedRefusal> for StoreError {
    fn from(refusal: TrustedRefusal) -> Self {
        StoreRefusal::Trusted(Box::new(refusal)).into()
    }
}

/// The effect of an error on the store: whether changes were made, and whether it can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was changed, and nothing is wrong with the store.
    Declined,
    /// Nothing was changed, since the store can't make changes just now. It can go on.
    Unmade,
    /// The change may have been made or not. The store can go on.
    Unknown,
    /// The change may have been made or not, and the store must not be used any further.
    Fatal,
}

impl StoreError {
    /// Wraps this error as the reason why a change was not even tried.
    #[must_use]
    pub fn unmade(self) -> Self {
        DatabaseError::Unmade { source: Box::new(self) }.into()
    }

    /// Whether stored data differs from what was written.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damage(_) => true,
            Self::Sqlite(error) => error.is_damage(),
            Self::Database(_) | Self::Open(_) | Self::Refused(_) => false,
        }
    }

    /// Whether nothing was tried, since the database is known not to answer.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::Database(DatabaseError::Silent) => true,
            Self::Database(DatabaseError::Cell { source, .. }) => source.is_silence(),
            _ => false,
        }
    }

    /// Whether the database answered, and refused: its disk may be full, or it takes no writes. Not one that
    /// gave up in time, or that ends.
    pub fn is_of_answer(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<tokio_postgres::Error>() {
                return error
                    .as_db_error()
                    .is_some_and(|told| !told.code().code().starts_with("57"));
            }
            cause = error.source();
        }
        false
    }

    /// The error's effect on the store.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Open(_) | Self::Damage(_) | Self::Sqlite(_) => Outcome::Fatal,
            Self::Database(error) => error.outcome(),
            Self::Refused(_) => Outcome::Declined,
        }
    }
}

impl DatabaseError {
    /// The error's effect on the store. The match is exhaustive, so that each new error must state
    /// its own.
    fn outcome(&self) -> Outcome {
        match self {
            // The database may become the right one again, or answer again.
            Self::Unmade { .. } | Self::OtherStore { .. } | Self::Silent => Outcome::Unmade,
            // The other store cells go on.
            Self::Cell { source, .. } => match source.outcome() {
                Outcome::Fatal => Outcome::Unknown,
                outcome => outcome,
            },
            // The connection is replaced; the next commit shows whether the database works.
            Self::Postgres { .. } | Self::Slow { .. } | Self::Entropy { .. } => Outcome::Unknown,
        }
    }
}

impl From<StoredError> for StoreError {
    fn from(error: StoredError) -> Self {
        DamageError::from(error).into()
    }
}

impl From<CellsError> for StoreError {
    fn from(error: CellsError) -> Self {
        OpenError::from(error).into()
    }
}

impl From<TlsError> for StoreError {
    fn from(error: TlsError) -> Self {
        OpenError::from(error).into()
    }
}

/// The error of stored data that is not as it was written.
pub(super) fn damaged(what: String) -> StoreError {
    DamageError::Data { what }.into()
}

pub(super) fn postgres(doing: &'static str) -> impl Fn(tokio_postgres::Error) -> StoreError + Copy {
    move |source| DatabaseError::Postgres { doing, source }.into()
}
