//! Metrics of calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use tonic::Code;

use super::histogram::Histogram;
use crate::telemetry::methods::{METHODS, MethodIndex};

/// Bucket bounds for the time of a call, in nanoseconds.
const BOUNDS: [u64; 12] = [
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    5_000_000_000,
    25_000_000_000,
];

/// The names of gRPC's status codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The name of a code.
pub fn code_name(code: Code) -> &'static str {
    CODES[number(code)]
}

fn number(code: Code) -> usize {
    usize::try_from(i32::from(code)).unwrap_or_default()
}

/// Counts calls by method and code.
#[derive(Clone, Debug)]
pub struct CallMetrics(Arc<[OfMethod]>);

#[derive(Debug)]
struct OfMethod {
    codes: [AtomicU64; CODES.len()],
    time: Histogram,
}

impl Default for CallMetrics {
    fn default() -> Self {
        let of_method =
            || OfMethod { codes: Default::default(), time: Histogram::of_times(&BOUNDS) };
        Self(METHODS.all().map(|_| of_method()).collect())
    }
}

impl CallMetrics {
    /// Counts a finished call.
    pub(crate) fn ended(&self, method: MethodIndex, code: Code, time: Duration) {
        let of_method = &self.0[method.get()];
        of_method.codes[number(code)].fetch_add(1, Ordering::Relaxed);
        of_method.time.add_time(time);
    }
}

impl Collector for CallMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "gRPC calls that are over, by their code";
        let mut calls = encoder.encode_descriptor("calls", help, None, MetricType::Counter)?;
        for (name, of_method) in METHODS.all().zip(&*self.0) {
            for (code, count) in CODES.iter().zip(&of_method.codes) {
                let count = count.load(Ordering::Relaxed);
                // Zero counts are omitted, because most codes never occur for most methods.
                if count > 0 || *code == "OK" {
                    let labels =
                        [("service", &*name.service), ("method", &name.method), ("code", code)];
                    let mut encoder = calls.encode_family(&labels)?;
                    encoder.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
                }
            }
        }
        let help = "Time of gRPC calls, from their head to the end of the answer";
        let (unit, kind) = (Some(&Unit::Seconds), MetricType::Histogram);
        let mut times = encoder.encode_descriptor("call_duration", help, unit, kind)?;
        for (name, of_method) in METHODS.all().zip(&*self.0) {
            if !of_method.time.is_empty() {
                let labels = [("service", &*name.service), ("method", &name.method)];
                of_method.time.encode(times.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
