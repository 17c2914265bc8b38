//! Files of data sets, opened so that only regular files of their directory are read.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path};

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, open, openat, statat};
use sha2::{Digest as _, Sha256};

use super::reading::ReadError;

/// Largest file size: 8 GiB. A file is read into memory as a whole.
pub const FILE_BYTES_MAX: u64 = 1 << 33;

/// A file of a data set, in memory.
pub struct DataFile {
    pub(super) bytes: Bytes,
    pub(super) is_parquet: bool,
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
        let mut parts = Path::new(name).components();
        let only = (parts.next(), parts.next());
        // `components` drops redundant parts, such as a trailing slash, so the name is compared
        // too.
        if !matches!(only, (Some(Component::Normal(part)), None) if part == name) {
            return Err(ReadError::NotAName);
        }
        let failed = |error: rustix::io::Errno| ReadError::File(error.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(directory, flags, Mode::empty()).map_err(failed)?;
        let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
        // Checked before opening, because opening a device can have side effects. Checked again
        // after opening, because the file may have been replaced.
        let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if !is_file(found.st_mode) {
            return Err(ReadError::NotRegular);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&directory, name, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::LOOP => ReadError::NotRegular,
            other => failed(other),
        })?;
        if !is_file(fstat(&file).map_err(failed)?.st_mode) {
            return Err(ReadError::NotRegular);
        }
        Self::read(File::from(file), name)
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
        Self { bytes: bytes.into(), is_parquet }
    }

    /// The SHA-256 of the file's bytes.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.bytes).into()
    }
}
