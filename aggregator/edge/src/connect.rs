//! The Connect protocol: unary calls without HTTP/2, for clients that have only plain HTTP.
//!
//! A call is `POST /SERVICE/METHOD` with the content-type `application/proto` and one message as
//! its body, over HTTP/1.1 or HTTP/2. It is translated to gRPC and back, so that admission, limits
//! and answers are those of gRPC. Specification: <https://connectrpc.com/docs/protocol>.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use crate::memory::{SharedAnswer, callers_fault};
use crate::pushback::pushback;
use crate::telemetry::{Answered, CONNECT_TYPE, is_connect, is_marked_grpc, is_streamed};
use bandana_shared::limits::UPLOAD_BYTES_MAX;
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::future::Either;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, response};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt as _, Full};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Service;

use crate::unary::{GRPC, Joined, PREFIX_BYTES, Unframed};

/// The header with the protocol's version, which callers may omit.
const PROTOCOL_VERSION: &str = "connect-protocol-version";

const PROTO: HeaderValue = HeaderValue::from_static(CONNECT_TYPE);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A gRPC service that answers unary calls by the Connect protocol too.
#[derive(Clone, Debug)]
pub struct Connect<S> {
    service: S,
    /// Whether the service takes requests at this path that are marked as [`Unframed`].
    takes_unframed: fn(&str) -> bool,
}

impl<S> Connect<S> {
    /// Lets callers of this service use either protocol.
    pub fn new(service: S) -> Self {
        Self { service, takes_unframed: |_| false }
    }

    /// As [`Self::new`], of a service that takes requests marked as [`Unframed`] at these paths.
    pub fn with_unframed(service: S, takes_unframed: fn(&str) -> bool) -> Self {
        Self { service, takes_unframed }
    }
}

type Boxed = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for Connect<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Either<Boxed, Ready<Result<Response<Body>, Infallible>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let refuse = |response| Either::Right(Either::Right(ready(Ok(response))));
        if !is_connect(&request) {
            if is_marked_grpc(&request) && request.version() < Version::HTTP_2 {
                // HTTP/1.1 would drop the status, which gRPC has in its trailers.
                return refuse(of_another_protocol());
            }
            return Either::Left(self.service.call(request));
        }
        if request.method() != Method::POST {
            let mut response = error(&Status::unimplemented("the method of a call must be POST"));
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            return refuse(response);
        }
        match to_grpc(request, self.takes_unframed) {
            Err(status) => refuse(error(&status)),
            Ok(request) => {
                let call = self.service.call(request);
                Either::Right(Either::Left(Box::pin(to_connect(call))))
            }
        }
    }
}

/// The answer to gRPC over a version of HTTP that can't carry it.
fn of_another_protocol() -> Response<Body> {
    let message = "gRPC needs HTTP/2; over HTTP/1.1 call with the content-type application/proto\n";
    let mut response = Response::new(Body::new(Full::<Bytes>::from(message)));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// The gRPC call of a Connect call.
fn to_grpc(
    request: Request<Body>,
    takes_unframed: fn(&str) -> bool,
) -> Result<Request<Body>, Status> {
    if is_streamed(request.uri().path()) {
        return Err(Status::unimplemented("streams need gRPC; call this one by gRPC"));
    }
    let headers = request.headers();
    if headers.get(PROTOCOL_VERSION).is_some_and(|version| version != "1") {
        return Err(Status::invalid_argument("the header connect-protocol-version must be 1"));
    }
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Status::unimplemented(
            "messages must not be compressed; send them as they are",
        ));
    }
    let (mut head, body) = request.into_parts();
    for header in [CONTENT_LENGTH, CONTENT_ENCODING, ACCEPT_ENCODING] {
        head.headers.remove(header);
    }
    head.headers.insert(CONTENT_TYPE, GRPC);
    if takes_unframed(head.uri.path()) {
        head.extensions.insert(Unframed);
        return Ok(Request::from_parts(head, body));
    }
    Ok(Request::from_parts(head, Body::new(Framed::new(body))))
}

