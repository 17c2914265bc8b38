//! Names of calls.

use std::fmt;

use http::HeaderValue;

/// A random name of one call, by which its caller and the log can be brought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u64);

impl RequestId {
    /// The header and the metadata that tell it to the caller.
    pub const HEADER: &str = "x-request-id";

    /// A new one. What a caller sends under that name is never used: it could say
    /// anything.
    pub fn random() -> Self {
        // Without randomness ids are of no use, but calls are.
        Self(getrandom::u64().unwrap_or_default())
    }

    pub(super) fn header(self) -> Option<HeaderValue> {
        HeaderValue::try_from(self.to_string()).ok()
    }
}

/// 16 hexadecimal digits.
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
