//! Ids of calls.

use std::fmt;

use http::HeaderValue;

/// A random id of one call, which relates the caller's error to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u64);

impl RequestId {
    /// The header or metadata key in which the caller receives the id.
    pub const HEADER: &str = "x-request-id";

    /// A new random id. An id sent by the caller is never used, as it could contain anything.
    pub fn random() -> Self {
        // Without randomness ids are useless, but calls still work.
        Self(getrandom::u64().unwrap_or_default())
    }

    pub(super) fn header(self) -> Option<HeaderValue> {
        HeaderValue::try_from(self.to_string()).ok()
    }
}

/// Formats as 16 hexadecimal digits.
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
