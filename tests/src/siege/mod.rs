//! Sieges: real servers under load, attack and trouble at once, by a schedule from a seed.
//!
//! A round has a store of its own. At its end all trouble ends, everything that was not answered
//! is repeated until it is, and then the servers' counts are compared with what those remember who
//! were told. The seed fixes what everybody does and when; how it interleaves is the machine's.

mod analysts;
mod attackers;
mod checks;
mod disclosers;
mod figures;
mod network;
mod operators;
mod restored;
mod round;
mod server;
mod trouble;
mod uploaders;
mod ways;

pub use figures::{Figures, Group};
pub use round::{Plan, Store, besiege};
