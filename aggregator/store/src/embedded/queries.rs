//! The curator's budgets and sessions in the embedded store.

use bandana_mechanisms::measure::Measure;
use bandana_shared::identity::UnixSeconds;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::sqlite::{committing, reading};
use super::{SqliteStore, answers, audit};
use crate::fingerprint::{Fingerprint, FingerprintKey};
use crate::queries::{check_part, exhausted};
use crate::{
    CuratorChange, CuratorName, CuratorRefusal, DataSetRecord, Debit, DebitRecord, SessionRecord,
    SessionRound, SessionUpdate, StoreError, damaged,
};

impl SqliteStore {
    /// Makes a change for the curator, durably.
    ///
    /// # Errors
    /// [`StoreError::Refused`]: nothing was changed. [`StoreError::Database`].
    pub fn apply_query_change(&mut self, change: &CuratorChange) -> Result<(), StoreError> {
        let transaction = self.connection.transaction().map_err(committing)?;
        match change {
            CuratorChange::Register(record, found, entry) => {
                register(&transaction, record)?;
                found.as_ref().map_or(Ok(()), |found| debit(&transaction, found))?;
                audit::append(&transaction, entry).map_err(committing)?;
            }
            CuratorChange::Refuse(entry) => {
                audit::append(&transaction, entry).map_err(committing)?;
            }
            CuratorChange::Bind { data_set, fingerprint, content } => {
                bind(&transaction, data_set, *fingerprint, *content)?;
            }
            CuratorChange::Debit(entry, answer) => {
                answer.as_ref().map_or(Ok(()), |answer| answers::keep(&transaction, answer))?;
                debit(&transaction, entry)?;
            }
            CuratorChange::Withdraw(last, entry) => {
                debit(&transaction, last)?;
                audit::append(&transaction, entry).map_err(committing)?;
            }
            CuratorChange::Open(entry, session) => {
                debit(&transaction, entry)?;
                open(&transaction, session)?;
            }
            CuratorChange::Round(round, answer) => {
                answer.as_ref().map_or(Ok(()), |answer| answers::keep(&transaction, answer))?;
                add_round(&transaction, round)?;
            }
        }
        transaction.commit().map_err(committing)
    }
}

fn register(transaction: &Transaction<'_>, record: &DataSetRecord) -> Result<(), StoreError> {
    let DataSetRecord { name, file, rows, columns, measure, budget, at, .. } = record;
    let taken = "SELECT 1 FROM curator_data_set WHERE name = ?";
    let taken = transaction.query_row(taken, [name.as_str()], |_| Ok(())).optional();
    if taken.map_err(reading)?.is_some() {
        return Err(CuratorRefusal::DataSetExists(name.clone()).into());
    }
    let content = record.content.as_ref().map(|content| &content.as_bytes()[..]);
    check_content(transaction, content)?;
    let insert = "INSERT INTO curator_data_set
        (name, file, fingerprint, content, rows, columns, measure, budget, spent, at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?)";
    let values = params![
        name.as_str(),
        file,
        record.fingerprint.as_bytes(),
        content,
        rows,
        columns,
        measure.name(),
        budget,
        at.get()
    ];
    transaction.execute(insert, values).map(drop).map_err(committing)
}

/// Refuses content that another data set already has.
fn check_content(transaction: &Transaction<'_>, content: Option<&[u8]>) -> Result<(), StoreError> {
    let query = "SELECT name FROM curator_data_set WHERE content = ?";
    let other = transaction.query_row(query, [content], |row| row.get::<_, String>(0)).optional();
    match other.map_err(reading)? {
        Some(other) => Err(CuratorRefusal::ContentRegistered(name_of(other)?).into()),
        None => Ok(()),
    }
}

fn bind(
    transaction: &Transaction<'_>,
    data_set: &CuratorName,
    fingerprint: Fingerprint,
    content: Fingerprint,
) -> Result<(), StoreError> {
    check_content(transaction, Some(content.as_bytes()))?;
    let update = "UPDATE curator_data_set SET fingerprint = ?, content = ?
        WHERE name = ? AND content IS NULL";
    let values = params![fingerprint.as_bytes(), content.as_bytes(), data_set.as_str()];
    transaction.execute(update, values).map(drop).map_err(committing)
}

