//! Peers: who is at the other end of a connection, and what of its calls is under way.

mod calling;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

pub use calling::Calling;
pub(crate) use calling::{UnderWay, Waiting};

use crate::rate::Limiters;

/// Who is at the other end, as far as TLS has shown, and what it may do.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The certificate (DER) that the other end has proved to have the key of.
    pub certificate: Option<Arc<[u8]>>,
    /// Counts what it sends, if somebody does.
    pub limiters: Arc<OnceLock<Arc<Limiters>>>,
    /// Its calls that have a place among all.
    pub calls: Arc<AtomicUsize>,
    /// Its calls until their answers are taken.
    pub calling: Arc<Calling>,
    /// Its watches of the server's health.
    pub watches: Arc<AtomicUsize>,
}
