//! The tables of data sets, debits and sessions.
//!
//! A debit locks the data set's row, so that two replicas can't spend the same budget.

use bandana_mechanisms::measure::Measure;

use super::{
    CuratorChange, DataSetRecord, Debit, DebitRecord, SessionRecord, SessionRound, SessionUpdate,
    answers, check_part, exhausted,
};
use crate::database::{Database, Row};
use crate::fingerprint::{Fingerprint, FingerprintKey};
use crate::{CuratorName, CuratorRefusal, StoreError, audit, damaged};

/// Makes a change for the curator, within the caller's transaction.
pub(crate) async fn change(db: &impl Database, change: &CuratorChange) -> Result<(), StoreError> {
    match change {
        CuratorChange::Register(record, found, entry) => {
            register(db, record).await?;
            if let Some(found) = found {
                debit(db, found).await?;
            }
            audit::append(db, entry).await
        }
        CuratorChange::Refuse(entry) => audit::append(db, entry).await,
        CuratorChange::Bind { data_set, fingerprint, content } => {
            bind(db, data_set, fingerprint, content).await
        }
        CuratorChange::Debit(entry, answer) => {
            answers::keep(db, answer.as_ref()).await?;
            debit(db, entry).await
        }
        CuratorChange::Withdraw(last, entry) => {
            debit(db, last).await?;
            audit::append(db, entry).await
        }
        CuratorChange::Open(entry, session) => {
            debit(db, entry).await?;
            open(db, session).await
        }
        CuratorChange::Round(round, answer) => {
            answers::keep(db, answer.as_ref()).await?;
            add_round(db, round).await
        }
    }
}

async fn register(db: &impl Database, record: &DataSetRecord) -> Result<(), StoreError> {
    let DataSetRecord { name, file, rows, columns, measure, budget, at, .. } = record;
    let insert = "INSERT INTO curator_data_set
        (name, file, fingerprint, content, rows, columns, measure, budget, spent, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9) ON CONFLICT DO NOTHING";
    let values = [
        name.into(),
        file.into(),
        record.fingerprint.as_bytes().into(),
        record.content.as_ref().map(Fingerprint::as_bytes).into(),
        (*rows).into(),
        columns.into(),
        measure.name().into(),
        (*budget).into(),
        (*at).into(),
    ];
    if db.run(insert, &values).await? > 0 {
        return Ok(());
    }
    let taken = "SELECT 1 FROM curator_data_set WHERE name = $1";
    if let Some(content) = &record.content
        && db.row(taken, &[name.into()]).await?.is_none()
    {
        check_content(db, content).await?;
    }
    Err(CuratorRefusal::DataSetExists(name.clone()).into())
}

/// Refuses content that another data set already has.
async fn check_content(db: &impl Database, content: &Fingerprint) -> Result<(), StoreError> {
    let query = "SELECT name FROM curator_data_set WHERE content = $1";
    match db.row(query, &[content.as_bytes().into()]).await? {
        Some(other) => Err(CuratorRefusal::ContentRegistered(other.get(0)?).into()),
        None => Ok(()),
    }
}

async fn bind(
    db: &impl Database,
    data_set: &CuratorName,
    fingerprint: &Fingerprint,
    content: &Fingerprint,
) -> Result<(), StoreError> {
    check_content(db, content).await?;
    // If another replica is first, this is refused as a duplicate key: nothing is lost.
    let update = "UPDATE curator_data_set SET fingerprint = $1, content = $2
        WHERE name = $3 AND content IS NULL";
    let values = [fingerprint.as_bytes().into(), content.as_bytes().into(), data_set.into()];
    db.run(update, &values).await.map(drop)
}

