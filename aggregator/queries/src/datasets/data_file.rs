//! Files of data sets, opened so that only regular files of their directory are read.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path};

use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, open, openat, statat};
use sha2::{Digest as _, Sha256};

use super::reading::ReadError;
use super::text::without_mark;

/// Largest file size: 8 GiB. A file is read into memory as a whole.
pub const FILE_BYTES_MAX: u64 = 1 << 33;

/// What a file system says of a file, by which a change of it is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    file: (u64, u64),
    bytes: i64,
    /// Seconds and nanoseconds of the last change of the content, and of the last change of anything.
    changed: [(i64, i64); 2],
}

impl FileState {
    #[allow(trivial_numeric_casts, clippy::unnecessary_cast, reason = "types differ by system")]
    fn of(found: &Stat) -> Self {
        Self {
            file: (found.st_dev as u64, found.st_ino as u64),
            bytes: found.st_size as i64,
            changed: [
                (found.st_mtime as i64, found.st_mtime_nsec as i64),
                (found.st_ctime as i64, found.st_ctime_nsec as i64),
            ],
        }
    }
}

/// A file of a data set, in memory.
pub struct DataFile {
    pub(super) bytes: Bytes,
    /// In UTF-8, as far as it is CSV.
    pub(super) text: Bytes,
    pub(super) is_parquet: bool,
    state: FileState,
}

impl std::fmt::Debug for DataFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataFile").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl DataFile {
    /// Reads a regular file directly in the directory. Links are not followed, wherever they lead.
    /// Pipes and devices are not opened.
    ///
    /// # Errors
    /// [`ReadError::NotAName`], [`ReadError::NotRegular`], [`ReadError::File`],
    /// [`ReadError::TooLarge`].
    pub fn open(directory: &Path, name: &str) -> Result<Self, ReadError> {
        // Checked before opening, because opening a device can have side effects. Checked again
        // after opening, because the file may have been replaced.
        let (directory, _) = found(directory, name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&directory, name, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::LOOP => ReadError::NotRegular,
            other => failed(other),
        })?;
        // As of before it is read: what is changed meanwhile is noticed at the next look.
        let state = checked(&fstat(&file).map_err(failed)?)?;
        Ok(Self { state, ..Self::read(File::from(file), name)? })
    }

    /// What the file system says of a regular file directly in the directory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn look(directory: &Path, name: &str) -> Result<FileState, ReadError> {
        found(directory, name).map(|(_, state)| state)
    }

    /// What the file system said of the file before it was read.
    pub fn state(&self) -> FileState {
        self.state
    }

    fn read(file: File, name: &str) -> Result<Self, ReadError> {
        let length = file.metadata().map_err(ReadError::File)?.len();
        if length > FILE_BYTES_MAX {
            return Err(ReadError::TooLarge);
        }
        let mut bytes = Vec::new();
        let room = usize::try_from(length).map_err(|_| ReadError::TooLarge)?;
        let no_room = |_| ReadError::File(io::ErrorKind::OutOfMemory.into());
        bytes.try_reserve_exact(room).map_err(no_room)?;
        // One byte beyond the limit, to detect a file that grows meanwhile.
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(ReadError::File)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(ReadError::TooLarge);
        }
        Ok(Self::of(bytes, name))
    }

    /// A file of this name with these bytes. A name that ends in `.parquet` means Parquet, any
    /// other CSV.
    pub fn of(bytes: Vec<u8>, name: &str) -> Self {
        let extension = Path::new(name).extension();
        let is_parquet = extension.is_some_and(|ext| ext.eq_ignore_ascii_case("parquet"));
        let bytes = Bytes::from(bytes);
        let text = if is_parquet { Bytes::new() } else { without_mark(&bytes) };
        Self { bytes, text, is_parquet, state: FileState::default() }
    }

    /// The SHA-256 of the file's bytes.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.bytes).into()
    }
}

/// An open directory, and what it says of a regular file in it.
fn found(directory: &Path, name: &str) -> Result<(OwnedFd, FileState), ReadError> {
    let mut parts = Path::new(name).components();
    let only = (parts.next(), parts.next());
    // `components` drops redundant parts, such as a trailing slash, so the name is compared too.
    if !matches!(only, (Some(Component::Normal(part)), None) if part == name) {
        return Err(ReadError::NotAName);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(directory, flags, Mode::empty()).map_err(failed)?;
    let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    let state = checked(&found)?;
    Ok((directory, state))
}

fn checked(found: &Stat) -> Result<FileState, ReadError> {
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    is_file.then(|| FileState::of(found)).ok_or(ReadError::NotRegular)
}

fn failed(error: rustix::io::Errno) -> ReadError {
    ReadError::File(error.into())
}
