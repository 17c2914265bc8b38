//! Decisions in simulation: users until a verdict which arm is best.

pub mod outcome;
pub mod picture;
pub mod runner;
pub mod trial;
