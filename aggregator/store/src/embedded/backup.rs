//! Backups: copies of a store that a server may have open.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bandana_sqlite::{DATABASE_FILE, SqliteError};
use rusqlite::backup::{Backup as Copying, StepResult};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use thiserror::Error;

use super::checksums;
use super::read_only;
use super::verify::verify_file;
use crate::{DatabaseError, StoreError, Verification};

/// Pages copied between two progress reports: 4 MiB.
const STEP_PAGES: i32 = 1024;

/// The offset of the format versions that a database requires of its readers and writers (section
/// 1.3 of SQLite's file format), and the versions that need no log. A backup is one file, which can
/// be moved and be read on read-only media. SQLite's own way to change these bytes creates a log
/// first.
const VERSIONS_OFFSET: u64 = 18;
const WITHOUT_LOG: [u8; 2] = [1, 1];

/// The pause before a busy page is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The most attempts for a busy page.
const BUSY_MAX: u32 = 250;

/// The name of an unfinished backup: hidden, and derived from the final name.
fn partial_name(name: &OsStr, random: u64) -> OsString {
    let mut partial = OsString::from(".");
    partial.push(name);
    partial.push(format!(".{random:016x}.partial"));
    partial
}

/// Whether a file name is that of an unfinished backup called `name`.
fn is_partial(file: &OsStr, name: &OsStr) -> bool {
    let rest = file.as_bytes().strip_prefix(b".");
    let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
    let random = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".partial"));
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    random.is_some_and(|random| random.len() == 16 && random.iter().all(is_digit))
}

/// Removes the files of killed backups of this name, which may contain rewards. A backup that still
/// runs holds a lock on its file.
fn remove_left(folder: &Path, name: &OsStr) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !is_partial(&entry.file_name(), name) || !entry.file_type()?.is_file() {
            continue;
        }
        let path = entry.path();
        if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Creates a file that only its owner may read, and locks it to mark it as in use.
fn create_locked(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.try_lock()?;
    Ok(file)
}

/// The folder of a file.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A running backup. Its file gets the final name when the backup is complete. A backup that is
/// dropped earlier leaves nothing behind.
#[derive(Debug)]
pub struct Backup {
    database: PathBuf,
    out: PathBuf,
    partial: PathBuf,
    /// The path of the copy without rewards.
    retired: PathBuf,
    /// Held for their effect: dropping them releases the locks.
    _locks: [File; 2],
}

/// The progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes copied so far.
    pub copied: u64,
    /// Bytes in total.
    pub total: u64,
}

impl Backup {
    /// Creates the partial file for a backup of the store in `directory` to `out`, which must not
    /// exist.
    ///
    /// # Errors
    /// [`BackupError`]; nothing is left behind.
    pub fn begin(directory: &Path, out: &Path) -> Result<Self, BackupError> {
        let database = directory.join(DATABASE_FILE);
        if !database.exists() {
            let missing = SqliteError::Missing { path: directory.to_owned() };
            return Err(StoreError::from(missing).into());
        }
        let unusable = |source| BackupError::Target { path: out.to_owned(), source };
        let name = out.file_name().ok_or_else(|| unusable(io::ErrorKind::InvalidInput.into()))?;
        if out.symlink_metadata().is_ok() {
            return Err(BackupError::Exists { path: out.to_owned() });
        }
        remove_left(folder_of(out), name).map_err(unusable)?;
        let random = getrandom::u64()
            .map_err(|source| StoreError::Database(DatabaseError::Entropy { source }))?;
        let partial = out.with_file_name(partial_name(name, random));
        let retired = out.with_file_name(partial_name(name, !random));
        let lock = create_locked(&partial).map_err(unusable)?;
        let locks = create_locked(&retired).map(|second| [lock, second]);
        let locks = locks.inspect_err(|_| fs::remove_file(&partial).unwrap_or_default());
        let locks = locks.map_err(unusable)?;
        Ok(Self { database, out: out.to_owned(), partial, retired, _locks: locks })
    }

