//! A real aggregator in a separate process.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_aggregator::operator_client::{Connection, TlsSource, TokenSource};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::environment::CleanEnvironment as _;
use crate::simulation::Server;

/// Timeout for an aggregator to listen, and to end.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running aggregator on loopback. Dropping it kills the process; [`Self::stop`] shuts it down in
/// order.
#[derive(Debug)]
pub struct AggregatorProcess {
    child: Child,
    /// URL of the device service.
    pub device_url: String,
    /// URL of the operator service.
    pub operator_url: String,
}

impl AggregatorProcess {
    /// Starts `program serve` on free ports with the store in `data_dir`;
    /// `program` is one that calls [`bandana_aggregator::cli::main`].
    ///
    /// # Errors
    /// When the process can't be started or does not listen in time.
    pub async fn start(program: &Path, data_dir: &Path) -> anyhow::Result<Self> {
        Self::start_with(&[], program, data_dir).await
    }

    /// As [`Self::start`], with more flags for `serve`. The URLs are `https` if there is a
    /// certificate among them.
    ///
    /// # Errors
    /// As there.
    pub async fn start_with(
        flags: &[&str],
        program: &Path,
        data_dir: &Path,
    ) -> anyhow::Result<Self> {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Self::launch(anywhere, flags, program, &data_dir_flag(data_dir)).await?;
        let secure = |url: &mut String, flag| {
            if flags.contains(&flag) {
                *url = url.replacen("http://", "https://", 1);
            }
        };
        secure(&mut process.device_url, "--tls-certificate");
        secure(&mut process.operator_url, "--operator-tls-certificate");
        Ok(process)
    }

    /// As [`Self::start`], with this address for devices, for example the one of an earlier
    /// process.
    ///
    /// # Errors
    /// As there, and when the address is taken.
    pub async fn start_at(
        device: SocketAddr,
        program: &Path,
        data_dir: &Path,
    ) -> anyhow::Result<Self> {
        Self::launch(device, &[], program, &data_dir_flag(data_dir)).await
    }

    /// Starts a replica on the database with this URL.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_replica(program: &Path, url: &str) -> anyhow::Result<Self> {
        Self::start_replica_with(&[], program, url).await
    }

    /// As [`Self::start_replica`], with more flags for `serve`.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_replica_with(
        flags: &[&str],
        program: &Path,
        url: &str,
    ) -> anyhow::Result<Self> {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::launch(anywhere, flags, program, &["--store".as_ref(), url.as_ref()]).await
    }

    async fn launch(
        device: SocketAddr,
        flags: &[&str],
        program: &Path,
        store: &[&OsStr],
    ) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .args(["serve", "--init", "--operator-listen", "127.0.0.1:0", "--listen"])
            .arg(device.to_string())
            .args(flags)
            .args(store)
            // The aggregator must not see the settings of its parent process.
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
            .with_context(|| format!("can't start {} as the aggregator", program.display()))?;
        let stdout = child.stdout.take().context("the aggregator has no standard output")?;
        let addresses = tokio::time::timeout(PATIENCE, read_addresses(BufReader::new(stdout)));
        let (device_url, operator_url) =
            addresses.await.context("the aggregator did not listen in time")??;
        Ok(Self { child, device_url, operator_url })
    }

    /// The server, for clients.
    ///
    /// # Errors
    /// When its URL is unusable.
    pub fn server(&self) -> anyhow::Result<Server> {
        let (token, tls) = (TokenSource::default(), TlsSource::default());
        Ok(Server {
            device: self.device_url.clone(),
            device_tls: tls.clone(),
            operator: Connection::new(&self.operator_url, token, tls)?,
        })
    }

    /// Signals the process to shut down, and waits until it has ended.
    ///
    /// # Errors
    /// When it ends with an error or not in time.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.ended().await?;
        ensure!(status.success(), "the aggregator ended with {status}");
        Ok(())
    }

    /// Kills the process, as a power cut would, and waits until it has ended.
    ///
    /// # Errors
    /// When it had ended already.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        self.ended().await.map(drop)
    }

    /// Its process id.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn id(&self) -> anyhow::Result<u32> {
        self.child.id().context("the aggregator has ended already")
    }

    /// Waits until the process has ended by itself.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn wait(mut self) -> anyhow::Result<ExitStatus> {
        self.ended().await
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let process = Pid::from_raw(i32::try_from(self.id()?)?).context("no process has id 0")?;
        Ok(kill_process(process, signal)?)
    }

    async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        Ok(ended.context("the aggregator did not end in time")??)
    }
}

impl Server {
    /// An aggregator that is already running, with the operators' credentials and the root
    /// certificates of both services.
    ///
    /// # Errors
    /// When the URL for operators is invalid.
    pub fn at(
        device: &str,
        operator: &str,
        token: &TokenSource,
        tls: &TlsSource,
    ) -> anyhow::Result<Self> {
        let is_secure = |url: &str| url.starts_with("https://");
        // A URL that is not https would refuse the certificate meant for the other one.
        let tls_of_device = match (is_secure(device), is_secure(operator)) {
            (false, true) => TlsSource::default(),
            _ => tls.without_identity(),
        };
        let tls_of_operator = match (is_secure(device), is_secure(operator)) {
            (true, false) => tls.without_roots(),
            _ => tls.clone(),
        };
        let operator = Connection::new(operator, token.clone(), tls_of_operator)?;
        Ok(Self { device: device.to_owned(), device_tls: tls_of_device, operator })
    }
}

fn data_dir_flag(data_dir: &Path) -> [&OsStr; 2] {
    ["--data-dir".as_ref(), data_dir.as_os_str()]
}

/// Reads the two lines that a listening aggregator prints.
async fn read_addresses(
    output: BufReader<tokio::process::ChildStdout>,
) -> anyhow::Result<(String, String)> {
    let mut lines = output.lines();
    let mut url = async |name: &str| -> anyhow::Result<String> {
        let line = lines.next_line().await?.context("the aggregator ended before it listened")?;
        let address =
            line.strip_prefix(name).with_context(|| format!("unexpected line {line:?}"))?;
        Ok(format!("http://{address}"))
    };
    Ok((url("device=").await?, url("operator=").await?))
}
