//! Metrics of calls, connections and the process.

mod calls;
mod connections;
mod histogram;
mod process;

pub use calls::CallMetrics;
pub use calls::code_name;
pub use connections::ConnectionMetrics;
pub use connections::register as register_connections;
pub use histogram::Histogram;
pub use process::Process;
