//! Certificates for tests.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, RootCertStore};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// An authority that signs certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub pem: String,
}

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Writes a certificate for this host and its key to `NAME.pem` and `NAME.key`.
    ///
    /// # Errors
    /// When these can't be made or written.
    pub fn sign(&self, folder: &Path, name: &str) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        std::fs::write(
            folder.join(format!("{name}.pem")),
            params.signed_by(&key, &self.issuer)?.pem(),
        )?;
        Ok(std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem())?)
    }

    /// A new connection that trusts this authority.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn connect(&self, address: &str) -> anyhow::Result<Channel> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.pem));
        let endpoint = Endpoint::from_shared(format!("https://{address}"))?;
        Ok(endpoint.tls_config(tls)?.connect().await?)
    }

    /// A new HTTP/1.1 connection that trusts this authority.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn connect_http1(&self, address: &str) -> anyhow::Result<TlsStream<TcpStream>> {
        let mut config = self.client()?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("127.0.0.1")?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }

    /// A TLS ClientHello, the same for every connection.
    ///
    /// # Errors
    /// When there can be no client.
    pub fn client_hello(&self) -> anyhow::Result<Vec<u8>> {
        let name = ServerName::try_from("127.0.0.1")?;
        let mut client = ClientConnection::new(Arc::new(self.client()?), name)?;
        let mut hello = Vec::new();
        client.write_tls(&mut hello)?;
        Ok(hello)
    }

    fn client(&self) -> anyhow::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth())
    }
}
