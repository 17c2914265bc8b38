//! The permit of a connection.

use tokio::sync::OwnedSemaphorePermit;

use crate::telemetry::metrics::ConnectionMetrics;

/// A place among the open connections, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    metrics: ConnectionMetrics,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionPermit {
    pub(super) fn taken(permit: OwnedSemaphorePermit, metrics: ConnectionMetrics) -> Self {
        metrics.open.inc();
        Self { metrics, _permit: permit }
    }

    /// Counts that the connection is closed because an answer was not taken.
    pub(super) fn not_taken(&self) {
        self.metrics.not_taken.inc();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.metrics.open.dec();
    }
}
