//! The check that a request names exactly one host.

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

/// Refuses requests with contradictory hosts: a proxy may have decided by the other one.
pub(super) async fn named_once(request: Request, next: Next) -> Response {
    if is_named_once(request.uri(), request.headers()) {
        next.run(request).await
    } else {
        let why = "a request names one host, in one Host header\n";
        (StatusCode::BAD_REQUEST, why).into_response()
    }
}

/// Whether there is at most one Host header, and it agrees with the URI.
fn is_named_once(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (host, None) = (hosts.next(), hosts.next()) else { return false };
    let Some(host) = host else { return true };
    let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
    uri.authority().is_none_or(|authority| authority.as_str().eq_ignore_ascii_case(host.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_good(uri: &'static str, hosts: &[&str]) -> bool {
        let headers = hosts.iter().map(|host| (HOST, host.parse().unwrap()));
        is_named_once(
            &Uri::from_static(uri),
            &headers.fold(HeaderMap::new(), |mut all, one| {
                all.append(one.0, one.1);
                all
            }),
        )
    }

    #[test]
    fn a_host_is_named_once() {
        assert!(is_good("/", &[]) && is_good("/", &["localhost:7302"]));
        assert!(is_good("http://localhost:7302/", &[]));
        assert!(is_good("http://localhost:7302/", &["LOCALHOST:7302"]));
        assert!(!is_good("/", &["localhost", "localhost"]));
        assert!(!is_good("/", &["localhost", "evil.example"]));
        assert!(!is_good("http://localhost/", &["evil.example"]));
        for odd in ["", "a, b", "a b", "localhost/x"] {
            assert!(!is_good("/", &[odd]), "{odd}");
        }
    }
}
