//! The public log in the database that replicas share.

use tokio_postgres::{GenericClient, Row, Transaction};

use super::changes::signed;
use crate::log::{EpochToAdd, StoredEpoch};
use crate::{StoreError, StoreRefusal, damaged, postgres};

const COLUMNS: &str = "SELECT number, unix_seconds, entry, roots, content FROM intact_log_epoch";

/// Adds an epoch to the log. The database decides which replica is first: numbers are unique.
pub(super) async fn add_epoch(
    transaction: &Transaction<'_>,
    addition: &EpochToAdd,
) -> Result<(), StoreError> {
    let EpochToAdd { epoch, keep_from } = addition;
    let number = signed(epoch.number);
    let insert = "INSERT INTO log_epoch (number, unix_seconds, entry, roots, content)
        SELECT $1, $2, $3, $4, $5
        WHERE $1 = (SELECT COALESCE(max(number) + 1, 0) FROM log_epoch)
        ON CONFLICT DO NOTHING";
    let (time, entry, roots) = (signed(epoch.time.get()), &epoch.entry[..], epoch.roots());
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&number, &time, &entry, &roots, &epoch.content];
    let added = transaction.execute(insert, &values).await.map_err(postgres("committing"))?;
    if added == 0 {
        return Err(StoreError::Refused(StoreRefusal::LogHasGrown));
    }
    let forget = "UPDATE log_epoch SET content = '' WHERE number < $1 AND content <> ''";
    transaction.execute(forget, &[&signed(*keep_from)]).await.map_err(postgres("committing"))?;
    Ok(())
}

/// The last epoch.
pub(crate) async fn last_epoch(
    client: &impl GenericClient,
) -> Result<Option<StoredEpoch>, StoreError> {
    let select = format!("{COLUMNS} ORDER BY number DESC LIMIT 1");
    Ok(read(client, &select, &[]).await?.into_iter().next())
}

/// Epochs from `first` on, at most `limit`.
pub(crate) async fn epochs(
    client: &impl GenericClient,
    first: u64,
    limit: u32,
) -> Result<Vec<StoredEpoch>, StoreError> {
    let select = format!("{COLUMNS} WHERE number >= $1 ORDER BY number LIMIT $2");
    read(client, &select, &[&signed(first), &i64::from(limit)]).await
}

async fn read(
    client: &impl GenericClient,
    select: &str,
    values: &[&(dyn tokio_postgres::types::ToSql + Sync)],
) -> Result<Vec<StoredEpoch>, StoreError> {
    let rows = client.query(select, values).await.map_err(postgres("reading"))?;
    rows.iter().map(epoch).collect()
}

fn epoch(row: &Row) -> Result<StoredEpoch, StoreError> {
    let unsigned = |column| {
        let value: i64 = row.get(column);
        u64::try_from(value).map_err(|_| damaged(format!("the number {value} in the log")))
    };
    StoredEpoch::from_columns((unsigned(0)?, unsigned(1)?, row.get(2), row.get(3), row.get(4)))
}
