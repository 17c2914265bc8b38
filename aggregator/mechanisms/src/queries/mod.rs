//! Queries to a trusted curator: releases about rows that never leave the server.
//!
//! The rows of a data set are people who trust the server, and not the world that hears its
//! answers. Two data sets are **neighbours** if they differ in one row's values; their number
//! of rows is the same, and public. Every sensitivity below is derived for that relation.
//!
//! - [`price`]: what releases cost, in whole billionths of ε or ρ.
//! - [`laplace`], [`gaussian`], [`counting`]: noisy vectors, their accuracy, and how many
//!   queries an accuracy allows.
//! - [`exponential`], [`noisy_max`]: choosing one of finitely many candidates.
//! - [`synthetic`], [`halfspaces`]: small synthetic databases for a class of predicates.
//! - [`weights`]: private multiplicative weights, for many adaptive counting queries.
//! - [`universe`], [`rows`], [`selection`]: data sets, and what is asked of them.
//! - [`questions`]: all of it behind one question and one answer.
//!
//! All of it is deterministic given its generator, keeps nothing, and debits nothing: whoever
//! serves the answers debits their price before one leaves.

pub mod cells;
pub mod counting;
mod error;
pub mod exponential;
pub mod gaussian;
pub mod halfspaces;
mod inverse;
pub mod laplace;
pub mod noisy_max;
pub mod price;
pub mod questions;
pub mod rows;
pub mod selection;
pub mod synthetic;
pub mod universe;
pub mod weights;

pub use error::QueryError;
