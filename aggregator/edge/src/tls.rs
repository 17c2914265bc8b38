//! TLS: certificates and keys in files that may change while the server runs.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use thiserror::Error;
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ServerConfig, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{ConfigBuilder, RootCertStore, WantsVerifier};
use zeroize::Zeroizing;

use crate::regular_file;

/// Most bytes of a certificate or key file: far more than any chain has.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// The files of one service, all in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate chain, up to a root.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The roots of client certificates. If set, callers need a certificate signed by one of them.
    pub client_ca: Option<PathBuf>,
}

/// The configuration of handshakes.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
}

/// The ALPN identifiers of the protocols, the preferred one first: HTTP/2, which gRPC needs, and
/// HTTP/1.1.
const ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];

impl Tls {
    /// TLS with these files.
    ///
    /// # Errors
    /// [`TlsError`] when the files can't be used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let config = ArcSwap::from_pointee(read(&files)?);
        Ok(Self { files, config })
    }

    /// Reads the files again, for new connections. Files that can't be used leave everything as it
    /// is.
    ///
    /// The whole configuration is replaced, not the certificate alone. That drops the sessions that
    /// clients could resume, so that none is resumed with a certificate that is no longer valid.
    ///
    /// # Errors
    /// [`TlsError`] when the files can't be used.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.config.store(Arc::new(read(&self.files)?));
        Ok(())
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

/// The only cryptography provider here, named so that no other can be selected by a feature of some
/// crate.
pub fn provider() -> CryptoProvider {
    ring::default_provider()
}

fn read(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes(&files.key)?)
        .map_err(|source| TlsError::Pem { path: files.key.clone(), what: "private key", source })?;
    let versions = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions();
    let builder: ConfigBuilder<ServerConfig, WantsVerifier> =
        versions.map_err(TlsError::Versions)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots(path)?);
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::new(provider())).build();
            let path = || path.clone();
            let verifier =
                verifier.map_err(|source| TlsError::Verifier { path: path(), source })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(|source| TlsError::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    })?;
    config.alpn_protocols = ALPN.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// The certificates of a file as roots.
///
/// # Errors
/// [`TlsError`] when the file can't be used.
pub fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|source| TlsError::Root { path: path.to_owned(), source })?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |source| TlsError::Pem { path: path.to_owned(), what: "certificates", source };
    let bytes = bytes(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found.map_err(pem)? {
        none if none.is_empty() => Err(pem(pem::Error::NoItemsFound)),
        certificates => Ok(certificates),
    }
}

fn bytes(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let file = regular_file::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let capacity = usize::try_from(length).unwrap_or(usize::MAX).min(FILE_BYTES_MAX);
    // Allocated at full size, since a growing buffer leaves copies of a key.
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity + 1));
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(TlsError::TooLong { path: path.to_owned() });
    }
    Ok(bytes)
}

/// The reason why TLS can't be configured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file is too long for its kind.
    #[error("{} has more than {FILE_BYTES_MAX} bytes; name a PEM file", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A file does not have the expected content.
    #[error("{} has no {what} in PEM; name another file", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// A root is not a certificate.
    #[error("a certificate in {} can't sign others", path.display())]
    Root {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The verifier of client certificates can't be built.
    #[error("no client can be verified with {}", path.display())]
    Verifier {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: VerifierBuilderError,
    },
    /// The certificate and the key can't be used together.
    #[error(
        "the certificate {} can't be used with the key {}; name the key that it was made for",
        certificate.display(), key.display()
    )]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// No version of the protocol is possible.
    #[error("TLS can't be set up")]
    Versions(#[source] rustls::Error),
}

impl TlsError {
    /// Logs that the earlier configuration stays in effect.
    pub fn log(&self) {
        let error = crate::explain::explain(self);
        tracing::error!(error, "the certificates are left as they were");
    }
}
