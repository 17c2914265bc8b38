//! The relay of Bandana, run by somebody else than the aggregator.
//!
//! A [`Relay`] speaks Oblivious HTTP (RFC 9458): it learns the addresses of devices, and sees only sealed
//! bytes. It may also shuffle reports. A [`witness`] of public logs is a part of it, or a
//! [server of its own](WitnessServer). [`cli`] starts both.

mod addresses;
pub mod cli;
mod delay;
mod error;
mod forward;
mod relay;
mod shuffle;
pub mod witness;
mod witness_server;

pub use error::RelayError;
pub use relay::{Relay, RelaySettings};
pub use shuffle::{ShuffleError, ShuffleLimits, ShuffleSettings};
pub use witness_server::{WitnessServer, WitnessServerSettings};
