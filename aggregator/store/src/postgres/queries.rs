//! The curator's budgets and sessions in the database that replicas share.
//!
//! A debit locks the data set's row, so that two replicas can't spend the same budget.

use bandana_mechanisms::measure::Measure;
use bandana_shared::identity::UnixSeconds;
use tokio_postgres::{GenericClient, Row, Transaction};

use super::changes::signed;
use super::{answers, audit};
use crate::fingerprint::{Fingerprint, FingerprintKey};
use crate::queries::{check_part, exhausted};
use crate::{
    CuratorChange, CuratorName, CuratorRefusal, DataSetRecord, Debit, DebitRecord, SessionRecord,
    SessionRound, SessionUpdate, StoreError, damaged, postgres,
};

/// Makes a change for the curator, in one transaction.
pub(super) async fn apply_query_change(
    transaction: &Transaction<'_>,
    change: &CuratorChange,
) -> Result<(), StoreError> {
    match change {
        CuratorChange::Register(record, found, entry) => {
            register(transaction, record).await?;
            if let Some(found) = found {
                debit(transaction, found).await?;
            }
            audit::append(transaction, entry).await?;
        }
        CuratorChange::Refuse(entry) => audit::append(transaction, entry).await?,
        CuratorChange::Bind { data_set, fingerprint, content } => {
            bind(transaction, data_set, *fingerprint, *content).await?;
        }
        CuratorChange::Debit(entry, answer) => {
            answers::keep(transaction, answer.as_ref()).await?;
            debit(transaction, entry).await?;
        }
        CuratorChange::Withdraw(last, entry) => {
            debit(transaction, last).await?;
            audit::append(transaction, entry).await?;
        }
        CuratorChange::Open(entry, record) => {
            debit(transaction, entry).await?;
            open(transaction, record).await?;
        }
        CuratorChange::Round(round, answer) => {
            answers::keep(transaction, answer.as_ref()).await?;
            add_round(transaction, round).await?;
        }
    }
    Ok(())
}

async fn register(client: &impl GenericClient, record: &DataSetRecord) -> Result<(), StoreError> {
    let DataSetRecord { name, file, rows, columns, measure, budget, at, .. } = record;
    let insert = "INSERT INTO curator_data_set
        (name, file, fingerprint, content, rows, columns, measure, budget, spent, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9) ON CONFLICT DO NOTHING";
    let fingerprint = &record.fingerprint.as_bytes()[..];
    let content = record.content.as_ref().map(|content| &content.as_bytes()[..]);
    let (rows, budget, at) = (signed(*rows), signed(*budget), signed(at.get()));
    let (text, measure) = (name.as_str(), measure.name());
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
        [&text, file, &fingerprint, &content, &rows, columns, &measure, &budget, &at];
    let failed = postgres("committing");
    if client.execute(insert, &values).await.map_err(failed)? > 0 {
        return Ok(());
    }
    let taken = "SELECT 1 FROM curator_data_set WHERE name = $1";
    if client.query_opt(taken, &[&text]).await.map_err(failed)?.is_none() {
        check_content(client, content).await?;
    }
    Err(CuratorRefusal::DataSetExists(name.clone()).into())
}

/// Refuses content that another data set already has.
async fn check_content(
    client: &impl GenericClient,
    content: Option<&[u8]>,
) -> Result<(), StoreError> {
    let query = "SELECT name FROM curator_data_set WHERE content = $1";
    match client.query_opt(query, &[&content]).await.map_err(postgres("committing"))? {
        Some(other) => Err(CuratorRefusal::ContentRegistered(name_of(other.get(0))?).into()),
        None => Ok(()),
    }
}

async fn bind(
    client: &impl GenericClient,
    data_set: &CuratorName,
    fingerprint: Fingerprint,
    content: Fingerprint,
) -> Result<(), StoreError> {
    check_content(client, Some(content.as_bytes())).await?;
    // If another replica is first, this is refused as a duplicate key: nothing is lost.
    let update = "UPDATE curator_data_set SET fingerprint = $1, content = $2
        WHERE name = $3 AND content IS NULL";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&&fingerprint.as_bytes()[..], &&content.as_bytes()[..], &data_set.as_str()];
    client.execute(update, &values).await.map(drop).map_err(postgres("committing"))
}

