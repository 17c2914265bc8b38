//! Probes of liveness and readiness.

use axum::extract::State;
use axum::http::StatusCode;

use crate::readiness::Readiness;

/// Liveness: the process responds.
pub(super) async fn alive() -> &'static str {
    "alive\n"
}

/// Readiness: the server accepts calls.
pub(super) async fn ready(State(readiness): State<Readiness>) -> (StatusCode, &'static str) {
    if readiness.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}
