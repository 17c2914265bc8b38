//! A real aggregator process with settings of a test's choice, whose log is read.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// How long a server may take for anything.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running aggregator on loopback; killed when this is dropped.
#[derive(Debug)]
pub struct WatchedServer {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    /// All of the log that was read.
    pub logged: String,
    /// Address of the service for devices.
    pub device: String,
    /// Address of the service for operators.
    pub operator: String,
}

impl WatchedServer {
    /// Starts `program serve` with these arguments on free ports.
    ///
    /// # Errors
    /// When it does not serve in time.
    pub async fn start(program: &str, data_dir: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        StartingServer::start(program, data_dir, arguments)?.serving().await
    }

    /// Has it read its files again, and waits until it has.
    ///
    /// # Errors
    /// When it does not.
    pub async fn reload(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::HUP)?;
        self.log_until("files were read again").await
    }

    /// Reads the log up to a line with this text.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn log_until(&mut self, text: &str) -> anyhow::Result<()> {
        let reading = async {
            while let Some(line) = self.log.next_line().await? {
                self.logged += &line;
                self.logged += "\n";
                if line.contains(text) {
                    return Ok(());
                }
            }
            bail!("the log ended")
        };
        let outcome = tokio::time::timeout(PATIENCE, reading).await;
        let outcome = outcome.unwrap_or_else(|_| bail!("the log does not go on"));
        outcome.with_context(|| format!("without {text:?}: {}", self.logged))
    }

    /// Ends it in order, and returns its whole log.
    ///
    /// # Errors
    /// When it ends with an error or not in time.
    pub async fn stop(mut self) -> anyhow::Result<String> {
        self.signal(Signal::TERM)?;
        let ending = async {
            while let Some(line) = self.log.next_line().await? {
                self.logged += &line;
                self.logged += "\n";
            }
            anyhow::Ok(self.child.wait().await?)
        };
        let status = tokio::time::timeout(PATIENCE, ending).await??;
        ensure!(status.success(), "{status}: {}", self.logged);
        Ok(self.logged)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        send(&self.child, signal)
    }
}

/// An aggregator that may not serve yet; killed when this is dropped.
#[derive(Debug)]
pub struct StartingServer {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    log: Lines<BufReader<ChildStderr>>,
    logged: String,
}

impl StartingServer {
    /// Starts `program serve` with these arguments on free ports, and waits for nothing.
    ///
    /// # Errors
    /// When there can be no process.
    pub fn start(program: &str, data_dir: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"])
            .arg("--data-dir")
            .arg(data_dir)
            .args(arguments)
            .env_clear()
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().context("no standard output")?;
        let stderr = child.stderr.take().context("no standard error")?;
        let (stdout, log) = (BufReader::new(stdout).lines(), BufReader::new(stderr).lines());
        Ok(Self { child, stdout, log, logged: String::new() })
    }

    /// Waits until it listens: its addresses, for devices and for operators.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn listening(&mut self) -> anyhow::Result<(String, String)> {
        let listening = async {
            while let Some(line) = self.log.next_line().await? {
                self.logged += &line;
                self.logged += "\n";
                if let Some((_, addresses)) = line.split_once("opening the store ") {
                    let mut addresses = addresses.split(' ').map(|word| word.split_once('='));
                    let mut next = || addresses.next().flatten().context("no address");
                    return Ok((next()?.1.to_owned(), next()?.1.to_owned()));
                }
            }
            bail!("the log ended: {}", self.logged)
        };
        tokio::time::timeout(PATIENCE, listening).await?
    }

    /// Waits until it serves.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn serving(mut self) -> anyhow::Result<WatchedServer> {
        let addresses = async {
            let device = address(&mut self.stdout, "device=").await?;
            let operator = address(&mut self.stdout, "operator=").await?;
            anyhow::Ok((device, operator))
        };
        match tokio::time::timeout(PATIENCE, addresses).await? {
            Ok((device, operator)) => {
                let Self { child, log, logged, .. } = self;
                Ok(WatchedServer { child, log, logged, device, operator })
            }
            Err(error) => {
                while let Some(line) = self.log.next_line().await? {
                    self.logged += &line;
                }
                Err(error.context(self.logged))
            }
        }
    }

    /// Asks it to end, and waits until it has, with 0.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        send(&self.child, Signal::TERM)?;
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await??;
        ensure!(status.success(), "{status}: {}", self.logged);
        Ok(())
    }
}

fn send(child: &Child, signal: Signal) -> anyhow::Result<()> {
    let id = child.id().context("the server has ended")?;
    let process = Pid::from_raw(i32::try_from(id)?).context("no process has id 0")?;
    Ok(kill_process(process, signal)?)
}

async fn address(lines: &mut Lines<BufReader<ChildStdout>>, name: &str) -> anyhow::Result<String> {
    let line = lines.next_line().await?.context("the server ended before it listened")?;
    Ok(line.strip_prefix(name).with_context(|| format!("unexpected line {line:?}"))?.to_owned())
}