fn debit(transaction: &Transaction<'_>, entry: &Debit) -> Result<(), StoreError> {
    let Debit { data_set, at, caller, purpose, price, caller_most } = entry;
    let query = "SELECT budget, spent FROM intact_curator_data_set WHERE name = ?";
    let found = transaction
        .query_row(query, [data_set.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
        .map_err(reading)?;
    let (budget, spent): (u64, u64) =
        found.ok_or_else(|| CuratorRefusal::NoDataSet(data_set.clone()))?;
    if *price > budget.saturating_sub(spent) {
        return Err(exhausted(data_set, *price, budget, spent));
    }
    if let Some(most) = caller_most {
        let spent = spent_by(transaction, (data_set, caller))?;
        check_part(data_set, *price, (spent, *most))?;
    }
    let update = "UPDATE curator_data_set SET spent = spent + ? WHERE name = ?";
    transaction.execute(update, params![price, data_set.as_str()]).map_err(committing)?;
    let insert =
        "INSERT INTO curator_debit (data_set, at, caller, purpose, price) VALUES (?, ?, ?, ?, ?)";
    let values = params![data_set.as_str(), at.get(), caller, purpose, price];
    transaction.execute(insert, values).map(drop).map_err(committing)
}

fn open(transaction: &Transaction<'_>, session: &SessionRecord) -> Result<(), StoreError> {
    let SessionRecord { name, data_set, columns, plan, threshold_noise } = session;
    let insert = "INSERT INTO curator_session (name, data_set, columns, plan, threshold_noise)
        VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
    let values = params![name.as_str(), data_set.as_str(), columns, plan, threshold_noise];
    match transaction.execute(insert, values).map_err(committing)? {
        0 => Err(CuratorRefusal::SessionExists(name.clone()).into()),
        _ => Ok(()),
    }
}

fn add_round(transaction: &Transaction<'_>, round: &SessionRound) -> Result<(), StoreError> {
    let SessionRound { session, number, update } = round;
    let count = "UPDATE curator_session SET rounds = rounds + 1 WHERE name = ? AND rounds = ?";
    let values = params![session.as_str(), number];
    if transaction.execute(count, values).map_err(committing)? == 0 {
        return Err(CuratorRefusal::SessionMoved.into());
    }
    update.as_ref().map_or(Ok(()), |update| add_update(transaction, update))
}

fn add_update(transaction: &Transaction<'_>, update: &SessionUpdate) -> Result<(), StoreError> {
    let SessionUpdate { session, number, predicate, answer } = update;
    let query = "SELECT count(*) FROM intact_curator_update WHERE session = ?";
    let updates: u32 =
        transaction.query_row(query, [session.as_str()], |row| row.get(0)).map_err(reading)?;
    if updates != *number {
        return Err(CuratorRefusal::SessionMoved.into());
    }
    let insert =
        "INSERT INTO curator_update (session, number, predicate, answer) VALUES (?, ?, ?, ?)";
    let values = params![session.as_str(), number, predicate, answer];
    transaction.execute(insert, values).map(drop).map_err(committing)
}

/// The data set of this name, or all of them by name.
pub(crate) fn data_sets(
    connection: &Connection,
    name: Option<&CuratorName>,
) -> Result<Vec<DataSetRecord>, StoreError> {
    let select = "SELECT name, file, fingerprint, rows, columns, measure, budget, spent, at,
            content
        FROM intact_curator_data_set WHERE ?1 IS NULL OR name = ?1 ORDER BY name";
    let mut statement = connection.prepare(select).map_err(reading)?;
    let name = name.map(CuratorName::as_str);
    let mut rows = statement.query([name]).map_err(reading)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(reading)? {
        records.push(data_set(row)?);
    }
    Ok(records)
}

/// The data sets whose names come after this one, by name.
pub(crate) fn data_sets_after(
    connection: &Connection,
    after: &str,
    limit: u32,
) -> Result<Vec<DataSetRecord>, StoreError> {
    let select = "SELECT name, file, fingerprint, rows, columns, measure, budget, spent, at,
            content
        FROM intact_curator_data_set WHERE name > ?1 ORDER BY name LIMIT ?2";
    let mut statement = connection.prepare(select).map_err(reading)?;
    let mut rows = statement.query(params![after, limit]).map_err(reading)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(reading)? {
        records.push(data_set(row)?);
    }
    Ok(records)
}

fn data_set(row: &Row<'_>) -> Result<DataSetRecord, StoreError> {
    let measure: String = row.get(5).map_err(reading)?;
    Ok(DataSetRecord {
        name: name_of(row.get(0).map_err(reading)?)?,
        file: row.get(1).map_err(reading)?,
        fingerprint: Fingerprint::from_bytes(row.get(2).map_err(reading)?),
        rows: row.get(3).map_err(reading)?,
        columns: row.get(4).map_err(reading)?,
        measure: Measure::from_name(&measure)
            .ok_or_else(|| damaged(format!("a budget of {measure:?}")))?,
        budget: row.get(6).map_err(reading)?,
        spent: row.get(7).map_err(reading)?,
        at: UnixSeconds::new(row.get(8).map_err(reading)?),
        content: row.get::<_, Option<[u8; 32]>>(9).map_err(reading)?.map(Fingerprint::from_bytes),
    })
}

/// The key of fingerprints.
pub(crate) fn fingerprint_key(connection: &Connection) -> Result<FingerprintKey, StoreError> {
    let select = "SELECT key FROM intact_curator_key";
    let key = connection.query_row(select, [], |row| row.get(0)).optional().map_err(reading)?;
    key.map(FingerprintKey::from_bytes)
        .ok_or_else(|| damaged("the key of fingerprints is missing".to_owned()))
}

fn name_of(name: String) -> Result<CuratorName, StoreError> {
    CuratorName::new(name).map_err(|error| damaged(error.to_string()))
}

/// The debits of a data set before a number, the newest first.
pub(crate) fn debits(
    connection: &Connection,
    (name, caller): (&CuratorName, Option<&str>),
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<DebitRecord>, StoreError> {
    let select = "SELECT number, at, caller, purpose, price FROM intact_curator_debit
        WHERE data_set = ?1 AND (?2 IS NULL OR number < ?2) AND (?3 IS NULL OR caller = ?3)
        ORDER BY number DESC LIMIT ?4";
    let before = before.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let mut statement = connection.prepare(select).map_err(reading)?;
    let rows = statement
        .query_map(params![name.as_str(), before, caller, limit], |row| {
            Ok(DebitRecord {
                number: row.get(0)?,
                debit: Debit {
                    data_set: name.clone(),
                    at: UnixSeconds::new(row.get(1)?),
                    caller: row.get(2)?,
                    purpose: row.get(3)?,
                    price: row.get(4)?,
                    caller_most: None,
                },
            })
        })
        .map_err(reading)?;
    rows.collect::<Result<_, _>>().map_err(reading)
}

/// What a caller has spent of a budget.
pub(crate) fn spent_by(
    connection: &Connection,
    (name, caller): (&CuratorName, &str),
) -> Result<u64, StoreError> {
    let select = "SELECT COALESCE(sum(price), 0) FROM intact_curator_debit
        WHERE data_set = ? AND caller = ?";
    connection.query_row(select, [name.as_str(), caller], |row| row.get(0)).map_err(reading)
}

/// The session of this name.
pub(crate) fn session(
    connection: &Connection,
    name: &CuratorName,
) -> Result<Option<SessionRecord>, StoreError> {
    let select = "SELECT data_set, columns, plan, threshold_noise FROM intact_curator_session
        WHERE name = ?";
    let found = connection
        .query_row(select, [name.as_str()], |row| {
            Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()
        .map_err(reading)?;
    let record = |(data_set, columns, plan, threshold_noise)| {
        let (name, data_set) = (name.clone(), name_of(data_set)?);
        Ok(SessionRecord { name, data_set, columns, plan, threshold_noise })
    };
    found.map(record).transpose()
}

/// The number of rounds of a session.
pub(crate) fn rounds(
    connection: &Connection,
    name: &CuratorName,
) -> Result<Option<u64>, StoreError> {
    let select = "SELECT rounds FROM intact_curator_session WHERE name = ?";
    connection.query_row(select, [name.as_str()], |row| row.get(0)).optional().map_err(reading)
}

/// The updates of a session in order, starting at a number.
pub(crate) fn updates(
    connection: &Connection,
    name: &CuratorName,
    from: u32,
    limit: u32,
) -> Result<Vec<SessionUpdate>, StoreError> {
    let select = "SELECT number, predicate, answer FROM intact_curator_update
        WHERE session = ? AND number >= ? ORDER BY number LIMIT ?";
    let mut statement = connection.prepare(select).map_err(reading)?;
    let rows = statement
        .query_map(params![name.as_str(), from, limit], |row| {
            let (number, predicate, answer) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(SessionUpdate { session: name.clone(), number, predicate, answer })
        })
        .map_err(reading)?;
    rows.collect::<Result<_, _>>().map_err(reading)
}
