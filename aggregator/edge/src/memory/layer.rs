//! The layer that charges calls to the budget, and refuses calls when it is exhausted.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Request, Response, StatusCode, header};
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::answer::AnswerBody;
use super::request::RequestBody;
use super::{Budget, Hold, SharedAnswer};
use crate::memory::HeldMetrics;
use crate::peer::Peer;
use crate::peer::{Calling, UnderWay, Waiting};
use crate::pushback::exhausted;
use crate::telemetry::{is_grpc, is_streamed};

/// Bytes that a call takes until its answer was taken, beside its headers, request and answer: its
/// stream and its task, in `h2` and `hyper`. The value is that measured by
/// `tests/tests/hostile/answers.rs`, plus a half.
const CALL_BYTES: usize = 4 * 1024;

/// Bytes that a request takes beside those received: buffers for its assembly.
const REQUEST_BYTES: usize = 10 * 1024;

/// Bytes that a stream of uploads takes: its window, and the overhead of the smallest frames in it.
const STREAM_BYTES: usize = 192 * 1024;

/// Bytes that a header takes beside its name and its value.
const HEADER_BYTES: usize = 176;

/// Most running calls of a connection while memory is scarce.
const FEW: usize = 4;

/// The delay asked of a call that found no room. The client adds random jitter.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

/// Most characters of an error's message. Each takes up to twelve bytes when it is escaped.
const MESSAGE_CHARS_MAX: usize = 512;

/// The method whose requests are a stream with an idle time of its own. Streams of reflection, the
/// only other ones, are short.
const STREAMED: &str = "/bandana.v1.Device/SubmitUploads";

/// Charges the calls of a service to a budget. Cheap to clone: each call has one.
#[derive(Clone, Debug)]
pub struct HoldingLayer(Arc<Holding>);

#[derive(Debug)]
struct Holding {
    budget: Budget,
    request_time: Duration,
    metrics: HeldMetrics,
}

impl HoldingLayer {
    /// Counts a request that was aborted.
    pub(super) fn count_broken_off(&self) {
        self.0.metrics.broken_off.inc();
    }

    /// A layer over this budget. Every request except streamed ones must arrive within
    /// `request_time`.
    pub fn new(budget: Budget, request_time: Duration, metrics: HeldMetrics) -> Self {
        Self(Arc::new(Holding { budget, request_time, metrics }))
    }
}

impl<S> Layer<S> for HoldingLayer {
    type Service = Held<S>;

    fn layer(&self, inner: S) -> Held<S> {
        Held { inner, layer: self.clone() }
    }
}

/// A service whose calls are charged to the budget.
#[derive(Clone, Debug)]
pub struct Held<S> {
    inner: S,
    layer: HoldingLayer,
}

/// A call with its charge.
#[derive(Debug)]
pub(super) struct UnderBudget {
    pub(super) budget: Budget,
    pub(super) hold: Hold,
    calling: Arc<Calling>,
    /// Set when a stream of uploads has ended: what is left of its answers waits to be taken.
    left: OnceLock<Waiting>,
    is_broken_off: AtomicBool,
    _under_way: UnderWay,
}

impl UnderBudget {
    pub(super) fn calling(&self) -> &Arc<Calling> {
        &self.calling
    }

