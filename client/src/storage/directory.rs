//! A directory on a real disk, locked for one client.

use std::collections::BTreeMap;
#[cfg(unix)]
use std::collections::BTreeSet;
#[cfg(not(unix))]
use std::fs::OpenOptions;
use std::fs::{self, File};
#[cfg(unix)]
use std::io::Read as _;
use std::io::{self, Seek as _, SeekFrom, Write as _};
#[cfg(unix)]
use std::os::unix::fs::FileExt as _;
use std::path::Path;
#[cfg(not(unix))]
use std::path::PathBuf;
#[cfg(unix)]
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

#[cfg(unix)]
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, fcntl_lock};
#[cfg(unix)]
use rustix::io::Errno;

use super::{Files, StorageError};

const LOCK: &str = "lock";

/// Tells backup programs to leave the directory out: a ledger restored from a backup lacks the
/// debits since the backup.
const TAG: (&str, &[u8]) = (
    "CACHEDIR.TAG",
    b"Signature: 8a477f597d28d172789f06886806bc55\n\
      # Bandana's privacy ledger: to be left out of backups.\n",
);

/// A directory of the file system, locked against other clients.
///
/// On Unix its files are found by a handle of the directory, wherever that is moved, and stay open
/// between writes. The lock is one of the process: a child that was forked off does not keep it. It ends when
/// anything of the process closes the file `lock`, and it does not keep out a second copy of this library. So
/// its holder writes a mark into it, and looks before each write whether it is still there: whoever came last
/// goes on, from what the other one has spent.
#[derive(Debug)]
pub(crate) struct Directory {
    #[cfg(not(unix))]
    path: PathBuf,
    #[cfg(unix)]
    handle: File,
    /// Holds the lock.
    #[cfg_attr(not(unix), expect(dead_code, reason = "it is locked as long as it is open"))]
    lock: File,
    /// What is in the file of the lock while no other client has come.
    #[cfg(unix)]
    mark: [u8; 16],
    /// The files that were written.
    open: BTreeMap<String, File>,
    /// Keeps other clients of this process out.
    #[cfg(unix)]
    _claim: Claim,
}

impl Directory {
    /// Creates the directory if need be, readable by its owner only, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<Self, StorageError> {
        let unusable = |source| StorageError::Directory { path: path.to_owned(), source };
        create_private(path).map_err(unusable)?;
        let in_use = || StorageError::InUse { path: path.to_owned() };
        #[cfg(unix)]
        let directory = {
            let handle = File::open(path).map_err(unusable)?;
            if !handle.metadata().map_err(unusable)?.is_dir() {
                return Err(unusable(io::ErrorKind::NotADirectory.into()));
            }
            // A second client of this process has no lock to be stopped by.
            let claim = Claim::of(&handle).map_err(unusable)?.ok_or_else(in_use)?;
            let lock = open_in(&handle, LOCK, OFlags::RDWR | OFlags::CREATE).map_err(unusable)?;
            match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::AGAIN | Errno::ACCESS) => return Err(in_use()),
                Err(source) => return Err(unusable(source.into())),
            }
            let mark = marked(&lock).map_err(unusable)?;
            Self { handle, lock, mark, open: BTreeMap::new(), _claim: claim }
        };
        #[cfg(not(unix))]
        let directory = {
            let mut options = OpenOptions::new();
            let lock = options.create(true).truncate(false).write(true);
            let lock = lock.open(path.join(LOCK)).map_err(unusable)?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Err(in_use()),
                Err(fs::TryLockError::Error(source)) => return Err(unusable(source)),
            }
            Self { path: path.to_owned(), lock, open: BTreeMap::new() }
        };
        let tag = path.join(TAG.0);
        if !tag.exists() {
            fs::write(tag, TAG.1).map_err(unusable)?;
        }
        Ok(directory)
    }

    /// A file that stays open, created if need be.
    fn opened(&mut self, name: &str) -> io::Result<&mut File> {
        if !self.open.contains_key(name) {
            #[cfg(unix)]
            let file = open_in(&self.handle, name, OFlags::RDWR | OFlags::CREATE)?;
            #[cfg(not(unix))]
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(self.path.join(name))?;
            self.open.insert(name.to_owned(), file);
        }
        self.open.get_mut(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Writes a mark into the file of the lock, which no other client has.
#[cfg(unix)]
fn marked(lock: &File) -> io::Result<[u8; 16]> {
    let mut mark = [0; 16];
    getrandom::fill(&mut mark).map_err(io::Error::other)?;
    lock.write_all_at(&mark, 0)?;
    Ok(mark)
}

/// Opens a file of a directory, readable by its owner only.
#[cfg(unix)]
fn open_in(directory: &File, name: &str, flags: OFlags) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, mode)?.into())
}

/// Whether a name in a directory is that of an open file.
#[cfg(unix)]
fn is_entry(directory: &File, name: &str, file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;

    let found = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    #[allow(clippy::useless_conversion, reason = "its type differs between systems")]
    let inode = u64::try_from(found.st_ino);
    let own = file.metadata()?.ino();
    Ok(inode.is_ok_and(|inode| inode == own))
}

/// The claim of a client to a directory, within its process. A child that was forked off has none.
#[cfg(unix)]
#[derive(Debug)]
struct Claim((u32, u64, u64));

#[cfg(unix)]
static CLAIMED: Mutex<BTreeSet<(u32, u64, u64)>> = Mutex::new(BTreeSet::new());

