//! Queries to a trusted curator: releases about rows that never leave the server.
//!
//! The rows of a data set are people who trust the server, but not the recipients of its answers.
//! Two data sets are **neighbours** if they differ in one row's values; their number of rows is the
//! same, and public. Every sensitivity below is derived for that relation.
//!
//! - [`price`]: prices of releases, in whole billionths of ε or ρ.
//! - [`laplace`], [`gaussian`], [`counting`]: noisy vectors, their accuracy, and the number of
//!   queries that an accuracy allows.
//! - [`exponential`], [`noisy_max`]: choosing one of finitely many candidates; [`interval`]: a
//!   point of an interval of any length.
//! - [`synthetic`], [`halfspaces`]: small synthetic databases for a class of predicates;
//!   [`marginals`]: synthetic rows for wide tables.
//! - [`weights`]: private multiplicative weights, for many adaptive counting queries;
//!   [`threshold`]: the comparisons of its sessions under ρ.
//! - [`universe`], [`rows`], [`selection`], [`spelling`]: data sets and predicates.
//! - [`loss_distribution`]: the loss of several releases together, closer than through ρ.
//! - [`partition`]: the names of a column that nobody knows before.
//! - [`moments`]: means and variances from noisy sums.
//! - [`questions`]: one type each for questions and answers, over all mechanisms.
//!
//! Every function is deterministic given its generator, keeps no state, and debits nothing: the
//! server of the answers debits the price before it sends an answer.

mod bounds;
pub mod cells;
mod choices;
mod column;
pub mod counting;
mod error;
pub mod exponential;
pub mod gaussian;
pub mod halfspaces;
pub mod interval;
mod inverse;
pub mod laplace;
pub mod loss_distribution;
pub mod marginals;
pub mod moments;
pub mod noisy_max;
mod numbers;
pub mod partition;
pub mod price;
pub mod questions;
mod quoting;
pub mod rows;
pub mod selection;
mod sensitivity;
pub mod spelling;
mod sums;
pub mod synthetic;
pub mod threshold;
pub mod universe;
pub mod weights;

pub use error::QueryError;
