//! Cross-origin calls: which web pages may call the devices' service in a browser.

use std::str::FromStr;
use std::time::Duration;

use http::header::{CONTENT_TYPE, ORIGIN, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Method, Uri};
use thiserror::Error;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::auth::APP_KEY_HEADER;

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
    let is_bare = text == format!("{scheme}://{authority}")
        && !authority.contains('@')
        && !authority.chars().any(char::is_uppercase)
        && url.port_u16() != Some(own_port);
    if is_bare { HeaderValue::from_str(text).ok() } else { None }
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
    "origins with commas between, such as https://shop.example: scheme, host in small letters, and \
     port if it is not the usual one"
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
        ] {
            assert_eq!(wrong.parse::<Origins>(), Err(OriginsError), "{wrong:?}");
        }
    }
}
