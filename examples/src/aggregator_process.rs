//! A real aggregator in a separate process.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitStatus;

use bandana_edge::operator_client::{Connection, TlsSource, TokenSource};

use crate::server_process::ServerProcess;
use crate::simulation::Server;

/// A free port on loopback.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A running aggregator on loopback. Dropping it kills the process; [`Self::stop`] shuts it down in
/// order.
#[derive(Debug)]
pub struct AggregatorProcess {
    process: ServerProcess,
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
        let mut process =
            Self::launch((ANYWHERE, ANYWHERE), flags, program, &data_dir_flag(data_dir)).await?;
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
        Self::start_at_with(device, &[], program, data_dir).await
    }

    /// As [`Self::start_at`], with more flags for `serve`.
    ///
    /// # Errors
    /// As there.
    pub async fn start_at_with(
        device: SocketAddr,
        flags: &[&str],
        program: &Path,
        data_dir: &Path,
    ) -> anyhow::Result<Self> {
        Self::launch((device, ANYWHERE), flags, program, &data_dir_flag(data_dir)).await
    }

    /// As [`Self::start_at_with`], with an address for operators too.
    ///
    /// # Errors
    /// As there.
    pub async fn start_at_both_with(
        addresses: (SocketAddr, SocketAddr),
        flags: &[&str],
        program: &Path,
        data_dir: &Path,
    ) -> anyhow::Result<Self> {
        Self::launch(addresses, flags, program, &data_dir_flag(data_dir)).await
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
        Self::launch((ANYWHERE, ANYWHERE), flags, program, &["--store".as_ref(), url.as_ref()])
            .await
    }

    async fn launch(
        (device, operator): (SocketAddr, SocketAddr),
        flags: &[&str],
        program: &Path,
        store: &[&OsStr],
    ) -> anyhow::Result<Self> {
        let (listen, operator) = (device.to_string(), operator.to_string());
        let first = ["serve", "--init", "--operator-listen", &operator, "--listen", &listen];
        let arguments = first.iter().chain(flags).map(OsStr::new);
        let arguments: Vec<&OsStr> = arguments.chain(store.iter().copied()).collect();
        let mut process = ServerProcess::spawn("aggregator", program, &arguments)?;
        let device_url = process.url("device").await?;
        let operator_url = process.url("operator").await?;
        Ok(Self { process, device_url, operator_url })
    }

    /// The server, for clients.
    ///
    /// # Errors
    /// When its URL is unusable.
    pub fn server(&self) -> anyhow::Result<Server> {
        let (token, tls) = (TokenSource::default(), TlsSource::default());
        Ok(Server {
            device: self.device_url.clone(),
            relay: None,
            shuffler: None,
            device_tls: tls.clone(),
            operator: Connection::new(&self.operator_url, token, tls)?,
        })
    }

    /// Signals the process to shut down, and waits until it has ended.
    ///
    /// # Errors
    /// When it ends with an error or not in time.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.process.stop().await
    }

    /// Kills the process, as a power cut would, and waits until it has ended.
    ///
    /// # Errors
    /// When it had ended already.
    pub async fn kill(self) -> anyhow::Result<()> {
        self.process.kill().await
    }

    /// Its process id.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn id(&self) -> anyhow::Result<u32> {
        self.process.id()
    }

    /// Waits until the process has ended by itself.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn wait(mut self) -> anyhow::Result<ExitStatus> {
        self.process.ended().await
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
        let device = device.to_owned();
        Ok(Self { device, relay: None, shuffler: None, device_tls: tls_of_device, operator })
    }
}

fn data_dir_flag(data_dir: &Path) -> [&OsStr; 2] {
    ["--data-dir".as_ref(), data_dir.as_os_str()]
}