    /// Copies the store as of one moment. Commits go on meanwhile, but the log of a running server
    /// can't be shortened until the copy is complete.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn copy(&self, mut progress: impl FnMut(BackupProgress)) -> Result<(), BackupError> {
        let mut failure = None;
        let copied = read_only::read(&self.database, |source| {
            match copy(source, &self.partial, &mut progress) {
                Ok(()) => failure = None,
                Err(error) => failure = Some(error),
            }
            Ok(())
        });
        copied.map_err(|error| error.of_file(&self.database))?;
        if let Some(source) = failure {
            return Err(self.explain(source));
        }
        let unusable = |source| BackupError::Target { path: self.out.clone(), source };
        let write = || OpenOptions::new().write(true).open(&self.partial);
        write().and_then(|f| f.write_all_at(&WITHOUT_LOG, VERSIONS_OFFSET)).map_err(unusable)?;
        if self.retire().map_err(|error| self.explain(error))? {
            fs::rename(&self.retired, &self.partial).map_err(unusable)?;
        }
        write().and_then(|file| file.sync_all()).map_err(unusable)
    }

    /// Spends the curator's budgets in the copy completely, and ends its sessions. The copy lacks
    /// later debits and answers, so a store restored from it would spend the same budget a second
    /// time. For the same reason it ends trusted experiments, whose rewards would be released
    /// twice; besides, unreleased rewards must not rest in backups. Returns whether the result is
    /// in another file now.
    fn retire(&self) -> rusqlite::Result<bool> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let copy = Connection::open_with_flags(&self.partial, flags)?;
        // An unfinished copy is thrown away.
        copy.pragma_update(None, "journal_mode", "OFF")?;
        if copy.table_exists(None, "table_sum")? {
            checksums::watch(&copy)?;
        }
        if copy.table_exists(None, "curator_data_set")? {
            copy.execute_batch(
                "UPDATE curator_data_set SET spent = budget;
                DELETE FROM curator_update;
                DELETE FROM curator_session;",
            )?;
        }
        let mut ended = 0;
        if copy.table_exists(None, "trusted_experiment")? {
            ended = copy.execute(
                "UPDATE trusted_experiment
                SET state = 'stopped', private = NULL, sequence = sequence + 1",
                [],
            )?;
            if ended > 0 {
                copy.execute_batch("DELETE FROM trusted_disclosure")?;
                // Free pages still contain their former content. To rewrite them in place, SQLite
                // would need another temporary file.
                let retired = ValueRef::Text(self.retired.as_os_str().as_bytes());
                copy.execute("VACUUM INTO ?", [ToSqlOutput::Borrowed(retired)])?;
            }
        }
        copy.close().map_err(|(_, error)| error)?;
        Ok(ended > 0)
    }

    /// Reads the whole copy, as `bandana verify` does.
    ///
    /// # Errors
    /// [`StoreError`] when the copy can't be read.
    pub fn check(&self) -> Result<Verification, BackupError> {
        Ok(verify_file(&self.partial)?)
    }

    /// Gives the copy its final name, durably, and returns its size in bytes.
    ///
    /// # Errors
    /// [`BackupError::Exists`] when a file of that name was created meanwhile.
    pub fn publish(self) -> Result<u64, BackupError> {
        let Self { out, partial, .. } = &self;
        let published = || {
            let length = fs::metadata(partial)?.len();
            // A hard link, unlike a rename, never replaces an existing file.
            match fs::hard_link(partial, out) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    // Some file systems have no hard links.
                    OpenOptions::new().write(true).create_new(true).open(out)?;
                    fs::rename(partial, out)?;
                }
                linked => {
                    linked?;
                    fs::remove_file(partial)?;
                }
            }
            File::open(folder_of(out))?.sync_all()?;
            Ok(length)
        };
        published().map_err(|source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists { path: out.clone() },
            _ => BackupError::Target { path: out.clone(), source },
        })
    }

    /// Removes the partial files, even while another thread still writes.
    pub fn discard(&self) {
        // The file may have its final name already.
        fs::remove_file(&self.partial).ok();
        fs::remove_file(&self.retired).ok();
    }

    fn explain(&self, source: rusqlite::Error) -> BackupError {
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                let damaged = bandana_sqlite::reading(source).of_file(&self.database);
                StoreError::from(damaged).into()
            }
            _ => BackupError::Copy { path: self.out.clone(), source },
        }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.discard();
    }
}

fn copy(
    source: &Connection,
    target: &Path,
    progress: &mut impl FnMut(BackupProgress),
) -> rusqlite::Result<()> {
    let bytes = |pages: i32, size: u64| u64::try_from(pages).unwrap_or_default() * size;
    // The first read opens the transaction that fixes one moment for all pages.
    source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let page: u64 = source.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(target, flags)?;
    // The file is synced as a whole when it is complete, and thrown away otherwise.
    target.pragma_update(None, "synchronous", "OFF")?;
    target.pragma_update(None, "journal_mode", "OFF")?;
    let copying = Copying::new(source, &mut target)?;
    let mut busy = 0;
    loop {
        match copying.step(STEP_PAGES)? {
            StepResult::Done => break,
            StepResult::Busy | StepResult::Locked if busy < BUSY_MAX => {
                busy += 1;
                std::thread::sleep(BUSY_PAUSE);
            }
            StepResult::More => busy = 0,
            _ => {
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                return Err(rusqlite::Error::SqliteFailure(busy, None));
            }
        }
        let now = copying.progress();
        let copied = now.pagecount - now.remaining;
        progress(BackupProgress { copied: bytes(copied, page), total: bytes(now.pagecount, page) });
    }
    drop(copying);
    target.close().map_err(|(_, error)| error)
}

/// The reason why a backup failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The output file exists already.
    #[error(
        "{} exists already and is not overwritten; name another file, or move that one away",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The backup can't be written.
    #[error("can't write {}; nothing was left of it", path.display())]
    Target {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The copy was not made.
    #[error("can't copy the store to {}; nothing was left of it", path.display())]
    Copy {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The store can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_backups_of_the_same_name_have_left_goes_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("data");
        fs::create_dir(&store).unwrap();
        Connection::open(store.join(DATABASE_FILE)).unwrap().execute_batch("VACUUM").unwrap();
        let out = folder.path().join("monday.sqlite3");
        let left = ".monday.sqlite3.0123456789abcdef.partial";
        let foreign = [
            ".monday.sqlite3.partial",
            ".monday.sqlite3.0123456789abcdeX.partial",
            ".tuesday.sqlite3.0123456789abcdef.partial",
        ];
        for name in foreign.iter().chain([&left]) {
            fs::write(folder.path().join(name), "rewards").unwrap();
        }
        let at_work = Backup::begin(&store, &out).unwrap();
        assert!(!folder.path().join(left).exists());
        let second = Backup::begin(&store, &out).unwrap();
        assert!(at_work.partial.exists() && second.partial.exists());
        drop((at_work, second));
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        let mut expected = foreign.to_vec();
        expected.push("data");
        expected.sort_unstable();
        assert_eq!(names, expected);
    }
}
