//! Sieges: real servers under load, attack and trouble at once, by a schedule from a seed.
//!
//! A round has a new store. At its end all trouble stops, unanswered calls are repeated until they
//! are answered, and then the servers' counts are compared with the callers' records. The seed
//! determines all actions and their times; their interleaving depends on the machine.

mod analysts;
mod attackers;
mod checks;
mod disclosers;
mod figures;
mod log;
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
