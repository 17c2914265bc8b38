//! Parts of the example programs.

pub mod aggregator_process;
pub mod disclosing;
pub mod embedding;
pub mod environment;
pub mod growth;
pub mod impression_log;
pub mod load;
pub mod plot;
pub mod population;
pub mod process_usage;
pub mod queries;
pub mod relay_process;
pub mod report;
mod server_process;
pub mod simulated_users;
pub mod simulation;
pub mod stop;
