//! The check that a request names exactly one host.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::Either;
use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use http_body_util::Full;
use tonic::body::Body;
use tower::Service;

/// A service whose requests name one host (RFC 9112, section 3.2). Others are refused: a proxy may
/// have decided by another one.
#[derive(Clone, Debug)]
pub struct OneHost<S>(pub S);

impl<S> Service<Request<Body>> for OneHost<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if is_named_once(request.version(), request.uri(), request.headers()) {
            return Either::Left(self.0.call(request));
        }
        let why = "a request names one host, in one Host header\n";
        let mut response = Response::new(Body::new(Full::<Bytes>::from(why)));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        Either::Right(ready(Ok(response)))
    }
}

/// Whether there is one Host header, which agrees with the URI; or none, where HTTP needs none.
fn is_named_once(version: Version, uri: &Uri, headers: &HeaderMap) -> bool {
    // No user comes before a host: not in a Host header, and not in HTTP/2's `:authority` (RFC 9113,
    // section 8.3.1).
    if uri.authority().is_some_and(has_user) {
        return false;
    }
    let mut hosts = headers.get_all(HOST).iter();
    let (host, None) = (hosts.next(), hosts.next()) else { return false };
    let Some(host) = host else { return version != Version::HTTP_11 };
    let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
    !has_user(&host)
        && uri
            .authority()
            .is_none_or(|authority| authority.as_str().eq_ignore_ascii_case(host.as_str()))
}

fn has_user(authority: &Authority) -> bool {
    authority.as_str().contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_good(uri: &'static str, hosts: &[&str]) -> bool {
        is_good_in(Version::HTTP_11, uri, hosts)
    }

    fn is_good_in(version: Version, uri: &'static str, hosts: &[&str]) -> bool {
        let headers = hosts.iter().map(|host| (HOST, host.parse().unwrap()));
        is_named_once(
            version,
            &Uri::from_static(uri),
            &headers.fold(HeaderMap::new(), |mut all, one| {
                all.append(one.0, one.1);
                all
            }),
        )
    }

    #[test]
    fn a_host_is_named_once() {
        assert!(!is_good("/", &[]) && is_good("/", &["localhost:7302"]));
        assert!(is_good_in(Version::HTTP_10, "/", &[]));
        assert!(is_good_in(Version::HTTP_2, "http://localhost:7302/", &[]));
        assert!(!is_good_in(Version::HTTP_2, "http://evil@localhost:7302/", &[]));
        assert!(!is_good_in(Version::HTTP_10, "http://evil@localhost:7302/", &[]));
        assert!(is_good("http://localhost:7302/", &["LOCALHOST:7302"]));
        assert!(!is_good("/", &["localhost", "localhost"]));
        assert!(!is_good("/", &["localhost", "evil.example"]));
        assert!(!is_good("http://localhost/", &["evil.example"]));
        for odd in ["", "a, b", "a b", "localhost/x", "evil@localhost"] {
            assert!(!is_good("/", &[odd]), "{odd}");
        }
    }
}
