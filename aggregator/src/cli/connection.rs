//! The way to the operators' service of a running server.

use std::net::IpAddr;
use std::time::Duration;

use bandana_shared::identity::{ExperimentId, IdentityError};
use bandana_shared::specification::Specification;
use bandana_shared::wire::WireError;
use bandana_shared::wire::v1::ExperimentStatus;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use clap::{Args, ValueHint};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};

use super::bearer::{Bearer, TokenSource};
use super::client_tls::TlsSource;
use super::failure::Failure;

/// How long connecting, and a call, may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What commands call.
pub(super) type Client = OperatorClient<InterceptedService<Channel, Bearer>>;

/// Which server.
#[derive(Clone, Debug, Args)]
pub(super) struct Connection {
    /// URL of the operators' service.
    #[arg(long, value_name = "URL", env = "BANDANA_OPERATOR_URL", value_parser = url,
          default_value = "http://127.0.0.1:7302", value_hint = ValueHint::Url)]
    operator_url: Uri,
    #[command(flatten)]
    token: TokenSource,
    #[command(flatten)]
    tls: TlsSource,
}

impl Connection {
    /// A new connection.
    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        let bearer = self.token.read()?;
        if bearer.is_secret() && !self.is_private() {
            let url = &self.operator_url;
            return Err(Failure::Incomplete(format!(
                "{url} is neither https nor on this host: everybody on the way could read the \
                 token; use https, or a tunnel"
            )));
        }
        let endpoint = self.tls.apply(Endpoint::from(self.operator_url.clone()))?;
        let endpoint = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE);
        // A watch may be silent for long, and must learn that its server is gone.
        let channel = endpoint.http2_keep_alive_interval(PATIENCE).connect().await;
        channel.map(|channel| OperatorClient::with_interceptor(channel, bearer)).map_err(|source| {
            let url = self.operator_url.to_string();
            Failure::Unreachable { url, source }
        })
    }
}

impl Connection {
    /// Whether nobody on the way can read what is said.
    fn is_private(&self) -> bool {
        let host = self.operator_url.host().unwrap_or_default();
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        self.operator_url.scheme_str() == Some("https")
            || host == "localhost"
            || address.is_some_and(|address| address.is_loopback())
    }
}

fn url(text: &str) -> Result<Uri, String> {
    let url = text.parse().ok().filter(|url: &Uri| url.scheme().is_some());
    url.ok_or_else(|| "a URL looks like http://127.0.0.1:7302".to_owned())
}

/// Reads an experiment's id from the command line.
pub(super) fn experiment_id(text: &str) -> Result<ExperimentId, IdentityError> {
    ExperimentId::new(text)
}

/// Runs `work` to its end.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// The current revision, if its digest shows that nothing of it is unknown here.
pub(super) fn current_revision(status: &ExperimentStatus) -> Result<Specification, WireError> {
    let message = status.specification.as_ref().ok_or(WireError::Missing("specification"))?;
    let specification = Specification::try_from(message)?;
    if specification.digest().as_bytes()[..] == status.digest[..] {
        Ok(specification)
    } else {
        Err(WireError::DigestMismatch)
    }
}