    /// Records that the peer has aborted the request.
    pub(super) fn break_off(&self) {
        self.is_broken_off.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_broken_off(&self) -> bool {
        self.is_broken_off.load(Ordering::Relaxed)
    }

    /// The status that replaces the service's answer, if any: a request that was aborted, or can't
    /// be decoded, is not the server's fault, and clients do not take long messages.
    fn fault<B>(&self, answer: &Response<B>) -> Option<Status> {
        if self.is_broken_off() {
            return Some(broken_off());
        }
        let status = answer.extensions().get()?;
        callers_fault(status).or_else(|| shortened(status))
    }
}

/// An extension of streams of uploads: the call, while any of it or of its answers is left.
#[derive(Clone, Debug, Default)]
pub struct HeldCall(Weak<UnderBudget>);

impl HeldCall {
    /// The call of a request. Without the layer, none.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Records that no more answers are made: those that are left must be taken in time.
    pub fn end(&self) {
        if let Some(call) = self.0.upgrade() {
            call.left.get_or_init(|| call.calling.wait());
        }
    }
}

impl Holding {
    /// Charges this call to the budget, if there is room.
    fn admit<B>(&self, request: &Request<B>, has_body: bool) -> Option<Arc<UnderBudget>> {
        let peer: Option<&Peer> = request.extensions().get();
        let calling = peer.map(|peer| Arc::clone(&peer.calling)).unwrap_or_default();
        if self.budget.is_scarce() && calling.under_way() >= FEW {
            return None;
        }
        let body = match (has_body, request.uri().path()) {
            (false, _) => 0,
            (true, STREAMED) => STREAM_BYTES,
            (true, _) => REQUEST_BYTES,
        };
        let hold = self.budget.hold(CALL_BYTES + size(request.headers()) + body)?;
        let under_way = calling.begin();
        let budget = self.budget.clone();
        Some(Arc::new(UnderBudget {
            budget,
            hold,
            calling,
            left: OnceLock::new(),
            is_broken_off: AtomicBool::new(false),
            _under_way: under_way,
        }))
    }
}

/// The bytes that headers take.
fn size(headers: &HeaderMap) -> usize {
    let of = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        HEADER_BYTES + name.as_str().len() + value.len()
    };
    headers.iter().map(of).sum()
}

/// The status of a call whose request was aborted. Few callers are left to receive it.
pub(super) fn broken_off() -> Status {
    Status::cancelled("the request was broken off")
}

/// The status of a call that found no room.
pub(super) fn beyond_budget() -> Status {
    exhausted("the server has no memory left for more calls; call again later", NO_ROOM_WAIT)
}

impl<S, B> Service<Request<Body>> for Held<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    B: HttpBody<Data = Bytes> + Unpin,
{
    type Response = Response<AnswerBody<B>>;
    type Error = Infallible;
    type Future = HeldFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let layer = self.layer.clone();
        let (is_grpc, path) = (is_grpc(&request), request.uri().path());
        let (is_streamed, is_stream) = (is_streamed(path), path == STREAMED);
        let is_timed = !is_stream;
        let has_body = !request.body().is_end_stream();
        let Some(call) = layer.0.admit(&request, has_body) else {
            let (inner, call) = (None, None);
            return HeldFuture { inner, call, is_grpc, is_streamed, is_timed, layer };
        };
        if is_stream {
            request.extensions_mut().insert(HeldCall(Arc::downgrade(&call)));
        }
        let request = if has_body {
            let time = (!is_stream).then_some(layer.0.request_time);
            let (call, broken_off) = (Arc::clone(&call), layer.clone());
            request.map(|body| Body::new(RequestBody::new(body, time, call, broken_off)))
        } else {
            request
        };
        let inner = Some(self.inner.call(request));
        HeldFuture { inner, call: Some(call), is_grpc, is_streamed, is_timed, layer }
    }
}

pin_project! {
    /// The future of an answer that is charged to the budget.
    #[derive(Debug)]
    pub struct HeldFuture<F> {
        // None: there is no room for the call.
        #[pin]
        inner: Option<F>,
        call: Option<Arc<UnderBudget>>,
        is_grpc: bool,
        is_streamed: bool,
        is_timed: bool,
        layer: HoldingLayer,
    }
}

impl<F, B> Future for HeldFuture<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: HttpBody<Data = Bytes> + Unpin,
{
    type Output = Result<Response<AnswerBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = match this.inner.as_pin_mut() {
            Some(inner) => Some(ready!(inner.poll(context))?),
            None => None,
        };
        let held = match (answer, this.call.take()) {
            (Some(answer), Some(call)) => match call.fault(&answer).filter(|_| *this.is_grpc) {
                Some(status) => Some(status.into_http::<Body>().map(|_| AnswerBody::empty())),
                None if *this.is_streamed => {
                    Some(answer.map(|body| AnswerBody::streamed(body, call, *this.is_timed)))
                }
                None => whole(answer, call, context),
            },
            _ => None,
        };
        Poll::Ready(Ok(held.unwrap_or_else(|| {
            this.layer.0.metrics.refused.inc();
            refusal(*this.is_grpc)
        })))
    }
}