async fn debit(db: &impl Database, entry: &Debit) -> Result<(), StoreError> {
    let Debit { data_set, at, caller, purpose, price, caller_most } = entry;
    let query = "SELECT budget, spent FROM intact_curator_data_set WHERE name = $1";
    let query = query.to_owned() + db.dialect().lock;
    let found = db.row(&query, &[data_set.into()]).await?;
    let found = found.ok_or_else(|| CuratorRefusal::NoDataSet(data_set.clone()))?;
    let (budget, spent): (u64, u64) = (found.get(0)?, found.get(1)?);
    if *price > budget.saturating_sub(spent) {
        return Err(exhausted(data_set, *price, budget, spent));
    }
    if let Some(most) = caller_most {
        // The data set is locked, so nobody else's debit comes between.
        let spent = spent_by(db, (data_set, caller)).await?;
        check_part(data_set, *price, (spent, *most))?;
    }
    let update = "UPDATE curator_data_set SET spent = spent + $2 WHERE name = $1";
    db.run(update, &[data_set.into(), (*price).into()]).await?;
    let insert = "INSERT INTO curator_debit (data_set, at, caller, purpose, price)
        VALUES ($1, $2, $3, $4, $5)";
    let values = [data_set.into(), (*at).into(), caller.into(), purpose.into(), (*price).into()];
    db.run(insert, &values).await.map(drop)
}

async fn open(db: &impl Database, session: &SessionRecord) -> Result<(), StoreError> {
    let SessionRecord { name, data_set, columns, plan, threshold_noise } = session;
    let insert = "INSERT INTO curator_session (name, data_set, columns, plan, threshold_noise)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    let noise = (*threshold_noise).into();
    let values = [name.into(), data_set.into(), columns.into(), plan.into(), noise];
    match db.run(insert, &values).await? {
        0 => Err(CuratorRefusal::SessionExists(name.clone()).into()),
        _ => Ok(()),
    }
}

/// Adds a round. Of replicas at the same round one adds it, and the others get
/// [`CuratorRefusal::SessionMoved`].
async fn add_round(db: &impl Database, round: &SessionRound) -> Result<(), StoreError> {
    let SessionRound { session, number, update } = round;
    let count = "UPDATE curator_session SET rounds = rounds + 1 WHERE name = $1 AND rounds = $2";
    if db.run(count, &[session.into(), (*number).into()]).await? == 0 {
        return Err(CuratorRefusal::SessionMoved.into());
    }
    let Some(SessionUpdate { session, number, predicate, answer }) = update else { return Ok(()) };
    let insert = "INSERT INTO curator_update (session, number, predicate, answer)
        SELECT CAST($1 AS text), CAST($2 AS bigint), CAST($3 AS text), CAST($4 AS bigint)
        WHERE (SELECT count(*) FROM intact_curator_update WHERE session = $1) = $2
        ON CONFLICT DO NOTHING";
    let values = [session.into(), (*number).into(), predicate.into(), (*answer).into()];
    match db.run(insert, &values).await? {
        0 => Err(CuratorRefusal::SessionMoved.into()),
        _ => Ok(()),
    }
}

const DATA_SETS: &str = "SELECT name, file, fingerprint, rows, columns, measure, budget, spent, at,
        content
    FROM intact_curator_data_set WHERE";

/// The data set of this name, or all of them by name.
pub(crate) async fn data_sets(
    db: &impl Database,
    name: Option<&CuratorName>,
) -> Result<Vec<DataSetRecord>, StoreError> {
    let select = format!("{DATA_SETS} CAST($1 AS text) IS NULL OR name = $1 ORDER BY name");
    db.rows(&select, &[name.into()]).await?.iter().map(data_set).collect()
}

/// The data sets whose names come after this one, by the bytes of names.
pub(crate) async fn data_sets_after(
    db: &impl Database,
    after: &str,
    limit: u32,
) -> Result<Vec<DataSetRecord>, StoreError> {
    let by_bytes = db.dialect().by_bytes;
    let select = format!("{DATA_SETS} name{by_bytes} > $1 ORDER BY name{by_bytes} LIMIT $2");
    db.rows(&select, &[after.into(), limit.into()]).await?.iter().map(data_set).collect()
}

fn data_set(row: &Row) -> Result<DataSetRecord, StoreError> {
    let measure: String = row.get(5)?;
    Ok(DataSetRecord {
        name: row.get(0)?,
        file: row.get(1)?,
        fingerprint: Fingerprint::from_bytes(row.get(2)?),
        content: row.get::<Option<_>>(9)?.map(Fingerprint::from_bytes),
        rows: row.get(3)?,
        columns: row.get(4)?,
        measure: Measure::from_name(&measure)
            .ok_or_else(|| damaged(format!("a budget of {measure:?}")))?,
        budget: row.get(6)?,
        spent: row.get(7)?,
        at: row.get(8)?,
    })
}

