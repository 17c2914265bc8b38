//! Expiry: days that leave the replay window.
//!
//! A day can have millions of groups, and commits must not wait until all of them are folded. So
//! expiry only moves the watermark, which drops the ids of the day. Its groups are folded into the
//! checkpoint a few at a time, along with later commits. Deltas move from the groups to the
//! checkpoint in one transaction, so after each: tally = checkpoint + deltas of the remaining
//! groups.

use std::collections::BTreeMap;

use bandana_shared::identity::Day;
use bandana_shared::stored;
use bandana_shared::tally::Tally;
use rusqlite::{Transaction, params};

use super::SqliteStore;
use super::deletion::deleted_keys;
use super::sqlite::{add_to_checkpoint, committing, reading};
use crate::{StoreError, StoredDeltas, damaged};

/// Most groups that one commit looks at.
const GROUPS_MAX: u32 = 1000;

/// Bytes of expired groups after which a commit looks at no more groups.
const BYTES_MAX: usize = 1 << 20;

/// The expired content of the next groups.
#[derive(Debug)]
struct Expired {
    /// The deltas, summed by experiment, day and arm.
    sums: BTreeMap<(i64, u32, u32), Tally>,
    /// The key of the last group that was looked at.
    last: i64,
    /// Bytes of the expired groups.
    bytes: usize,
    /// Whether there are no further groups.
    is_end: bool,
}

impl SqliteStore {
    /// Moves the watermark to `oldest`. The ids of earlier days are dropped; later commits fold the
    /// remaining groups of those days into the checkpoint.
    ///
    /// # Errors
    /// [`StoreError`]; the store must not be used any further.
    pub fn expire_before(&mut self, oldest: Day) -> Result<(), StoreError> {
        let update = "UPDATE watermark SET oldest_day = ?";
        self.connection.execute(update, [oldest.get()]).map_err(committing)?;
        self.looked_through = Some(0);
        Ok(())
    }
}

/// Folds the expired groups among the next ones after the key `after` into the checkpoint. Returns
/// the key to go on after. None: there are no further groups.
pub(super) fn fold(transaction: &Transaction<'_>, after: i64) -> Result<Option<i64>, StoreError> {
    let expired = expired(transaction, after)?;
    if expired.bytes > 0 {
        let delete = "DELETE FROM upload_group
            WHERE key > ? AND key <= ? AND day < (SELECT oldest_day FROM intact_watermark)";
        let mut delete = transaction.prepare_cached(delete).map_err(committing)?;
        delete.execute([after, expired.last]).map_err(committing)?;
    }
    let deleted = if expired.sums.is_empty() {
        Vec::new()
    } else {
        deleted_keys(transaction).map_err(reading)?
    };
    // A deleted experiment has no tally that the checkpoint would have to match.
    let kept = expired.sums.into_iter().filter(|(place, _)| !deleted.contains(&place.0));
    for (place, tally) in kept {
        add_to_checkpoint(transaction, place, &tally).map_err(committing)?;
    }
    Ok((!expired.is_end).then_some(expired.last))
}

fn expired(transaction: &Transaction<'_>, after: i64) -> Result<Expired, StoreError> {
    // Groups are not sorted by day, and an index on days would cost every commit one more page. Of
    // groups that have not expired, only the day is read.
    let query = "SELECT key, day, length(ids),
            CASE WHEN day < (SELECT oldest_day FROM intact_watermark) THEN deltas END
        FROM upload_group WHERE key > ? ORDER BY key LIMIT ?";
    let mut statement = transaction.prepare_cached(query).map_err(reading)?;
    let mut rows = statement.query(params![after, GROUPS_MAX]).map_err(reading)?;
    let mut expired = Expired { sums: BTreeMap::new(), last: after, bytes: 0, is_end: false };
    let mut groups = 0;
    while expired.bytes < BYTES_MAX {
        let Some(row) = rows.next().map_err(reading)? else {
            expired.is_end = groups < GROUPS_MAX;
            break;
        };
        groups += 1;
        expired.last = row.get(0).map_err(reading)?;
        let deltas = row.get_ref(3).map_err(reading)?.as_blob_or_null();
        let Some(deltas) = deltas.map_err(|error| damaged(error.to_string()))? else { continue };
        let day = row.get(1).map_err(reading)?;
        expired.bytes += row.get::<_, usize>(2).map_err(reading)? + deltas.len();
        let deltas: StoredDeltas = stored::from_bytes(deltas)?;
        for (experiment, arm, tally) in deltas.tallies()? {
            *expired.sums.entry((experiment, day, arm)).or_default() += tally;
        }
    }
    Ok(expired)
}
