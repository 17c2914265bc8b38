//! The edge of Bandana's servers: connections and calls, before any of them is answered.
//!
//! The path of a call: [`transport`] takes the connection, with [`tls`] if it is set, and knows its
//! [`peer`]. [`telemetry`] counts the call, [`memory`] charges it, [`admission`] and [`auth`] decide
//! whether it is served. [`rate`] and [`clock`] limit it in time. [`http`] serves it, [`connect`] and
//! [`unary`] read and write its message, and the [`gateway`] opens what was sealed.
//!
//! Calls to other servers go out by [`outgoing`] and [`operator_client`]. A [`program`] has a log, and ends
//! with a signal. What the answers of all services share is here too: [`pages`] of lists, and the [`status`] of
//! a call that failed.

pub mod admission;
pub mod auth;
pub mod clock;
pub mod connect;
pub mod day_guard;
pub mod explain;
pub mod gateway;
pub mod http;
pub mod log_key;
pub mod memory;
pub mod operator_client;
pub mod outgoing;
pub mod pages;
pub mod peer;
pub mod program;
pub mod pushback;
pub mod random;
pub mod rate;
pub mod regular_file;
pub mod shutdown;
pub mod status;
pub mod telemetry;
pub mod tls;
pub mod transport;
pub mod unary;
