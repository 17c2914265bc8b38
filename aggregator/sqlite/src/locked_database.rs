//! A database in a directory that no other process has: found or made, locked, and configured.

use std::fs::{DirBuilder, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::opening;
use crate::files;
use crate::lock::DirectoryLock;
use crate::{DATABASE_FILE, Presence, SqliteError};

/// The time that a commit waits for another program that writes, which none should.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pages in the log before it is copied into the database: 16 MiB, so that a commit under load
/// rarely has to copy it.
const CHECKPOINT_PAGES: i64 = 4096;

/// A database in a directory that no other process has.
#[derive(Debug)]
pub struct LockedDatabase {
    /// To be dropped before the others.
    pub connection: Connection,
    /// Opened before SQLite opened it: to be closed after SQLite's.
    pub file: Arc<File>,
    /// The lock on the directory.
    pub lock: DirectoryLock,
}

impl LockedDatabase {
    /// Opens the database in `directory`, or makes one that `fill` fills, if `presence` allows it. `check`
    /// says whether the file is one of its program: others stay as they are.
    ///
    /// # Errors
    /// [`SqliteError`]; those of `fill` and `check`.
    pub fn open<E: From<SqliteError>>(
        presence: Presence,
        directory: &Path,
        fill: impl FnOnce(&mut Connection) -> Result<(), E>,
        check: impl FnOnce(&Connection) -> Result<(), E>,
    ) -> Result<Self, E> {
        let unusable = |source| SqliteError::directory(directory, source);
        if !files::find(directory, presence)? {
            create_private(directory).map_err(unusable)?;
        }
        let lock = DirectoryLock::take(directory)?;
        // Another process may have created the store meanwhile.
        if !files::find(directory, presence)? {
            files::make(directory, |file| create(file, fill))?;
        }
        let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE;
        let path = directory.join(DATABASE_FILE);
        let file = Arc::new(File::open(&path).map_err(unusable)?);
        let lock = lock.with_database(directory, &file)?;
        let connection = Connection::open_with_flags(path, flags).map_err(opening)?;
        configure(&connection, check)?;
        Ok(Self { connection, file, lock })
    }
}

/// Creates a database in a file of its own, with what `fill` puts there. The caller syncs the file,
/// or throws it away.
fn create<E: From<SqliteError>>(
    file: &Path,
    fill: impl FnOnce(&mut Connection) -> Result<(), E>,
) -> Result<(), E> {
    let mut connection = Connection::open(file).map_err(opening)?;
    connection.pragma_update(None, "journal_mode", "OFF").map_err(opening)?;
    connection.pragma_update(None, "synchronous", "OFF").map_err(opening)?;
    fill(&mut connection)?;
    connection.close().map_err(|(_, error)| opening(error).into())
}

fn configure<E: From<SqliteError>>(
    connection: &Connection,
    check: impl FnOnce(&Connection) -> Result<(), E>,
) -> Result<(), E> {
    connection.busy_timeout(BUSY_TIMEOUT).map_err(opening)?;
    // A file of another program stays as it is.
    check(connection)?;
    let configure = || {
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        zero_freed_pages(connection, false)?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.set_prepared_statement_cache_capacity(32);
        Ok(())
    };
    configure().map_err(|error| opening(error).into())
}

/// Sets whether deleted data is overwritten in all pages, or only in pages that are written anyway,
/// which costs nothing.
///
/// # Errors
/// When SQLite can't set it.
pub fn zero_freed_pages(connection: &Connection, all: bool) -> rusqlite::Result<()> {
    let mode = if all { "ON" } else { "FAST" };
    connection.pragma_update(None, "secure_delete", mode)
}

/// SQLite's `data_version`, which changes when another connection has committed.
///
/// # Errors
/// When SQLite can't read it.
pub fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

fn create_private(directory: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(directory)
}
