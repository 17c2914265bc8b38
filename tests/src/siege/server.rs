//! A server process under siege, restarted again and again on the same store.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

use super::network::Network;
use super::ways::Way;

/// Timeout for a server to start, and to end.
const PATIENCE: Duration = Duration::from_mins(1);

/// Number of log bytes to show.
const TAIL: usize = 4096;

/// Addresses and process of a running server.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// The process id.
    pub(super) process: u32,
    /// The address for devices.
    pub(super) device: String,
    /// The address for operators.
    pub(super) operator: String,
    /// The certificate that devices trust, if they use TLS.
    pub(super) trust: Option<String>,
}

impl Running {
    /// Connections that bypass the simulated network.
    pub(super) fn way(&self) -> anyhow::Result<Way> {
        Way::to(&self.device, &self.operator, self.trust.as_deref())
    }
}

/// A server, which may be down.
#[derive(Debug)]
pub(super) struct Server {
    /// The name for messages.
    pub(super) name: String,
    /// The log of all of the server's processes.
    pub(super) log: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    /// The simulated network between devices and the server.
    pub(super) device: Arc<Network>,
    /// The simulated network between operators and the server.
    pub(super) operator: Arc<Network>,
    /// The certificate that devices trust, if they use TLS.
    pub(super) trust: Option<String>,
    child: Option<Child>,
    running: watch::Sender<Option<Running>>,
}

impl Server {
    /// A server that is down; `store` and the other arguments follow `serve`.
    ///
    /// # Errors
    /// When no ports are available.
    pub(super) async fn new(
        name: String,
        program: &Path,
        arguments: Vec<String>,
        folder: &Path,
        seed: u64,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            log: folder.join(format!("{name}.log")),
            name,
            program: program.to_owned(),
            arguments,
            device: Arc::new(Network::open(seed).await?),
            operator: Arc::new(Network::open(seed.wrapping_add(1)).await?),
            trust: None,
            child: None,
            running: watch::Sender::new(None),
        })
    }

    /// The state of the server, with updates.
    pub(super) fn running(&self) -> watch::Receiver<Option<Running>> {
        self.running.subscribe()
    }

    /// Changes the arguments after `serve`, for the next start.
    pub(super) fn set_arguments(&mut self, change: impl FnOnce(&mut Vec<String>)) {
        change(&mut self.arguments);
    }

    /// Starts the server with these additional arguments, and waits until it serves.
    ///
    /// # Errors
    /// On a timeout, with the end of the log.
    pub(super) async fn start(&mut self, more: &[&str]) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut child = Command::new(&self.program)
            .args(["serve", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"])
            .args(&self.arguments)
            .args(more)
            .clean_environment()
            .env("RUST_LOG", "info")
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            // The siege handles Ctrl-C.
            .process_group(0)
            .spawn()?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let addresses = async {
            let device = address(&mut lines, "device=").await?;
            anyhow::Ok((device, address(&mut lines, "operator=").await?))
        };
        let outcome = tokio::time::timeout(PATIENCE, addresses).await;
        match outcome.unwrap_or_else(|_| bail!("it does not serve in time")) {
            Ok((device, operator)) => {
                self.device.lead_to(Some(device.clone()));
                self.operator.lead_to(Some(operator.clone()));
                let process = child.id().context("it has ended")?;
                let trust = self.trust.clone();
                self.running.send_replace(Some(Running { process, device, operator, trust }));
                self.child = Some(child);
                Ok(())
            }
            Err(error) => {
                child.start_kill().ok();
                let status = child.wait().await?;
                Err(error.context(format!("{} ended with {status}: {}", self.name, self.tail())))
            }
        }
    }

    /// The exit status, if the server has ended by itself.
    ///
    /// # Errors
    /// When that can't be found out.
    pub(super) fn has_ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let ended = child.try_wait()?;
        if ended.is_some() {
            self.forget();
        }
        Ok(ended)
    }

    /// Waits until the server has ended by itself, and returns the exit status.
    ///
    /// # Errors
    /// On a timeout.
    pub(super) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        let child = self.child.as_mut().context("it is down")?;
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
        let status = ended.with_context(|| format!("{} does not end", self.name))??;
        self.forget();
        Ok(status)
    }

    /// Kills the server.
    ///
    /// # Errors
    /// When that fails.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        self.ended().await.map(drop)
    }

    /// Shuts the server down.
    ///
    /// # Errors
    /// When it does not end with 0 in time.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.ended().await?;
        ensure!(status.success(), "{} ended with {status}: {}", self.name, self.tail());
        Ok(())
    }

    /// Sends the server a signal.
    ///
    /// # Errors
    /// When it is down.
    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).context("it is down")?;
        let process = Pid::from_raw(i32::try_from(id)?).context("no process has id 0")?;
        Ok(kill_process(process, signal)?)
    }

    /// The end of the log.
    pub(super) fn tail(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(TAIL)..]).into_owned()
    }

    fn forget(&mut self) {
        self.child = None;
        self.running.send_replace(None);
        self.device.lead_to(None);
        self.operator.lead_to(None);
    }
}

async fn address(lines: &mut Lines<BufReader<ChildStdout>>, name: &str) -> anyhow::Result<String> {
    let line = lines.next_line().await?.context("it ended before it served")?;
    Ok(line.strip_prefix(name).with_context(|| format!("unexpected line {line:?}"))?.to_owned())
}
