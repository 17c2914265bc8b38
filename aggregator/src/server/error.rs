//! Errors of a server.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bandana_edge::auth::TokensError;
use bandana_edge::gateway::GatewayError;
use bandana_edge::tls::TlsError;
use bandana_store::StoreError;
use thiserror::Error;

use crate::ingest::WriterError;
use crate::transparency::LogError;

/// The reason why a server can't start, or has ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The operators' address is not on loopback and not secured.
    #[error(
        "the operators' address {0} is not on loopback; there the service needs TLS, and tokens \
         or client certificates. Set them, or use 127.0.0.1 and a tunnel"
    )]
    OperatorBeyondLoopback(SocketAddr),
    /// TLS can't be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The gateway's files can't be used.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The public log can't be kept.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The operators' tokens can't be read.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// An address can't be bound.
    #[error(
        "can't listen on {address}{}; choose another address with {setting}",
        if source.kind() == io::ErrorKind::AddrInUse { ", which another program uses" } else { "" }
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The setting of the address, for people.
        setting: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The bound address can't be determined.
    #[error("the operating system does not tell the bound address")]
    Address(#[source] io::Error),
    /// A thread can't be started.
    #[error("can't start a thread")]
    Thread(#[source] io::Error),
    /// The operating system has no randomness.
    #[error("the operating system's random source failed")]
    Entropy(#[source] getrandom::Error),
    /// The thread that opens the store panicked.
    #[error("opening the store panicked; nothing that was acknowledged is lost")]
    OpeningPanicked,
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The services can't be described.
    #[error("this program is damaged; install it anew")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The readiness notification to the parent process failed.
    #[error("can't tell that the server is ready")]
    Announcement(#[source] io::Error),
    /// The thread that accepts disclosures panicked.
    #[error("the thread of disclosures panicked; nothing that was acknowledged is lost")]
    KeeperPanicked,
    /// The thread that recomputes policies panicked.
    #[error("the policy thread panicked; nothing that was acknowledged is lost")]
    PolicyThreadPanicked,
    /// The writer can't start, or has failed.
    #[error("the writer ended; what was not committed was not acknowledged")]
    Writer(#[from] WriterError),
    /// The writer panicked.
    #[error("the writer panicked; nothing that was acknowledged is lost")]
    WriterPanicked,
    /// Both listeners have ended.
    #[error("the server stopped listening by itself; start it again")]
    ServingEnded,
    /// Shutdown exceeded its deadline.
    #[error("the queue was not committed within {0:?}; what was not acknowledged may be lost")]
    Drain(Duration),
}
