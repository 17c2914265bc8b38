//! The keys of a public log and of its witness, and the flags of the programs that use them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_examples::relay_process::RelayProcess;
use tokio::process::Command;

/// The keys of a log and of a witness, in a folder.
#[derive(Clone, Debug)]
pub struct LogKeys {
    program: PathBuf,
    folder: PathBuf,
    /// The public key of the log.
    pub log: String,
    /// The public key of the witness.
    pub witness: String,
}

impl LogKeys {
    /// Makes both keys by the program `bandana`.
    ///
    /// # Errors
    /// When it can't make one.
    pub async fn make(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let key = async |role: &str, name| -> anyhow::Result<String> {
            let out = folder.join(format!("{role}-key"));
            let mut made = Command::new(program);
            made.args(["log-key", "generate", "--role", role, "--name", name, "--out"]).arg(out);
            let made = made.clean_environment().output().await?;
            ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            Ok(String::from_utf8(made.stdout)?.trim().to_owned())
        };
        let log = key("log", "bandana.example/log").await?;
        let witness = key("witness", "witness.example/w1").await?;
        Ok(Self { program: program.to_owned(), folder: folder.to_owned(), log, witness })
    }

    /// A file in the folder.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Flags of a witness, which lets a log grow as often as it likes.
    pub fn of_witness(&self) -> Vec<String> {
        let flags = ["--witness-interval-seconds", "0", "--witness", &self.path("seen")];
        let keys = ["--witness-key", &self.path("witness-key"), "--witness-log", &self.log];
        owned(&[&flags[..], &keys].concat())
    }

    /// Starts the witness at this address, with more flags.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn witness_at(&self, at: SocketAddr, more: &[&str]) -> anyhow::Result<RelayProcess> {
        let flags = self.of_witness();
        let flags: Vec<&str> =
            flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        RelayProcess::witness_at(at, &flags, &self.program).await
    }

    /// Starts a witness that has seen nothing, anywhere, and says so to servers.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn new_witness(&self) -> anyhow::Result<RelayProcess> {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let witness = self.witness_at(anywhere, &["--witness-init"]).await?;
        self.name_witness(&witness.url)?;
        Ok(witness)
    }

    /// Says to servers that the witness is at this URL.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn name_witness(&self, url: &str) -> anyhow::Result<()> {
        let line = format!("# who, where\n{} {url}\n", self.witness);
        std::fs::write(self.folder.join("witnesses"), line).context("the file of witnesses")
    }

    /// Flags of a server with the log.
    pub fn of_server(&self) -> Vec<String> {
        let files = ["--log-key-file", &self.path("log-key")];
        let more = ["--log-witnesses-file", &self.path("witnesses"), "--log-epoch-seconds", "1"];
        owned(&[&files[..], &more].concat())
    }
}

fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}
