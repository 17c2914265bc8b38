//! Checks of a store: all data is read, and derived data is computed again.

mod experiments;
mod trusted;
mod uploads;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bandana_shared::identity::{Day, StoreId};
use bandana_sqlite::acknowledged::{self, Progress};
use bandana_sqlite::{DATABASE_FILE, SqliteError};
use rusqlite::{Connection, ErrorCode};

use super::sqlite::reading;
use super::{checksums, progress, read_only, ready, schema};
use crate::{AuditQuery, DamageError, StoreError, Verification, audit, queries};
use uploads::Uploads;

/// Most findings of SQLite about one file that are listed.
const PAGE_FINDINGS_MAX: u32 = 100;

/// The offset of the format versions for writers and readers in a database: 2 with a log beside it,
/// 1 without. SQLite takes higher numbers for later versions, and others for no database.
const FORMATS_OFFSET: u64 = 18;

/// Entries of the audit log held in memory at the same time.
const AUDIT_PAGE: u32 = 1000;

/// Checks the store in `directory`, which a server may have open, and changes nothing. Takes 16
/// bytes of memory for each upload of the replay window.
///
/// # Errors
/// [`StoreError`] when the store can't be read, or its schema version is unknown. Damage is among
/// the findings.
pub fn verify_directory(directory: &Path) -> Result<Verification, StoreError> {
    let file = directory.join(DATABASE_FILE);
    if !file.exists() {
        return Err(SqliteError::Missing { path: directory.to_owned() }.into());
    }
    let verify = |connection: &Connection| {
        // Read before the moment at which the store is read, since a server may commit meanwhile.
        let known = acknowledged(connection, directory)?;
        connection.execute_batch("ROLLBACK; BEGIN").map_err(reading)?;
        let mut verification = verify(connection, &file)?;
        verification.begin("what was acknowledged");
        if let Some(known) = known {
            verification.examined(1);
            let found = progress::of(connection);
            let found = noted(&mut verification, "how far the store has come", found)?;
            if let Some(what) = found.and_then(|found| progress::lacks(found, known)) {
                verification.say(what);
            }
        }
        Ok(verification)
    };
    read_only::read(&file, verify).map_err(|error| error.of_file(&file))
}

/// The least progress of the store, if the acknowledgement file can be read. Other checks find
/// damage.
fn acknowledged(connection: &Connection, directory: &Path) -> Result<Option<Progress>, StoreError> {
    if schema::version_of(connection).ok() != Some(schema::VERSION) {
        return Ok(None);
    }
    let id = connection.query_row("SELECT id FROM store", [], |row| row.get(0));
    let unusable = |source| SqliteError::directory(directory, source);
    match id {
        Ok(id) => Ok(acknowledged::read(directory, StoreId::new(id)).map_err(unusable)?),
        Err(_) => Ok(None),
    }
}

/// As [`verify_directory`], for a single database file, such as a backup.
///
/// # Errors
/// As [`verify_directory`].
pub fn verify_file(file: &Path) -> Result<Verification, StoreError> {
    read_only::read(file, |connection| verify(connection, file)).map_err(|e| e.of_file(file))
}

fn verify(connection: &Connection, file: &Path) -> Result<Verification, StoreError> {
    let version = match schema::version_of(connection) {
        Ok(version) => version,
        // Not even the first page is whole, so there is nothing else to check.
        Err(StoreError::Sqlite(SqliteError::Failed { source, .. })) if is_damage(&source) => {
            let mut verification = Verification::new(0);
            verification.begin("pages of the file");
            verification.say(format!("{} is not a database any more: {source}", file.display()));
            return Ok(verification);
        }
        Err(error) => return Err(error),
    };
    let mut verification = Verification::new(version);
    pages(connection, file, &mut verification)?;
    tables(connection, &mut verification)?;
    checked_views(connection, &mut verification)?;
    checksums(connection, &mut verification)?;
    verification.begin("replay window");
    verification.oldest = oldest(connection, &mut verification)?;
    let experiments = experiments::check(connection, &mut verification)?;
    let mut uploads = Uploads::new(&experiments, verification.oldest);
    uploads.groups(connection, &mut verification)?;
    uploads.names(&mut verification);
    uploads.checkpoint(connection, &mut verification)?;
    uploads.tallies(connection, &mut verification)?;
    if version >= schema::WITH_IDENTITY {
        identity(connection, &mut verification)?;
    }
    if version >= schema::WITH_AUDIT {
        audit_log(connection, &mut verification)?;
    }
    if version >= schema::WITH_TRUSTED {
        trusted::check(connection, &mut verification)?;
    }
    if version >= schema::WITH_CURATOR {
        budgets(connection, &mut verification)?;
    }
    Ok(verification)
}

