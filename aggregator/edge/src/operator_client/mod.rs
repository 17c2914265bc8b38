//! The client of the operators' service, for programs that people run: URL, token and TLS from
//! flags and the environment.

mod bearer;
mod patience;
mod tls;

use std::net::IpAddr;
use std::time::Duration;

use bandana_shared::wire::v1::batches_client;
use bandana_shared::wire::v1::curator_client::CuratorClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::trusted_operator_client::TrustedOperatorClient;
use clap::{Args, ValueHint};
use thiserror::Error;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Endpoint, Uri};

use crate::outgoing::{Outgoing, with_patience};

pub use bearer::{Bearer, TokenSource};
pub use patience::{Patient, Wait};
pub use tls::TlsSource;

/// Timeout of connecting, of a call, and of a ping.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Timeout of a call about a data set, whose file may have to be read first.
const READING_TIME: Duration = Duration::from_hours(1);

/// Most bytes of an answer to a relay: a specification with the most arms.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of an answer to an analyst: a synthetic table with the most values, of 3 bytes each.
const TABLE_BYTES_MAX: usize = 13 << 20;

/// Client of the operators' service.
pub type Client = OperatorClient<InterceptedService<Patient, Bearer>>;

/// Client of the curator's service, for analysts.
pub type Curator = CuratorClient<InterceptedService<Patient, Bearer>>;

/// Client of the operators' service of trusted experiments.
pub type TrustedClient = TrustedOperatorClient<InterceptedService<Patient, Bearer>>;

/// Client of the service of batches, for relays.
pub type BatchesClient = batches_client::BatchesClient<InterceptedService<Outgoing, Bearer>>;

/// Which server.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// URL of the operators' service.
    #[arg(long, value_name = "URL", env = "BANDANA_OPERATOR_URL", value_parser = parse_url,
          default_value = "http://127.0.0.1:7302", value_hint = ValueHint::Url)]
    operator_url: Uri,
    #[command(flatten)]
    token: TokenSource,
    #[command(flatten)]
    tls: TlsSource,
    #[command(flatten)]
    wait: Wait,
}

impl Connection {
    /// The target at this URL.
    ///
    /// # Errors
    /// [`ConnectError::Unusable`] when it is not a URL.
    pub fn new(url: &str, token: TokenSource, tls: TlsSource) -> Result<Self, ConnectError> {
        let operator_url = parse_url(url).map_err(ConnectError::Unusable)?;
        Ok(Self { operator_url, token, tls, wait: Wait::default() })
    }

    /// Connects to the operators' service.
    ///
    /// # Errors
    /// [`ConnectError`] when connecting fails.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        let (channel, bearer) = self.channel(PATIENCE).await?;
        Ok(OperatorClient::with_interceptor(channel, bearer))
    }

    /// Connects to the curator's service.
    ///
    /// # Errors
    /// [`ConnectError`] when connecting fails.
    pub async fn connect_curator(&self) -> Result<Curator, ConnectError> {
        let (channel, bearer) = self.channel(READING_TIME).await?;
        Ok(CuratorClient::with_interceptor(channel, bearer)
            .max_decoding_message_size(TABLE_BYTES_MAX))
    }

    /// Connects to the operators' service of trusted experiments.
    ///
    /// # Errors
    /// [`ConnectError`] when connecting fails.
    pub async fn connect_trusted(&self) -> Result<TrustedClient, ConnectError> {
        let (channel, bearer) = self.channel(PATIENCE).await?;
        Ok(TrustedOperatorClient::with_interceptor(channel, bearer))
    }

    /// A client of the service of batches, which connects at its first call. Must be called within a
    /// runtime.
    ///
    /// # Errors
    /// [`ConnectError::Unusable`] when an argument is.
    pub fn batches(&self) -> Result<BatchesClient, ConnectError> {
        let (endpoint, bearer) = self.endpoint(PATIENCE)?;
        let outgoing = Outgoing::new(endpoint, PATIENCE);
        Ok(batches_client::BatchesClient::with_interceptor(outgoing, bearer)
            .max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    async fn channel(&self, call_time: Duration) -> Result<(Patient, Bearer), ConnectError> {
        let (endpoint, bearer) = self.endpoint(call_time)?;
        let service = "operators' service";
        let channel = self.wait.connect(&endpoint).await;
        let channel = channel
            .map_err(|source| ConnectError::unreachable(service, &endpoint, self.wait, source));
        Ok((channel?, bearer))
    }

    fn endpoint(&self, call_time: Duration) -> Result<(Endpoint, Bearer), ConnectError> {
        let bearer = self.token.read()?;
        if bearer.is_secret() && !self.is_private() {
            let url = &self.operator_url;
            return Err(ConnectError::Unusable(format!(
                "{url} is neither https nor on this host: everybody on the way could read the \
                 token; use https, or a tunnel"
            )));
        }
        let endpoint = self.tls.apply(Endpoint::from(self.operator_url.clone()))?;
        Ok((with_patience(endpoint, PATIENCE, call_time), bearer))
    }
}

impl Connection {
    /// Whether the connection is encrypted or local.
    fn is_private(&self) -> bool {
        let host = self.operator_url.host().unwrap_or_default();
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        self.operator_url.scheme_str() == Some("https")
            || host == "localhost"
            || address.is_some_and(|address| address.is_loopback())
    }
}

fn parse_url(text: &str) -> Result<Uri, String> {
    let url = text.parse().ok().filter(|url: &Uri| url.scheme().is_some());
    url.ok_or_else(|| "a URL looks like http://127.0.0.1:7302".to_owned())
}

/// The reason why connecting failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The arguments are unusable.
    #[error("{0}")]
    Unusable(String),
    /// The server does not respond, or not with the expected protocol.
    #[error("can't reach the {service} at {url}{waited}; is the server or tunnel up?")]
    Unreachable {
        /// Which of the server's services.
        service: &'static str,
        /// The server's URL.
        url: String,
        /// For how long it was tried, in words.
        waited: String,
        /// The cause.
        source: tonic::transport::Error,
    },
}

impl ConnectError {
    /// The exit code of a program that ends by this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unusable(_) => 2,
            Self::Unreachable { .. } => 5,
        }
    }

    /// A service that can't be reached by this endpoint.
    pub fn unreachable(
        service: &'static str,
        endpoint: &Endpoint,
        wait: Wait,
        source: tonic::transport::Error,
    ) -> Self {
        let (url, waited) = (endpoint.uri().to_string(), wait.describe(&source));
        Self::Unreachable { service, url, waited, source }
    }
}
