//! Admission control: app keys, places and rates, decided before a call is served.

mod admission;
mod device_gate;
mod http2;
mod place;
mod rate;

pub use admission::Admission;
pub use device_gate::{DeviceGate, DeviceGates};
pub(crate) use http2::{
    HEALTH_REQUEST_BYTES_MAX, OPERATOR_REQUEST_BYTES_MAX, Shares, http2_server, shares,
};
pub use rate::{Kind, Limiter, Limiters, Rate, Rates};

use std::time::Duration;

use tonic::Status;

/// What calls may take, in time and in number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Calls of devices at the same time, over all connections; further ones are told to
    /// come back.
    pub calls: usize,
    /// From the beginning of a request to its end.
    pub request_time: Duration,
    /// Bytes that may be held for all calls and connections.
    pub memory: usize,
    /// Between two uploads of a stream, and from an answer until it is taken.
    pub stream_idle_time: Duration,
    /// From one connection.
    pub connection_rates: Rates,
    /// With one app key.
    pub app_rates: Rates,
}

/// Metadata that tells a client how long to wait, in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// What a call hears that can't be served now, and when to come back.
pub(crate) fn exhausted(message: impl Into<String>, wait: Duration) -> Status {
    come_again(Status::resource_exhausted(message), wait)
}

/// Adds to an error when the same call may succeed.
pub(crate) fn come_again(mut status: Status, wait: Duration) -> Status {
    let milliseconds = u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    status.metadata_mut().insert(PUSHBACK, milliseconds.into());
    status
}
