//! A real aggregator process with custom settings, whose log is read.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tonic::transport::Channel;

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// The device address, unless a test sets one.
const ANYWHERE: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// A running aggregator on loopback. Dropping it kills the process.
#[derive(Debug)]
pub struct WatchedServer {
    child: Child,
    /// The log, drained by a separate task: a server must not block on its reader.
    log: UnboundedReceiver<String>,
    /// The log read so far.
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
        let mut command = Command::new(program);
        command.clean_environment();
        Self::launch(command, data_dir, arguments, "info").await
    }

    /// Starts a server with a prepared command, such as one with a custom environment or a wrapper
    /// of the program, and with a log filter. The arguments are appended.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn launch(
        command: Command,
        data_dir: &Path,
        arguments: &[&str],
        log_filter: &str,
    ) -> anyhow::Result<Self> {
        StartingServer::launch(command, data_dir, arguments, log_filter)?.serving().await
    }

    /// New plaintext connections to the server.
    ///
    /// # Errors
    /// When the server is unreachable.
    pub async fn clients(
        &self,
    ) -> anyhow::Result<(DeviceClient<Channel>, OperatorClient<Channel>)> {
        let device = DeviceClient::connect(format!("http://{}", self.device)).await?;
        Ok((device, OperatorClient::connect(format!("http://{}", self.operator)).await?))
    }

    /// Makes the server reload its files, and waits until it has.
    ///
    /// # Errors
    /// On a timeout.
    pub async fn reload(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::HUP)?;
        self.log_until("files were read again").await
    }

    /// Reads the log up to a line with this text.
    ///
    /// # Errors
    /// On a timeout.
    pub async fn log_until(&mut self, text: &str) -> anyhow::Result<()> {
        let reading = async {
            while let Some(line) = self.log.recv().await {
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

    /// Shuts the server down, and returns its complete log.
    ///
    /// # Errors
    /// When it ends with an error or not in time.
    pub async fn stop(self) -> anyhow::Result<String> {
        self.signal(Signal::TERM)?;
        let (code, log) = self.ended().await?;
        ensure!(code == Some(0), "{code:?}: {log}");
        Ok(log)
    }

    /// Waits until the server has ended, and returns its exit code and complete log.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn ended(mut self) -> anyhow::Result<(Option<i32>, String)> {
        let ending = async {
            while let Some(line) = self.log.recv().await {
                self.logged += &line;
                self.logged += "\n";
            }
            anyhow::Ok(self.child.wait().await?)
        };
        let status = tokio::time::timeout(PATIENCE, ending).await??;
        Ok((status.code(), self.logged))
    }

    /// The process id.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn id(&self) -> anyhow::Result<u32> {
        self.child.id().context("the server has ended")
    }

    /// Sends the server a signal.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        send(&self.child, signal)
    }
}

/// A starting aggregator. Dropping it kills the process.
#[derive(Debug)]
pub struct StartingServer {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    log: UnboundedReceiver<String>,
    logged: String,
}

impl StartingServer {
    /// Starts `program serve` with these arguments on free ports, without waiting.
    ///
    /// # Errors
    /// When the process can't be started.
    pub fn start(program: &str, data_dir: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.clean_environment();
        Self::launch(command, data_dir, arguments, "info")
    }

    fn launch(
        mut command: Command,
        data_dir: &Path,
        arguments: &[&str],
        log_filter: &str,
    ) -> anyhow::Result<Self> {
        let mut child = command
            .args(["serve", "--init", "--operator-listen", "127.0.0.1:0", "--data-dir"])
            .arg(data_dir)
            .args(if arguments.contains(&"--listen") { &[][..] } else { &ANYWHERE })
            .args(arguments)
            .env("RUST_LOG", log_filter)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().context("no standard output")?;
        let stderr = child.stderr.take().context("no standard error")?;
        let (logs, log) = unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                // The test may be over.
                logs.send(line).ok();
            }
        });
        Ok(Self { child, stdout: BufReader::new(stdout).lines(), log, logged: String::new() })
    }

    /// Waits until the server listens, and returns its addresses for devices and for operators.
    ///
    /// # Errors
    /// On a timeout.
    pub async fn listening(&mut self) -> anyhow::Result<(String, String)> {
        let listening = async {
            while let Some(line) = self.log.recv().await {
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

    /// Waits until the server serves.
    ///
    /// # Errors
    /// On a timeout.
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
                while let Some(line) = self.log.recv().await {
                    self.logged += &line;
                }
                Err(error.context(self.logged))
            }
        }
    }

    /// Shuts the server down, and waits until it has ended with 0.
    ///
    /// # Errors
    /// On a timeout.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        send(&self.child, Signal::TERM)?;
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await??;
        ensure!(status.success(), "{status}: {}", self.logged);
        Ok(())
    }
}

/// Replaces the lock of a store by a pipe, whose opening blocks a server's start until there is a
/// reader.
///
/// # Errors
/// When the pipe can't be made.
pub fn hold_up(data_dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(data_dir)?;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(mknodat(CWD, data_dir.join("bandana.lock"), FileType::Fifo, mode, 0)?)
}

/// Lets a server start that was held up. The file must be kept until it has started.
///
/// # Errors
/// When the pipe can't be read.
pub async fn let_go(data_dir: &Path) -> anyhow::Result<File> {
    let lock = data_dir.join("bandana.lock");
    Ok(tokio::task::spawn_blocking(|| File::open(lock)).await??)
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
