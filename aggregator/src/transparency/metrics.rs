//! Metrics of the public log.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// What is served of the log. All are 0 while nothing is, and without a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogMetrics {
    /// Epochs of the log that is served.
    epochs: Gauge,
    /// The earliest of the cosignatures that are served with it, in seconds since 1970.
    cosigned: Gauge,
}

impl LogMetrics {
    pub(crate) fn registered(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register(
            "log_epochs",
            "Epochs of the public log that is served",
            this.epochs.clone(),
        );
        registry.register_with_unit(
            "log_cosigned_timestamp",
            "Time of the earliest cosignature that is served with it",
            Unit::Seconds,
            this.cosigned.clone(),
        );
        this
    }

    pub(super) fn serves(&self, epochs: u64, cosigned: u64) {
        for (gauge, value) in [(&self.epochs, epochs), (&self.cosigned, cosigned)] {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
    }
}
