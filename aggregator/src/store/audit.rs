//! Who has changed which experiment.

use bandana_shared::identity::{ExperimentId, UnixSeconds};
use rusqlite::{Connection, params};

use super::StoreError;
use super::sqlite::{damaged, reading};

/// What was done to an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    /// It was created.
    Create,
    /// A draft was given to devices.
    Start,
    /// Uploads are refused for now.
    Pause,
    /// Uploads are taken again.
    Resume,
    /// Uploads are refused for good.
    Stop,
    /// An arm was appended.
    AddArm,
    /// An arm was retired.
    RetireArm,
    /// A revision was signed.
    AddSignature,
}

impl AuditAction {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Start,
        Self::Pause,
        Self::Resume,
        Self::Stop,
        Self::AddArm,
        Self::RetireArm,
        Self::AddSignature,
    ];

    /// Its name in the store, in messages and for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Stop => "stop",
            Self::AddArm => "add-arm",
            Self::RetireArm => "retire-arm",
            Self::AddSignature => "add-signature",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// A change of an experiment. It is stored in one transaction with the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// When.
    pub at: UnixSeconds,
    /// Who: the name of a token, or what there is of a certificate.
    pub caller: String,
    /// What was done.
    pub action: AuditAction,
    /// To which experiment.
    pub experiment: ExperimentId,
    /// What exactly, for people.
    pub detail: String,
}

/// An entry with its place in the order of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Greater than those of all earlier entries.
    pub number: u64,
    /// The entry.
    pub entry: AuditEntry,
}

/// Which entries are wanted.
#[derive(Clone, Debug)]
pub struct AuditQuery {
    /// Changes of this experiment. None: of all.
    pub experiment: Option<ExperimentId>,
    /// Most entries.
    pub limit: u32,
    /// Entries before this number. None: from the newest on.
    pub before: Option<u64>,
}

/// Appends an entry, in a transaction of the caller's.
pub(super) fn append(connection: &Connection, entry: &AuditEntry) -> rusqlite::Result<()> {
    let AuditEntry { at, caller, action, experiment, detail } = entry;
    let insert =
        "INSERT INTO audit (at, caller, action, experiment, detail) VALUES (?, ?, ?, ?, ?)";
    let values = params![at.get(), caller, action.name(), experiment.as_str(), detail];
    connection.prepare_cached(insert)?.execute(values).map(drop)
}

/// The entries that a query asks for, the newest first.
pub(super) fn entries(
    connection: &Connection,
    query: &AuditQuery,
) -> Result<Vec<AuditRecord>, StoreError> {
    let select = "SELECT key, at, caller, action, experiment, detail FROM audit
        WHERE (?1 IS NULL OR experiment = ?1) AND (?2 IS NULL OR key < ?2)
        ORDER BY key DESC LIMIT ?3";
    let experiment = query.experiment.as_ref().map(ExperimentId::as_str);
    let before = query.before.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let mut statement = connection.prepare(select).map_err(reading)?;
    let mut rows = statement.query(params![experiment, before, query.limit]).map_err(reading)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(reading)? {
        let action: String = row.get(3).map_err(reading)?;
        let experiment: String = row.get(4).map_err(reading)?;
        let entry = AuditEntry {
            at: UnixSeconds::new(row.get(1).map_err(reading)?),
            caller: row.get(2).map_err(reading)?,
            action: AuditAction::from_name(&action)
                .ok_or_else(|| damaged(format!("an audit entry about {action:?}")))?,
            experiment: ExperimentId::new(experiment).map_err(|e| damaged(e.to_string()))?,
            detail: row.get(5).map_err(reading)?,
        };
        records.push(AuditRecord { number: row.get(0).map_err(reading)?, entry });
    }
    Ok(records)
}
