//! The pages and their access rules.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bandana_edge::auth::Authorization;

use super::{authorized, probes};
use crate::dashboard;
use crate::dashboard::{DashboardState, PROTECTION};
use crate::metrics::Metrics;
use crate::readiness::Readiness;

/// The media type of [`Metrics::text`].
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The state behind the pages.
#[derive(Clone, Debug)]
pub struct Pages {
    /// The authorisation for restricted pages.
    pub authorization: Authorization,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Whether the server accepts calls.
    pub readiness: Readiness,
    /// The services that the dashboard calls.
    pub dashboard_state: DashboardState,
}

impl Pages {
    /// The routes of the pages.
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
            .with_state((self.readiness.clone(), Arc::clone(&self.metrics)));
        let dashboard = dashboard::pages().route_layer(middleware::from_fn_with_state(
            self.authorization.clone(),
            authorized::by_name,
        ));
        let pages = for_operators.merge(for_everybody).merge(dashboard);
        // All content is short-lived, so caching is disabled.
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
