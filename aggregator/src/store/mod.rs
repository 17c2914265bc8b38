//! What must survive: experiments, tallies, and which uploads were counted.

mod audit;
mod daily_tallies;
mod reader;
mod schema;
mod signatures;
mod sqlite;
mod trouble;
mod watermark;

use std::path::PathBuf;

use bandana_shared::identity::{ArmIndex, Day, ExperimentId, UploadId};
use bandana_shared::limits::SIGNATURES_MAX;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::stored::{Stored, StoredError};
use bandana_shared::tally::Tally;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use audit::{AuditAction, AuditEntry, AuditQuery, AuditRecord};
pub use daily_tallies::DailyTally;
pub use reader::StoreReader;
pub use sqlite::SqliteStore;
pub use watermark::{Watermark, WatermarkError};

use crate::learner::Learner;

/// Where an experiment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentState {
    /// Devices do not see it yet.
    Draft,
    /// Arms are given and uploads are taken.
    Running,
    /// Uploads are refused for now.
    Paused,
    /// Uploads are refused for good.
    Stopped,
}

impl ExperimentState {
    /// Its name in the store and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }

    /// Every one of them.
    pub const ALL: [Self; 4] = [Self::Draft, Self::Running, Self::Paused, Self::Stopped];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A step from one state of an experiment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// A draft is given to devices.
    Start,
    /// A running experiment is paused.
    Pause,
    /// A paused experiment runs again.
    Resume,
    /// An experiment ends for good.
    Stop,
}

impl Transition {
    /// The states from which it is allowed.
    pub fn from(self) -> &'static [ExperimentState] {
        use ExperimentState::{Draft, Paused, Running};
        match self {
            Self::Start => &[Draft],
            Self::Pause => &[Running],
            Self::Resume => &[Paused],
            Self::Stop => &[Draft, Running, Paused],
        }
    }

    /// The state to which it leads.
    pub fn to(self) -> ExperimentState {
        match self {
            Self::Start | Self::Resume => ExperimentState::Running,
            Self::Pause => ExperimentState::Paused,
            Self::Stop => ExperimentState::Stopped,
        }
    }

    /// Its name in the audit log.
    pub fn action(self) -> AuditAction {
        match self {
            Self::Start => AuditAction::Start,
            Self::Pause => AuditAction::Pause,
            Self::Resume => AuditAction::Resume,
            Self::Stop => AuditAction::Stop,
        }
    }
}

/// An experiment's key in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExperimentKey(pub(crate) i64);

/// How an experiment is run, beside its specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conduct {
    /// Who chooses the arms.
    pub learner: Learner,
    /// Least share of the traffic for every arm in play.
    pub floor_weight: f64,
}

/// All that the store knows about an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentRecord {
    /// Its key.
    pub key: ExperimentKey,
    /// How it is run.
    pub conduct: Conduct,
    /// Where it stands.
    pub state: ExperimentState,
    /// Every revision, the oldest first; at least one.
    pub revisions: Vec<Specification>,
    /// The signatures of the newest revision, by key; expired ones too.
    pub signatures: Vec<Signature>,
    /// The tally of every arm, all days together.
    pub tallies: Vec<Tally>,
}

/// What one committed upload, or a group of them, adds to one arm's tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The experiment.
    pub experiment: ExperimentKey,
    /// The arm.
    pub arm: ArmIndex,
    /// What is added.
    pub tally: Tally,
}

/// The uploads of one group that carry the same day: one row of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// Their day.
    pub day: Day,
    /// Their ids, sorted, so that their order tells nothing.
    pub ids: Vec<UploadId>,
    /// What they add together, at most one entry for an experiment's arm.
    pub deltas: Vec<Delta>,
}

/// A row's deltas as they are stored beside the ids: experiment, arm, reports,
/// ones.
#[derive(Debug, Serialize, Deserialize)]
struct StoredDeltas(Vec<(i64, u32, u64, u64)>);

impl Stored for StoredDeltas {
    const MAGIC: [u8; 4] = *b"BDdl";
    const VERSION: u16 = 1;
}

/// What goes wrong with a store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory can't be used.
    #[error("the data directory {} can't be used", path.display())]
    Directory {
        /// The directory.
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
    /// The database failed.
    #[error("the database failed while {doing}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// Something that was stored can't be understood.
    #[error("the database holds damaged data: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// Deltas that can't be written, or can't be read back.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// There is no room on the disk.
    #[error(
        "the disk that holds {} is full; make room and start again: what was acknowledged is \
         there, and devices keep the rest", path.display()
    )]
    DiskFull {
        /// The data directory.
        path: PathBuf,
        /// What failed.
        source: Box<Self>,
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
        source: Box<Self>,
    },
    /// The database file is not as it was written.
    #[error(
        "the database file {} is damaged; restore it from a backup, or see what `sqlite3 FILE \
         .recover` can save", path.display()
    )]
    DamagedFile {
        /// The file.
        path: PathBuf,
        /// What was noticed.
        source: Box<Self>,
    },
    /// There should be a store.
    #[error("there is no store in {}; name the data directory of a server", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// The id of a new experiment is taken.
    #[error("an experiment named {0} exists already; choose another id")]
    ExperimentExists(ExperimentId),
    /// As many signatures as a revision can have.
    #[error(
        "this revision has {max} signatures by other keys that have not expired, and can't have \
         more; sign with one of those keys, or make a new revision", max = SIGNATURES_MAX
    )]
    TooManySignatures,
}

#[cfg(test)]
mod tests {
    use bandana_shared::stored;

    use super::*;

    /// Written by version 1: magic, version, checksum, then two entries.
    const GOLDEN_1: &[u8] = b"BDdl\x01\x00\x26\xf7\x9f\x35\
        \x02\
        \x02\x03\xfb\x2c\x01\x07\
        \x50\x00\xfc\x70\x11\x01\x00\x00";

    #[test]
    fn golden_bytes_of_every_version_of_stored_deltas() {
        let deltas = vec![(1, 3, 300, 7), (40, 0, 70_000, 0)];
        assert_eq!(stored::from_bytes::<StoredDeltas>(GOLDEN_1).unwrap().0, deltas);
        assert_eq!(stored::to_bytes(&StoredDeltas(deltas)).unwrap(), GOLDEN_1);
    }
}
