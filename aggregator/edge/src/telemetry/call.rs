//! Telemetry of one call, from the head of its request to the end of its response.

use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode, header};
use tonic::{Code, Status};
use tracing::Span;
use tracing::field::Empty;

use super::calls::{Calls, CallsOfPort};
use super::methods::{METHODS, MethodIndex};
use super::metrics::code_name;
use super::request_id::RequestId;
use crate::explain::explain;

/// The port of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The port of devices. Its calls are logged at debug only, and nothing that devices send is
    /// logged.
    Device,
    /// The port of operators.
    Operator,
}

/// The target of a call.
#[derive(Clone, Copy, Debug)]
enum What {
    Grpc(MethodIndex),
    Http,
}

/// A call under way. Dropping it before its end means that its caller gave up.
#[derive(Debug)]
pub(super) struct Call {
    id: RequestId,
    what: What,
    span: Span,
    begin: Duration,
    calls: Calls,
    is_over: bool,
}

impl Call {
    pub(super) fn begin<B>(request: &Request<B>, calls: &Calls) -> Self {
        let port = calls.0.port;
        let id = RequestId::random();
        let what = What::of(request);
        let span = span(id, port, what, request);
        #[cfg(feature = "opentelemetry")]
        super::traces::begin(
            &span,
            what.name(),
            (port == Port::Operator).then(|| request.headers()),
        );
        let begin = calls.0.clock.monotonic();
        Self { id, what, span, begin, calls: calls.clone(), is_over: false }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Adds the call's id to the head of the response, and ends the call if the response has no
    /// body.
    pub(super) fn answer<R>(&mut self, response: &mut Response<R>) {
        if let Some(id) = self.id.header() {
            response.headers_mut().insert(RequestId::HEADER, id);
        }
        if let Some(status) = response.extensions().get::<Status>() {
            self.explain(status);
        }
        match self.what {
            What::Http => self.http_ended(response.status()),
            What::Grpc(_) => {
                let answered = response.extensions().get().map(|Answered(code)| *code);
                if let Some(code) = answered.or_else(|| code_in(response.headers())) {
                    self.ended(code);
                }
            }
        }
    }

    /// Logs the cause of an error, of which the caller gets only the message. Under many failures
    /// only some are logged, with the number of those omitted.
    fn explain(&self, status: &Status) {
        let Some(cause) = std::error::Error::source(status) else { return };
        let Some(more) = self.calls.0.failures.next() else { return };
        let (request_id, error) = (self.id, explain(cause));
        tracing::error!(%request_id, error, more, "a call failed: {}", status.message());
    }

    /// Ends the call with the status in its trailers.
    pub(super) fn trailers(&mut self, trailers: &HeaderMap) {
        self.ended(code_in(trailers).unwrap_or(Code::Unknown));
    }

    /// Ends the call, unless it has ended.
    pub(super) fn ended(&mut self, code: Code) {
        let What::Grpc(method) = self.what else { return };
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let CallsOfPort { port, clock, metrics, .. } = &*self.calls.0;
        let time = clock.monotonic().saturating_sub(self.begin);
        metrics.ended(method, code, time);
        #[cfg(feature = "opentelemetry")]
        super::traces::end(&self.span, code);
        let _entered = self.span.enter();
        // Probes are frequent, and their caller is of no interest.
        let is_probe = METHODS.name(method).service.starts_with("grpc.health.");
        // Failures that unauthenticated callers can cause at will are not logged.
        let is_of_anybody = matches!(
            code,
            Code::Unauthenticated | Code::Unimplemented | Code::Cancelled | Code::ResourceExhausted
        );
        let (code, seconds) = (code_name(code), time.as_secs_f64());
        if *port == Port::Operator && !is_of_anybody && !is_probe {
            tracing::info!(code, seconds, "call answered");
        } else {
            tracing::debug!(code, seconds, "call answered");
        }
    }

    fn http_ended(&mut self, status: StatusCode) {
        self.is_over = true;
        let seconds = self.calls.0.clock.monotonic().saturating_sub(self.begin).as_secs_f64();
        let _entered = self.span.enter();
        tracing::debug!(status = status.as_u16(), seconds, "request answered");
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.ended(Code::Cancelled);
    }
}

impl What {
    fn of<B>(request: &Request<B>) -> Self {
        match METHODS.find(request.uri().path()) {
            Some(method) => Self::Grpc(method),
            None if is_marked_grpc(request) => Self::Grpc(METHODS.other()),
            None => Self::Http,
        }
    }
}

#[cfg(feature = "opentelemetry")]
impl What {
    /// A name of low cardinality.
    fn name(self) -> &'static str {
        match self {
            Self::Grpc(method) => &METHODS.name(method).path,
            Self::Http => "page",
        }
    }
}

/// The span of a call. For operators' calls it exists at every level of the log, so that an error
/// names its call.
fn span<B>(id: RequestId, port: Port, what: What, request: &Request<B>) -> Span {
    let path = match (what, port) {
        (What::Grpc(method), _) => &METHODS.name(method).path,
        // The caller chose the method.
        (What::Http, Port::Device) => "other",
        (What::Http, Port::Operator) => request.uri().path(),
    };
    match port {
        Port::Device => {
            tracing::debug_span!("call", request_id = %id, method = path, otel.name = Empty)
        }
        Port::Operator => {
            let (caller, name) = (Empty, Empty);
            tracing::error_span!("call", request_id = %id, method = path, caller, otel.name = name)
        }
    }
}

/// Whether a request claims to be gRPC.
pub fn is_marked_grpc<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Whether a request is a gRPC call, rather than one of Connect or for a page.
pub fn is_grpc<B>(request: &Request<B>) -> bool {
    (METHODS.find(request.uri().path()).is_some() && !is_connect(request))
        || is_marked_grpc(request)
}

/// The content-type of a call by the Connect protocol.
pub const CONNECT_TYPE: &str = "application/proto";

/// Whether a request is a call by the Connect protocol.
pub fn is_connect<B>(request: &Request<B>) -> bool {
    let mut declared = request.headers().get_all(header::CONTENT_TYPE).iter();
    let is_proto = declared.next().is_some_and(|kind| kind == CONNECT_TYPE);
    is_proto && declared.next().is_none()
}

/// An extension of an answer that has no status of gRPC: the code that the call ended with.
#[derive(Clone, Copy, Debug)]
pub struct Answered(pub Code);

/// Whether the method at this path streams its answers.
pub fn is_streamed(path: &str) -> bool {
    METHODS.find(path).is_some_and(|method| METHODS.name(method).is_streamed)
}

fn code_in(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|code| Code::from_bytes(code.as_bytes()))
}
