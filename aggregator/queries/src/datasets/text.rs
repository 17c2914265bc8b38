//! Text in the encodings that programs write.
//!
//! A mark at the beginning of the file says that it is UTF-16. Apart from that each value is looked at by
//! itself, so that no row decides how another is read: what is not UTF-8 is Windows-1252.

use std::borrow::Cow;

use bytes::Bytes;
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// A value as text.
pub(super) fn decoded(value: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(value) {
        Ok(text) => text.into(),
        Err(_) => WINDOWS_1252.decode_without_bom_handling(value).0,
    }
}

/// The bytes of a file without its byte order mark, from UTF-16 in UTF-8.
pub(super) fn without_mark(bytes: &Bytes) -> Bytes {
    match Encoding::for_bom(bytes) {
        None => bytes.clone(),
        Some((encoding, mark)) if encoding == UTF_8 => bytes.slice(mark..),
        Some((encoding, mark)) => {
            let text = encoding.decode_without_bom_handling(&bytes[mark..]).0;
            text.into_owned().into_bytes().into()
        }
    }
}

/// A UUID in small letters, without braces.
pub(super) fn uuid(text: &str) -> Option<String> {
    let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let mut parts = inner.split('-');
    let is_uuid = [8, 4, 4, 4, 12].into_iter().all(|length| {
        let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
        parts.next().is_some_and(|part| part.len() == length && is_hex(part))
    });
    (is_uuid && parts.next().is_none()).then(|| inner.to_ascii_lowercase())
}
