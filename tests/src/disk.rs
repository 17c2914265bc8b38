//! A temporary file system in memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use crate::suite::Requirement;

/// A mounted file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts a file system of this size in a new folder.
    ///
    /// # Errors
    /// [`crate::suite::Missing`] without the right to mount one.
    pub fn new(path: PathBuf, size: &str) -> anyhow::Result<Self> {
        std::fs::create_dir(&path)?;
        let disk = Self(path);
        let outcome = disk.mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "none"]);
        let why = |error| Requirement::Disks.missing(format!("no tmpfs can be mounted: {error:#}"));
        outcome.map_err(why)?;
        Ok(disk)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Remounts the file system with these options.
    ///
    /// # Errors
    /// When the options are invalid.
    pub fn change(&self, options: &str) -> anyhow::Result<()> {
        self.mount(&["-o", &format!("remount,{options}")])
    }

    fn mount(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let output = Command::new("mount").args(arguments).arg(&self.0).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.0).status().ok();
    }
}
