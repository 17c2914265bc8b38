//! Archived and deleted experiments, as recorded in the audit log.
//!
//! So neither needs a column, and an append-only log decides about an id. The row of a deleted
//! experiment stays with its id and key, which no other experiment may get. The digests of its
//! revisions stay too, so that a client that names one is told that the experiment has ended.

use bandana_shared::identity::{Digest, ExperimentId};

use crate::database::Database;
use crate::{StoreError, damaged};

/// SQL: whether the experiment of the row `e` is archived, by its latest entry. The query reads,
/// and so checks, all of its entries: a damaged one may have changed its meaning.
pub(crate) const ARCHIVED: &str = "COALESCE(
    (SELECT max(CASE a.action WHEN 'archive' THEN a.key END)
            > COALESCE(max(CASE a.action WHEN 'unarchive' THEN a.key END), 0)
        FROM intact_audit a WHERE a.experiment = e.id), FALSE)";

/// Whether a deleted experiment, of either kind, had this id.
pub(crate) async fn was_deleted(db: &impl Database, id: &ExperimentId) -> Result<bool, StoreError> {
    let query = "SELECT COALESCE(max(CASE action WHEN 'delete' THEN 1 END), 0) FROM intact_audit
        WHERE experiment = $1";
    db.value(query, &[id.into()]).await
}

/// The digests of all revisions of deleted experiments.
pub(crate) async fn deleted(db: &impl Database) -> Result<Vec<Digest>, StoreError> {
    let query = "SELECT digest, length(bytes) FROM intact_specification";
    let mut deleted = Vec::new();
    for row in db.rows(query, &[]).await? {
        if row.get::<u64>(1)? == 0 {
            let digest: Vec<u8> = row.get(0)?;
            deleted.push(Digest::try_from(&digest[..]).map_err(|e| damaged(e.to_string()))?);
        }
    }
    Ok(deleted)
}
