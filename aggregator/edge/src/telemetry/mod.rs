//! Telemetry for operators of the server: metrics, the log, and traces.
//!
//! None of it holds a reward, an address, a key or a token, and nothing that a device
//! sends becomes the label of a metric.

mod call;
mod calls;
mod lines;
mod log;
pub mod methods;
pub mod metrics;
mod request_id;
#[cfg(feature = "opentelemetry")]
mod traces;

pub use call::{Answered, CONNECT_TYPE, is_connect, is_grpc, is_marked_grpc, is_streamed};
pub use calls::{Calls, Port, Watched, WatchedBody, WatchedFuture};
pub use lines::LogLimit;
pub use log::{LogFormat, Logging, LoggingError, TelemetrySettings, check_filter};
pub use request_id::RequestId;
