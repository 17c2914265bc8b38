//! The dashboard: what operators see in a browser.
//!
//! Its pages are the files in `assets/`, which are part of the program. They hold nothing
//! secret and nothing of any experiment; what they show they ask for under `/api/`, a
//! thin layer over the operators' service. That is called within the process, with the
//! caller that was let in, so that authorisation, the audit log and the rules of
//! experiments are those of gRPC.
//!
//! A browser does what any page tells it to, with the rights of whoever sits before it.
//! So pages may load and call this host alone (`PROTECTION`), and `/api/` answers to
//! pages of its own origin alone (`same_origin`).

mod api;
mod assets;
mod origin;
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
pub use state::DashboardState;

/// Headers of everything that a browser may show. Scripts make all their text with
/// `textContent`, and browsers that know trusted types hold them to it.
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

/// The pages, which are for everybody.
pub(crate) fn pages() -> Router {
    assets::router()
}

/// What the pages call, which is for operators.
pub(crate) fn calls(dashboard_state: DashboardState) -> Router {
    api::router()
        .merge(trusted::router())
        .with_state(dashboard_state)
        .route_layer(middleware::from_fn(same_origin))
}

/// What is read of a request before anything is done.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_requests(uri: Option<&http::Uri>, body: &[u8]) {
    requests::creation(body).ok();
    trusted::creation(body).ok();
    if let Some(uri) = uri {
        requests::estimates(uri, String::new()).ok();
        for name in ["first_day", "last_day", "limit"] {
            requests::parameter::<u32>(uri, name).ok();
        }
    }
}
