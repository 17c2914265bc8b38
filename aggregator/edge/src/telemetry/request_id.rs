//! Ids of calls.

use std::fmt;

use http::{HeaderName, HeaderValue};

use crate::random;

/// A random id of one call, which relates the caller's error to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u64);

impl RequestId {
    /// The header or metadata key in which the caller receives the id.
    pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

    /// A new random id. An id sent by the caller is never used, as it could contain anything.
    pub fn random() -> Self {
        // Without randomness ids are useless, but calls still work.
        Self(random::word().unwrap_or_default())
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lowest four bits are taken")]
    pub(super) fn header(self) -> Option<HeaderValue> {
        let mut digits = [0; 16];
        for (place, digit) in digits.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[usize::from((self.0 >> (60 - 4 * place)) as u8 & 15)];
        }
        let mut value = HeaderValue::from_bytes(&digits).ok()?;
        // It never comes again, so it must not take the place of another header in HPACK's table.
        value.set_sensitive(true);
        Some(value)
    }
}

/// Formats as 16 hexadecimal digits.
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_digits_that_the_log_has() {
        for id in [RequestId(0), RequestId(0x0123_4567_89ab_cdef), RequestId(u64::MAX)] {
            assert_eq!(id.header().unwrap(), id.to_string());
        }
    }
}
