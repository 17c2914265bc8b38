//! Connections, before any request.

mod connection;
mod deadlines;
mod drain_on_close;
mod listener;
mod permit;
mod places;
mod protocol;

pub use connection::Connection;
pub use listener::{ConnectionLimits, Connections, Incoming, Listener};