/// Checks with SQLite's own means: the structure of the file, and the constraints of its tables.
fn pages(
    connection: &Connection,
    file: &Path,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("pages of the file");
    let mut formats = [0; 2];
    let read = File::open(file).and_then(|open| open.read_exact_at(&mut formats, FORMATS_OFFSET));
    read.map_err(|source| SqliteError::File { path: file.to_owned(), source })?;
    if formats[0] != formats[1] || !(1..=2).contains(&formats[0]) {
        verification.say(format!(
            "its readers need format {1}, and its writers {0}",
            formats[0], formats[1]
        ));
    }
    let count = connection.pragma_query_value(None, "page_count", |row| row.get(0));
    if let Some(pages) = noted(verification, "the number of pages", count)? {
        verification.examined(pages);
    }
    let complaints = || {
        let query = format!("PRAGMA integrity_check({PAGE_FINDINGS_MAX})");
        let mut statement = connection.prepare(&query)?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    let complaints = noted(verification, "the file", complaints())?.unwrap_or_default();
    for complaint in complaints.iter().filter(|complaint| *complaint != "ok") {
        verification.say(format!("SQLite says: {complaint}"));
    }
    Ok(())
}

/// Checks that every table exists, and that all references lead to rows.
fn tables(connection: &Connection, verification: &mut Verification) -> Result<(), StoreError> {
    verification.begin("tables, and what refers to them");
    let count = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0));
    let count = noted(verification, "the schema", count)?;
    verification.examined(count.unwrap_or_default());
    let differences = schema::differences(connection, verification.schema_version);
    for difference in noted(verification, "the schema", differences)?.unwrap_or_default() {
        verification.say(difference);
    }
    let orphans = || {
        let mut statement = connection.prepare(
            "SELECT \"table\", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2",
        )?;
        let row = |row: &rusqlite::Row<'_>| {
            let (table, parent, rows): (String, String, u64) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(format!("{rows} rows of {table} refer to rows of {parent} that do not exist"))
        };
        let rows = statement.query_map([], row)?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    for orphan in noted(verification, "what refers to what", orphans())?.unwrap_or_default() {
        verification.say(orphan);
    }
    Ok(())
}

/// Makes all further reads check their rows.
fn checked_views(
    connection: &Connection,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    // The temporary views are not written to the file.
    let made = || {
        connection.pragma_update(None, "query_only", false)?;
        checksums::watch_reading(connection, verification.schema_version)?;
        connection.pragma_update(None, "query_only", true)
    };
    let made = made();
    noted(verification, "the schema", made).map(drop)
}

/// Checks that every row matches its checksum, and that none is missing.
fn checksums(connection: &Connection, verification: &mut Verification) -> Result<(), StoreError> {
    if verification.schema_version < schema::WITH_CHECKSUMS {
        return Ok(());
    }
    verification.begin("rows, against their checksums");
    for table in checksums::of_version(verification.schema_version).map_err(reading)? {
        let mut findings = Vec::new();
        let checked = table.check(connection, &mut |finding| findings.push(finding));
        for finding in findings {
            verification.say(finding);
        }
        let what = format!("the table {}", table.name);
        if let Some(rows) = noted(verification, &what, checked)? {
            verification.examined(rows);
        }
    }
    Ok(())
}

