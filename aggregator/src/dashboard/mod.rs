//! The dashboard: the operators' interface in a browser.
//!
//! Its pages are the files in `assets/`, which are compiled into the program. They contain no
//! secrets and no data of experiments. Scripts request all data under `/api/`, a thin layer over
//! the operators' service. That layer calls the service within the process, as the authenticated
//! caller, so authorisation, the audit log and the rules of experiments are those of gRPC.
//!
//! A browser acts for any page with the rights of its user. So the dashboard's pages may load from
//! and call this host only (`PROTECTION`), and `/api/` answers only pages of its own origin
//! (`same_origin`).

mod api;
mod assets;
#[cfg(feature = "queries")]
mod data_sets;
mod exports;
mod origin;
mod presets;
mod refusal;
mod requests;
mod state;
mod trusted;
mod views;
mod watching;

use axum::Router;
use axum::middleware;
use http::HeaderName;
use http::header;

use origin::same_origin;
pub(crate) use refusal::Refusal;
pub use state::{DashboardState, OperatorServices};

/// Security headers of every page. Scripts set text through `textContent` only, and browsers that
/// support trusted types enforce that.
pub(crate) const PROTECTION: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The static pages, which need no authorisation.
pub(crate) fn pages() -> Router {
    assets::router()
}

/// The API routes, which are for operators.
pub(crate) fn calls(dashboard_state: DashboardState) -> Router {
    let calls = api::router().merge(trusted::router());
    #[cfg(feature = "queries")]
    let calls = calls.merge(data_sets::router());
    calls.with_state(dashboard_state).route_layer(middleware::from_fn(same_origin))
}

/// Fuzz target: parses a request as the API would, without executing it.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_requests(uri: Option<&http::Uri>, body: &[u8]) {
    requests::creation(body).ok();
    requests::writing(body, String::new()).ok();
    trusted::creation(body).ok();
    if let Some(uri) = uri {
        requests::estimates(uri, String::new()).ok();
        for name in ["first_day", "last_day", "limit"] {
            requests::parameter::<u32>(uri, name).ok();
        }
    }
}
