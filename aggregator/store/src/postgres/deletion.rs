//! Archived and deleted experiments, as recorded in the audit log, like in the embedded store.
//!
//! The row of a deleted experiment stays, without weights, with its id and key, and so do the
//! digests of its revisions. For each day in the replay window a row of its tallies stays with
//! nothing but the number of reports: the ids of the uploads are still stored.

use bandana_shared::identity::{Digest, ExperimentId};
use tokio_postgres::{GenericClient, Row, Transaction};

use super::audit;
use super::changes::check;
use super::connection::Session;
use super::records::Tallies;
use crate::{AuditEntry, ExpectedState, StoreError, damaged, postgres};

/// SQL: whether the experiment of the row `e` is archived, by its latest entry. The query reads,
/// and so checks, all of its entries: a damaged one may have changed its meaning.
pub(super) const ARCHIVED: &str = "COALESCE(
    (SELECT max(CASE a.action WHEN 'archive' THEN a.key END)
            > COALESCE(max(CASE a.action WHEN 'unarchive' THEN a.key END), 0)
        FROM intact_audit a WHERE a.experiment = e.id), FALSE)";

/// SQL: whether the experiment of the row `e` was not deleted. Polls read every row, so the audit
/// log is only read for rows without weights.
pub(super) const SHOWN: &str = "(cardinality(e.weights) > 0 OR NOT COALESCE(
    (SELECT bool_or(a.action = 'delete') FROM intact_audit a WHERE a.experiment = e.id), FALSE))";

/// Statements that delete an experiment's parts, ordered so that no reference dangles.
const PARTS: [&str; 3] = [
    "DELETE FROM signature
        WHERE digest IN (SELECT digest FROM specification WHERE experiment = $1)",
    "UPDATE specification SET bytes = '' WHERE experiment = $1",
    "UPDATE experiment SET weights = '{}', policy_reports = 0, version = version + 1, record = ''
        WHERE key = $1",
];

/// Deletes an experiment whose state is as the caller expects, within the transaction of its audit
/// entry.
pub(super) async fn delete(
    transaction: &Transaction<'_>,
    expected: ExpectedState,
    entry: &AuditEntry,
    elsewhere: &Tallies,
) -> Result<(), StoreError> {
    let failed = postgres("committing");
    let key = expected.key.0;
    let lock = "SELECT key FROM experiment WHERE key = $1 FOR UPDATE";
    transaction.execute(lock, &[&key]).await.map_err(failed)?;
    check(transaction, expected, &entry.experiment, elsewhere).await?;
    forget_counts(transaction, key).await?;
    for part in PARTS {
        transaction.execute(part, &[&key]).await.map_err(failed)?;
    }
    audit::append(transaction, entry).await
}

/// Deletes an experiment's counts, but for the number of reports of each day whose ids are kept.
pub(super) async fn forget_counts(
    transaction: &Transaction<'_>,
    key: i64,
) -> Result<(), StoreError> {
    let failed = postgres("committing");
    let reports = "SELECT day, replica, sum(reports)::bigint FROM tally
        WHERE experiment = $1 AND day >= (SELECT oldest_day FROM intact_watermark)
        GROUP BY day, replica";
    let reports = transaction.query(reports, &[&key]).await.map_err(failed)?;
    for table in ["tally", "symbol_tally"] {
        let delete = format!("DELETE FROM {table} WHERE experiment = $1");
        transaction.execute(&delete, &[&key]).await.map_err(failed)?;
    }
    for row in reports {
        let (day, replica, reports): (i32, i32, i64) = (row.get(0), row.get(1), row.get(2));
        let keep = "INSERT INTO tally (day, experiment, arm, replica, reports, ones)
            VALUES ($1, $2, 0, $3, $4, 0)";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&day, &key, &replica, &reports];
        transaction.execute(keep, &values).await.map_err(failed)?;
    }
    Ok(())
}

/// The digests of all revisions of deleted experiments.
pub(super) async fn deleted(session: &mut Session) -> Result<Vec<Digest>, StoreError> {
    let query = "SELECT digest, length(bytes) FROM intact_specification";
    let rows = session.client.query(query, &[]).await.map_err(postgres("reading"))?;
    let of_deleted = rows.iter().filter(|row| row.get::<_, i32>(1) == 0);
    let digest = |row: &Row| {
        Digest::try_from(row.get::<_, &[u8]>(0)).map_err(|error| damaged(error.to_string()))
    };
    of_deleted.map(digest).collect()
}

/// Whether a deleted experiment, of either kind, had this id.
pub(super) async fn was_deleted(
    client: &impl GenericClient,
    id: &ExperimentId,
) -> Result<bool, StoreError> {
    let query = "SELECT COALESCE(bool_or(action = 'delete'), FALSE) FROM intact_audit
        WHERE experiment = $1";
    let row = client.query_one(query, &[&id.as_str()]).await.map_err(postgres("committing"))?;
    Ok(row.get(0))
}
