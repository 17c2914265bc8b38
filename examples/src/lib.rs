//! What the example programs are made of.

pub mod aggregator_process;
pub mod curator;
pub mod disclosing;
pub mod embedding;
pub mod environment;
pub mod instance;
pub mod load;
pub mod plot;
pub mod process_usage;
pub mod queries;
pub mod report;
pub mod simulated_users;
pub mod simulation;
pub mod study;
