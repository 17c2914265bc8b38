//! The flags of a witness, and its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bandana_edge::clock::Clock;
use bandana_edge::program::{TEXT, allow_connections, say, until_signal};
use bandana_edge::rate::Rate;
use bandana_edge::tls::TlsFiles;
use bandana_edge::transport::ConnectionLimits;
use bandana_shared::transparency::{NoteKey, Role};
use clap::Args;

use super::CONNECTION_LIMITS;
use crate::witness::WitnessSettings;
use crate::witness_server::{WitnessServer, WitnessServerSettings};

/// Time for a request to arrive: some hundred bytes, from a server.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Run a witness of public logs, until SIGTERM or SIGINT.
///
/// A witness remembers the last state of a log. It signs a new state only if that continues the
/// last one. So if a server shows two logs to two devices, the witness signs only one of them.
/// Anybody but the server's operator can run a witness. It needs one key and one directory.
/// `bandana relay --witness` is a witness too.
///
/// It speaks the protocol of C2SP tlog-witness. When it takes requests, it prints its address to
/// standard output, as one `witness=ADDRESS` line.
#[derive(Debug, Args)]
pub struct WitnessCommand {
    /// Address for logs. Port 0 picks a free one.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "BANDANA_WITNESS_LISTEN",
        default_value = "127.0.0.1:7304"
    )]
    listen: SocketAddr,
    /// Certificate in PEM, followed by those that lead to its root. Without it, the witness does no
    /// TLS itself, for use behind a proxy that does.
    #[arg(
        long,
        value_name = "FILE",
        env = "BANDANA_WITNESS_TLS_CERTIFICATE",
        requires = "tls_key"
    )]
    tls_certificate: Option<PathBuf>,
    /// Key of that certificate, in PEM.
    #[arg(
        long,
        value_name = "FILE",
        env = "BANDANA_WITNESS_TLS_KEY",
        requires = "tls_certificate"
    )]
    tls_key: Option<PathBuf>,
    /// Connections at the same time: 1 to 1000000.
    #[arg(long, value_name = "NUMBER", env = "BANDANA_WITNESS_CONNECTIONS", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    #[command(flatten)]
    witness: WitnessArguments,
}

/// What a witness is made of.
#[derive(Debug, Args)]
pub(super) struct WitnessArguments {
    /// Directory in which the witness remembers what it has seen. Never restore an older copy of
    /// it.
    #[arg(long = "witness", id = "witness", value_name = "DIRECTORY", env = "BANDANA_WITNESS",
          requires_all = ["witness_key", "witness_log"])]
    directory: Option<PathBuf>,
    /// Make that directory. Leave this flag out of the service that starts the witness: a witness
    /// that has forgotten what it saw can be told anything.
    #[arg(long, requires = "witness")]
    witness_init: bool,
    /// Key of the witness, made by `bandana log-key generate --role witness`.
    #[arg(long, value_name = "FILE", env = "BANDANA_WITNESS_KEY", requires = "witness")]
    witness_key: Option<PathBuf>,
    /// Key of a log to watch, as `bandana log-key` printed it. May be repeated.
    #[arg(long, value_name = "NAME+ID+KEY", env = "BANDANA_WITNESS_LOG", value_delimiter = ',',
          value_parser = log_key, requires = "witness")]
    witness_log: Vec<NoteKey>,
    /// Seconds that must pass before the witness signs the next state of a log: 0 to 3600. So a
    /// server can't write an epoch for each device.
    #[arg(long, value_name = "SECONDS", env = "BANDANA_WITNESS_INTERVAL_SECONDS",
          default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=3600))]
    witness_interval_seconds: u32,
}

fn log_key(text: &str) -> Result<NoteKey, String> {
    let key: NoteKey = text.parse().map_err(|error| bandana_edge::explain::explain(&error))?;
    if key.role() == Role::Log { Ok(key) } else { Err("this is the key of a witness".to_owned()) }
}

impl WitnessArguments {
    /// The settings of a witness. None: there is none.
    pub(super) fn settings(&self) -> Option<WitnessSettings> {
        let (directory, key) = (self.directory.clone()?, self.witness_key.clone()?);
        Some(WitnessSettings {
            key,
            logs: self.witness_log.clone(),
            directory,
            is_new: self.witness_init,
            interval: Duration::from_secs(self.witness_interval_seconds.into()),
        })
    }
}

impl WitnessCommand {
    /// Runs the witness until a signal ends it.
    ///
    /// # Errors
    /// What can't be used, in words.
    pub fn run(self, clock: &Arc<dyn Clock>) -> anyhow::Result<()> {
        let witness = self.witness.settings();
        let witness =
            witness.context("a witness needs --witness, --witness-key and --witness-log")?;
        let tls = self.tls_certificate.zip(self.tls_key);
        let connections = usize::try_from(self.connections)?;
        let settings = WitnessServerSettings {
            listen: self.listen,
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key, client_ca: None }),
            connections: ConnectionLimits { connections, ..CONNECTION_LIMITS },
            request_time: REQUEST_TIME,
            rate: Rate::new(10, 60),
            witness,
        };
        until_signal(&TEXT, async |signalled| {
            allow_connections(settings.connections.connections);
            let server = WitnessServer::bind(settings, clock)?;
            say(&format!("witness={}\n", server.address()?))?;
            server.run(signalled).await;
            Ok(())
        })
    }
}
