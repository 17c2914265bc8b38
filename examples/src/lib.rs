//! What the example programs are made of.

pub mod aggregator_process;
pub mod embedding;
pub mod instance;
pub mod plot;
pub mod queries;
pub mod report;
pub mod simulation;
pub mod study;
