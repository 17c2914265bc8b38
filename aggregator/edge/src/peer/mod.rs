//! Peers: the other end of a connection, its identity and its running calls.

mod calling;

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

pub use calling::Calling;
pub(crate) use calling::{UnderWay, Waiting};

use crate::rate::Limiters;

/// The peer of a connection. Cheap to clone: each call has one.
#[derive(Clone, Debug, Default)]
pub struct Peer(Arc<PeerState>);

impl Peer {
    /// A peer in this state.
    pub fn new(state: PeerState) -> Self {
        Self(Arc::new(state))
    }
}

impl Deref for Peer {
    type Target = PeerState;

    fn deref(&self) -> &PeerState {
        &self.0
    }
}

/// What is known of a peer: its identity as proved by TLS, and its limits.
#[derive(Debug, Default)]
pub struct PeerState {
    /// The certificate (DER) whose key the peer has proved to hold.
    pub certificate: Option<Arc<[u8]>>,
    /// The address, for a relay; other services do not ask for it.
    pub address: Option<IpAddr>,
    /// The rate limiters of its calls and uploads, if set.
    pub limiters: OnceLock<Arc<Limiters>>,
    /// The number of its calls that have a place among all calls.
    pub calls: Arc<AtomicUsize>,
    /// The peer's calls, each until its answer is taken.
    pub calling: Arc<Calling>,
    /// The number of its watches of the server's health.
    pub watches: Arc<AtomicUsize>,
}