/// A complete answer, if there is room for it.
fn whole<B>(
    mut answer: Response<B>,
    call: Arc<UnderBudget>,
    context: &mut Context<'_>,
) -> Option<Response<AnswerBody<B>>>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    // The request is complete.
    call.hold.shrink_to(CALL_BYTES);
    if let Some(SharedAnswer(shared)) = answer.extensions_mut().remove() {
        return Some(answer.map(|_| AnswerBody::shared(shared, call)));
    }
    if answer.body().is_end_stream() {
        return Some(answer.map(|_| AnswerBody::empty()));
    }
    let (head, body) = answer.into_parts();
    Some(Response::from_parts(head, AnswerBody::made(body, call, context)?))
}

/// The status that replaces one for an undecodable request, which is reported as a fault of the
/// server. The server's own such errors have a cause, which is logged.
pub fn callers_fault(status: &Status) -> Option<Status> {
    let is_callers = status.code() == Code::Internal && std::error::Error::source(status).is_none();
    is_callers.then(|| Status::invalid_argument(status.message()))
}

/// The replacement for an error that quotes much of its request. Its message is sent in a header,
/// escaped, and most clients refuse headers beyond 8 or 16 KiB.
fn shortened(status: &Status) -> Option<Status> {
    let message = status.message();
    let left_out =
        message.chars().count().checked_sub(MESSAGE_CHARS_MAX).filter(|left| *left > 0)?;
    let beginning = message.chars().take(MESSAGE_CHARS_MAX / 2);
    let end = message.chars().skip(MESSAGE_CHARS_MAX / 2 + left_out);
    let kept: String = beginning.chain(" ... ".chars()).chain(end).collect();
    Some(Status::with_metadata(status.code(), kept, status.metadata().clone()))
}

/// The response to a call that found no room.
fn refusal<B>(is_grpc: bool) -> Response<AnswerBody<B>>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    if is_grpc {
        return beyond_budget().into_http::<Body>().map(|_| AnswerBody::empty());
    }
    let mut answer = Response::new(AnswerBody::empty());
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer.headers_mut().insert(header::RETRY_AFTER, NO_ROOM_WAIT.as_secs().into());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_headers_take_more_than_their_bytes() {
        let mut headers = HeaderMap::new();
        headers.insert("a", "b".parse().unwrap());
        headers.append("a", "cd".parse().unwrap());
        assert_eq!(size(&headers), 2 * HEADER_BYTES + 5);
    }

    #[test]
    fn what_can_not_be_decoded_is_the_callers_fault_and_what_has_a_cause_is_not() {
        let of = |status: Status| callers_fault(&status).map(|status| status.code());
        assert_eq!(of(Status::internal("invalid wire type")), Some(Code::InvalidArgument));
        assert_eq!(of(Status::unknown("x")), None);
        let mut ours = Status::internal("the random source failed");
        ours.set_source(Arc::new(std::io::Error::other("x")));
        assert_eq!(of(ours), None);
    }

    #[test]
    fn errors_that_quote_much_keep_their_beginning_and_their_end() {
        assert!(shortened(&Status::not_found("ä".repeat(MESSAGE_CHARS_MAX))).is_none());
        let quoted = "ä".repeat(16 * 1024);
        let mut long = Status::not_found(format!("{quoted:?} is not one of the arms"));
        long.metadata_mut().insert("x", "y".parse().unwrap());
        let short = shortened(&long).unwrap();
        assert_eq!((short.code(), short.metadata().get("x").is_some()), (Code::NotFound, true));
        let message = short.message();
        assert!(message.starts_with("\"ä") && message.ends_with("ä\" is not one of the arms"));
        let escaped: usize =
            short.into_http::<Body>().headers().values().map(http::HeaderValue::len).sum();
        assert!(escaped < 8 * 1024, "{escaped}");
    }
}
