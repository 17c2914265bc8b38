//! SQLite as a database of tables: its futures are ready at once, so no runtime is needed.

use futures_util::FutureExt as _;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, Null, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection};

use super::SqliteStore;
use super::sqlite::{committing, reading};
use crate::database::{Database, Dialect, Row, Value};
use crate::{DatabaseError, StoreError};

/// Only one connection writes, so its rows need no locks.
const DIALECT: Dialect = Dialect { lock: "", by_bytes: "", today: None };

impl SqliteStore {
    /// Runs `work` in a transaction, and commits it durably.
    pub(super) fn change<T>(
        &mut self,
        work: impl AsyncFnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let transaction = self.connection.transaction().map_err(committing)?;
        let value = ready(work(&transaction))?;
        transaction.commit().map_err(committing)?;
        Ok(value)
    }
}

/// The outcome of work on SQLite alone, which never waits.
pub(crate) fn ready<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let waits = || StoreError::Database(DatabaseError::Slow { doing: "working on SQLite" });
    work.now_or_never().unwrap_or_else(|| Err(waits()))
}

impl Database for Connection {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    async fn run(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        let changed = prepare(self, sql, values).and_then(|mut statement| statement.raw_execute());
        changed.map(|rows| rows as u64).map_err(committing)
    }

    async fn rows(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        let mut statement = prepare(self, sql, values).map_err(reading)?;
        let failed = if statement.readonly() { reading } else { committing };
        let columns = statement.column_count();
        let mut rows = statement.raw_query();
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let values = (0..columns).map(|column| row.get(column));
            found.push(Row(values.collect::<Result<_, _>>().map_err(failed)?));
        }
        Ok(found)
    }

    async fn take_turns(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The statement with its parameters, which SQLite numbers as they first appear.
fn prepare<'c>(
    connection: &'c Connection,
    sql: &str,
    values: &[Value<'_>],
) -> rusqlite::Result<CachedStatement<'c>> {
    let mut statement = connection.prepare_cached(sql)?;
    for place in 1..=statement.parameter_count() {
        let name = statement.parameter_name(place).and_then(|name| name.strip_prefix('$'));
        let number = name.and_then(|name| name.parse::<usize>().ok());
        let value = number.and_then(|number| values.get(number.wrapping_sub(1)));
        let value = value.ok_or(rusqlite::Error::InvalidParameterCount(place, values.len()))?;
        statement.raw_bind_parameter(place, value)?;
    }
    Ok(statement)
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Null => Null.to_sql(),
            Self::Integer(number) => number.to_sql(),
            Self::Unsigned(number) => number.to_sql(),
            Self::Text(text) => text.to_sql(),
            Self::Bytes(bytes) => bytes.to_sql(),
        }
    }
}

impl FromSql for Value<'static> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Text(_) => Self::Text(String::column_result(value)?.into()),
            ValueRef::Blob(bytes) => Self::Bytes(bytes.to_vec().into()),
            ValueRef::Real(_) => return Err(FromSqlError::InvalidType),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_bound_by_their_numbers_and_not_as_they_appear() {
        let connection = Connection::open_in_memory().unwrap();
        let sql = "SELECT $2, CAST($1 AS text), $2, $3";
        let row = ready(connection.row(sql, &["a".into(), 7_u64.into(), (&[1, 2]).into()]));
        let row = row.unwrap().unwrap();
        assert_eq!((row.get::<u32>(0).unwrap(), row.get::<u64>(2).unwrap()), (7, 7));
        assert_eq!(row.get::<String>(1).unwrap(), "a");
        assert_eq!(row.get::<[u8; 2]>(3).unwrap(), [1, 2]);
        // Of another type, too few, and too large.
        assert!(row.get::<u64>(1).is_err_and(|error| error.is_damage()));
        assert!(ready(connection.rows(sql, &["a".into(), 7_u64.into()])).is_err());
        assert!(ready(connection.rows("SELECT $1", &[u64::MAX.into()])).is_err());
    }
}
