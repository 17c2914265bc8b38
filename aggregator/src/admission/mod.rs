//! Admission control: app keys, places and rates, decided before a call is served.

mod admitted;
mod device_gate;
mod http2;
mod permit;

pub use admitted::Admission;
pub use device_gate::{DeviceGate, DeviceGates};
pub(crate) use http2::{
    HEALTH_REQUEST_BYTES_MAX, OPERATOR_REQUEST_BYTES_MAX, Shares, http2_server, shares,
};

use std::time::Duration;

use crate::rate::Rates;

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
