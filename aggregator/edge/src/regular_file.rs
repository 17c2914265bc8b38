//! Opening of regular files only: reading one never blocks for a peer, as reading a pipe does.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

/// Most bytes of a file with a secret key, with room for comments.
const SECRET_BYTES_MAX: u64 = 4096;

/// Opens a file for reading, following links.
///
/// # Errors
/// Those of the system, and one for pipes, devices and directories: opening or reading a pipe
/// blocks until another process writes to it.
pub fn open(path: &Path) -> io::Result<File> {
    // Checked before opening, because opening a device can have side effects. Checked again after
    // opening, because the file may have been replaced.
    check(&std::fs::metadata(path)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    check(&file.metadata()?)?;
    Ok(file)
}

/// Reads a file with a secret key. Warns when others than its owner can read it.
///
/// # Errors
/// As [`open`]; and for a file that is no text.
pub fn read_secret(path: &Path) -> io::Result<Zeroizing<String>> {
    // Allocated at full size, since a growing buffer leaves copies of the key.
    let mut text = Zeroizing::new(String::with_capacity(8192));
    let file = open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        tracing::warn!(
            file = %path.display(),
            "not only its owner can read a secret key; shut it with `chmod 600`"
        );
    }
    file.take(SECRET_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn check(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = "it is no regular file, nor a link to one; put what it gives into a file";
    Err(io::Error::new(ErrorKind::InvalidInput, what))
}
