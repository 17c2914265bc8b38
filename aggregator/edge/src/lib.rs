//! The edge of Bandana's servers: connections and calls, before any of them is answered.
//!
//! The path of a call: [`transport`] takes the connection, with [`tls`] if it is set, and knows its
//! [`peer`]. [`telemetry`] counts the call, [`memory`] charges it, [`admission`] and [`auth`] decide
//! whether it is served. [`rate`] and [`clock`] limit it in time.

pub mod admission;
pub mod auth;
pub mod clock;
pub mod explain;
pub mod memory;
pub mod peer;
pub mod pushback;
pub mod random;
pub mod rate;
pub mod regular_file;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod transport;
