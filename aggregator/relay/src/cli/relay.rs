//! The flags of a relay, and its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bandana_edge::clock::Clock;
use bandana_edge::operator_client::{Connection, TlsSource, TokenSource};
use bandana_edge::program::{TEXT, allow_connections, say, until_signal};
use bandana_edge::rate::Rate;
use bandana_edge::tls::{TlsFiles, provider};
use bandana_edge::transport::ConnectionLimits;
use bandana_sqlite::Presence;
use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use super::CONNECTION_LIMITS;
use super::witness::WitnessArguments;
use crate::relay::{Relay, RelaySettings};
use crate::shuffle::{ShuffleLimits, ShuffleSettings};

/// Time for a request to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Run a relay that hides the addresses of devices, until SIGTERM or SIGINT.
///
/// It speaks Oblivious HTTP (RFC 9458). The relay sees who calls, but not what. The aggregator sees
/// what is called, but not by whom; it must be a gateway (`gateway_key_file`). So somebody other
/// than the aggregator's operator must run the relay. It logs no address, and keeps
/// nothing about devices unless it shuffles.
///
/// With --shuffle, it also keeps the sealed reports of experiments that have a `shuffle_batch`.
/// Once an arm has as many, it hands them on in random order. So the aggregator learns no single
/// report.
///
/// With --witness, it is also a witness of public logs, as `bandana witness` is.
///
/// When it takes requests, it prints its address to standard output, as one `relay=ADDRESS` line.
#[derive(Debug, Args)]
pub struct RelayCommand {
    /// Address for devices. Port 0 picks a free one.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "BANDANA_RELAY_LISTEN",
        default_value = "127.0.0.1:7303"
    )]
    listen: SocketAddr,
    /// URL of the aggregator's service for devices.
    #[arg(long, value_name = "URL", env = "BANDANA_RELAY_GATEWAY")]
    gateway: String,
    /// Certificates (PEM), one of which must have signed the gateway's. Without this flag, those
    /// that the system trusts.
    #[arg(long, value_name = "FILE", env = "BANDANA_RELAY_GATEWAY_CA")]
    gateway_ca: Option<PathBuf>,
    /// Certificate for devices in PEM, followed by those that lead to its root. Without it, the
    /// relay does no TLS itself, for use behind a proxy that does.
    #[arg(long, value_name = "FILE", env = "BANDANA_RELAY_TLS_CERTIFICATE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", env = "BANDANA_RELAY_TLS_KEY", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Longest time that the relay holds a request: 0 to 8. It holds each for a random part of
    /// that.
    ///
    /// So it may pass requests on in another order. The more requests there are, the less their
    /// times tell the aggregator.
    #[arg(long, value_name = "SECONDS", env = "BANDANA_RELAY_DELAY_SECONDS", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(0..=8))]
    delay_seconds: u32,
    /// Requests per second of one address. 0 means no limit. Many users can share one address.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "BANDANA_RELAY_REQUESTS_PER_SECOND",
        default_value_t = 50
    )]
    requests_per_second_per_address: u32,
    /// After a pause, the requests of this many seconds may come at once: 1 to 3600.
    #[arg(long, value_name = "SECONDS", env = "BANDANA_RELAY_BURST_SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    burst_seconds: u32,
    /// Connections at the same time: 1 to 1000000. A further one replaces one that does nothing.
    #[arg(long, value_name = "NUMBER", env = "BANDANA_RELAY_CONNECTIONS", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Seconds that the relay may take from the signal to its end: 1 to 3600.
    #[arg(long, value_name = "SECONDS", env = "BANDANA_RELAY_DRAIN_DEADLINE", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    drain_deadline_seconds: u32,
    /// Memory for callers, in MiB: 16 to 1048576.
    #[arg(long, value_name = "MIB", env = "BANDANA_RELAY_MEMORY_MIB", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    memory_mib: u32,
    /// Shuffle, and keep reports in this directory.
    #[arg(long, value_name = "DIRECTORY", env = "BANDANA_RELAY_SHUFFLE",
          requires_all = ["shuffle_key", "operator_url"])]
    shuffle: Option<PathBuf>,
    /// Make the store in that directory if there is none. Leave this flag out of the service that
    /// starts the relay: if the disk is not mounted, the relay would make a new, empty store.
    #[arg(long, requires = "shuffle")]
    init: bool,
    /// Key of the relay, made by `bandana gateway-key generate`. Apps pin its public half.
    #[arg(long, value_name = "FILE", env = "BANDANA_RELAY_SHUFFLE_KEY", requires = "shuffle")]
    shuffle_key: Option<PathBuf>,
    /// URL of the aggregator's service for operators, to which the relay hands batches.
    #[arg(long, value_name = "URL", env = "BANDANA_OPERATOR_URL")]
    operator_url: Option<String>,
    /// Days whose reports the relay takes, today included: 1 to 62. A device that was offline for
    /// longer loses its reports.
    #[arg(long, value_name = "DAYS", env = "BANDANA_RELAY_REPLAY_WINDOW_DAYS", default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=62))]
    replay_window_days: u32,
    /// How many reports the relay keeps at most, and how many ids of reports it remembers: 1 to
    /// 4000000000. Further reports are told to come back.
    #[arg(long, value_name = "NUMBER", env = "BANDANA_RELAY_REPORTS_MAX",
          default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u32).range(1..=4_000_000_000))]
    reports_max: u32,
    /// Most of a batch that may come from one address: more than 0, to 1 (any number of it). Of IPv6 the
    /// first half is one address.
    ///
    /// Whoever fills batches from few addresses hides nobody. Further reports of the address are told
    /// to come back. Where many users have one address, behind a proxy say, more of them must be let in.
    #[arg(long, value_name = "SHARE", env = "BANDANA_RELAY_BATCH_SHARE_PER_ADDRESS",
          default_value_t = 0.1, value_parser = share)]
    batch_share_per_address: f64,
    #[command(flatten)]
    witness: WitnessArguments,
    #[command(flatten)]
    token: TokenSource,
    #[command(flatten)]
    operator_tls: TlsSource,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "a number that is more than 0, and at most 1".to_owned())
}

