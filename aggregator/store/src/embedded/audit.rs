//! The audit log in the embedded store.

use bandana_shared::identity::{ExperimentId, UnixSeconds};
use rusqlite::{Connection, params};

use super::sqlite::reading;
use crate::{AuditAction, AuditEntry, AuditQuery, AuditRecord, StoreError, damaged};

/// Appends an entry, within the caller's transaction.
pub(super) fn append(connection: &Connection, entry: &AuditEntry) -> rusqlite::Result<()> {
    let AuditEntry { at, caller, action, experiment, detail } = entry;
    let insert =
        "INSERT INTO audit (at, caller, action, experiment, detail) VALUES (?, ?, ?, ?, ?)";
    let values = params![at.get(), caller, action.name(), experiment.as_str(), detail];
    connection.prepare_cached(insert)?.execute(values).map(drop)
}

/// The entries that `query` selects, newest first.
pub(crate) fn entries(
    connection: &Connection,
    query: &AuditQuery,
) -> Result<Vec<AuditRecord>, StoreError> {
    let select = "SELECT key, at, caller, action, experiment, detail FROM intact_audit
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
