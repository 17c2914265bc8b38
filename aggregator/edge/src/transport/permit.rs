//! The permit of a connection.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::places::{Freed, Places, Seat};
use crate::telemetry::metrics::ConnectionMetrics;

/// A place among the open connections, released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    metrics: ConnectionMetrics,
    seat: Arc<Seat>,
    _permit: OwnedSemaphorePermit,
    /// Dropped after the permit.
    _freed: Freed,
}

impl ConnectionPermit {
    pub(super) fn taken(
        permit: OwnedSemaphorePermit,
        places: &Places,
        metrics: ConnectionMetrics,
    ) -> Self {
        metrics.open.inc();
        Self { metrics, seat: places.seat(), _permit: permit, _freed: places.freed() }
    }

    /// What is looked at of the connection.
    pub(super) fn seat(&self) -> &Arc<Seat> {
        &self.seat
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
