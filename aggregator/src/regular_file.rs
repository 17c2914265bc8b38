//! Files that are read while calls wait: regular ones, which keep nobody waiting.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens a file to read it, or what a link leads to.
///
/// # Errors
/// Those of the system, and one for pipes, devices and directories: whoever opens or reads a pipe
/// waits until somebody writes to it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Looked at before it is opened, as opening a device can do something; and again then, as it
    // may be another one by now.
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
