//! Reading a database without changing the database or any file beside it.
//!
//! SQLite keeps a log and its index next to an open database, and creates both even to read a
//! closed one. So a database without a log is read as immutable, and checked for changes
//! afterwards.

use std::fmt::Write as _;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bandana_sqlite::{BUSY_TIMEOUT, SqliteError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::sqlite::opening;
use crate::StoreError;

/// Most attempts to read a file that changes meanwhile. Once it has a log, it stays readable.
const ATTEMPTS_MAX: u32 = 5;

/// Lets `work` read the database in `file` as of one moment, while a server may have it open. The
/// read is repeated if a server opened an idle store meanwhile.
pub(super) fn read<T>(
    file: &Path,
    mut work: impl FnMut(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let before = Still::of(file)?;
        let outcome = open(file, before.is_some()).and_then(|connection| {
            // The first statement that reads fixes the moment.
            connection.execute_batch("BEGIN").map_err(opening)?;
            work(&connection)
        });
        let is_as_before = match &before {
            Some(before) => Still::of(file)?.as_ref() == Some(before),
            None => true,
        };
        if is_as_before || attempts >= ATTEMPTS_MAX {
            return outcome;
        }
    }
}

/// The identity and state of a file that no process has open for writing.
#[derive(Debug, PartialEq, Eq)]
struct Still {
    identity: (u64, u64),
    length: u64,
    changed: (i64, i64),
}

impl Still {
    /// None: a process may be changing the file, or was killed while doing so.
    fn of(file: &Path) -> Result<Option<Self>, StoreError> {
        let unusable = |source| SqliteError::File { path: file.to_owned(), source };
        let metadata: Metadata = std::fs::metadata(file).map_err(unusable)?;
        for suffix in ["-wal", "-journal"] {
            if beside(file, suffix).try_exists().map_err(unusable)? {
                return Ok(None);
            }
        }
        Ok(Some(Self {
            identity: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            changed: (metadata.mtime(), metadata.mtime_nsec()),
        }))
    }
}

/// The path with `suffix` appended.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn open(file: &Path, is_still: bool) -> Result<Connection, StoreError> {
    let options = if is_still { "?immutable=1" } else { "" };
    let name = format!("file:{}{options}", encoded(file));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let configured = || {
        let connection = Connection::open_with_flags(name, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // The log of a killed server is left to the next server.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // The file may come from an untrusted source.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        rusqlite::Result::Ok(connection)
    };
    configured().map_err(opening)
}

/// The path in URI encoding.
fn encoded(file: &Path) -> String {
    let mut text = String::new();
    for byte in file.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                text.push(char::from(*byte));
            }
            // Writing to a string can't fail.
            _ => drop(write!(text, "%{byte:02x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<std::ffi::OsString> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_closed_database_is_read_without_a_trace_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("50% #1?.sqlite3");
        let writer = Connection::open(&file).unwrap();
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        writer.execute_batch("CREATE TABLE t (n); INSERT INTO t VALUES (7)").unwrap();
        let count = |connection: &Connection| {
            connection.query_row("SELECT n FROM t", [], |row| row.get::<_, i64>(0)).map_err(opening)
        };
        assert_eq!(read(&file, count).unwrap(), 7);
        drop(writer);
        let (before, bytes) = (names(folder.path()), std::fs::read(&file).unwrap());
        assert_eq!(before.len(), 1);
        assert_eq!(read(&file, count).unwrap(), 7);
        assert_eq!(names(folder.path()), before);
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
    }

    #[test]
    fn what_is_changed_meanwhile_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("db");
        let create = "PRAGMA journal_mode = WAL; CREATE TABLE t (n); INSERT INTO t VALUES (0)";
        Connection::open(&file).unwrap().execute_batch(create).unwrap();
        let mut writers = Vec::new();
        let told = read(&file, |connection| {
            let count = connection.query_row("SELECT n FROM t", [], |row| row.get::<_, i64>(0));
            if writers.is_empty() {
                let writer = Connection::open(&file).unwrap();
                writer.execute_batch("UPDATE t SET n = 1").unwrap();
                writers.push(writer);
            }
            count.map_err(opening)
        });
        assert_eq!(told.unwrap(), 1);
    }
}
