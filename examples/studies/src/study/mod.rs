//! Regret of learners in simulation: many trials, without a server.

pub mod channel;
pub mod contestant;
pub mod outcome;
pub mod picture;
pub mod player;
pub mod runner;
pub mod trial;
