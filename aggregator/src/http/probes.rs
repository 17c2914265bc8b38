//! Probes of supervisors: alive, and ready.

use axum::extract::State;
use axum::http::StatusCode;

use crate::readiness::Readiness;

/// The process lives.
pub(super) async fn alive() -> &'static str {
    "alive\n"
}

/// Calls are taken.
pub(super) async fn ready(State(readiness): State<Readiness>) -> (StatusCode, &'static str) {
    if readiness.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}
