//! Admission control: app keys, places and rates, checked before a call is served.

mod admitted;
mod device_gate;
mod http2;
mod permit;

pub use admitted::Admission;
pub use device_gate::{DeviceGate, DeviceGates};
pub use http2::{
    BATCH_BYTES_MAX, HEALTH_REQUEST_BYTES_MAX, OPERATOR_REQUEST_BYTES_MAX, Shares, limit_http2,
    shares,
};

use std::time::Duration;

use crate::rate::Rates;

/// Limits of calls in time, number and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Most concurrent calls of devices over all connections; further callers are told to come
    /// back.
    pub calls: usize,
    /// The time from the beginning of a request to its end.
    pub request_time: Duration,
    /// Bytes for all calls and connections.
    pub memory: usize,
    /// The time between two uploads of a stream, and from an answer until it is taken.
    pub stream_idle_time: Duration,
    /// The rates of one connection.
    pub connection_rates: Rates,
    /// The rates of one app key.
    pub app_rates: Rates,
}
