//! Metrics of calls, connections and the process.

mod calls;
mod connections;
mod histogram;
mod process;

pub use calls::CallMetrics;
pub(crate) use calls::code_name;
pub use connections::ConnectionMetrics;
pub(crate) use connections::register as register_connections;
pub(crate) use histogram::Histogram;
pub(crate) use process::Process;
