//! The body of an answer, which is charged to the budget until the peer has taken it.

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

/// Most frames of an answer that are made before it is sent. An answer that is not a stream has
/// fewer.
const FRAMES_AHEAD: usize = 4;

/// A body that charges its pending frames to the budget. Frames that were handed out hold their own
/// charge.
#[derive(Debug)]
pub struct AnswerBody<B: Body> {
    ahead: VecDeque<Result<Frame<Bytes>, B::Error>>,
    rest: Option<B>,
    call: Option<Arc<UnderBudget>>,
    /// The size hint before any frame was made, since it is asked for at the start.
    size: SizeHint,
    /// Whether each part of a stream must be taken in time.
    is_timed: bool,
}

/// Bytes of an answer. `h2` keeps them until the peer has made room for them.
struct HeldBytes {
    bytes: Bytes,
    _call: Arc<UnderBudget>,
    /// None: a part of a streamed answer, which has an idle time of its own.
    _waiting: Option<Waiting>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B: Body<Data = Bytes> + Unpin> AnswerBody<B> {
    /// An empty answer.
    pub(super) fn empty() -> Self {
        let (ahead, size) = (VecDeque::new(), SizeHint::with_exact(0));
        Self { ahead, rest: None, call: None, size, is_timed: false }
    }

    /// An answer shared by all callers with the same request.
    pub(super) fn shared(shared: Shared, call: Arc<UnderBudget>) -> Self {
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        let data = Frame::data(held(shared.framed(), &call, true));
        let ahead = VecDeque::from([Ok(data), Ok(Frame::trailers(trailers))]);
        let size = SizeHint::default();
        Self { ahead, rest: None, call: Some(call), size, is_timed: false }
    }

    /// A streamed answer. Each part is made when the previous one was handed out, and with
    /// `is_timed` must be taken in time.
    pub(super) fn streamed(rest: B, call: Arc<UnderBudget>, is_timed: bool) -> Self {
        let size = rest.size_hint();
        Self { ahead: VecDeque::new(), rest: Some(rest), call: Some(call), size, is_timed }
    }

    /// Makes as much of the answer as is ready at once, so that its size is known. None: the budget
    /// has no room for it.
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
        Some(Self { ahead, rest, call: Some(call), size, is_timed: true })
    }
}

/// Bytes that keep their call's charge for as long as they exist.
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
                    // To the service, this looks like the end.
                    trailers
                        .insert(Status::GRPC_STATUS, HeaderValue::from(i32::from(Code::Cancelled)));
                }
                // The data already exists.
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

/// A part of a streamed answer.
struct Part {
    data: Bytes,
    _hold: super::Hold,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}
