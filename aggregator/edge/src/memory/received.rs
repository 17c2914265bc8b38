//! A request's body as a whole, copied together from its pieces.

use std::future::poll_fn;
use std::pin::pin;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use thiserror::Error;

/// Reads a body of at most `most` bytes. `charge` is told of those of each piece, and says whether
/// there is room for them.
///
/// Pieces are copied at once: kept as they come, a piece of one byte would hold far more memory than
/// it was charged for.
///
/// # Errors
/// [`ReceiveError`] when it is longer, or does not arrive.
pub async fn received<B: Body<Data = Bytes>>(
    body: B,
    most: usize,
    mut charge: impl FnMut(usize) -> bool,
) -> Result<Bytes, ReceiveError<B::Error>> {
    let (mut body, mut bytes) = (pin!(body), BytesMut::new());
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(data) = frame.map_err(ReceiveError::Broken)?.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(ReceiveError::TooLong);
        }
        if !charge(data.len()) {
            return Err(ReceiveError::NoRoom);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// A body that was not received.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReceiveError<E> {
    /// It is longer than it may be.
    #[error("the body is too long")]
    TooLong,
    /// There is no room for it.
    #[error("there is no room for the body")]
    NoRoom,
    /// It did not arrive.
    #[error("the body did not arrive")]
    Broken(E),
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Full, StreamBody};
    use std::convert::Infallible;

    #[tokio::test]
    async fn pieces_are_put_together_and_too_many_are_refused() {
        let whole = Bytes::from_static(b"pieces");
        let full = || Full::new(whole.clone());
        assert_eq!(received(full(), 6, |_| true).await.unwrap(), whole);
        assert_eq!(received(full(), 5, |_| true).await, Err(ReceiveError::TooLong));
        assert_eq!(received(full(), 6, |bytes| bytes < 6).await, Err(ReceiveError::NoRoom));
        let piece = |byte: &u8| Ok::<_, Infallible>(http_body::Frame::data(vec![*byte].into()));
        let pieces: Vec<_> = whole.iter().map(piece).collect();
        let pieces = StreamBody::new(futures_util::stream::iter(pieces));
        assert_eq!(received(pieces, 6, |_| true).await.unwrap(), whole);
    }
}
