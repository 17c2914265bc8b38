//! Ways of those who behave to the servers, and how they take what comes back.

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

/// How long a call may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);

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
    /// Connections that are made when they are needed, by the addresses for devices and
    /// operators; for devices with TLS, if there is an authority to trust.
    ///
    /// # Errors
    /// When these are none.
    pub(super) fn to(device: &str, operator: &str, trust: Option<&str>) -> anyhow::Result<Self> {
        let channel = |address: &str, trust: Option<&str>| {
            let scheme = if trust.is_some() { "https" } else { "http" };
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))?;
            if let Some(pem) = trust {
                let authority = Certificate::from_pem(pem);
                let tls = ClientTlsConfig::new().ca_certificate(authority);
                endpoint = endpoint.tls_config(tls)?;
            }
            anyhow::Ok(endpoint.timeout(PATIENCE).connect_timeout(PATIENCE).connect_lazy())
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

/// Somebody who behaves: what is needed to call, and to wait.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Ways to all servers.
    pub(super) ways: Vec<Way>,
    /// All choices follow from it.
    pub(super) random: ChaCha8Rng,
    /// Where everything is counted.
    pub(super) figures: Arc<Figures>,
    /// Whether nothing new is to be begun.
    pub(super) is_over: watch::Receiver<bool>,
    /// Whether servers try a commit again whose outcome they do not know, so that what was sent
    /// once may have been counted before.
    pub(super) tries_again: bool,
}

/// What became of a call.
#[derive(Debug)]
pub(super) enum Outcome<T> {
    /// It was answered.
    Answered(T),
    /// It may have been heard or not, and is to be repeated.
    Lost,
    /// The server does not want to hear it again.
    Refused(Status),
}

impl Caller {
    /// Whether nothing new is to be begun.
    pub(super) fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// A way to any of the servers.
    pub(super) fn way(&mut self) -> Way {
        self.ways.choose(&mut self.random).expect("there is a server").clone()
    }

    /// Counts something.
    pub(super) fn count(&self, name: &str) {
        self.figures.add(Group::Honest, name, 1);
    }

    /// Waits up to so many milliseconds, and no longer than until it is over.
    pub(super) async fn pause(&mut self, most: u64) {
        let time = Duration::from_millis(self.random.random_range(0..=most));
        tokio::time::sleep(time).await;
    }

    /// Looks at what came back from a server.
    pub(super) fn judge<T>(&self, what: &str, told: Result<Response<T>, Status>) -> Outcome<T> {
        let status = match told {
            Ok(answer) => return Outcome::Answered(answer.into_inner()),
            Err(status) => status,
        };
        // All that a server says itself has a name.
        // What breaks on the way has a cause.
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

    /// Repeats a call until there is an answer; tells whether it had to be repeated.
    ///
    /// # Errors
    /// The server's, when it does not want to hear the call again.
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
