//! One directory serves one process at a time, and survives each process.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

/// An app that has printed its status. Dropping it kills the process.
struct App {
    process: Child,
    said: String,
}

impl App {
    fn start(directory: &Path, choices: u32) -> anyhow::Result<Self> {
        let process = Command::new(env!("CARGO_BIN_EXE_aggregator-under-test"))
            .arg0("app-under-test")
            .arg(directory)
            .arg(choices.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut app = Self { process, said: String::new() };
        let output = app.process.stdout.take().context("no standard output")?;
        BufReader::new(output).read_line(&mut app.said)?;
        Ok(app)
    }

    /// Ends the process normally.
    fn end(mut self) -> anyhow::Result<()> {
        drop(self.process.stdin.take());
        let status = self.process.wait()?;
        anyhow::ensure!(status.success(), "the app ended with {status}");
        Ok(())
    }
}

/// SIGKILL, as when the operating system kills an app.
impl Drop for App {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[test]
fn a_directory_serves_one_process_and_outlives_its_death() -> anyhow::Result<()> {
    let parent = tempfile::tempdir()?;
    let directory = parent.path().join("bandana");
    let first = App::start(&directory, 3)?;
    assert_eq!(first.said, "on, spent 3000000000, open 3\n");

    // A concurrent second app gives arms at most, and leaves the files alone. It does not know the
    // past spending, so the whole lifetime budget counts as spent.
    let second = App::start(&directory, 0)?;
    assert_eq!(second.said, "in use, spent 100000000000, open 0\n");
    drop(first);
    // The second app stays without the files; the lock is free for the next one.
    let third = App::start(&directory, 0)?;
    assert_eq!(third.said, "on, spent 3000000000, open 3\n");
    second.end()?;
    third.end()?;

    // The budget allows five reports, so two of four choices report.
    let fourth = App::start(&directory, 4)?;
    assert_eq!(fourth.said, "on, spent 5000000000, open 5\n");
    fourth.end()
}
