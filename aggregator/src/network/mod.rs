//! Connections, before anything is said on them.

mod connection;
mod listener;

pub use connection::{Connection, Peer};
pub use listener::{ConnectionLimits, Listener};
