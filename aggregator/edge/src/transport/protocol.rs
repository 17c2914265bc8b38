//! The protocol of a connection, detected from its first bytes.

/// The first bytes of HTTP/2, with which no HTTP/1.1 request begins.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// The first bytes of a connection, as few as determine its protocol. The protocol's implementation
/// reads them again.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    bytes: [u8; PREFACE.len()],
    /// The number of bytes received.
    heard: usize,
    /// The number of bytes handed out again.
    given: usize,
}

impl Ahead {
    /// The protocol, once it is determined.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        let heard = &self.bytes[..self.heard];
        if !PREFACE.starts_with(heard) {
            Some(Protocol::Http1)
        } else if self.heard == PREFACE.len() {
            Some(Protocol::Http2)
        } else {
            None
        }
    }

    /// The buffer for more bytes; [`Self::heard`] sets how many were received.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.heard..]
    }

    pub(super) fn heard(&mut self, bytes: usize) {
        self.heard += bytes;
    }

    /// The next bytes to hand out again, at most `most`.
    pub(super) fn next(&mut self, most: usize) -> Option<&[u8]> {
        let end = self.heard.min(self.given + most);
        let next = &self.bytes[self.given..end];
        self.given = end;
        (!next.is_empty()).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(bytes: &[u8]) -> Ahead {
        let mut ahead = Ahead::default();
        ahead.room()[..bytes.len()].copy_from_slice(bytes);
        ahead.heard(bytes.len());
        ahead
    }

    #[test]
    fn the_preface_alone_is_http_2() {
        for bytes in [&b"G"[..], b"PO", b"PRI * HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"]
        {
            assert_eq!(heard(bytes).protocol(), Some(Protocol::Http1), "{bytes:?}");
        }
        for bytes in [&b""[..], b"P", &PREFACE[..23]] {
            assert_eq!(heard(bytes).protocol(), None, "{bytes:?}");
        }
        assert_eq!(heard(PREFACE).protocol(), Some(Protocol::Http2));
    }

    #[test]
    fn what_was_read_ahead_is_given_out_once() {
        let mut ahead = heard(b"GET /");
        assert_eq!(ahead.next(3), Some(&b"GET"[..]));
        assert_eq!(ahead.next(0), None);
        assert_eq!(ahead.next(9), Some(&b" /"[..]));
        assert_eq!(ahead.next(9), None);
    }
}
