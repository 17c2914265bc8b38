//! Opening of regular files only: reading one never blocks for a peer, as reading a pipe does.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens a file for reading, following links.
///
/// # Errors
/// Those of the system, and one for pipes, devices and directories: opening or reading a pipe
/// blocks until another process writes to it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Checked before opening, because opening a device can have side effects. Checked again after
    // opening, because the file may have been replaced.
    check(&std::fs::metadata(path)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let what = "it is no regular file, nor a link to one; put what it gives into a file";
    Err(io::Error::new(ErrorKind::InvalidInput, what))
}
