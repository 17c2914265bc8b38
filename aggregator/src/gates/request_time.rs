//! A time within which a request must have been sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prost::bytes::Bytes;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, Service, http};

/// A call whose requests are a stream, with an idle time of its own. Those of reflection,
/// the only other one, are short.
const STREAMED: &str = "/bandana.v1.Device/SubmitUploads";

/// Gives every request but streamed ones this time.
#[derive(Clone, Copy, Debug)]
pub struct RequestTimeLayer(pub Duration);

impl<S> tower_layer::Layer<S> for RequestTimeLayer {
    type Service = RequestTime<S>;

    fn layer(&self, service: S) -> RequestTime<S> {
        RequestTime { time: self.0, service }
    }
}

/// A service whose requests must be sent in time.
#[derive(Clone, Debug)]
pub struct RequestTime<S> {
    time: Duration,
    service: S,
}

impl<S: Service<http::Request<Body>>> Service<http::Request<Body>> for RequestTime<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> S::Future {
        let streamed = request.uri().path() == STREAMED;
        let request = if streamed || request.body().is_end_stream() {
            request
        } else {
            request.map(|body| Body::new(Timed { body, time: self.time, alarm: None }))
        };
        self.service.call(request)
    }
}

/// A body that must end in time.
struct Timed {
    body: Body,
    time: Duration,
    /// Set when the body is first waited for: most come with their headers.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if frame.is_ready() {
            return frame;
        }
        let time = this.time;
        let alarm = this.alarm.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(alarm.as_mut().poll(context));
        let message = format!("the request was not sent within {} seconds", time.as_secs());
        Poll::Ready(Some(Err(Status::deadline_exceeded(message))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
