//! The protocol between a Bandana device and a Bandana aggregator.
//!
//! - [`channel`] and [`curve`]: the one-bit channel under ε-local differential privacy, in
//!   integers; the curves of the Bernoulli mechanisms; and k-ary randomized response.
//! - [`tally`], [`sample`], [`estimate`], [`interval`], [`confidence`]: a server's statistics of
//!   rewards from private reports.
//! - [`specification`], [`participation`], [`upload`], [`policy`]: the validated form of the messages. The features
//!   `messages` and `services` add the protobuf messages and the gRPC stubs generated from
//!   `proto/`, and the only conversions between the two forms.
//! - `signing`, with the features `signatures` (to verify) and `signing` (to sign): specifications
//!   that only the holders of certain keys can make.
//! - `transparency`, with `signatures`: a public log of what a server tells devices.
//!
//! The path of a reward through this crate:
//!
//! ```
//! use bandana_shared::channel::Floor;
//! use bandana_shared::curve::{Curve, Level, Mechanism};
//! use bandana_shared::epsilon::Epsilon;
//!
//! let epsilon = Epsilon::new(1.0)?;
//! let floor = Floor::for_epsilon(epsilon);
//! assert!(floor.certified_epsilon() <= epsilon.get());
//!
//! let curve = Curve::new(Mechanism::Linear, epsilon);
//! let threshold = floor.threshold(curve.apply(Level::from_unit(0.75)?));
//! // A device draws the word from its operating system.
//! let bit = threshold.bit(0x0123_4567_89ab_cdef, 0);
//! assert!(bit);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod accounting;
pub mod alphabet;
#[cfg(feature = "signatures")]
mod base64;
pub mod canonical;
pub mod cells;
pub mod channel;
pub mod confidence;
pub mod context;
pub mod curve;
pub mod epsilon;
pub mod errors;
pub mod estimate;
pub mod gateway;
mod hex;
pub mod identity;
pub mod interval;
pub mod limits;
pub mod participation;
pub mod policy;
pub mod refusals;
pub mod rewards;
pub mod sample;
pub mod shuffling;
#[cfg(feature = "signatures")]
pub mod signing;
pub mod specification;
#[cfg(feature = "stored")]
pub mod stored;
pub mod tally;
#[cfg(feature = "signatures")]
pub mod transparency;
pub mod upload;
#[cfg(feature = "messages")]
pub mod wire;
