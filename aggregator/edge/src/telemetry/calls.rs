//! The layer in front of a port's services that names, counts and logs their calls.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tonic::Code;
use tower::{Layer, Service};

use super::call::Call;
pub use super::call::Port;
use super::lines::LogLimit;
use super::metrics::CallMetrics;
use crate::clock::Clock;

/// The layer for the calls of one port. Cheap to clone: each call has one.
#[derive(Clone, Debug)]
pub struct Calls(pub(super) Arc<CallsOfPort>);

/// What the calls of one port share.
#[derive(Debug)]
pub(super) struct CallsOfPort {
    pub(super) port: Port,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: CallMetrics,
    pub(super) failures: LogLimit,
}

impl Calls {
    /// A layer that counts the calls of this port in `metrics`.
    pub fn new(port: Port, clock: Arc<dyn Clock>, metrics: CallMetrics) -> Self {
        let failures = LogLimit::new(&clock);
        Self(Arc::new(CallsOfPort { port, clock, metrics, failures }))
    }
}

impl<S> Layer<S> for Calls {
    type Service = Watched<S>;

    fn layer(&self, inner: S) -> Watched<S> {
        Watched { inner, calls: self.clone() }
    }
}

/// A service wrapped by [`Calls`].
#[derive(Clone, Debug)]
pub struct Watched<S> {
    inner: S,
    calls: Calls,
}

impl<S, B, R> Service<Request<B>> for Watched<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<WatchedBody<R>>;
    type Error = S::Error;
    type Future = WatchedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = Call::begin(&request, &self.calls);
        let inner = call.span().in_scope(|| self.inner.call(request));
        WatchedFuture { inner, call: Some(call) }
    }
}

pin_project! {
    /// The future of a response's head.
    #[derive(Debug)]
    pub struct WatchedFuture<F> {
        #[pin]
        inner: F,
        call: Option<Call>,
    }
}

impl<F, R, E> Future for WatchedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<WatchedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let entered = this.call.as_ref().map(|call| call.span().clone().entered());
        let answer = ready!(this.inner.poll(context));
        drop(entered);
        let mut call = this.call.take();
        Poll::Ready(answer.map(|mut response| {
            if let Some(call) = &mut call {
                call.answer(&mut response);
            }
            response.map(|inner| WatchedBody { inner, call })
        }))
    }
}

pin_project! {
    /// The body of a response, whose trailers contain the status of the call.
    #[derive(Debug)]
    pub struct WatchedBody<R> {
        #[pin]
        inner: R,
        call: Option<Call>,
    }
}

impl<R: Body> Body for WatchedBody<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        let this = self.project();
        let entered = this.call.as_ref().map(|call| call.span().clone().entered());
        let frame = ready!(this.inner.poll_frame(context));
        drop(entered);
        if let Some(call) = this.call {
            match &frame {
                Some(Ok(frame)) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        call.trailers(trailers);
                    }
                }
                Some(Err(_)) | None => call.ended(Code::Unknown),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
