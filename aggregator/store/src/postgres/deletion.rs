//! Deleted experiments in the database that replicas share.
//!
//! The row of a deleted experiment stays, without weights, with its id and key, and so do the
//! digests of its revisions. For each day in the replay window a row of its tallies stays with
//! nothing but the number of reports: the ids of the uploads are still stored.

use tokio_postgres::Transaction;

use super::changes::check;
use super::database::Tables;
use super::records::Tallies;
use crate::{AuditEntry, ExpectedState, StoreError, audit, postgres};

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
    audit::append(&Tables::committing(transaction), entry).await
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