/// The Connect answer of a gRPC call.
async fn to_connect(
    call: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> Result<Response<Body>, Infallible> {
    let (mut head, body) = call.await?.into_parts();
    if let Some(status) = head.extensions.remove::<Status>() {
        return Ok(refused(&status, head.status));
    }
    if let Some(status) = Status::from_header_map(&head.headers) {
        return Ok(refused(&status, head.status));
    }
    if let Some(SharedAnswer(shared)) = head.extensions.remove() {
        return Ok(answer(shared.framed().slice(PREFIX_BYTES..)));
    }
    if !head.headers.contains_key(CONTENT_TYPE) {
        // The body is the message.
        mark_success(&mut head);
        return Ok(Response::from_parts(head, body));
    }
    Ok(match message(body).await {
        Ok(message) => answer(message),
        Err(status) => error(&status),
    })
}

/// The only message of a gRPC answer.
async fn message(body: Body) -> Result<Bytes, Status> {
    let mut body = pin!(body);
    let mut framed = Joined::default();
    while let Some(frame) = body.frame().await {
        let frame = match frame?.into_trailers() {
            Ok(trailers) => match Status::from_header_map(&trailers) {
                Some(status) if status.code() != Code::Ok => return Err(status),
                _ => continue,
            },
            Err(frame) => frame,
        };
        if let Ok(data) = frame.into_data() {
            framed.push(data);
        }
    }
    let mut framed = framed.finish();
    if framed.len() < PREFIX_BYTES {
        return Err(Status::internal("the answer was cut off"));
    }
    framed.advance(PREFIX_BYTES);
    Ok(framed)
}

fn answer(message: Bytes) -> Response<Body> {
    let (mut head, body) = Response::new(Body::new(Full::from(message))).into_parts();
    mark_success(&mut head);
    Response::from_parts(head, body)
}

fn mark_success(head: &mut response::Parts) {
    head.headers.insert(CONTENT_TYPE, PROTO);
    head.extensions.insert(Answered(Code::Ok));
}

/// The answer to a call that ended with `status` before a message was made.
fn refused(status: &Status, of_http: StatusCode) -> Response<Body> {
    let callers = callers_fault(status);
    let mut response = error(callers.as_ref().unwrap_or(status));
    if of_http != StatusCode::OK {
        *response.status_mut() = of_http;
    }
    response.extensions_mut().insert(status.clone());
    response
}

/// The answer with an error.
fn error(status: &Status) -> Response<Body> {
    let (name, of_http) = in_connect(status.code());
    let body = serde_json::json!({ "code": name, "message": status.message() }).to_string();
    let mut response = Response::new(Body::new(Full::<Bytes>::from(body)));
    *response.status_mut() = of_http;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    if let Some(wait) = pushback(status) {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response.extensions_mut().insert(Answered(status.code()));
    response
}

/// A code's name and its status in HTTP, by the protocol's table.
fn in_connect(code: Code) -> (&'static str, StatusCode) {
    match code {
        Code::Cancelled => ("canceled", client_closed_request()),
        Code::Ok | Code::Unknown => ("unknown", StatusCode::INTERNAL_SERVER_ERROR),
        Code::InvalidArgument => ("invalid_argument", StatusCode::BAD_REQUEST),
        Code::DeadlineExceeded => ("deadline_exceeded", StatusCode::GATEWAY_TIMEOUT),
        Code::NotFound => ("not_found", StatusCode::NOT_FOUND),
        Code::AlreadyExists => ("already_exists", StatusCode::CONFLICT),
        Code::PermissionDenied => ("permission_denied", StatusCode::FORBIDDEN),
        Code::ResourceExhausted => ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS),
        Code::FailedPrecondition => ("failed_precondition", StatusCode::BAD_REQUEST),
        Code::Aborted => ("aborted", StatusCode::CONFLICT),
        Code::OutOfRange => ("out_of_range", StatusCode::BAD_REQUEST),
        Code::Unimplemented => ("unimplemented", StatusCode::NOT_IMPLEMENTED),
        Code::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
        Code::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        Code::DataLoss => ("data_loss", StatusCode::INTERNAL_SERVER_ERROR),
        Code::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
    }
}

/// Status 499, which has no name in the standard.
fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

/// A request's message with gRPC's prefix, once it has arrived completely. One that is too long is
/// read no further.
struct Framed {
    body: Body,
    bytes: BytesMut,
    is_over: bool,
}

impl Framed {
    fn new(body: Body) -> Self {
        Self { body, bytes: BytesMut::zeroed(PREFIX_BYTES), is_over: false }
    }
}

impl HttpBody for Framed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        while this.bytes.len() <= PREFIX_BYTES + UPLOAD_BYTES_MAX {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                None => break,
                Some(Err(error)) => {
                    this.is_over = true;
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame)) => {
                    this.bytes.extend(frame.into_data());
                }
            }
        }
        this.is_over = true;
        let length = u32::try_from(this.bytes.len() - PREFIX_BYTES).unwrap_or(u32::MAX);
        this.bytes[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
        Poll::Ready(Some(Ok(Frame::data(this.bytes.split().freeze()))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}
