//! Connections to a server: which calls share one, and when it ends.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;
#[cfg(feature = "tls")]
use tonic::transport::{Certificate, ClientTlsConfig};
use tonic::transport::{Channel, Endpoint, Uri};

/// Longest time for connecting.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Time between two pings of a connection while a call is under way, and time for their answer.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) enum Connection {
    /// Connections of ours.
    To(Arc<Server>),
    /// A channel of the host's.
    Over(Channel),
}

/// A server, and the connection that calls to it share, if there is one.
#[derive(Debug)]
pub(super) struct Server {
    endpoint: Endpoint,
    #[cfg(feature = "tls")]
    tls: Option<ClientTlsConfig>,
    /// Made by the first call: it belongs to the runtime in which it is made, and a transport may be
    /// built outside any runtime.
    shared: Mutex<Option<Channel>>,
}

impl Server {
    fn new(endpoint: Endpoint) -> Self {
        // A dead connection is noticed in the middle of a call; between calls there is none.
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIME_MAX)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(false);
        Self {
            endpoint,
            #[cfg(feature = "tls")]
            tls: None,
            shared: Mutex::default(),
        }
    }

    fn connect(&self) -> Channel {
        let endpoint = self.endpoint.clone();
        // A configuration of its own for each connection: sessions that are resumed would show that
        // two connections are of one device.
        #[cfg(feature = "tls")]
        let endpoint = match &self.tls {
            // It was tried when the transport was made. Without TLS `https` is refused.
            Some(tls) => endpoint.clone().tls_config(tls.clone()).unwrap_or(endpoint),
            None => endpoint,
        };
        endpoint.connect_lazy()
    }
}

impl Connection {
    pub(super) fn to(url: &str) -> Result<Self, EndpointError> {
        let endpoint = endpoint(url)?;
        match endpoint.uri().scheme_str() {
            Some("http") if is_loopback(endpoint.uri()) => Ok(Self::clear(endpoint)),
            Some("http") => Err(EndpointError::InTheClear { url: url.to_owned() }),
            #[cfg(feature = "tls")]
            Some("https") => Self::secured(endpoint, ClientTlsConfig::new().with_native_roots()),
            #[cfg(not(feature = "tls"))]
            Some("https") => Err(EndpointError::NoTls { url: url.to_owned() }),
            _ => Err(EndpointError::Scheme { url: url.to_owned() }),
        }
    }

    pub(super) fn in_the_clear(url: &str) -> Result<Self, EndpointError> {
        let endpoint = endpoint(url)?;
        match endpoint.uri().scheme_str() {
            Some("http") => Ok(Self::clear(endpoint)),
            _ => Err(EndpointError::Scheme { url: url.to_owned() }),
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn with_roots(url: &str, roots_pem: &[u8]) -> Result<Self, EndpointError> {
        let endpoint = endpoint(url)?;
        let roots = Certificate::from_pem(roots_pem);
        match endpoint.uri().scheme_str() {
            Some("https") => Self::secured(endpoint, ClientTlsConfig::new().ca_certificate(roots)),
            _ => Err(EndpointError::Scheme { url: url.to_owned() }),
        }
    }

    fn clear(endpoint: Endpoint) -> Self {
        Self::To(Arc::new(Server::new(endpoint)))
    }

    #[cfg(feature = "tls")]
    fn secured(endpoint: Endpoint, tls: ClientTlsConfig) -> Result<Self, EndpointError> {
        endpoint.clone().tls_config(tls.clone()).map_err(EndpointError::Tls)?;
        Ok(Self::To(Arc::new(Server { tls: Some(tls), ..Server::new(endpoint) })))
    }

    /// The connection that calls share, until it is closed.
    pub(super) fn shared(&self) -> Channel {
        match self {
            Self::To(server) => {
                let mut shared = server.shared.lock().unwrap_or_else(PoisonError::into_inner);
                shared.get_or_insert_with(|| server.connect()).clone()
            }
            Self::Over(channel) => channel.clone(),
        }
    }

    /// A connection that no other call has. It ends when it is dropped.
    pub(super) fn separate(&self) -> Channel {
        match self {
            Self::To(server) => server.connect(),
            Self::Over(channel) => channel.clone(),
        }
    }

    /// Closes the shared connection; the next call makes a new one.
    pub(super) fn close(&self) {
        if let Self::To(server) = self {
            *server.shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

fn endpoint(url: &str) -> Result<Endpoint, EndpointError> {
    Endpoint::from_shared(url.to_owned())
        .map_err(|source| EndpointError::Address { url: url.to_owned(), source })
}

/// Whether an address is of this machine.
fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A connection that is closed together with this guard, unless the call was answered.
pub(super) struct Unanswered<'a>(pub(super) Option<&'a Connection>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0 {
            connection.close();
        }
    }
}

/// An address that can't be used.
///
/// ```
/// use bandana_client::grpc::Transport;
/// let error = Transport::to("ftp://example.org").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"the address "ftp://example.org" must begin with http:// or https://"#
/// );
/// ```
#[derive(Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The text is not an address.
    #[error("{url:?} is not the address of an aggregator; one looks like https://host:port")]
    Address {
        /// The given text.
        url: String,
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
    /// The address has another scheme.
    #[error("the address {url:?} must begin with http:// or https://")]
    Scheme {
        /// The given address.
        url: String,
    },
    /// The address is on another machine, and has no TLS.
    #[error(
        "over {url:?} every party on the path can read and forge calls; use https://, or \
         `Transport::in_the_clear` where that is what you want"
    )]
    InTheClear {
        /// The given address.
        url: String,
    },
    /// The address needs TLS, which this build does not have.
    #[error("the address {url:?} needs TLS; build bandana-client with the feature `tls`")]
    NoTls {
        /// The given address.
        url: String,
    },
    /// The roots can't be used.
    #[error("the roots for TLS can't be used")]
    Tls(#[source] tonic::transport::Error),
}

bandana_shared::debug_says!(EndpointError);
