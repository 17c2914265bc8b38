//! Connections, before anything is said on them.

mod connection;
mod deadlines;
mod linger;
mod listener;
mod place;
mod protocol;

pub use connection::{Connection, Peer};
pub use listener::{ConnectionLimits, Connections, Incoming, Listener};