fn oldest(
    connection: &Connection,
    verification: &mut Verification,
) -> Result<Option<Day>, StoreError> {
    let query = "SELECT count(*), max(oldest_day) FROM watermark";
    let row = connection.query_row(query, [], |row| Ok((row.get::<_, u64>(0)?, row.get(1)?)));
    verification.examined(1);
    match noted(verification, "the watermark", row)? {
        Some((1, Some(day))) => return Ok(Some(Day::new(day))),
        Some((rows, _)) => verification.say(format!("the watermark has {rows} rows, and not one")),
        None => {}
    }
    Ok(None)
}

/// Checks that the store has one id, by which clients can tell it from others.
fn identity(connection: &Connection, verification: &mut Verification) -> Result<(), StoreError> {
    verification.begin("id of the store");
    let query = "SELECT count(*) FILTER (WHERE length(id) = 16), count(*) FROM store";
    let row = connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)));
    verification.examined(1);
    match noted(verification, "the store's id", row)? {
        None | Some((1_u64, 1_u64)) => {}
        Some((_, ids)) => verification.say(format!("the store has {ids} ids, and not one")),
    }
    Ok(())
}

fn audit_log(connection: &Connection, verification: &mut Verification) -> Result<(), StoreError> {
    verification.begin("entries of the audit log");
    let mut query = AuditQuery { experiment: None, limit: AUDIT_PAGE, before: None };
    loop {
        match ready(audit::entries(connection, &query)) {
            Ok(entries) => {
                verification.examined(entries.len() as u64);
                let Some(last) = entries.last() else { return Ok(()) };
                query.before = Some(last.number);
            }
            Err(error) => return unreadable(verification, "the audit log", error),
        }
    }
}

/// Checks that the spent part of each budget is the sum of its debits. In a backup, the whole
/// budget is spent.
fn budgets(connection: &Connection, verification: &mut Verification) -> Result<(), StoreError> {
    verification.begin("budgets of data sets, against their debits");
    let budgets = ready(queries::budgets(connection));
    for (name, amounts) in read(verification, "the budgets", budgets)?.unwrap_or_default() {
        verification.examined(1);
        queries::verify(&name, amounts, verification);
    }
    Ok(())
}

/// A value, or none and a finding if it can't be read.
///
/// # Errors
/// [`StoreError`] when the error says nothing about the store.
fn noted<T>(
    verification: &mut Verification,
    what: &str,
    outcome: rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    read(verification, what, outcome.map_err(reading))
}

/// As [`noted`], for what may be damaged in other ways.
fn read<T>(
    verification: &mut Verification,
    what: &str,
    outcome: Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) => unreadable(verification, what, error).map(|()| None),
    }
}

/// Adds the finding that something can't be read.
fn unreadable(
    verification: &mut Verification,
    what: &str,
    error: StoreError,
) -> Result<(), StoreError> {
    let cause = match &error {
        StoreError::Sqlite(SqliteError::Failed { source, .. }) if is_damage(source) => {
            source.to_string()
        }
        StoreError::Damage(DamageError::Data { .. } | DamageError::Stored(_)) => error.to_string(),
        _ => return Err(error),
    };
    verification.say(format!("{what} can't be read: {cause}"));
    Ok(())
}

/// Whether an error is about the content of the file, and not about access to it.
fn is_damage(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::CannotOpen
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OperationInterrupted
                | ErrorCode::OutOfMemory
                | ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_of_earlier_versions_are_checked_as_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        for version in 1..=schema::VERSION {
            let file = folder.path().join(version.to_string());
            let store = schema::example(version).unwrap();
            if version >= schema::WITH_CHECKSUMS {
                checksums::seal(&store).unwrap();
            }
            store.pragma_update(None, "application_id", schema::APPLICATION_ID).unwrap();
            store.pragma_update(None, "user_version", version).unwrap();
            store.execute("VACUUM INTO ?", [file.to_str().unwrap()]).unwrap();
            let verification = verify_file(&file).unwrap();
            assert_eq!(
                (verification.schema_version, &verification.findings[..]),
                (version, &[][..])
            );
        }
    }
}
