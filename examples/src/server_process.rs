//! A server of `bandana` in a separate process, which prints its addresses when it listens.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::environment::CleanEnvironment as _;

/// Timeout for a server to listen, and to end.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
    /// What it is, for messages.
    name: &'static str,
}

impl ServerProcess {
    /// Starts the program with these arguments.
    pub(crate) fn spawn(
        name: &'static str,
        program: &Path,
        arguments: &[&OsStr],
    ) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            // The server must not see the settings of its parent process.
            .clean_environment()
            .env("RUST_LOG", "warn")
            // Far beyond the test's timeout: shutdown must never reach this deadline.
            .env("BANDANA_DRAIN_DEADLINE", "3600")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // The parent handles Ctrl-C; this process must not receive it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("can't start {} as the {name}", program.display()))?;
        let stdout = child.stdout.take().context("the server has no standard output")?;
        Ok(Self { child, output: BufReader::new(stdout).lines(), name })
    }

    /// The URL of the next address that it prints, which begins with `label`.
    pub(crate) async fn url(&mut self, label: &str) -> anyhow::Result<String> {
        let name = self.name;
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
        let line = line.with_context(|| format!("the {name} did not listen in time"))??;
        let line = line.with_context(|| format!("the {name} ended before it listened"))?;
        let address = line.strip_prefix(label).and_then(|rest| rest.strip_prefix('='));
        Ok(format!("http://{}", address.with_context(|| format!("unexpected line {line:?}"))?))
    }

    /// Signals the process to shut down, and waits until it has ended.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.ended().await?;
        ensure!(status.success(), "the {} ended with {status}", self.name);
        Ok(())
    }

    /// Kills the process, as a power cut would, and waits until it has ended.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        self.ended().await.map(drop)
    }

    /// Its process id.
    pub(crate) fn id(&self) -> anyhow::Result<u32> {
        self.child.id().with_context(|| format!("the {} has ended already", self.name))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let process = Pid::from_raw(i32::try_from(self.id()?)?).context("no process has id 0")?;
        Ok(kill_process(process, signal)?)
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        Ok(ended.with_context(|| format!("the {} did not end in time", self.name))??)
    }
}
