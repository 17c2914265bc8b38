//! Experiments that are archived or deleted: the audit log says which, as in the embedded store.
//!
//! The row of a deleted experiment stays, without weights, with its id and key, and the digests of
//! its revisions. While days are in
//! the replay window, a row of its tallies for each of them tells how many reports there were,
//! and nothing else: the uploads that they came from are still known.

use bandana_shared::identity::{Digest, ExperimentId};
use tokio_postgres::{GenericClient, Row, Transaction};

use super::audit;
use super::changes::check;
use super::connection::Session;
use crate::store::{AuditEntry, ExpectedState, StoreError, damaged, postgres};

/// Whether the experiment of the row `e` is archived, by the last word on it. All of its entries are read, and so checked:
/// a damaged one may say something else than it did.
pub(super) const ARCHIVED: &str = "COALESCE(
    (SELECT max(CASE a.action WHEN 'archive' THEN a.key END)
            > COALESCE(max(CASE a.action WHEN 'unarchive' THEN a.key END), 0)
        FROM intact_audit a WHERE a.experiment = e.id), FALSE)";

/// Whether it was not deleted. Polls look at every row: the audit log is only looked at for rows
/// without weights.
pub(super) const SHOWN: &str = "(cardinality(e.weights) > 0 OR NOT COALESCE(
    (SELECT bool_or(a.action = 'delete') FROM intact_audit a WHERE a.experiment = e.id), FALSE))";

/// What goes with an experiment, in an order in which nothing refers to what is gone.
const PARTS: [&str; 4] = [
    "DELETE FROM signature
        WHERE digest IN (SELECT digest FROM specification WHERE experiment = $1)",
    "UPDATE specification SET bytes = '' WHERE experiment = $1",
    "DELETE FROM symbol_tally WHERE experiment = $1",
    "UPDATE experiment SET weights = '{}', policy_reports = 0, version = version + 1
        WHERE key = $1",
];

/// Deletes an experiment that stands as somebody thinks, in the caller's transaction with its entry.
pub(super) async fn delete(
    transaction: &Transaction<'_>,
    expected: ExpectedState,
    entry: &AuditEntry,
) -> Result<(), StoreError> {
    let failed = postgres("committing");
    let key = expected.key.0;
    let lock = "SELECT key FROM experiment WHERE key = $1 FOR UPDATE";
    transaction.execute(lock, &[&key]).await.map_err(failed)?;
    check(transaction, expected, &entry.experiment).await?;
    let reports = "SELECT day, replica, sum(reports)::bigint FROM tally
        WHERE experiment = $1 AND day >= (SELECT oldest_day FROM intact_watermark)
        GROUP BY day, replica";
    let reports = transaction.query(reports, &[&key]).await.map_err(failed)?;
    let delete = "DELETE FROM tally WHERE experiment = $1";
    transaction.execute(delete, &[&key]).await.map_err(failed)?;
    for row in reports {
        let (day, replica, reports): (i32, i32, i64) = (row.get(0), row.get(1), row.get(2));
        let keep = "INSERT INTO tally (day, experiment, arm, replica, reports, ones)
            VALUES ($1, $2, 0, $3, $4, 0)";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&day, &key, &replica, &reports];
        transaction.execute(keep, &values).await.map_err(failed)?;
    }
    for part in PARTS {
        transaction.execute(part, &[&key]).await.map_err(failed)?;
    }
    audit::append(transaction, entry).await
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

/// Whether this was the id of an experiment, of either kind, that was deleted.
pub(super) async fn was_deleted(
    client: &impl GenericClient,
    id: &ExperimentId,
) -> Result<bool, StoreError> {
    let query = "SELECT COALESCE(bool_or(action = 'delete'), FALSE) FROM intact_audit
        WHERE experiment = $1";
    let row = client.query_one(query, &[&id.as_str()]).await.map_err(postgres("committing"))?;
    Ok(row.get(0))
}
