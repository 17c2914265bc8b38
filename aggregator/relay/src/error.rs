//! The reason why a relay or a witness can't start, or has ended.

use std::io;
use std::net::SocketAddr;

use bandana_edge::tls::TlsError;
use thiserror::Error;

use crate::shuffle::ShuffleError;
use crate::witness::WitnessError;

/// The reason why a relay or a witness can't start, or has ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RelayError {
    /// TLS can't be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Reports can't be shuffled.
    #[error(transparent)]
    Shuffle(#[from] ShuffleError),
    /// What the witness has seen can't be used.
    #[error(transparent)]
    Witness(#[from] WitnessError),
    /// The address can't be bound.
    #[error("can't listen on {address}; choose another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The bound address can't be determined.
    #[error("the operating system does not tell the bound address")]
    Address(#[source] io::Error),
}
