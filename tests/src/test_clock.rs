//! The clock of a server process, controlled by a test.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use tokio::process::Command;

use crate::watched_server::WatchedServer;

/// A file from which `aggregator-under-test` reads the time.
#[derive(Debug)]
pub struct TestClock {
    file: PathBuf,
}

impl TestClock {
    /// A clock in a file of this folder that stands at noon of `day`.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn at(day: Day, folder: &Path) -> anyhow::Result<Self> {
        let clock = Self { file: folder.join("clock") };
        clock.set(day)?;
        Ok(clock)
    }

    /// Moves the clock to noon of `day`.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn set(&self, day: Day) -> anyhow::Result<()> {
        let seconds = u64::from(day.get()) * 86_400 + 43_200;
        let next = self.file.with_extension("next");
        std::fs::write(&next, seconds.to_string())?;
        // Atomically: the server never reads a partial file.
        Ok(std::fs::rename(next, &self.file)?)
    }

    /// A file of this folder that runs the program with this clock.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn wrapper(&self, program: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
        let (file, clock) = (folder.join("with-clock"), self.file.display());
        let text = format!("#!/bin/sh\nTEST_CLOCK='{clock}' exec '{}' \"$@\"\n", program.display());
        std::fs::write(&file, text)?;
        std::fs::set_permissions(&file, Permissions::from_mode(0o700))?;
        Ok(file)
    }

    /// The program with this clock.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.clean_environment().env("TEST_CLOCK", &self.file).kill_on_drop(true);
        command
    }

    /// Starts a server with this clock.
    ///
    /// # Errors
    /// When it does not listen in time.
    pub async fn serve(&self, program: &str, data_dir: &Path) -> anyhow::Result<WatchedServer> {
        WatchedServer::launch(self.command(program), data_dir, &[], "info").await
    }
}