async fn debit(client: &impl GenericClient, entry: &Debit) -> Result<(), StoreError> {
    let failed = postgres("committing");
    let Debit { data_set, at, caller, purpose, price, caller_most } = entry;
    let query = "SELECT budget, spent FROM curator_data_set WHERE name = $1 FOR NO KEY UPDATE";
    let name = data_set.as_str();
    let found = client.query_opt(query, &[&name]).await.map_err(failed)?;
    let found = found.ok_or_else(|| CuratorRefusal::NoDataSet(data_set.clone()))?;
    let (budget, spent) = (unsigned(found.get(0))?, unsigned(found.get(1))?);
    if *price > budget.saturating_sub(spent) {
        return Err(exhausted(data_set, *price, budget, spent));
    }
    if let Some(most) = caller_most {
        // The data set is locked, so nobody else's debit comes between.
        let spent = spent_by(client, (data_set, caller)).await?;
        check_part(data_set, *price, (spent, *most))?;
    }
    let (price, at) = (signed(*price), signed(at.get()));
    let update = "UPDATE curator_data_set SET spent = spent + $2 WHERE name = $1";
    client.execute(update, &[&name, &price]).await.map_err(failed)?;
    let insert = "INSERT INTO curator_debit (data_set, at, caller, purpose, price)
        VALUES ($1, $2, $3, $4, $5)";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&name, &at, caller, purpose, &price];
    client.execute(insert, &values).await.map(drop).map_err(failed)
}

async fn open(client: &impl GenericClient, session: &SessionRecord) -> Result<(), StoreError> {
    let SessionRecord { name, data_set, columns, plan, threshold_noise } = session;
    let insert = "INSERT INTO curator_session (name, data_set, columns, plan, threshold_noise)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    let (text, data_set) = (name.as_str(), data_set.as_str());
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&text, &data_set, columns, plan, threshold_noise];
    match client.execute(insert, &values).await.map_err(postgres("committing"))? {
        0 => Err(CuratorRefusal::SessionExists(name.clone()).into()),
        _ => Ok(()),
    }
}

/// Adds a round. Of replicas at the same round one adds it, and the others get
/// [`CuratorRefusal::SessionMoved`].
async fn add_round(client: &impl GenericClient, round: &SessionRound) -> Result<(), StoreError> {
    let SessionRound { session, number, update } = round;
    let count = "UPDATE curator_session SET rounds = rounds + 1 WHERE name = $1 AND rounds = $2";
    let counted = client.execute(count, &[&session.as_str(), &signed(*number)]).await;
    if counted.map_err(postgres("committing"))? == 0 {
        return Err(CuratorRefusal::SessionMoved.into());
    }
    match update {
        Some(update) => add_update(client, update).await,
        None => Ok(()),
    }
}

async fn add_update(client: &impl GenericClient, update: &SessionUpdate) -> Result<(), StoreError> {
    let failed = postgres("committing");
    let SessionUpdate { session, number, predicate, answer } = update;
    let (name, number) = (session.as_str(), i64::from(*number));
    let insert = "INSERT INTO curator_update (session, number, predicate, answer)
        SELECT $1::text, $2::bigint, $3::text, $4::bigint
        WHERE (SELECT count(*) FROM curator_update WHERE session = $1::text) = $2::bigint
        ON CONFLICT DO NOTHING";
    match client.execute(insert, &[&name, &number, predicate, answer]).await.map_err(failed)? {
        0 => Err(CuratorRefusal::SessionMoved.into()),
        _ => Ok(()),
    }
}

/// The data set of this name, or all of them by name.
pub(crate) async fn data_sets(
    client: &impl GenericClient,
    name: Option<&CuratorName>,
) -> Result<Vec<DataSetRecord>, StoreError> {
    let select = "SELECT name, file, fingerprint, rows, columns, measure, budget, spent, at,
            content
        FROM intact_curator_data_set WHERE $1::text IS NULL OR name = $1 ORDER BY name";
    let name = name.map(CuratorName::as_str);
    let rows = client.query(select, &[&name]).await.map_err(postgres("reading"))?;
    rows.iter().map(data_set).collect()
}

/// The data sets whose names come after this one, by the bytes of names.
pub(crate) async fn data_sets_after(
    client: &impl GenericClient,
    after: &str,
    limit: u32,
) -> Result<Vec<DataSetRecord>, StoreError> {
    // Databases have collations of their own.
    let select = "SELECT name, file, fingerprint, rows, columns, measure, budget, spent, at,
            content
        FROM intact_curator_data_set
        WHERE name COLLATE \"C\" > $1 ORDER BY name COLLATE \"C\" LIMIT $2";
    let rows = client.query(select, &[&after, &i64::from(limit)]).await;
    rows.map_err(postgres("reading"))?.iter().map(data_set).collect()
}

fn data_set(row: &Row) -> Result<DataSetRecord, StoreError> {
    let content: Option<&[u8]> = row.get(9);
    let measure: &str = row.get(5);
    Ok(DataSetRecord {
        name: name_of(row.get(0))?,
        file: row.get(1),
        fingerprint: Fingerprint::from_bytes(code(row.get(2))?),
        content: content.map(code).transpose()?.map(Fingerprint::from_bytes),
        rows: unsigned(row.get(3))?,
        columns: row.get(4),
        measure: Measure::from_name(measure)
            .ok_or_else(|| damaged(format!("a budget of {measure:?}")))?,
        budget: unsigned(row.get(6))?,
        spent: unsigned(row.get(7))?,
        at: UnixSeconds::new(unsigned(row.get(8))?),
    })
}

