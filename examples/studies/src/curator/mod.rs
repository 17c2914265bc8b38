//! Regret and the price of privacy with a trusted curator, in simulation without a server.

pub mod algorithm;
pub mod outcome;
pub mod picture;
pub mod rewards;
pub mod runner;
pub mod trial;
