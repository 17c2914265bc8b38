//! The tables of the embedded store, and the upgrade of earlier versions.

use std::collections::BTreeMap;

use bandana_sqlite::SqliteError;
use rusqlite::Connection;

use super::checksums;
use crate::fingerprint::FingerprintKey;
use crate::{DatabaseError, StoreError, damaged};

/// The application id that marks the file as Bandana's: "BNDN".
pub(super) const APPLICATION_ID: i64 = 0x424e_444e;

/// The steps that make each version from the one before; the first starts with an empty file.
const STEPS: [(i64, &str); 14] = [
    (1, include_str!("migrations/01_tables.sql")),
    (2, include_str!("migrations/02_signatures.sql")),
    (3, include_str!("migrations/03_drafts_and_audit.sql")),
    (4, include_str!("migrations/04_queries.sql")),
    (5, include_str!("migrations/05_symbols_and_memory.sql")),
    (6, include_str!("migrations/06_trusted.sql")),
    (7, include_str!("migrations/07_guardrails.sql")),
    (8, include_str!("migrations/08_contents_and_rounds.sql")),
    (WITH_IDENTITY, include_str!("migrations/09_identity.sql")),
    (10, include_str!("migrations/10_known_days.sql")),
    (WITH_CHECKSUMS, include_str!("migrations/11_checksums.sql")),
    (WITH_RECORDS, include_str!("migrations/12_records.sql")),
    (13, include_str!("migrations/13_revisions.sql")),
    (14, include_str!("migrations/14_log.sql")),
];

/// The schema version of this program.
pub(super) const VERSION: i64 = STEPS[STEPS.len() - 1].0;

/// First version with signatures, and with the audit log.
pub(super) const WITH_SIGNATURES: i64 = 2;
pub(super) const WITH_AUDIT: i64 = 3;

/// First version with budgets.
pub(super) const WITH_CURATOR: i64 = 4;

/// First version with trusted experiments, and with an id of the store.
pub(super) const WITH_TRUSTED: i64 = 6;
pub(super) const WITH_IDENTITY: i64 = 9;

/// First version whose rows have checksums.
pub(super) const WITH_CHECKSUMS: i64 = 11;

/// First version with records of experiments.
pub(super) const WITH_RECORDS: i64 = 12;

/// Creates the tables in an empty file.
pub(super) fn create(connection: &mut Connection) -> Result<(), StoreError> {
    upgrade(connection, 0)
}

/// Brings the tables of an earlier version up to date. Damage is noticed before anything is
/// changed.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    let version = version_of(connection)?;
    if let Some(difference) = differences(connection, version).map_err(failed)?.pop() {
        return Err(damaged(difference));
    }
    checksums::check_all(connection, version)?;
    if version < VERSION { upgrade(connection, version) } else { Ok(()) }
}

/// The differences of tables, indexes and triggers from those of a version. Additional ones are
/// harmless and left out.
pub(super) fn differences(connection: &Connection, version: i64) -> rusqlite::Result<Vec<String>> {
    let found = definitions(connection)?;
    let difference = |(name, definition): (String, String)| match found.get(&name) {
        None => Some(format!("there is no {name}")),
        Some(found) if *found != definition => Some(format!("the {name} is not as it was made")),
        Some(_) => None,
    };
    Ok(definitions(&example(version)?)?.into_iter().filter_map(difference).collect())
}

/// The definitions in a database by kind and name. SQLite rewrites some of them when a table is
/// renamed: blanks and quotes are not significant.
fn definitions(connection: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    let query = "SELECT type || ' ' || name, tbl_name || ' ' || sql FROM sqlite_schema
        WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut statement = connection.prepare(query)?;
    let plain = |sql: String| sql.chars().filter(|c| !c.is_whitespace() && *c != '"').collect();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, plain(row.get(1)?))))?;
    rows.collect()
}

/// The schema version of a file, which must be Bandana's and not of a newer program.
pub(super) fn version_of(connection: &Connection) -> Result<i64, StoreError> {
    let (application, version) = marks(connection)?;
    known(application, version)
}

fn known(application: i64, version: i64) -> Result<i64, StoreError> {
    match (application, version) {
        (APPLICATION_ID, 1..=VERSION) => Ok(version),
        (APPLICATION_ID, found) if found > VERSION => {
            Err(SqliteError::NewerSchema { found, known: VERSION }.into())
        }
        _ => Err(SqliteError::ForeignFile.into()),
    }
}

/// An empty database of a version, in memory.
pub(super) fn example(version: i64) -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    connection.pragma_update(None, "foreign_keys", false)?;
    steps(&connection, 0, version)?;
    Ok(connection)
}

/// The application id and the schema version of a file.
fn marks(connection: &Connection) -> Result<(i64, i64), StoreError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let version = pragma("user_version").map_err(failed)?;
    Ok((pragma("application_id").map_err(failed)?, version))
}

fn failed(source: rusqlite::Error) -> StoreError {
    SqliteError::Failed { doing: "checking its schema", source }.into()
}

fn steps(connection: &Connection, from: i64, to: i64) -> rusqlite::Result<()> {
    for (version, step) in STEPS.iter().filter(|(version, _)| (from + 1..=to).contains(version)) {
        connection.execute_batch(step)?;
        if *version >= WITH_CHECKSUMS {
            checksums::add_columns(connection)?;
        }
    }
    Ok(())
}

/// Runs all steps after version `from`, in one transaction: a crash leaves the old version or the
/// new one.
fn upgrade(connection: &mut Connection, from: i64) -> Result<(), StoreError> {
    let key = FingerprintKey::random()
        .map_err(|source| StoreError::Database(DatabaseError::Entropy { source }))?;
    take_steps(connection, from, &key).map_err(failed)
}

fn take_steps(
    connection: &mut Connection,
    from: i64,
    key: &FingerprintKey,
) -> rusqlite::Result<()> {
    // A table with references to it can't be replaced while foreign keys are enforced, and
    // enforcement can't be switched within a transaction.
    connection.pragma_update(None, "foreign_keys", false)?;
    let transaction = connection.transaction()?;
    steps(&transaction, from, VERSION)?;
    let insert = "INSERT INTO curator_key (one, key) VALUES (1, ?) ON CONFLICT DO NOTHING";
    transaction.execute(insert, [&key.as_bytes()[..]])?;
    checksums::seal(&transaction)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    connection.pragma_update(None, "foreign_keys", true)
}
