//! Checksums of rows and tables, which reveal damage that SQLite does not notice: changed values.
//!
//! Each row has the CRC-32 of its table's name and its other columns. `table_sum` has the number of
//! rows and the sum of their checksums for each table, which reveals missing rows. Temporary
//! triggers on the writing connection maintain both. They also check a row before it is changed or
//! deleted, so damage never gets a new checksum. Readers use the temporary views `intact_...`,
//! which check every row that they return.
//!
//! A new table only has to be created by a step of the schema: the column, triggers and view are
//! derived from the table's definition. Statements name the columns that they insert, and select
//! from the views.

use std::sync::OnceLock;

use crc32fast::Hasher;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, ffi};

use super::schema;
use super::sqlite::reading;
use crate::{StoreError, damaged};

/// The table of sums, which the other tables are checked against.
const SUMS: &str = "table_sum";

/// A table whose rows have checksums.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: String,
    /// All columns but the checksum, in their order.
    columns: Vec<String>,
    /// The columns that identify a row: the primary key, or else the row id.
    key: Vec<String>,
    /// For a table whose numbers are never reused: whether rows are never deleted, so that no
    /// number may be missing at the end.
    numbered: Option<bool>,
}

impl Table {
    /// The columns, each prefixed with `before`.
    fn list(&self, before: &str) -> String {
        let quoted = self.columns.iter().map(|column| format!("{before}\"{column}\""));
        quoted.collect::<Vec<_>>().join(", ")
    }

    /// The SQL expression of the checksum that the row `NEW` or `OLD` should have.
    fn expected(&self, row: &str) -> String {
        format!("row_checksum('{}', {})", self.name, self.list(row))
    }

    /// The SQL condition that two rows have the same key.
    fn has_key_of(&self, row: &str, other: &str) -> String {
        let equal = |column| format!("{row}\"{column}\" = {other}\"{column}\"");
        let equal = self.key.iter().map(equal);
        equal.collect::<Vec<_>>().join(" AND ")
    }

    /// The triggers that maintain this table's checksums.
    fn triggers(&self) -> String {
        let Self { name, .. } = self;
        let (columns, old) = (self.list(""), self.list("OLD."));
        let (key, new) = (self.has_key_of("", "NEW."), self.expected("NEW."));
        format!(
            "CREATE TEMP TRIGGER \"seal_{name}_insert\" AFTER INSERT ON main.\"{name}\" BEGIN
                UPDATE \"{name}\" SET checksum = {new} WHERE {key};
                UPDATE {SUMS} SET rows = rows + 1, sum = sum + {new} WHERE name = '{name}';
            END;
            CREATE TEMP TRIGGER \"seal_{name}_update\"
            AFTER UPDATE OF {columns} ON main.\"{name}\" BEGIN
                SELECT is_intact('{name}', OLD.checksum, {old});
                UPDATE \"{name}\" SET checksum = {new} WHERE {key};
                UPDATE {SUMS} SET sum = sum - OLD.checksum + {new} WHERE name = '{name}';
            END;
            CREATE TEMP TRIGGER \"seal_{name}_delete\" AFTER DELETE ON main.\"{name}\" BEGIN
                SELECT is_intact('{name}', OLD.checksum, {old});
                UPDATE {SUMS} SET rows = rows - 1, sum = sum - OLD.checksum WHERE name = '{name}';
            END;"
        )
    }

    /// The view that reads this table. In versions without checksums it does not check rows.
    fn view(&self, version: i64) -> String {
        let Self { name, .. } = self;
        let columns = self.list("");
        let check = if version < schema::WITH_CHECKSUMS {
            String::new()
        } else {
            // The row is read once more by its key. Otherwise SQLite would pass on the operand of a
            // comparison in place of the column, and evaluate the check on other rows too.
            let (stored, key) = (self.list("r."), self.has_key_of("r.", "t."));
            format!(
                "WHERE (SELECT is_intact('{name}', r.checksum, {stored})
                    FROM main.\"{name}\" r WHERE {key})"
            )
        };
        format!(
            "CREATE TEMP VIEW \"intact_{name}\" AS SELECT {columns} FROM main.\"{name}\" t {check};"
        )
    }

    /// The position of a row, for people, without ids of uploads and the like.
    fn place(&self, row: &Row<'_>) -> rusqlite::Result<String> {
        let mut place = format!("the row of {}", self.name);
        for (at, column) in self.columns.iter().enumerate() {
            if !self.key.contains(column) {
                continue;
            }
            match row.get_ref(at + 1)? {
                ValueRef::Integer(number) => place = format!("{place}, {column} {number}"),
                ValueRef::Text(text) => {
                    let text = String::from_utf8_lossy(text);
                    place = format!("{place}, {column} {text:?}");
                }
                ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => {}
            }
        }
        Ok(place)
    }

