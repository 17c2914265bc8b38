//! Locks that give a data directory to one process.
//!
//! Earlier programs look at the lock file only. It can be removed while a server runs, so the
//! directory itself is locked too, and so is the database, which can have a second name in another
//! directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::SqliteError;

/// The lock file in the data directory.
pub(super) const LOCK_FILE: &str = "bandana.lock";

/// The locks, held for their effect: dropping them releases them. They must outlive the connection
/// to the database, since closing a file releases SQLite's own locks on it in the whole process.
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
    directory: File,
    database: Option<Arc<File>>,
}

/// A process that is being started has a copy of each file until it runs its program, so closing them
/// alone would release the locks some moments later.
impl Drop for DirectoryLock {
    fn drop(&mut self) {
        for locked in [Some(&self.file), Some(&self.directory), self.database.as_deref()] {
            // Closing them releases what this does not.
            locked.map(File::unlock);
        }
    }
}

impl DirectoryLock {
    /// Locks an existing directory.
    ///
    /// # Errors
    /// [`SqliteError`] when another process holds the lock, or the directory can't be locked.
    pub(super) fn take(directory: &Path) -> Result<Self, SqliteError> {
        let unusable = |source| SqliteError::directory(directory, source);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(directory.join(LOCK_FILE)).map_err(unusable)?;
        let folder = File::open(directory).map_err(unusable)?;
        for locked in [&file, &folder] {
            lock(locked, directory)?;
        }
        Ok(Self { file, directory: folder, database: None })
    }

    /// Also locks the database, before SQLite opens it.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(super) fn with_database(
        mut self,
        directory: &Path,
        database: &Arc<File>,
    ) -> Result<Self, SqliteError> {
        lock(database, directory)?;
        self.database = Some(Arc::clone(database));
        Ok(self)
    }
}

fn lock(file: &File, directory: &Path) -> Result<(), SqliteError> {
    let path = directory.to_owned();
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => SqliteError::Locked { path },
        TryLockError::Error(source) => SqliteError::Directory { path, source: named(&source) },
    })
}

fn named(source: &io::Error) -> io::Error {
    io::Error::new(source.kind(), format!("it can't be locked: {source}"))
}
