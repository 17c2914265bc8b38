//! The audit log in the database.

use bandana_shared::identity::{ExperimentId, UnixSeconds};
use tokio_postgres::GenericClient;

use crate::{AuditAction, AuditEntry, AuditQuery, AuditRecord, StoreError, damaged, postgres};

/// Appends an entry, within the caller's transaction. Entries are numbered in the order of their
/// commits, so that a reader that pages through them misses none.
pub(super) async fn append(
    client: &impl GenericClient,
    entry: &AuditEntry,
) -> Result<(), StoreError> {
    let failed = postgres("committing");
    let AuditEntry { at, caller, action, experiment, detail } = entry;
    client.batch_execute("LOCK TABLE audit IN SHARE ROW EXCLUSIVE MODE").await.map_err(failed)?;
    let insert =
        "INSERT INTO audit (at, caller, action, experiment, detail) VALUES ($1, $2, $3, $4, $5)";
    let at = i64::try_from(at.get()).unwrap_or(i64::MAX);
    let (action, experiment) = (action.name(), experiment.as_str());
    client.execute(insert, &[&at, caller, &action, &experiment, detail]).await.map_err(failed)?;
    Ok(())
}

/// The entries that `query` selects, newest first.
pub(crate) async fn entries(
    client: &impl GenericClient,
    query: &AuditQuery,
) -> Result<Vec<AuditRecord>, StoreError> {
    let select = "SELECT key, at, caller, action, experiment, detail FROM intact_audit
        WHERE ($1::text IS NULL OR experiment = $1) AND ($2::bigint IS NULL OR key < $2)
        ORDER BY key DESC LIMIT $3";
    let experiment = query.experiment.as_ref().map(ExperimentId::as_str);
    let before = query.before.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let limit = i64::from(query.limit);
    let rows = client.query(select, &[&experiment, &before, &limit]).await;
    let mut records = Vec::new();
    for row in rows.map_err(postgres("reading"))? {
        let (action, experiment): (&str, &str) = (row.get(3), row.get(4));
        let number = |number: i64| u64::try_from(number).map_err(|e| damaged(e.to_string()));
        let entry = AuditEntry {
            at: UnixSeconds::new(number(row.get(1))?),
            caller: row.get(2),
            action: AuditAction::from_name(action)
                .ok_or_else(|| damaged(format!("an audit entry about {action:?}")))?,
            experiment: ExperimentId::new(experiment).map_err(|e| damaged(e.to_string()))?,
            detail: row.get(5),
        };
        records.push(AuditRecord { number: number(row.get(0))?, entry });
    }
    Ok(records)
}
