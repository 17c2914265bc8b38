//! Unary calls: one message in, one message out, in gRPC's framing or in none.
//!
//! Those of devices are small and many. tonic's own server has buffers of 8 KiB for each of their
//! messages, and streams around both.

use std::pin::Pin;
use std::task::{Context, Poll};

use bandana_shared::limits::UPLOAD_BYTES_MAX;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt as _, Full};
use prost::Message;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataMap;

/// Bytes before each message: whether it is compressed, and its length.
pub(crate) const PREFIX_BYTES: usize = 5;

pub(crate) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const SUCCESS: HeaderValue = HeaderValue::from_static("0");

/// An extension of a request whose body is the message, and whose answer's body is to be. Errors are
/// as in gRPC.
#[derive(Clone, Copy, Debug)]
pub struct Unframed;

/// Answers a call by `method`, after `decode` has read its message.
pub async fn unary<Q, A: Message>(
    request: Request<Body>,
    decode: impl FnOnce(Bytes) -> Result<Q, Status>,
    method: impl AsyncFnOnce(tonic::Request<Q>) -> Result<A, Status>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let is_framed = head.extensions.get::<Unframed>().is_none();
    let answered = async {
        if head.headers.get(ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(Status::unimplemented(
                "messages must not be compressed; send them as they are",
            ));
        }
        let question = decode(message(body, is_framed).await?)?;
        let metadata = MetadataMap::from_headers(head.headers);
        method(tonic::Request::from_parts(metadata, head.extensions, question)).await
    };
    match answered.await {
        Ok(answer) if is_framed => success(&answer),
        Ok(answer) => Response::new(Body::new(Full::from(answer.encode_to_vec()))),
        Err(status) => status.into_http(),
    }
}

/// Decodes a message.
///
/// # Errors
/// The status of an invalid argument.
pub fn decoded<Q: Message + Default>(message: Bytes) -> Result<Q, Status> {
    Q::decode(message).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// The only message of a request.
async fn message(mut body: Body, is_framed: bool) -> Result<Bytes, Status> {
    let mut received = Joined::default();
    while let Some(frame) = body.frame().await {
        // The rest is trailers, which say nothing in a request.
        if let Ok(data) = frame?.into_data() {
            received.push(data);
        }
        if received.len() > PREFIX_BYTES + UPLOAD_BYTES_MAX {
            break;
        }
    }
    let mut bytes = received.finish();
    let length = if is_framed {
        if bytes.len() < PREFIX_BYTES {
            return Err(Status::invalid_argument("a request has one message"));
        }
        if bytes.get_u8() != 0 {
            let message = "a message is marked as compressed, and its encoding is not told";
            return Err(Status::invalid_argument(message));
        }
        bytes.get_u32() as usize
    } else {
        bytes.len()
    };
    if length > UPLOAD_BYTES_MAX {
        let message = format!("the message is longer than the limit of {UPLOAD_BYTES_MAX} bytes");
        return Err(Status::out_of_range(message));
    }
    if bytes.len() != length {
        return Err(Status::invalid_argument("a request has one message, of the length it says"));
    }
    Ok(bytes)
}

/// The answer with a message.
fn success(answer: &impl Message) -> Response<Body> {
    let length = answer.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    answer.encode_raw(&mut bytes);
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(Status::GRPC_STATUS, SUCCESS);
    let frames = [Frame::trailers(trailers), Frame::data(bytes.freeze())];
    let mut response = Response::new(Body::new(Whole(frames.map(Some))));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// A body that is there as a whole: its frames, the last one first.
struct Whole([Option<Frame<Bytes>>; 2]);

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = self.0.iter_mut().rev().find_map(Option::take);
        Poll::Ready(next.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// Bytes that come in parts. Most come in one, which is not copied.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    only: Bytes,
    many: BytesMut,
}

impl Joined {
    pub(crate) fn push(&mut self, part: Bytes) {
        if self.len() == 0 {
            self.only = part;
        } else {
            self.many.extend([std::mem::take(&mut self.only), part]);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.only.len() + self.many.len()
    }

    pub(crate) fn finish(self) -> Bytes {
        if self.many.is_empty() { self.only } else { self.many.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::iter;
    use tonic::Code;

    use super::*;

    async fn received(parts: &[&'static [u8]]) -> Result<Bytes, Code> {
        let frames =
            parts.iter().map(|part| Ok::<_, Status>(Frame::data(Bytes::from_static(part))));
        let body = http_body_util::StreamBody::new(iter(frames.collect::<Vec<_>>()));
        message(Body::new(body), true).await.map_err(|status| status.code())
    }

    #[tokio::test]
    async fn a_request_has_one_whole_message() {
        assert_eq!(received(&[b"\0\0\0\0\x03abc"]).await, Ok(Bytes::from_static(b"abc")));
        assert_eq!(received(&[b"\0\0", b"", b"\0\0\x03a", b"bc"]).await.unwrap(), "abc");
        assert_eq!(received(&[b"\0\0\0\0\0"]).await.unwrap(), "");
        let whole: [&[u8]; 5] = [
            b"\0\0\0\0",
            b"\0\0\0\0\x03ab",
            b"\0\0\0\0\x03abcd",
            b"\x01\0\0\0\x03abc",
            b"\0\0\0\0\x01a\0\0\0\0\x01b",
        ];
        assert_eq!(received(&[]).await, Err(Code::InvalidArgument));
        for wrong in whole {
            assert_eq!(received(&[wrong]).await, Err(Code::InvalidArgument), "{wrong:?}");
        }
        assert_eq!(received(&[b"\0\xff\xff\xff\xff"]).await, Err(Code::OutOfRange));
    }

    #[tokio::test]
    async fn what_is_too_long_is_read_no_further() {
        static LONG: [u8; UPLOAD_BYTES_MAX] = [0; UPLOAD_BYTES_MAX];
        let parts = [&b"\0\0\xff\xff\xff"[..], &LONG, &LONG];
        assert_eq!(received(&parts).await, Err(Code::OutOfRange));
    }
}
