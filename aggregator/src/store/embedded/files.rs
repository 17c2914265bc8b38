//! The files of a store: looked for before anything is made, and watched while it is open.
//!
//! A commit goes to the files that are open, whatever has become of their names. Where a name
//! leads to another file, or to none, nobody will find the commit again.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::headers::Headers;
use super::lock::LOCK_FILE;
use super::sqlite::DATABASE_FILE;
use crate::store::{DatabaseError, OpenError, Presence, StoreError};

/// What the names of SQLite's other files end in: its log, and the index of the log.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Where a database is made, before it gets its name: so it is there as a whole or not at all.
const NEW: &str = ".new";

/// The files that SQLite has open, as they were found under their names, and the lock.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// The database is the first.
    named: [(PathBuf, Identity); 4],
    headers: Headers,
}

/// Device and inode: what a file is, whatever it is called.
type Identity = (u64, u64);

impl OpenFiles {
    /// The files of the database in `directory`, which SQLite has just read and written. This one
    /// was opened before.
    pub(super) fn of(directory: &Path, database: Arc<File>) -> Result<Self, StoreError> {
        let found = |path: PathBuf| match std::fs::metadata(&path) {
            Ok(metadata) => Ok((path, identity(&metadata))),
            Err(source) => Err(StoreError::Open(OpenError::File { path, source })),
        };
        let open = |path: &PathBuf| {
            File::open(path)
                .map_err(|source| StoreError::Open(OpenError::File { path: path.clone(), source }))
        };
        let [log, index] = BESIDE.map(|suffix| directory.join(format!("{DATABASE_FILE}{suffix}")));
        let headers = Headers::new(database, open(&log)?, open(&index)?)?;
        let (database, lock) = (directory.join(DATABASE_FILE), directory.join(LOCK_FILE));
        let named = [found(database)?, found(log)?, found(index)?, found(lock)?];
        Ok(Self { named, headers })
    }

    /// Whether every name still leads to the file that is open, and the files are still those of
    /// SQLite.
    ///
    /// # Errors
    /// [`StoreError::Database`]; [`StoreError::Damage`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.named.iter().try_for_each(|(path, known)| {
            let source = match std::fs::metadata(path) {
                Ok(metadata) if identity(&metadata) == *known => return Ok(()),
                Ok(_) => io::Error::new(ErrorKind::AlreadyExists, "there is another file"),
                Err(error) => error,
            };
            Err(StoreError::Database(DatabaseError::Replaced { path: path.clone(), source }))
        })?;
        self.headers.check()
    }

    /// Whether the database itself is where it was, whatever has become of the files beside it.
    pub(super) fn has_database(&self) -> bool {
        let [(path, known), ..] = &self.named;
        std::fs::metadata(path).is_ok_and(|metadata| identity(&metadata) == *known)
    }

    /// Whether somebody else than the owner of the database can read it.
    pub(super) fn is_open_to_others(&self, directory: &Path) -> bool {
        let mode = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.mode());
        let (file, folder) = (mode(&self.named[0].0), mode(directory));
        // Of a group, and of all others: who may read the file must get at it.
        [(0o040, 0o010), (0o004, 0o001)]
            .into_iter()
            .any(|(read, enter)| file & read != 0 && folder & enter != 0)
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Whether there is a database in `directory`, where one must be, may be or must not be. Makes
/// nothing.
///
/// # Errors
/// [`StoreError::Open`], also where a new database would be beside what belongs to another one.
pub(super) fn find(directory: &Path, presence: Presence) -> Result<bool, StoreError> {
    let database = directory.join(DATABASE_FILE);
    let length = length(&database).map_err(|source| unusable(directory, source))?;
    match (length, presence) {
        (None, Presence::Required) => {
            Err(StoreError::Open(OpenError::Missing { path: directory.to_owned() }))
        }
        (Some(0), _) => Err(StoreError::Open(OpenError::EmptyFile { path: database })),
        (Some(_), Presence::Forbidden) => {
            Err(StoreError::Open(OpenError::Exists { place: directory.display().to_string() }))
        }
        (Some(_), _) => Ok(true),
        (None, _) => {
            let log = directory.join(format!("{DATABASE_FILE}-wal"));
            let log_length = self::length(&log).map_err(|source| unusable(directory, source))?;
            match log_length {
                None | Some(0) => Ok(false),
                Some(_) => Err(StoreError::Open(OpenError::Leftover { path: log })),
            }
        }
    }
}

/// Has `make` make a database under another name, and gives it its own.
pub(super) fn make(
    directory: &Path,
    make: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let unusable = |source| unusable(directory, source);
    let new = directory.join(format!("{DATABASE_FILE}{NEW}"));
    // What somebody did not finish.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(unusable(error)),
        _ => {}
    }
    // SQLite gives its other files the same permissions.
    let private = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    drop(private.map_err(unusable)?);
    make(&new)?;
    let finished = || {
        File::open(&new)?.sync_all()?;
        std::fs::rename(&new, directory.join(DATABASE_FILE))
    };
    finished().map_err(unusable)
}

fn length(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn unusable(directory: &Path, source: io::Error) -> StoreError {
    StoreError::Open(OpenError::Directory { path: directory.to_owned(), source })
}
