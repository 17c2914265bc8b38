//! The files of a store: looked for before anything is made, and watched while it is open.
//!
//! A commit goes to the files that are open, whatever has become of their names. Where a name
//! leads to another file, or to none, nobody will find the commit again.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::sqlite::DATABASE_FILE;
use crate::store::{Presence, StoreError};

/// What the names of SQLite's other files end in: its log, and the index of the log.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Where a database is made, before it gets its name: so it is there as a whole or not at all.
const NEW: &str = ".new";

/// The files that SQLite has open, as they were found under their names.
#[derive(Debug)]
pub(crate) struct OpenFiles([(PathBuf, Identity); 3]);

/// Device and inode: what a file is, whatever it is called.
type Identity = (u64, u64);

impl OpenFiles {
    /// The files of the database in `directory`, which SQLite has just read and written.
    pub(super) fn of(directory: &Path) -> Result<Self, StoreError> {
        let found = |path: PathBuf| match std::fs::metadata(&path) {
            Ok(metadata) => Ok((path, identity(&metadata))),
            Err(source) => Err(StoreError::File { path, source }),
        };
        let [log, index] = BESIDE.map(|suffix| directory.join(format!("{DATABASE_FILE}{suffix}")));
        Ok(Self([found(directory.join(DATABASE_FILE))?, found(log)?, found(index)?]))
    }

    /// Whether every name still leads to the file that is open.
    ///
    /// # Errors
    /// [`StoreError::Replaced`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.0.iter().try_for_each(|(path, known)| {
            let source = match std::fs::metadata(path) {
                Ok(metadata) if identity(&metadata) == *known => return Ok(()),
                Ok(_) => io::Error::new(ErrorKind::AlreadyExists, "there is another file"),
                Err(error) => error,
            };
            Err(StoreError::Replaced { path: path.clone(), source })
        })
    }

    /// Whether the database itself is where it was, whatever has become of the files beside it.
    pub(super) fn has_database(&self) -> bool {
        let [(path, known), ..] = &self.0;
        std::fs::metadata(path).is_ok_and(|metadata| identity(&metadata) == *known)
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Whether there is a database in `directory`, where one must be, may be or must not be. Makes
/// nothing.
///
/// # Errors
/// [`StoreError::Missing`], [`StoreError::EmptyFile`], [`StoreError::Exists`], and
/// [`StoreError::Leftover`] where a new database would be beside what belongs to another one.
pub(super) fn find(directory: &Path, presence: Presence) -> Result<bool, StoreError> {
    let database = directory.join(DATABASE_FILE);
    let length = length(&database).map_err(|source| unusable(directory, source))?;
    match (length, presence) {
        (None, Presence::Required) => Err(StoreError::Missing { path: directory.to_owned() }),
        (Some(0), _) => Err(StoreError::EmptyFile { path: database }),
        (Some(_), Presence::Forbidden) => {
            Err(StoreError::Exists { place: directory.display().to_string() })
        }
        (Some(_), _) => Ok(true),
        (None, _) => {
            let log = directory.join(format!("{DATABASE_FILE}-wal"));
            let log_length = self::length(&log).map_err(|source| unusable(directory, source))?;
            match log_length {
                None | Some(0) => Ok(false),
                Some(_) => Err(StoreError::Leftover { path: log }),
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
    make(&new)?;
    let finished = || {
        std::fs::File::open(&new)?.sync_all()?;
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
    StoreError::Directory { path: directory.to_owned(), source }
}
