//! The pages, and who may see which.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{authorized, host, probes};
use crate::auth::Authorization;
use crate::dashboard;
use crate::dashboard::{DashboardState, PROTECTION};
use crate::metrics::Metrics;
use crate::readiness::Readiness;

/// The media type of [`Metrics::text`].
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What pages are made from.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Who may see what is not for everybody.
    pub authorization: Authorization,
    /// What there is to see.
    pub metrics: Arc<Metrics>,
    /// Whether calls are taken.
    pub readiness: Readiness,
    /// Whom the dashboard calls.
    pub dashboard_state: DashboardState,
}

impl Pages {
    /// The pages by their paths.
    pub fn router(&self) -> Router {
        let for_operators = Router::new()
            .route("/metrics", get(metrics))
            .with_state(Arc::clone(&self.metrics))
            .merge(dashboard::calls(self.dashboard_state.clone()))
            .route_layer(middleware::from_fn_with_state(
                self.authorization.clone(),
                authorized::authorized,
            ));
        let for_everybody = Router::new()
            .route("/healthz", get(probes::alive))
            .route("/readyz", get(probes::ready))
            .with_state(self.readiness.clone());
        let dashboard = dashboard::pages().route_layer(middleware::from_fn_with_state(
            self.authorization.clone(),
            authorized::by_name,
        ));
        let pages = for_operators.merge(for_everybody).merge(dashboard);
        let pages = pages.layer(middleware::from_fn(host::named_once));
        // Nothing here is true for long.
        pages.layer(middleware::map_response(async |mut response: Response| {
            let headers = response.headers_mut();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            for (name, value) in PROTECTION {
                headers.insert(name, HeaderValue::from_static(value));
            }
            response
        }))
    }
}

async fn metrics(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
