//! Cross-origin calls: which web pages may call the devices' service in a browser.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use http::header::{CONTENT_TYPE, ORIGIN, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Method, Uri};
use thiserror::Error;
use tower_http::cors::{AllowOrigin, CorsLayer};

use bandana_edge::auth::APP_KEY_HEADER;

/// How long a browser may remember what it was allowed.
const MAX_AGE: Duration = Duration::from_hours(2);

/// The origins of web pages that may call, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins(Vec<HeaderValue>);

impl FromStr for Origins {
    type Err = OriginsError;

    /// Reads origins with commas between, such as `https://shop.example`.
    fn from_str(text: &str) -> Result<Self, OriginsError> {
        let origins = text.split(',').map(|origin| origin_of(origin.trim()).ok_or(OriginsError));
        origins.collect::<Result<_, _>>().map(Self)
    }
}

/// An origin, as browsers send it: scheme, host in small letters, and a port that is not the
/// scheme's own.
fn origin_of(text: &str) -> Option<HeaderValue> {
    let url: Uri = text.parse().ok()?;
    let (scheme, authority) = (url.scheme_str()?, url.authority()?.as_str());
    let own_port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_as_sent = |port: &str| {
        let number = port.parse::<u16>().ok().filter(|number| *number > 0 && *number != own_port);
        number.is_some_and(|number| number.to_string() == port)
    };
    let is_bare = text == format!("{scheme}://{authority}")
        && is_host_as_sent(host)
        && port.is_none_or(is_as_sent);
    if is_bare { HeaderValue::from_str(text).ok() } else { None }
}

/// Whether browsers send a host in this form: they rewrite addresses and names that have others.
fn is_host_as_sent(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address = address.parse::<Ipv6Addr>().ok().filter(|one| one.to_ipv4_mapped().is_none());
        return address.is_some_and(|one| format!("[{one}]") == host);
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return host.parse::<Ipv4Addr>().is_ok_and(|address| address.to_string() == host);
    }
    let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_letter);
    name.len() <= 253 && name.split('.').all(is_label)
}

impl Origins {
    /// The layer that answers browsers' questions, and marks answers as readable for these pages.
    /// Calls that no page makes pass as they are.
    pub(crate) fn layer(&self) -> CorsLayer {
        let headers = ["connect-protocol-version", "connect-timeout-ms", APP_KEY_HEADER];
        let headers = headers.map(HeaderName::from_static).into_iter().chain([CONTENT_TYPE]);
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(self.0.clone()))
            .allow_methods([Method::POST])
            .allow_headers(headers.collect::<Vec<_>>())
            .expose_headers([RETRY_AFTER])
            .max_age(MAX_AGE)
            .vary([ORIGIN])
    }
}

/// Text that is no list of origins.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "origins with commas between, such as https://shop.example: scheme, host as browsers send it \
     (small letters, others as xn--, no *), and port if it is not the usual one"
)]
pub struct OriginsError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_as_browsers_send_them() {
        let many: Origins =
            "https://a.example, http://localhost:8080,https://b.example:8443".parse().unwrap();
        assert_eq!(many.0.len(), 3);
        for right in ["http://127.0.0.1:8080", "http://[::1]:3000", "https://xn--bcher-kva.example"]
        {
            assert!(right.parse::<Origins>().is_ok(), "{right}");
        }
        for wrong in [
            "",
            "*",
            "null",
            "a.example",
            "https://a.example/",
            "https://a.example/x",
            "https://A.example",
            "https://u@a.example",
            "https://a.example:443",
            "http://a.example:80",
            "ftp://a.example",
            "https://a.example,",
            "https://a.example https://b.example",
            "https://*.example",
            "https://b\u{fc}cher.example",
            "https://a%2eexample",
            "https://a..example",
            "https://a.example:",
            "https://a.example:0",
            "https://a.example:08443",
            "https://a.example:99999",
            "http://127.1:8080",
            "http://0x7f000001",
            "http://2130706433",
            "http://127.0.0.01",
            "http://[::0:1]:8080",
            "http://[::FFFF]",
            "http://[::ffff:127.0.0.1]",
        ] {
            assert_eq!(wrong.parse::<Origins>(), Err(OriginsError), "{wrong:?}");
        }
    }
}
