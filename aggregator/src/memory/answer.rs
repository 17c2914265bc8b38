//! The body of an answer, which is held until the other end has taken it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use tonic::{Code, Status};

use super::layer::UnderBudget;
use super::shared::Shared;
use crate::peer::Waiting;

/// Frames of an answer that are made before it is sent. An answer that is not a stream has
/// fewer.
const FRAMES_AHEAD: usize = 4;

/// A body that holds what it has not given out, and whose bytes hold themselves from then on.
#[derive(Debug)]
pub struct AnswerBody<B: Body> {
    ahead: VecDeque<Result<Frame<Bytes>, B::Error>>,
    rest: Option<B>,
    call: Option<Arc<UnderBudget>>,
    /// As it was before anything was made: it is asked for at the start.
    size: SizeHint,
    /// Whether each part of a stream must be taken in time.
    is_timed: bool,
}

/// Bytes of an answer. `h2` keeps them until the other end has made room for them.
struct HeldBytes {
    bytes: Bytes,
    _call: Arc<UnderBudget>,
    /// None: a part of the answers to a stream, which has an idle time of its own.
    _waiting: Option<Waiting>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B: Body<Data = Bytes> + Unpin> AnswerBody<B> {
    /// Nothing.
    pub(super) fn empty() -> Self {
        let (ahead, size) = (VecDeque::new(), SizeHint::with_exact(0));
        Self { ahead, rest: None, call: None, size, is_timed: false }
    }

    /// What all get who ask the same.
    pub(super) fn shared(shared: Shared, call: Arc<UnderBudget>) -> Self {
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        let data = Frame::data(held(shared.bytes(), &call, true));
        let ahead = VecDeque::from([Ok(data), Ok(Frame::trailers(trailers))]);
        let size = SizeHint::default();
        Self { ahead, rest: None, call: Some(call), size, is_timed: false }
    }

    /// A stream, of which each part is made when the last one was given out, and may have to be
    /// taken in time.
    pub(super) fn streamed(rest: B, call: Arc<UnderBudget>, is_timed: bool) -> Self {
        let size = rest.size_hint();
        Self { ahead: VecDeque::new(), rest: Some(rest), call: Some(call), size, is_timed }
    }

    /// Makes the answer, as far as it is there at once, so that its size is known. None: there
    /// is no room for it.
    pub(super) fn made(
        mut body: B,
        call: Arc<UnderBudget>,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let (mut ahead, size) = (VecDeque::new(), body.size_hint());
        let rest = loop {
            if ahead.len() == FRAMES_AHEAD {
                break Some(body);
            }
            match Pin::new(&mut body).poll_frame(context) {
                Poll::Ready(Some(frame)) => ahead.push_back(frame),
                Poll::Ready(None) => break None,
                Poll::Pending => break Some(body),
            }
        };
        for frame in &mut ahead {
            let data = frame.as_mut().ok().and_then(Frame::data_mut);
            if let Some(data) = data.filter(|data| !data.is_empty()) {
                if !call.hold.grow(data.len()) {
                    return None;
                }
                *data = held(std::mem::take(data), &call, true);
            }
        }
        Some(Self { ahead, rest, call: Some(call), size, is_timed: false })
    }
}

/// Bytes that hold what belongs to their call for as long as they are there.
fn held(bytes: Bytes, call: &Arc<UnderBudget>, is_timed: bool) -> Bytes {
    let waiting = is_timed.then(|| call.calling().wait());
    Bytes::from_owner(HeldBytes { bytes, _call: Arc::clone(call), _waiting: waiting })
}

impl<B: Body<Data = Bytes> + Unpin> Body for AnswerBody<B>
where
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(frame) = this.ahead.pop_front() {
            return Poll::Ready(Some(frame));
        }
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(rest).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|mut frame| {
                let Some(call) = &this.call else { return frame };
                if let Some(trailers) = frame.trailers_mut().filter(|_| call.is_broken_off()) {
                    // To the service it looks like the end.
                    trailers
                        .insert(Status::GRPC_STATUS, HeaderValue::from(i32::from(Code::Cancelled)));
                }
                // It is there already.
                frame.map_data(|data| {
                    let hold = call.budget.hold_anyway(data.len());
                    held(Bytes::from_owner(Part { data, _hold: hold }), call, this.is_timed)
                })
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

/// A part of a stream.
struct Part {
    data: Bytes,
    _hold: super::Hold,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}
