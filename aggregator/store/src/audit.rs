//! The audit log: every change of an experiment and every registration of a data set, with its
//! caller.

use bandana_shared::identity::{ExperimentId, UnixSeconds};

use crate::database::{Database, Row};
use crate::{StoreError, damaged};

/// The kind of change that an audit entry records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    /// An experiment was created.
    Create,
    /// A draft was started.
    Start,
    /// An experiment was paused: it refuses uploads until it is resumed.
    Pause,
    /// An experiment was resumed: it takes uploads again.
    Resume,
    /// An experiment was stopped: it refuses uploads for good.
    Stop,
    /// An arm was appended.
    AddArm,
    /// An arm was retired.
    RetireArm,
    /// A revision was signed.
    AddSignature,
    /// A data set was registered.
    RegisterDataSet,
    /// The registration of a data set was refused.
    RefuseDataSet,
    /// An experiment was archived: lists leave it out.
    Archive,
    /// An experiment was deleted, except for its audit entries.
    Delete,
    /// An experiment was unarchived: lists show it again.
    Unarchive,
    /// Another share of the installations was enrolled.
    SetEnrolment,
    /// The record of an experiment was written.
    SetRecord,
    /// A data set was withdrawn.
    WithdrawDataSet,
}

impl AuditAction {
    /// Every action.
    pub const ALL: [Self; 16] = [
        Self::Create,
        Self::Start,
        Self::Pause,
        Self::Resume,
        Self::Stop,
        Self::AddArm,
        Self::RetireArm,
        Self::AddSignature,
        Self::RegisterDataSet,
        Self::RefuseDataSet,
        Self::Archive,
        Self::Delete,
        Self::Unarchive,
        Self::SetEnrolment,
        Self::SetRecord,
        Self::WithdrawDataSet,
    ];

    /// The action's name in the store, in messages and for people.
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
            Self::RegisterDataSet => "register-data-set",
            Self::RefuseDataSet => "refuse-data-set",
            Self::Archive => "archive",
            Self::Delete => "delete",
            Self::Unarchive => "unarchive",
            Self::SetEnrolment => "set-enrolment",
            Self::SetRecord => "set-record",
            Self::WithdrawDataSet => "withdraw-data-set",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// One entry of the audit log, stored in the same transaction as the change that it records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The time of the change.
    pub at: UnixSeconds,
    /// The caller: a token's name, or the identity in a client certificate.
    pub caller: String,
    /// The kind of change.
    pub action: AuditAction,
    /// The experiment or data set that was changed.
    pub experiment: ExperimentId,
    /// Details of the change, for people.
    pub detail: String,
}

/// An audit entry with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// The entry's number, greater than that of every earlier entry.
    pub number: u64,
    /// The entry.
    pub entry: AuditEntry,
}

/// Selects entries of the audit log.
#[derive(Clone, Debug)]
pub struct AuditQuery {
    /// Only changes of this experiment. None: changes of all experiments.
    pub experiment: Option<ExperimentId>,
    /// Most entries to return.
    pub limit: u32,
    /// Only entries with a smaller number. None: start at the newest entry.
    pub before: Option<u64>,
}

/// Appends an entry, within the caller's transaction. Entries are numbered in the order of their
/// commits, so that a reader that pages through them misses none.
pub(crate) async fn append(db: &impl Database, entry: &AuditEntry) -> Result<(), StoreError> {
    let AuditEntry { at, caller, action, experiment, detail } = entry;
    db.take_turns().await?;
    let insert =
        "INSERT INTO audit (at, caller, action, experiment, detail) VALUES ($1, $2, $3, $4, $5)";
    let action = action.name().into();
    let values = [(*at).into(), caller.into(), action, experiment.into(), detail.into()];
    db.run(insert, &values).await.map(drop)
}

/// The entries that `query` selects, newest first.
pub(crate) async fn entries(
    db: &impl Database,
    query: &AuditQuery,
) -> Result<Vec<AuditRecord>, StoreError> {
    let select = "SELECT key, at, caller, action, experiment, detail FROM intact_audit
        WHERE (CAST($1 AS text) IS NULL OR experiment = $1)
            AND (CAST($2 AS bigint) IS NULL OR key < $2)
        ORDER BY key DESC LIMIT $3";
    let before = query.before.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let values = [query.experiment.as_ref().into(), before.into(), query.limit.into()];
    let record = |row: &Row| {
        let action: String = row.get(3)?;
        let entry = AuditEntry {
            at: row.get(1)?,
            caller: row.get(2)?,
            action: AuditAction::from_name(&action)
                .ok_or_else(|| damaged(format!("an audit entry about {action:?}")))?,
            experiment: row.get(4)?,
            detail: row.get(5)?,
        };
        Ok(AuditRecord { number: row.get(0)?, entry })
    };
    db.rows(select, &values).await?.iter().map(record).collect()
}