    /// Compares every row with its checksum, and the table with its sum. Returns the number of
    /// rows.
    pub(super) fn check(
        &self,
        connection: &Connection,
        found: &mut impl FnMut(String),
    ) -> rusqlite::Result<u64> {
        let Self { name, .. } = self;
        let query = format!("SELECT checksum, {} FROM main.\"{name}\"", self.list(""));
        let mut statement = connection.prepare(&query)?;
        let mut rows = statement.query([])?;
        let (mut number, mut sum) = (0_i64, 0_i64);
        while let Some(row) = rows.next()? {
            if !is_intact(name, row)? {
                found(format!("{} is not as it was written", self.place(row)?));
            }
            number += 1;
            sum += row.get_ref(0)?.as_i64().unwrap_or_default();
        }
        let query = format!("SELECT rows, sum FROM {SUMS} WHERE name = ?");
        let mut sums = connection.prepare(&query)?;
        let mut sums = sums.query([name])?;
        let stored = match sums.next()? {
            Some(row) => Some((row.get(0)?, row.get(1)?)),
            None => None,
        };
        match stored {
            Some((rows, of_rows)) if (rows, of_rows) == (number, sum) => {}
            Some((rows, _)) if rows != number => {
                found(format!("{name} has {number} rows, and {rows} were written"));
            }
            Some(_) => found(format!("the rows of {name} are not those that were written")),
            None => found(format!("{name} has no sum of its checksums")),
        }
        self.check_numbers(connection, found)?;
        Ok(number.unsigned_abs())
    }

