//! The same-origin check of the dashboard's API.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tonic::Status;

use super::refusal::{JSON, Refusal};

/// Marks a change as coming from a page of this dashboard. A browser sends this custom header
/// across origins only with the server's permission (CORS), which this server never grants.
const OURS: HeaderName = HeaderName::from_static("x-bandana-dashboard");

/// The header in which browsers state the origin of a request, relative to its target.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests that a browser sends for a page of another origin.
pub(super) async fn same_origin(request: Request, next: Next) -> Response {
    match check(&request) {
        Ok(()) => next.run(request).await,
        Err(why) => Refusal::from(Status::permission_denied(why)).into_response(),
    }
}

fn check(request: &Request) -> Result<(), &'static str> {
    let headers = request.headers();
    let is_ours = |site: &HeaderValue| site == "same-origin" || site == "none";
    if !headers.get_all(SITE).iter().all(is_ours) || !is_of_host(request.uri(), headers) {
        return Err(
            "the dashboard answers to its own pages only; if a proxy is in between, it must keep \
             the Host header",
        );
    }
    if request.method().is_safe() {
        return Ok(());
    }
    if headers.get(OURS).is_none() {
        return Err("changes need the header `x-bandana-dashboard`, with any value");
    }
    if headers.get(CONTENT_TYPE).is_none_or(|kind| kind != JSON) {
        return Err("changes need the header `content-type: application/json`");
    }
    Ok(())
}

/// Whether the page that sent the request, if any, is of the request's own host.
fn is_of_host(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return true };
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let host = || headers.get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
    // HTTP/2 carries the host in the URI.
    let host = uri.authority().cloned().or_else(host);
    let of = origin.and_then(|origin| origin.authority().cloned());
    origins.next().is_none() && of.is_some() && of == host
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn allowed(method: &str, headers: &[(&str, &str)]) -> bool {
        let mut request =
            Request::builder().method(method).uri("/api/x").header("host", "localhost:7302");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(Body::empty()).unwrap()).is_ok()
    }

    const JSON_BODY: (&str, &str) = ("content-type", "application/json");
    const MARK: (&str, &str) = ("x-bandana-dashboard", "1");

    #[test]
    fn pages_of_other_origins_can_neither_read_nor_change() {
        for other in [
            ("origin", "http://evil.example"),
            ("origin", "http://localhost:3000"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(!allowed("GET", &[other]), "{other:?}");
            assert!(!allowed("POST", &[other, JSON_BODY, MARK]), "{other:?}");
        }
        let own = [("origin", "http://localhost:7302"), ("sec-fetch-site", "same-origin")];
        assert!(allowed("GET", &own) && allowed("GET", &[]));
        assert!(allowed("POST", &[own[0], own[1], JSON_BODY, MARK]));
        assert!(!allowed("POST", &[own[0], ("origin", "http://evil.example"), JSON_BODY, MARK]));
    }

    #[test]
    fn changes_need_what_a_form_of_another_page_can_not_send() {
        assert!(allowed("POST", &[JSON_BODY, MARK]));
        for headers in [&[][..], &[JSON_BODY], &[MARK], &[MARK, ("content-type", "text/plain")]] {
            assert!(!allowed("POST", headers), "{headers:?}");
        }
    }
}
