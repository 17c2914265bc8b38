//! The server's side of Bandana: durable tallies of private bits, and the
//! learners that choose arms from them.
//!
//! The path of an upload: [`api`] checks its form, [`ingest`] decides, commits it to the
//! [store](bandana_store) and acknowledges, [`registry`] publishes the tallies, [`policy_updater`]
//! asks a [learner](bandana_learners) for weights, and devices fetch them.
//!
//! [`queries`] has the service of another crate, which the feature of this name turns on.
//!
//! Nothing in this crate ever holds a reward, except [`trusted`], which receives the rewards that
//! users disclose.

pub mod alarms;
pub mod api;
pub mod cli;
pub mod configuration;
pub mod dashboard;
pub mod disclosures;
pub mod estimates;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod ingest;
mod labels;
pub mod metrics;
pub mod policy_updater;
#[cfg_attr(not(feature = "queries"), path = "no_queries.rs")]
pub mod queries;
pub mod readiness;
pub mod registry;
pub mod replica;
pub mod server;
mod transparency;
pub mod trusted;
mod views;

/// The allocator of the program. It returns the memory of finished calls to the operating system
/// over time, even under fragmentation.
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
pub use tikv_jemallocator::Jemalloc as Allocator;

/// The allocator of the program: the operating system's.
#[cfg(not(all(feature = "jemalloc", target_os = "linux")))]
pub use std::alloc::System as Allocator;
