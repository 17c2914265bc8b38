//! A directory on a real disk, locked for one process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::{Files, StorageError};

const LOCK: &str = "lock";

/// Tells backup programs to leave the directory out: a ledger restored from a backup lacks the
/// debits since the backup.
const TAG: (&str, &[u8]) = (
    "CACHEDIR.TAG",
    b"Signature: 8a477f597d28d172789f06886806bc55\n\
      # Bandana's privacy ledger: to be left out of backups.\n",
);

/// A directory of the file system, locked against other processes.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Holds the lock.
    lock: File,
}

impl Directory {
    /// Creates the directory if need be, readable by its owner only, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<Self, StorageError> {
        let unusable = |source| StorageError::Directory { path: path.to_owned(), source };
        create_private(path).map_err(unusable)?;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK));
        let lock = lock.map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StorageError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        let tag = path.join(TAG.0);
        if !tag.exists() {
            fs::write(tag, TAG.1).map_err(unusable)?;
        }
        Ok(Self { path: path.to_owned(), lock })
    }

    fn open(&self, name: &str, options: &mut OpenOptions) -> io::Result<File> {
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
        options.create(true).open(self.path.join(name))
    }
}

impl Drop for Directory {
    /// Unlocks explicitly: a child process that the host is just starting has a copy of every
    /// descriptor until it executes another program. Closing only this descriptor would leave the
    /// lock to that copy.
    fn drop(&mut self) {
        self.lock.unlock().ok();
    }
}

fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    if path.is_dir() {
        return Ok(());
    }
    builder.recursive(true).create(path)?;
    // Keeps a power cut from losing the new directory with all its files.
    match path.parent().filter(|parent| cfg!(unix) && !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

impl Files for Directory {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.open(name, OpenOptions::new().write(true).truncate(false))?;
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.open(name, OpenOptions::new().append(true))?.write_all(bytes)
    }

    fn create(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.open(name, OpenOptions::new().write(true).truncate(true))?.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.path.join(name))?.sync_all()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        // On other systems a directory can't be opened as a file, and needs no sync.
        if cfg!(unix) { File::open(&self.path)?.sync_all() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_holder_whoever_has_a_copy() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let directory = Directory::lock(folder.path())?;
        // A process that was started meanwhile has such a copy.
        let copy = directory.lock.try_clone()?;
        assert!(matches!(Directory::lock(folder.path()), Err(StorageError::InUse { .. })));
        drop(directory);
        let again = Directory::lock(folder.path())?;
        drop((copy, again));
        Ok(())
    }
}