/// The directories in use. In a child that was forked off while another thread had them they are
/// locked for ever.
#[cfg(unix)]
fn claimed() -> io::Result<MutexGuard<'static, BTreeSet<(u32, u64, u64)>>> {
    for _ in 0..1_000_000 {
        match CLAIMED.try_lock() {
            Ok(claimed) => return Ok(claimed),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

#[cfg(unix)]
impl Claim {
    /// `None`: another client has it.
    fn of(directory: &File) -> io::Result<Option<Self>> {
        use std::os::unix::fs::MetadataExt as _;

        let metadata = directory.metadata()?;
        let claim = (std::process::id(), metadata.dev(), metadata.ino());
        let mut claimed = claimed()?;
        // None is made, and dropped, where there is one.
        Ok(if claimed.insert(claim) { Some(Self(claim)) } else { None })
    }
}

#[cfg(unix)]
impl Drop for Claim {
    fn drop(&mut self) {
        // In a child another thread of the parent may hold it for ever.
        if self.0.0 == std::process::id() {
            CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        }
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
        #[cfg(unix)]
        let bytes = open_in(&self.handle, name, OFlags::RDONLY).and_then(|mut file| {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map(|_| bytes)
        });
        #[cfg(not(unix))]
        let bytes = fs::read(self.path.join(name));
        match bytes {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[cfg(unix)]
    fn check(&mut self) -> io::Result<()> {
        // Whoever closes another descriptor of the file in this process has ended the lock.
        if fcntl_lock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(io::Error::other("another process has taken the lock"));
        }
        if !is_entry(&self.handle, LOCK, &self.lock)? {
            return Err(io::Error::other("the file `lock` was exchanged under its holder"));
        }
        let mut found = [0; 16];
        let is_marked = self.lock.read_exact_at(&mut found, 0).is_ok() && found == self.mark;
        if !is_marked {
            return Err(io::Error::other("another client has taken the directory"));
        }
        for (name, file) in &self.open {
            if !is_entry(&self.handle, name, file)? {
                let what = format!("the file `{name}` was exchanged while it was open");
                // The next write makes a new one.
                self.open.clear();
                return Err(io::Error::other(what));
            }
        }
        Ok(())
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.opened(name)?;
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.opened(name)?;
        file.seek(SeekFrom::End(0))?;
        file.write_all(bytes)
    }

    fn create(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.opened(name)?;
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.opened(name)?.sync_all()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        #[cfg(unix)]
        rustix::fs::renameat(&self.handle, from, &self.handle, to)?;
        #[cfg(not(unix))]
        {
            // An open file can't be replaced there.
            self.open.remove(from);
            self.open.remove(to);
            fs::rename(self.path.join(from), self.path.join(to))?;
        }
        match self.open.remove(from) {
            Some(file) => drop(self.open.insert(to.to_owned(), file)),
            None => drop(self.open.remove(to)),
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.remove(name);
        #[cfg(unix)]
        let removed = rustix::fs::unlinkat(&self.handle, name, AtFlags::empty());
        #[cfg(unix)]
        let removed = removed.map_err(io::Error::from);
        #[cfg(not(unix))]
        let removed = fs::remove_file(self.path.join(name));
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        // Elsewhere a directory can't be opened as a file, and needs no sync.
        #[cfg(unix)]
        self.handle.sync_all()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Failure = Box<dyn std::error::Error>;

    #[test]
    fn a_lock_ends_with_its_holder_whoever_has_a_copy() -> Result<(), Failure> {
        let folder = tempfile::tempdir()?;
        let directory = Directory::lock(folder.path())?;
        // As in a process that was started meanwhile.
        let copy = directory.lock.try_clone()?;
        assert!(matches!(Directory::lock(folder.path()), Err(StorageError::InUse { .. })));
        drop(directory);
        let again = Directory::lock(folder.path())?;
        drop((copy, again));
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn of_two_clients_that_no_lock_has_kept_apart_the_last_one_goes_on() -> Result<(), Failure> {
        use std::os::unix::fs::MetadataExt as _;

        let folder = tempfile::tempdir()?;
        let mut first = Directory::lock(folder.path())?;
        first.check()?;
        // This ends the lock of the process, as whoever copies the folder does.
        fs::read(folder.path().join(LOCK))?;
        first.check()?;
        // A second copy of the library has claims of its own, and the lock is one of the process.
        let metadata = first.handle.metadata()?;
        claimed()?.remove(&(std::process::id(), metadata.dev(), metadata.ino()));
        let mut second = Directory::lock(folder.path())?;
        assert!(first.check().is_err(), "it writes no more");
        second.check()?;
        drop(first);
        second.check()?;
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn files_stay_with_their_directory_and_a_lock_that_was_exchanged_is_noticed()
    -> Result<(), Failure> {
        let folder = tempfile::tempdir()?;
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        let mut directory = Directory::lock(&here)?;
        directory.create("state", b"one")?;
        fs::rename(&here, &there)?;
        fs::create_dir(&here)?;
        directory.append("state", b" two")?;
        directory.create("new", b"three")?;
        directory.rename("new", "state")?;
        directory.check()?;
        assert_eq!(fs::read(there.join("state"))?, b"three");
        assert_eq!(directory.read("state")?.ok_or("no file")?, b"three");
        assert_eq!(fs::read_dir(&here)?.count(), 0);
        fs::remove_file(there.join(LOCK))?;
        assert!(directory.check().is_err(), "it was removed");
        fs::write(there.join(LOCK), b"")?;
        assert!(directory.check().is_err(), "it is another one");
        Ok(())
    }
}