    /// Checks that the next number follows the last one.
    fn check_numbers(
        &self,
        connection: &Connection,
        found: &mut impl FnMut(String),
    ) -> rusqlite::Result<()> {
        let Some(is_complete) = self.numbered else { return Ok(()) };
        let Self { name, .. } = self;
        let query = format!(
            "SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = ?), 0),
                COALESCE((SELECT max(rowid) FROM \"{name}\"), 0)"
        );
        let (next, last): (i64, i64) =
            connection.query_row(&query, [name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if next < last || (is_complete && next > last) {
            found(format!("the numbers of {name} go on after {next}, and the last is {last}"));
        }
        Ok(())
    }
}

/// Whether a row of this table is as it was written. The row has its checksum first, then all other
/// columns in their order.
pub(super) fn is_intact(table: &str, row: &Row<'_>) -> rusqlite::Result<bool> {
    let mut checksum = Checksum::new(table.as_bytes());
    for column in 1..row.as_ref().column_count() {
        checksum.add(row.get_ref(column)?);
    }
    Ok(row.get_ref(0)? == ValueRef::Integer(checksum.value()))
}

/// The tables of a connection, except the table of sums.
fn tables(connection: &Connection) -> rusqlite::Result<Vec<Table>> {
    let query = "SELECT l.name, l.wr, s.sql LIKE '%AUTOINCREMENT%', EXISTS (
            SELECT 1 FROM sqlite_schema t
            WHERE t.type = 'trigger' AND t.tbl_name = l.name AND t.sql LIKE '%BEFORE DELETE%')
        FROM pragma_table_list l JOIN sqlite_schema s ON s.type = 'table' AND s.name = l.name
        WHERE l.schema = 'main' AND l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND l.name <> ?
        ORDER BY s.rowid";
    let mut statement = connection.prepare(query)?;
    let rows = statement.query_map([SUMS], |row| {
        let numbered = row.get::<_, bool>(2)?.then_some(row.get(3)?);
        Ok((row.get(0)?, row.get(1)?, numbered))
    })?;
    let found: Vec<(String, bool, Option<bool>)> = rows.collect::<Result<_, _>>()?;
    let table = |(name, without_rowid, numbered): (String, bool, Option<bool>)| {
        let query = "SELECT name, pk > 0 FROM pragma_table_info(?) WHERE name <> 'checksum'";
        let mut statement = connection.prepare(query)?;
        let rows = statement.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let all: Vec<(String, bool)> = rows.collect::<Result<_, _>>()?;
        let key = all.iter().filter(|(_, is_key)| *is_key).map(|(column, _)| column.clone());
        let mut key: Vec<String> = key.collect();
        if key.is_empty() && !without_rowid {
            key.push("rowid".to_owned());
        }
        Ok(Table {
            name,
            columns: all.into_iter().map(|(column, _)| column).collect(),
            key,
            numbered,
        })
    };
    found.into_iter().map(table).collect()
}

/// The tables of a schema version.
pub(super) fn of_version(version: i64) -> rusqlite::Result<Vec<Table>> {
    tables(&schema::example(version)?)
}

/// Adds a checksum column to each table that has none.
pub(super) fn add_columns(connection: &Connection) -> rusqlite::Result<()> {
    for Table { name, .. } in tables(connection)? {
        if !connection.column_exists(None, name.as_str(), "checksum")? {
            let add = "ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0";
            connection.execute_batch(&format!("ALTER TABLE \"{name}\" {add}"))?;
        }
    }
    Ok(())
}

/// Accepts all rows as they are: sets the checksum of each row and the sum of each table.
pub(super) fn seal(connection: &Connection) -> rusqlite::Result<()> {
    add_functions(connection)?;
    connection.execute(&format!("DELETE FROM {SUMS}"), [])?;
    for table in tables(connection)? {
        let (name, expected) = (&table.name, table.expected(""));
        connection.execute_batch(&format!(
            "UPDATE \"{name}\" SET checksum = {expected} WHERE checksum <> {expected};
            INSERT INTO {SUMS} (name, rows, sum)
            SELECT '{name}', count(*), COALESCE(sum(checksum), 0) FROM \"{name}\";"
        ))?;
    }
    Ok(())
}

/// Checks the structure and all rows of a store of this version.
///
/// # Errors
/// [`StoreError::Damage`] with the first damage found.
pub(super) fn check_all(connection: &Connection, version: i64) -> Result<(), StoreError> {
    let check = "PRAGMA integrity_check(1)";
    let said: String = connection.query_row(check, [], |row| row.get(0)).map_err(reading)?;
    if said != "ok" {
        return Err(damaged(said));
    }
    if version < schema::WITH_CHECKSUMS {
        return Ok(());
    }
    let (mut first, mut number) = (None, 0_u64);
    for table in of_version(version).map_err(reading)? {
        let checked = table.check(connection, &mut |finding| {
            number += 1;
            first.get_or_insert(finding);
        });
        checked.map_err(reading)?;
    }
    match first {
        None => Ok(()),
        Some(first) if number == 1 => Err(damaged(first)),
        Some(first) => {
            let more = format!("{first}, and {} more; `bandana verify` names them", number - 1);
            Err(damaged(more))
        }
    }
}

/// Makes a connection check the rows that it reads, in a store of the current schema version.
pub(crate) fn read_intact(connection: &Connection) -> rusqlite::Result<()> {
    watch_reading(connection, schema::VERSION)
}

/// As [`read_intact`], in a store of any version.
pub(super) fn watch_reading(connection: &Connection, version: i64) -> rusqlite::Result<()> {
    add_functions(connection)?;
    if version != schema::VERSION {
        let views: String = of_version(version)?.iter().map(|table| table.view(version)).collect();
        return connection.execute_batch(&views);
    }
    connection.execute_batch(&statements()?.views)
}

/// Makes a writing connection maintain checksums, and check the rows that it reads and changes.
pub(super) fn watch(connection: &Connection) -> rusqlite::Result<()> {
    watch_reading(connection, schema::VERSION)?;
    connection.execute_batch(&statements()?.triggers)
}

/// The statements that create the views and triggers of a version.
#[derive(Debug)]
struct Statements {
    views: String,
    triggers: String,
}

fn statements() -> rusqlite::Result<&'static Statements> {
    static STATEMENTS: OnceLock<Statements> = OnceLock::new();
    if let Some(known) = STATEMENTS.get() {
        return Ok(known);
    }
    let tables = of_version(schema::VERSION)?;
    let views = tables.iter().map(|table| table.view(schema::VERSION)).collect();
    let triggers = tables.iter().map(Table::triggers).collect();
    Ok(STATEMENTS.get_or_init(|| Statements { views, triggers }))
}

/// Defines `row_checksum(table, column...)` and `is_intact(table, checksum, column...)`. The latter
/// fails when the checksum does not match.
fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    connection
        .create_scalar_function("row_checksum", -1, flags, |context| Ok(of_call(context, 1)))?;
    connection.create_scalar_function("is_intact", -1, flags, |context| {
        if context.get_raw(1) == ValueRef::Integer(of_call(context, 2)) {
            return Ok(true);
        }
        let table = String::from_utf8_lossy(context.get_raw(0).as_bytes().unwrap_or_default());
        tracing::error!(%table, "a row of the database is not as it was written");
        // With a message of its own, SQLite would not report the error as damage.
        let damage = ffi::Error::new(ffi::SQLITE_CORRUPT);
        Err(rusqlite::Error::SqliteFailure(damage, None))
    })
}

/// The checksum of a row whose columns begin at the parameter `first`, after the table's name.
fn of_call(context: &Context<'_>, first: usize) -> i64 {
    let mut checksum = Checksum::new(context.get_raw(0).as_bytes().unwrap_or_default());
    for column in first..context.len() {
        checksum.add(context.get_raw(column));
    }
    checksum.value()
}

/// The CRC-32 of a table's name and a row's values. Each value has its type and, if that varies,
/// its length.
#[derive(Debug)]
struct Checksum(Hasher);

impl Checksum {
    fn new(table: &[u8]) -> Self {
        let mut checksum = Self(Hasher::new());
        checksum.add(ValueRef::Text(table));
        checksum
    }

    fn add(&mut self, value: ValueRef<'_>) {
        let (kind, number, bytes): (u8, [u8; 8], &[u8]) = match value {
            ValueRef::Null => (0, [0; 8], &[]),
            ValueRef::Integer(number) => (1, number.to_le_bytes(), &[]),
            // SQLite stores negative zero as zero.
            ValueRef::Real(number) => (2, (number + 0.0).to_bits().to_le_bytes(), &[]),
            ValueRef::Text(text) => (3, (text.len() as u64).to_le_bytes(), text),
            ValueRef::Blob(blob) => (4, (blob.len() as u64).to_le_bytes(), blob),
        };
        self.0.update(&[kind]);
        self.0.update(&number);
        self.0.update(bytes);
    }

    fn value(self) -> i64 {
        i64::from(self.0.finalize())
    }
}