/// The key of fingerprints.
pub(crate) async fn fingerprint_key(db: &impl Database) -> Result<FingerprintKey, StoreError> {
    let row = db.row("SELECT key FROM intact_curator_key", &[]).await?;
    let row = row.ok_or_else(|| damaged("the key of fingerprints is missing".to_owned()))?;
    row.get(0).map(FingerprintKey::from_bytes)
}

/// The debits of a data set before a number, the newest first.
pub(crate) async fn debits(
    db: &impl Database,
    (name, caller): (&CuratorName, Option<&str>),
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<DebitRecord>, StoreError> {
    let select = "SELECT number, at, caller, purpose, price FROM intact_curator_debit
        WHERE data_set = $1 AND (CAST($2 AS bigint) IS NULL OR number < $2)
            AND (CAST($3 AS text) IS NULL OR caller = $3)
        ORDER BY number DESC LIMIT $4";
    let before = before.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let values = [name.into(), before.into(), caller.into(), limit.into()];
    let record = |row: &Row| {
        let debit = Debit {
            data_set: name.clone(),
            at: row.get(1)?,
            caller: row.get(2)?,
            purpose: row.get(3)?,
            price: row.get(4)?,
            caller_most: None,
        };
        Ok(DebitRecord { number: row.get(0)?, debit })
    };
    db.rows(select, &values).await?.iter().map(record).collect()
}

/// What a caller has spent of a budget.
pub(crate) async fn spent_by(
    db: &impl Database,
    (name, caller): (&CuratorName, &str),
) -> Result<u64, StoreError> {
    let select = "SELECT CAST(COALESCE(sum(price), 0) AS bigint) FROM intact_curator_debit
        WHERE data_set = $1 AND caller = $2";
    db.value(select, &[name.into(), caller.into()]).await
}

/// The session of this name.
pub(crate) async fn session(
    db: &impl Database,
    name: &CuratorName,
) -> Result<Option<SessionRecord>, StoreError> {
    let select = "SELECT data_set, columns, plan, threshold_noise FROM intact_curator_session
        WHERE name = $1";
    let record = |row: Row| {
        let (name, data_set) = (name.clone(), row.get(0)?);
        let (columns, plan, threshold_noise) = (row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(SessionRecord { name, data_set, columns, plan, threshold_noise })
    };
    db.row(select, &[name.into()]).await?.map(record).transpose()
}

/// The number of rounds of a session.
pub(crate) async fn rounds(
    db: &impl Database,
    name: &CuratorName,
) -> Result<Option<u64>, StoreError> {
    let select = "SELECT rounds FROM intact_curator_session WHERE name = $1";
    db.row(select, &[name.into()]).await?.map(|row| row.get(0)).transpose()
}

/// The updates of a session in order, starting at a number.
pub(crate) async fn updates(
    db: &impl Database,
    name: &CuratorName,
    from: u32,
    limit: u32,
) -> Result<Vec<SessionUpdate>, StoreError> {
    let select = "SELECT number, predicate, answer FROM intact_curator_update
        WHERE session = $1 AND number >= $2 ORDER BY number LIMIT $3";
    let update = |row: &Row| {
        let (number, predicate, answer) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(SessionUpdate { session: name.clone(), number, predicate, answer })
    };
    db.rows(select, &[name.into(), from.into(), limit.into()]).await?.iter().map(update).collect()
}

/// Each data set with its budget, what was spent of it, and the sum of its debits.
pub(crate) async fn budgets(db: &impl Database) -> Result<Vec<(String, [u64; 3])>, StoreError> {
    let query = "SELECT name, budget, spent, (SELECT CAST(COALESCE(sum(price), 0) AS bigint)
            FROM curator_debit WHERE data_set = name)
        FROM curator_data_set ORDER BY name";
    let budget = |row: &Row| Ok((row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?]));
    db.rows(query, &[]).await?.iter().map(budget).collect()
}
