//! The public log of what devices are told, as it is stored.

use bandana_shared::identity::UnixSeconds;
use bandana_shared::transparency::{Frontier, Hash};

use super::{StoreError, StoreRefusal, damaged};
use crate::database::{Database, Row};

/// An epoch of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEpoch {
    /// Its place, from 0 on.
    pub number: u64,
    /// Its time.
    pub time: UnixSeconds,
    /// The entry of the log.
    pub entry: Hash,
    /// The log with this epoch.
    pub log: Frontier,
    /// What it says, encoded; empty if that is kept no longer.
    pub content: Vec<u8>,
}

/// An epoch to be added to the log.
#[derive(Clone, Debug)]
pub struct EpochToAdd {
    /// The epoch. It is refused unless its number is that of the next one.
    pub epoch: StoredEpoch,
    /// What earlier epochs say is kept no longer.
    pub keep_from: u64,
}

const COLUMNS: &str = "SELECT number, unix_seconds, entry, roots, content FROM intact_log_epoch";

/// Adds an epoch to the log. The database decides which replica is first: numbers are unique.
pub(crate) async fn add(db: &impl Database, addition: &EpochToAdd) -> Result<(), StoreError> {
    let EpochToAdd { epoch: StoredEpoch { number, time, entry, log, content }, keep_from } =
        addition;
    let insert = "INSERT INTO log_epoch (number, unix_seconds, entry, roots, content)
        SELECT $1, $2, $3, $4, $5
        WHERE $1 = (SELECT COALESCE(max(number) + 1, 0) FROM log_epoch)
        ON CONFLICT DO NOTHING";
    let roots = log.roots().concat();
    let values = [(*number).into(), (*time).into(), entry.into(), (&roots).into(), content.into()];
    if db.run(insert, &values).await? == 0 {
        return Err(StoreError::Refused(StoreRefusal::LogHasGrown));
    }
    let forget = "UPDATE log_epoch SET content = $2 WHERE number < $1 AND content <> $2";
    db.run(forget, &[(*keep_from).into(), b"".into()]).await.map(drop)
}

/// The last epoch.
pub(crate) async fn last(db: &impl Database) -> Result<Option<StoredEpoch>, StoreError> {
    let select = format!("{COLUMNS} WHERE number = (SELECT max(number) FROM log_epoch)");
    db.row(&select, &[]).await?.as_ref().map(epoch).transpose()
}

/// Epochs from `first` on, at most `limit`.
pub(crate) async fn epochs(
    db: &impl Database,
    first: u64,
    limit: u32,
) -> Result<Vec<StoredEpoch>, StoreError> {
    let select = format!("{COLUMNS} WHERE number >= $1 ORDER BY number LIMIT $2");
    db.rows(&select, &[first.into(), limit.into()]).await?.iter().map(epoch).collect()
}

fn epoch(row: &Row) -> Result<StoredEpoch, StoreError> {
    let number: u64 = row.get(0)?;
    let (entry, roots): (Vec<u8>, Vec<u8>) = (row.get(2)?, row.get(3)?);
    let wrong = || damaged(format!("the epoch {number} of the log"));
    let (hashes, rest) = roots.as_chunks();
    let log = number.checked_add(1).and_then(|size| Frontier::new(size, hashes.to_vec()));
    Ok(StoredEpoch {
        number,
        time: row.get(1)?,
        entry: entry.try_into().map_err(|_| wrong())?,
        log: log.filter(|_| rest.is_empty()).ok_or_else(wrong)?,
        content: row.get(4)?,
    })
}
