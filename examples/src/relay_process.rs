//! A real relay in a separate process, and the key of the gateway behind it.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bandana_shared::gateway::GatewayKeys;
use tokio::process::Command;

use crate::environment::CleanEnvironment as _;
use crate::server_process::ServerProcess;

/// Flags of a relay that holds nothing back, and takes as much from an address as comes.
pub const AT_ONCE: [&str; 4] = ["--delay-seconds", "0", "--requests-per-second-per-address", "0"];

/// A running relay or witness on loopback. Dropping it kills the process; [`Self::stop`] shuts it down in
/// order.
#[derive(Debug)]
pub struct RelayProcess {
    process: ServerProcess,
    /// URL for devices, or for logs.
    pub url: String,
}

impl RelayProcess {
    /// Starts `program relay` on a free port, with more flags; `program` is one that calls
    /// [`bandana_aggregator::cli::main`].
    ///
    /// # Errors
    /// When the process can't be started or does not listen in time.
    pub async fn start(flags: &[&str], program: &Path, gateway: &str) -> anyhow::Result<Self> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), flags, program, gateway).await
    }

    /// As [`Self::start`], with this address, for example the one of an earlier process.
    ///
    /// # Errors
    /// As there, and when the address is taken.
    pub async fn start_at(
        address: SocketAddr,
        flags: &[&str],
        program: &Path,
        gateway: &str,
    ) -> anyhow::Result<Self> {
        Self::launch("relay", "relay", address, &[&["--gateway", gateway], flags].concat(), program)
            .await
    }

    /// Starts `program bandana-relay` on a free port, with more flags; `program` is one that then calls
    /// `bandana_relay::cli::main`.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_alone(
        flags: &[&str],
        program: &Path,
        gateway: &str,
    ) -> anyhow::Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let flags = [&["--gateway", gateway], flags].concat();
        Self::launch("relay", "bandana-relay", address, &flags, program).await
    }

    /// Starts `program witness`, a witness of public logs, at this address.
    ///
    /// # Errors
    /// As [`Self::start_at`].
    pub async fn witness_at(
        address: SocketAddr,
        flags: &[&str],
        program: &Path,
    ) -> anyhow::Result<Self> {
        Self::launch("witness", "witness", address, flags, program).await
    }

    /// Starts a command that prints its address under this name.
    async fn launch(
        name: &'static str,
        command: &str,
        address: SocketAddr,
        flags: &[&str],
        program: &Path,
    ) -> anyhow::Result<Self> {
        let listen = address.to_string();
        let arguments = [command, "--listen", &listen];
        let arguments: Vec<&OsStr> = arguments.iter().chain(flags).map(OsStr::new).collect();
        let mut process = ServerProcess::spawn(name, program, &arguments)?;
        let url = process.url(name).await?;
        Ok(Self { process, url })
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
}

/// Makes the key of a gateway in this folder, and returns its file.
///
/// # Errors
/// When the program can't make it.
pub async fn gateway_key(program: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    Ok(key(program, folder.join("gateway-key")).await?.0)
}

/// What makes a relay shuffle.
#[derive(Debug)]
pub struct ShuffleFlags {
    /// The flags.
    pub flags: Vec<String>,
    /// The public key of the relay.
    pub keys: GatewayKeys,
}

impl ShuffleFlags {
    /// Makes a relay's key in this folder, in which its store will be too. `operators` is the URL of
    /// the aggregator's service for operators.
    ///
    /// # Errors
    /// When the program can't make the key.
    pub async fn new(program: &Path, folder: &Path, operators: &str) -> anyhow::Result<Self> {
        let (file, keys) = key(program, folder.join("relay-key")).await?;
        let (key, store) = (file.display().to_string(), folder.join("relay"));
        let store = store.display().to_string();
        let flags =
            ["--init", "--shuffle", &store, "--shuffle-key", &key, "--operator-url", operators];
        // All have the address of this machine.
        let all = ["--batch-share-per-address", "1"];
        let flags = flags.iter().chain(&all).map(|flag| (*flag).to_owned()).collect();
        Ok(Self { flags, keys })
    }

    /// These flags after others.
    pub fn after<'a>(&'a self, others: &[&'a str]) -> Vec<&'a str> {
        others.iter().copied().chain(self.flags.iter().map(String::as_str)).collect()
    }
}

/// Makes a key, and returns its file and its public half.
async fn key(program: &Path, file: PathBuf) -> anyhow::Result<(PathBuf, GatewayKeys)> {
    let mut command = Command::new(program);
    command.args(["gateway-key", "generate", "--out"]).arg(&file).clean_environment();
    let output = command.kill_on_drop(true).output().await.context("can't make a gateway's key")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout)?;
    let keys = printed.lines().next().context("nothing was printed")?.parse()?;
    Ok((file, keys))
}
