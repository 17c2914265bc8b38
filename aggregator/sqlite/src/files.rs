//! The files of a store: located before anything is created, and watched while it is open.
//!
//! A commit goes to the open files, whatever has become of their names. If a name leads to another
//! file or to none, the next start will not find the commit.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::acknowledged::SUFFIX as ACKNOWLEDGED;
use crate::headers::Headers;
use crate::lock::LOCK_FILE;
use crate::{DATABASE_FILE, Presence, SqliteError};

/// The suffixes of SQLite's other files: the log and its index.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// The suffix of a database that is being created. A rename at the end makes it appear as a whole
/// or not at all.
const NEW: &str = ".new";

/// The identities of the files that SQLite has open, and of the lock, as found under their names.
#[derive(Debug)]
pub struct OpenFiles {
    /// The database comes first.
    named: [(PathBuf, Identity); 4],
    headers: Headers,
}

/// Device and inode: the identity of a file, independent of its name.
type Identity = (u64, u64);

impl OpenFiles {
    /// The files of the database in `directory`, which SQLite has just read and written. `database`
    /// was opened before.
    ///
    /// # Errors
    /// [`SqliteError`] when a file can't be read.
    pub fn of(directory: &Path, database: Arc<File>) -> Result<Self, SqliteError> {
        let found = |path: PathBuf| match std::fs::metadata(&path) {
            Ok(metadata) => Ok((path, identity(&metadata))),
            Err(source) => Err(SqliteError::File { path, source }),
        };
        let open = |path: &PathBuf| {
            File::open(path).map_err(|source| SqliteError::File { path: path.clone(), source })
        };
        let [log, index] = BESIDE.map(|suffix| directory.join(format!("{DATABASE_FILE}{suffix}")));
        let headers = Headers::new(database, open(&log)?, open(&index)?)?;
        let (database, lock) = (directory.join(DATABASE_FILE), directory.join(LOCK_FILE));
        let named = [found(database)?, found(log)?, found(index)?, found(lock)?];
        Ok(Self { named, headers })
    }

    /// Checks that every name still leads to the open file, and that no other program has
    /// overwritten the files.
    ///
    /// # Errors
    /// [`SqliteError::Replaced`]; [`SqliteError::Data`].
    pub fn check(&self) -> Result<(), SqliteError> {
        self.named.iter().try_for_each(|(path, known)| {
            let source = match std::fs::metadata(path) {
                Ok(metadata) if identity(&metadata) == *known => return Ok(()),
                Ok(_) => io::Error::new(ErrorKind::AlreadyExists, "there is another file"),
                Err(error) => error,
            };
            Err(SqliteError::Replaced { path: path.clone(), source })
        })?;
        self.headers.check()
    }

    /// Whether the database itself is still in its place, whatever has become of the files beside
    /// it.
    pub fn has_database(&self) -> bool {
        let [(path, known), ..] = &self.named;
        std::fs::metadata(path).is_ok_and(|metadata| identity(&metadata) == *known)
    }

    /// Whether users other than the owner can read the database.
    pub fn is_open_to_others(&self, directory: &Path) -> bool {
        let mode = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.mode());
        let (file, folder) = (mode(&self.named[0].0), mode(directory));
        // The bits for the group and for all others: a reader needs both the file's read bit and
        // the folder's search bit.
        [(0o040, 0o010), (0o004, 0o001)]
            .into_iter()
            .any(|(read, enter)| file & read != 0 && folder & enter != 0)
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Whether there is a database in `directory`, as `presence` requires, allows or forbids. Creates
/// nothing.
///
/// # Errors
/// [`SqliteError`], also when a new database would lie beside another one's files.
pub(super) fn find(directory: &Path, presence: Presence) -> Result<bool, SqliteError> {
    let database = directory.join(DATABASE_FILE);
    let length = length(&database).map_err(|source| SqliteError::directory(directory, source))?;
    match (length, presence) {
        (None, Presence::Required) => Err(SqliteError::Missing { path: directory.to_owned() }),
        (Some(0), _) => Err(SqliteError::EmptyFile { path: database }),
        (Some(_), Presence::Forbidden) => Err(SqliteError::Exists { path: directory.to_owned() }),
        (Some(_), _) => Ok(true),
        (None, _) => {
            // The database itself may be a link whose target is not there: a disk that is not mounted.
            for suffix in BESIDE.into_iter().chain([ACKNOWLEDGED, "-journal", ""]) {
                let path = directory.join(format!("{DATABASE_FILE}{suffix}"));
                match path.symlink_metadata() {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(source) => return Err(SqliteError::directory(directory, source)),
                    Ok(_) => return Err(SqliteError::Leftover { path }),
                }
            }
            Ok(false)
        }
    }
}

/// Lets `make` create a database under a temporary name, and renames it.
pub(super) fn make<E: From<SqliteError>>(
    directory: &Path,
    make: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let unusable = |source| SqliteError::directory(directory, source);
    let new = directory.join(format!("{DATABASE_FILE}{NEW}"));
    // A leftover of an unfinished creation.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(unusable(error).into()),
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
    finished().map_err(|error| unusable(error).into())
}

fn length(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the directory's entries durable, and the directory's own entry in its parent.
///
/// # Errors
/// Those of the system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    let absolute = directory.canonicalize()?;
    [Some(&*absolute), absolute.parent()]
        .into_iter()
        .flatten()
        .try_for_each(|folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_beside_what_is_left_of_another_store() {
        let folder = tempfile::tempdir().unwrap();
        let found = || find(folder.path(), Presence::Optional);
        assert!(!found().unwrap());
        for suffix in ["-wal", "-journal", ACKNOWLEDGED] {
            let path = folder.path().join(format!("{DATABASE_FILE}{suffix}"));
            std::fs::write(&path, b"").unwrap();
            assert!(matches!(found(), Err(SqliteError::Leftover { .. })), "{suffix}");
            std::fs::remove_file(&path).unwrap();
        }
        // A link to a disk that is not mounted.
        let database = folder.path().join(DATABASE_FILE);
        std::os::unix::fs::symlink(folder.path().join("mounted/file"), database).unwrap();
        assert!(matches!(found(), Err(SqliteError::Leftover { .. })));
    }
}
