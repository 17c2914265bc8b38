//! TLS of the client.

use std::path::{Path, PathBuf};

use crate::tls::provider;
use clap::{Args, ValueHint};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::ConnectError;

/// Whom to trust, and what to show.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsSource {
    /// Certificates (PEM), one of which must have signed the server's. Without this flag, those
    /// that the system trusts.
    #[arg(long, value_name = "FILE", env = "BANDANA_OPERATOR_CA", value_hint = ValueHint::FilePath)]
    ca: Option<PathBuf>,
    /// Certificate (PEM) to show to a server that asks for one.
    #[arg(long, value_name = "FILE", env = "BANDANA_OPERATOR_CLIENT_CERTIFICATE",
          requires = "client_key", value_hint = ValueHint::FilePath)]
    client_certificate: Option<PathBuf>,
    /// Key (PEM) of that certificate.
    #[arg(long, value_name = "FILE", env = "BANDANA_OPERATOR_CLIENT_KEY",
          requires = "client_certificate", value_hint = ValueHint::FilePath)]
    client_key: Option<PathBuf>,
}

impl TlsSource {
    /// The same client certificate, with the system's root certificates.
    #[must_use]
    pub fn without_roots(&self) -> Self {
        Self { ca: None, ..self.clone() }
    }

    /// The same root certificates, without a client certificate.
    #[must_use]
    pub fn without_identity(&self) -> Self {
        Self { ca: self.ca.clone(), ..Self::default() }
    }

    /// Adds TLS to the endpoint, if its URL has the scheme https.
    ///
    /// # Errors
    /// [`ConnectError::Unusable`] when a file is unusable, or would have no effect.
    pub fn apply(&self, endpoint: Endpoint) -> Result<Endpoint, ConnectError> {
        let unusable = |error| ConnectError::Unusable(format!("TLS can't be set up: {error:?}"));
        if endpoint.uri().scheme_str() != Some("https") {
            return if self.ca.is_some() || self.client_certificate.is_some() {
                let url = endpoint.uri();
                let what = format!("{url} is not https, so it shows no certificate; use https://");
                Err(ConnectError::Unusable(what))
            } else {
                Ok(endpoint)
            };
        }
        // An error means that a provider is already installed.
        provider().install_default().ok();
        let mut tls = match &self.ca {
            Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        if let (Some(certificate), Some(key)) = (&self.client_certificate, &self.client_key) {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        endpoint.tls_config(tls).map_err(unusable)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(path)
        .map_err(|error| ConnectError::Unusable(format!("can't read {}: {error}", path.display())))
}
