//! The well-behaved callers' connections to the servers, and their treatment of answers.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::wire::v1::curator_client::CuratorClient;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::trusted_client::TrustedClient;
use bandana_shared::wire::v1::trusted_operator_client::TrustedOperatorClient;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Response, Status};

use super::figures::{Figures, Group};

/// Time after which a call counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two pings of a connection, and for their answers.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Connections to one server.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) device: DeviceClient<Channel>,
    pub(super) trusted: TrustedClient<Channel>,
    pub(super) operator: OperatorClient<Channel>,
    pub(super) trusted_operator: TrustedOperatorClient<Channel>,
    pub(super) curator: CuratorClient<Channel>,
}

impl Way {
    /// Lazy connections to these addresses for devices and operators; with TLS for devices if a
    /// certificate to trust is given.
    ///
    /// # Errors
    /// When an address is invalid.
    pub(super) fn to(device: &str, operator: &str, trust: Option<&str>) -> anyhow::Result<Self> {
        let channel = |address: &str, trust: Option<&str>| {
            let scheme = if trust.is_some() { "https" } else { "http" };
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?;
            if let Some(pem) = trust {
                let authority = Certificate::from_pem(pem);
                let tls = ClientTlsConfig::new().ca_certificate(authority);
                endpoint = endpoint.tls_config(tls)?;
            }
            let endpoint = endpoint.timeout(PATIENCE).connect_timeout(PATIENCE);
            // As the clients that the project makes: a connection that goes silent is noticed.
            let endpoint = endpoint.http2_keep_alive_interval(PING_INTERVAL);
            let endpoint = endpoint.keep_alive_timeout(PING_INTERVAL).keep_alive_while_idle(true);
            anyhow::Ok(endpoint.connect_lazy())
        };
        let (device, operator) = (channel(device, trust)?, channel(operator, None)?);
        Ok(Self {
            trusted: TrustedClient::new(device.clone()),
            device: DeviceClient::new(device),
            trusted_operator: TrustedOperatorClient::new(operator.clone()),
            curator: CuratorClient::new(operator.clone()),
            operator: OperatorClient::new(operator),
        })
    }
}

/// A well-behaved caller.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Connections to all servers.
    pub(super) ways: Vec<Way>,
    /// The generator of all choices.
    pub(super) random: ChaCha8Rng,
    /// All counts.
    pub(super) figures: Arc<Figures>,
    /// Whether the trouble is over, so that nothing new is begun.
    pub(super) is_over: watch::Receiver<bool>,
    /// Whether servers retry a commit with unknown outcome, so that an upload sent once may have
    /// been counted before.
    pub(super) tries_again: bool,
}

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum Outcome<T> {
    /// An answer.
    Answered(T),
    /// Unknown: the call must be repeated.
    Lost,
    /// A final refusal by the server.
    Refused(Status),
}

impl Caller {
    /// Whether the trouble is over, so that nothing new is begun.
    pub(super) fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Connections to a random server.
    pub(super) fn way(&mut self) -> Way {
        self.ways.choose(&mut self.random).expect("there is a server").clone()
    }

    /// Increments a count.
    pub(super) fn count(&self, name: &str) {
        self.figures.add(Group::Honest, name, 1);
    }

    /// Waits for up to this many milliseconds, or until the trouble is over.
    pub(super) async fn pause(&mut self, most: u64) {
        let time = Duration::from_millis(self.random.random_range(0..=most));
        tokio::time::sleep(time).await;
    }

    /// Classifies the outcome of a call.
    pub(super) fn judge<T>(&self, what: &str, told: Result<Response<T>, Status>) -> Outcome<T> {
        let status = match told {
            Ok(answer) => return Outcome::Answered(answer.into_inner()),
            Err(status) => status,
        };
        // An error from a server carries a request id; one of a broken connection has a source.
        let is_said = status.metadata().contains_key("x-request-id") && status.source().is_none();
        self.figures.add(
            Group::Honest,
            format!("calls {} with {:?}", if is_said { "answered" } else { "lost" }, status.code()),
            1,
        );
        match status.code() {
            Code::Unavailable
            | Code::ResourceExhausted
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Aborted => Outcome::Lost,
            _ if !is_said => Outcome::Lost,
            Code::Internal | Code::Unknown | Code::DataLoss => {
                self.figures.wrong(format!("{what} was answered with {status}"));
                Outcome::Lost
            }
            _ => Outcome::Refused(status),
        }
    }

    /// Repeats a call until there is an answer; also returns whether it was repeated.
    ///
    /// # Errors
    /// The server's final refusal.
    pub(super) async fn insist<T, F>(
        &mut self,
        what: &str,
        mut call: impl FnMut(Way) -> F,
    ) -> Result<(T, bool), Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut is_repeated = false;
        loop {
            let told = call(self.way()).await;
            match self.judge(what, told) {
                Outcome::Answered(answer) => return Ok((answer, is_repeated)),
                Outcome::Refused(status) => return Err(status),
                Outcome::Lost => {
                    is_repeated = true;
                    self.pause(300).await;
                }
            }
        }
    }
}
