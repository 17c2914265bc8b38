//! Changes of experiments, and what they write into tables that both databases have.

use bandana_shared::identity::{ExperimentId, UnixSeconds};
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;

use crate::database::Database;
use crate::{
    AuditAction, AuditEntry, ExpectedState, ExperimentKey, ExperimentRecord, ExperimentState,
    StoreError, WrittenRecord, signatures,
};

/// A durable change of an experiment.
#[derive(Clone, Copy, Debug)]
pub enum ExperimentChange<'a> {
    /// Add a revision.
    Revision(ExpectedState, &'a Specification),
    /// Set the state.
    State(ExpectedState, ExperimentState),
    /// Archive or unarchive the experiment. The action of the entry says which.
    Archive(ExpectedState),
    /// Write the record, which has been the first one so far, and set the state.
    Record(ExpectedState, ExperimentState, (&'a WrittenRecord, &'a WrittenRecord)),
    /// Add a signature to this revision, and drop signatures that have expired by this time.
    Signature(ExperimentKey, &'a Specification, &'a Signature, UnixSeconds),
}

impl ExperimentChange<'_> {
    /// The experiment that the change is for.
    pub(crate) fn key(&self) -> ExperimentKey {
        match self {
            Self::Signature(key, ..) => *key,
            Self::Revision(expected, _)
            | Self::State(expected, _)
            | Self::Archive(expected)
            | Self::Record(expected, ..) => expected.key,
        }
    }

    /// The state that the experiment must have. None: any.
    pub(crate) fn expected(&self) -> Option<ExpectedState> {
        match self {
            Self::Signature(..) => None,
            Self::Revision(expected, _)
            | Self::State(expected, _)
            | Self::Archive(expected)
            | Self::Record(expected, ..) => Some(*expected),
        }
    }

    /// Whether somebody else was first: the experiment, whose state is as expected, is archived
    /// already, or has another record.
    pub(crate) fn is_late(&self, known: &ExperimentRecord, entry: &AuditEntry) -> bool {
        match self {
            Self::Archive(_) => known.is_archived == (entry.action == AuditAction::Archive),
            Self::Record(_, _, (before, _)) => known.written != **before,
            Self::Revision(..) | Self::State(..) | Self::Signature(..) => false,
        }
    }
}

/// Makes a change, within the transaction of its audit entry.
pub(crate) async fn change(
    db: &impl Database,
    change: &ExperimentChange<'_>,
) -> Result<(), StoreError> {
    let key = change.key();
    match change {
        ExperimentChange::Revision(_, specification) => add_revision(db, key, specification).await,
        ExperimentChange::State(_, state) => {
            let update = "UPDATE experiment SET state = $2 WHERE key = $1";
            db.run(update, &[key.0.into(), state.name().into()]).await.map(drop)
        }
        ExperimentChange::Archive(_) => Ok(()),
        ExperimentChange::Record(_, state, (_, record)) => {
            let update = "UPDATE experiment SET record = $2, state = $3 WHERE key = $1";
            let (record, state) = (&record.to_bytes(), state.name());
            db.run(update, &[key.0.into(), record.into(), state.into()]).await.map(drop)
        }
        ExperimentChange::Signature(_, specification, signature, now) => {
            signatures::add(db, specification, signature, *now).await
        }
    }
}

/// Adds a revision.
pub(crate) async fn add_revision(
    db: &impl Database,
    key: ExperimentKey,
    specification: &Specification,
) -> Result<(), StoreError> {
    let insert = "INSERT INTO specification (digest, experiment, revision, bytes)
        VALUES ($1, $2, $3, $4)";
    let (digest, bytes) = (specification.digest(), &specification.canonical_bytes());
    let revision = specification.revision().get().into();
    let values = [digest.as_bytes().into(), key.0.into(), revision, bytes.into()];
    db.run(insert, &values).await.map(drop)
}

/// Whether a table of experiments has this id.
pub(crate) async fn has_id(
    db: &impl Database,
    table: &'static str,
    id: &ExperimentId,
) -> Result<bool, StoreError> {
    let query = format!("SELECT EXISTS (SELECT 1 FROM intact_{table} WHERE id = $1)");
    db.value(&query, &[id.into()]).await
}