/// A code of 32 bytes.
pub(super) fn code(bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes.try_into().map_err(|_| damaged(format!("{} bytes of a code of 32", bytes.len())))
}

/// The key of fingerprints.
pub(crate) async fn fingerprint_key(
    client: &impl GenericClient,
) -> Result<FingerprintKey, StoreError> {
    let row = client.query_opt("SELECT key FROM intact_curator_key", &[]).await;
    let row = row.map_err(postgres("reading"))?;
    let row = row.ok_or_else(|| damaged("the key of fingerprints is missing".to_owned()))?;
    Ok(FingerprintKey::from_bytes(code(row.get(0))?))
}

/// The debits of a data set before a number, the newest first.
pub(crate) async fn debits(
    client: &impl GenericClient,
    (name, caller): (&CuratorName, Option<&str>),
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<DebitRecord>, StoreError> {
    let select = "SELECT number, at, caller, purpose, price FROM intact_curator_debit
        WHERE data_set = $1 AND ($2::bigint IS NULL OR number < $2)
            AND ($3::text IS NULL OR caller = $3)
        ORDER BY number DESC LIMIT $4";
    let (before, limit) = (before.map(signed), i64::from(limit));
    let rows = client.query(select, &[&name.as_str(), &before, &caller, &limit]).await;
    let record = |row: &Row| {
        let debit = Debit {
            data_set: name.clone(),
            at: UnixSeconds::new(unsigned(row.get(1))?),
            caller: row.get(2),
            purpose: row.get(3),
            price: unsigned(row.get(4))?,
            caller_most: None,
        };
        Ok(DebitRecord { number: unsigned(row.get(0))?, debit })
    };
    rows.map_err(postgres("reading"))?.iter().map(record).collect()
}

/// What a caller has spent of a budget.
pub(crate) async fn spent_by(
    client: &impl GenericClient,
    (name, caller): (&CuratorName, &str),
) -> Result<u64, StoreError> {
    let select = "SELECT COALESCE(sum(price), 0)::bigint FROM intact_curator_debit
        WHERE data_set = $1 AND caller = $2";
    let row = client.query_one(select, &[&name.as_str(), &caller]).await;
    unsigned(row.map_err(postgres("reading"))?.get(0))
}

/// The session of this name.
pub(crate) async fn session(
    client: &impl GenericClient,
    name: &CuratorName,
) -> Result<Option<SessionRecord>, StoreError> {
    let select = "SELECT data_set, columns, plan, threshold_noise FROM intact_curator_session
        WHERE name = $1";
    let row = client.query_opt(select, &[&name.as_str()]).await.map_err(postgres("reading"))?;
    let record = |row: Row| {
        let (name, data_set) = (name.clone(), name_of(row.get(0))?);
        let (columns, plan, threshold_noise) = (row.get(1), row.get(2), row.get(3));
        Ok(SessionRecord { name, data_set, columns, plan, threshold_noise })
    };
    row.map(record).transpose()
}

/// The number of rounds of a session.
pub(crate) async fn rounds(
    client: &impl GenericClient,
    name: &CuratorName,
) -> Result<Option<u64>, StoreError> {
    let select = "SELECT rounds FROM intact_curator_session WHERE name = $1";
    let row = client.query_opt(select, &[&name.as_str()]).await.map_err(postgres("reading"))?;
    row.map(|row| unsigned(row.get(0))).transpose()
}

/// The updates of a session in order, starting at a number.
pub(crate) async fn updates(
    client: &impl GenericClient,
    name: &CuratorName,
    from: u32,
    limit: u32,
) -> Result<Vec<SessionUpdate>, StoreError> {
    let select = "SELECT number, predicate, answer FROM intact_curator_update
        WHERE session = $1 AND number >= $2 ORDER BY number LIMIT $3";
    let (from, limit) = (i64::from(from), i64::from(limit));
    let rows = client.query(select, &[&name.as_str(), &from, &limit]).await;
    let update = |row: &Row| {
        let number: i64 = row.get(0);
        let number = u32::try_from(number).map_err(|error| damaged(error.to_string()))?;
        let (predicate, answer) = (row.get(1), row.get(2));
        Ok(SessionUpdate { session: name.clone(), number, predicate, answer })
    };
    rows.map_err(postgres("reading"))?.iter().map(update).collect()
}

fn name_of(name: String) -> Result<CuratorName, StoreError> {
    CuratorName::new(name).map_err(|error| damaged(error.to_string()))
}

fn unsigned(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|error| damaged(error.to_string()))
}
