//! Probes of liveness and readiness.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::metrics::Metrics;
use crate::readiness::Readiness;

/// Liveness: the process responds.
pub(super) async fn alive() -> &'static str {
    "alive\n"
}

/// Readiness: the server accepts calls. Store cells that can't be used are named: the server takes
/// the uploads of the others.
pub(super) async fn ready(
    State((readiness, metrics)): State<(Readiness, Arc<Metrics>)>,
) -> (StatusCode, String) {
    let (status, mut text) = if readiness.is_ready() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned())
    };
    for (cell, problem) in metrics.ingest.cells() {
        if problem.is_some() {
            // Writing to a string does not fail.
            writeln!(text, "store cell {cell} is not ready").ok();
        }
    }
    (status, text)
}
