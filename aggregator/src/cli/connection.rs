//! The way to the operators' service of a running server.

use std::time::Duration;

use bandana_shared::identity::{ExperimentId, IdentityError};
use bandana_shared::specification::Specification;
use bandana_shared::wire::WireError;
use bandana_shared::wire::v1::ExperimentStatus;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use clap::{Args, ValueHint};
use tonic::transport::{Channel, Endpoint, Uri};

use super::failure::Failure;

/// How long connecting, and a call, may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which server.
#[derive(Clone, Debug, Args)]
pub(super) struct Connection {
    /// URL of the operators' service.
    #[arg(long, value_name = "URL", env = "BANDANA_OPERATOR_URL", value_parser = url,
          default_value = "http://127.0.0.1:7302", value_hint = ValueHint::Url)]
    operator_url: Uri,
}

impl Connection {
    /// A new connection.
    pub(super) async fn connect(&self) -> Result<OperatorClient<Channel>, Failure> {
        let endpoint =
            Endpoint::from(self.operator_url.clone()).connect_timeout(PATIENCE).timeout(PATIENCE);
        // A watch may be silent for long, and must learn that its server is gone.
        let channel = endpoint.http2_keep_alive_interval(PATIENCE).connect().await;
        channel.map(OperatorClient::new).map_err(|source| {
            let url = self.operator_url.to_string();
            Failure::Unreachable { url, source }
        })
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
