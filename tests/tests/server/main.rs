//! The server as a process: accepted and refused calls, duplicates, logs and crashes.

mod clock;
mod connect;
mod counted_once;
mod crash;
mod descriptors;
mod gates;
mod ids;
mod limits;
mod log_privacy;
mod logs;
mod metrics;
mod probes;
mod refusals;
mod shutdown;
mod signatures;
mod tls;
mod traces;
