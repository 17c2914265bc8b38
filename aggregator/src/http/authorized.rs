//! The authorisation of requests for operators' pages.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{HOST, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bandana_edge::auth::{Access, Authorization};
use tonic::Status;

use crate::dashboard::Refusal;

/// Passes authorised requests on, and refuses others.
pub(super) async fn authorized(
    State(authorization): State<Authorization>,
    mut request: Request,
    next: Next,
) -> Response {
    let (headers, extensions) = (request.headers(), request.extensions());
    let Some(caller) = authorization.check(headers, extensions) else {
        let asked = [(WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, asked, "a valid token is needed\n").into_response();
    };
    if caller.is_anybody() && !is_local(request.uri(), headers) {
        return elsewhere();
    }
    // A page that is missing in the table is refused to everyone.
    let access = Access::of_page(request.method(), request.uri().path());
    let nobody = || Status::permission_denied("no role may open this page");
    match access.ok_or_else(nobody).and_then(|access| caller.admitted_to(access)) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(status) => Refusal::from(status).into_response(),
    }
}

/// Passes on requests that name this host by one of its own names, and refuses others.
pub(super) async fn by_name(
    State(authorization): State<Authorization>,
    request: Request,
    next: Next,
) -> Response {
    let is_known = authorization.knows_callers(request.extensions());
    if is_known || is_local(request.uri(), request.headers()) {
        next.run(request).await
    } else {
        elsewhere()
    }
}

fn elsewhere() -> Response {
    let why = "without tokens, pages are for 127.0.0.1, [::1] and localhost only; open one of \
               these\n";
    (StatusCode::FORBIDDEN, why).into_response()
}

/// Whether a request names this host by a name that no other host can have. Where no token is
/// required, this prevents DNS rebinding: a web page could have its own name resolve to this host,
/// and read data that only this host should.
fn is_local(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = || headers.get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
    // HTTP/2 carries the host in the URI.
    let Some(authority) = uri.authority().cloned().or_else(host) else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_hosts_are_not_local() {
        let of = |host: &str| {
            let headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            is_local(&Uri::from_static("/metrics"), &headers)
        };
        for local in ["localhost", "LOCALHOST:7302", "127.0.0.1:7302", "127.8.9.1", "[::1]:1"] {
            assert!(of(local), "{local}");
        }
        for other in ["evil.example", "localhost.evil.example:7302", "192.0.2.1", "a@b@c", "::"] {
            assert!(!of(other), "{other}");
        }
        assert!(!is_local(&Uri::from_static("/metrics"), &HeaderMap::new()));
        let headers = HeaderMap::from_iter([(HOST, "localhost".parse().unwrap())]);
        assert!(!is_local(&Uri::from_static("http://evil.example/metrics"), &headers));
    }
}
