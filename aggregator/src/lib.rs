//! The server's side of Bandana: durable tallies of private bits, and the
//! learners that choose arms from them.
//!
//! The way of an upload: [`service`] checks its form, [`ingest`] decides, commits
//! it to the [`store`] and acknowledges, [`registry`] publishes the tallies,
//! [`policy`] asks a [learner](bandana_learners) for weights, and devices fetch them.
//!
//! Nothing in this crate ever holds a reward, except what [`trusted`] is told of experiments
//! whose users disclose theirs.

pub mod alarms;
pub mod cli;
pub mod clock;
pub mod configuration;
pub mod dashboard;
pub mod datasets;
pub mod ending;
pub mod estimates;
mod experiment_answers;
mod faces;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gates;
pub mod health;
pub mod held;
pub mod http;
pub mod ingest;
pub mod network;
mod opening;
pub mod operator_client;
pub mod policy;
pub mod registry;
pub mod replica;
pub mod security;
pub mod server;
pub mod service;
pub mod store;
pub mod telemetry;
pub mod trusted;

/// The allocator of the program. What was held for callers it gives back to the operating system
/// by and by, however calls that are over lay among others in memory.
#[cfg(target_os = "linux")]
pub use tikv_jemallocator::Jemalloc as Allocator;

/// The allocator of the program: that of the operating system.
#[cfg(not(target_os = "linux"))]
pub use std::alloc::System as Allocator;