impl RelayCommand {
    /// Runs the relay until a signal ends it.
    ///
    /// # Errors
    /// What can't be used, in words.
    pub fn run(self, clock: &Arc<dyn Clock>) -> anyhow::Result<()> {
        until_signal(&TEXT, async |signalled| {
            // Connections are made within a runtime.
            let settings = self.settings()?;
            allow_connections(settings.connections.connections);
            let relay = Relay::bind(settings, clock)?;
            say(&format!("relay={}\n", relay.address()?))?;
            Ok(relay.run(signalled).await?)
        })
    }

    fn settings(self) -> anyhow::Result<RelaySettings> {
        let gateway = self.gateway()?;
        let shuffle = self.shuffling()?;
        let witness = self.witness.settings();
        let tls = self.tls_certificate.zip(self.tls_key);
        let connections = usize::try_from(self.connections)?;
        Ok(RelaySettings {
            listen: self.listen,
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key, client_ca: None }),
            gateway,
            delay_max: Duration::from_secs(self.delay_seconds.into()),
            rate: Rate::new(self.requests_per_second_per_address, self.burst_seconds),
            connections: ConnectionLimits { connections, ..CONNECTION_LIMITS },
            memory: usize::try_from(self.memory_mib)? << 20,
            request_time: REQUEST_TIME,
            drain_deadline: Duration::from_secs(self.drain_deadline_seconds.into()),
            shuffle,
            witness,
        })
    }

    /// The settings of the shuffler. None: the relay does not shuffle.
    fn shuffling(&self) -> anyhow::Result<Option<ShuffleSettings>> {
        let (Some(directory), Some(key), Some(url)) =
            (&self.shuffle, &self.shuffle_key, &self.operator_url)
        else {
            return Ok(None);
        };
        let connection = Connection::new(url, self.token.clone(), self.operator_tls.clone())?;
        Ok(Some(ShuffleSettings {
            directory: directory.clone(),
            presence: if self.init { Presence::Optional } else { Presence::Required },
            key: key.clone(),
            limits: ShuffleLimits {
                replay_window_days: self.replay_window_days,
                reports_max: self.reports_max.into(),
                share_per_address: self.batch_share_per_address,
            },
            aggregator: connection.batches()?,
        }))
    }

    /// The endpoint of the gateway.
    fn gateway(&self) -> anyhow::Result<Endpoint> {
        let url = &self.gateway;
        let endpoint = Endpoint::from_shared(url.clone())
            .with_context(|| format!("{url:?} is no URL; one looks like https://host:port"))?;
        match endpoint.uri().scheme_str() {
            Some("http") => {
                ensure!(
                    self.gateway_ca.is_none(),
                    "{url} is not https, so it shows no certificate; use https://"
                );
                Ok(endpoint)
            }
            Some("https") => {
                // An error means that a provider is already installed.
                provider().install_default().ok();
                let tls = match &self.gateway_ca {
                    None => ClientTlsConfig::new().with_native_roots(),
                    Some(path) => {
                        let pem = std::fs::read(path)
                            .with_context(|| format!("can't read {}", path.display()))?;
                        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem))
                    }
                };
                endpoint.tls_config(tls).context("TLS to the gateway can't be set up")
            }
            _ => bail!("the address {url:?} must begin with http:// or https://"),
        }
    }
}
