//! The gateway: calls of devices that came through a relay, sealed.
//!
//! A request is opened, carried out as a call of the device service by the Connect protocol, and
//! answered sealed. `proto/bandana/v1/gateway.proto` describes it.

use std::convert::Infallible;
use std::io::Cursor;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body as PageBody, to_bytes};
use axum::extract::Request;
use axum::routing::post;
use bandana_edge::admission::DeviceGates;
use bandana_edge::auth::APP_KEY_HEADER;
use bandana_edge::gateway::{OpenError, Opener, PublishedKeys};
use bandana_edge::memory::{ReceiveError, received};
use bandana_edge::peer::{Peer, PeerState};
use bandana_edge::telemetry::CONNECT_TYPE;
use bandana_shared::gateway::{
    ANSWER_BYTES_MIN, ANSWER_TYPE, PATH, PROBLEM_TYPE, REQUEST_TYPE, SEALED_REQUEST_BYTES_MAX, pad,
};
use bandana_shared::wire::v1::gateway_server::Gateway;
use bandana_shared::wire::v1::{GatewayKeys, GetGatewayKeysRequest};
use bhttp::{ControlData, Message, Mode, StatusCode as BinaryStatus};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Service, ServiceExt as _};

use crate::transparency::Served;

/// The headers of an answer that are passed on.
const ANSWERED: [HeaderName; 2] = [CONTENT_TYPE, RETRY_AFTER];

/// The calls that can come through a relay begin with this.
const SERVICE: &str = "/bandana.v1.Device/";

/// The answer while the public log does not say what is asked for.
pub(super) const NOT_SAID: &str =
    "the server's public log does not say this yet; ask again in a minute";

/// A problem that tells a client to ask for the keys again (RFC 9458, section 5.3).
const KEY_PROBLEM: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#ohttp-key","#,
    r#""title":"the request was not sealed for the gateway's key; ask for its keys again"}"#
);

/// The service of the gateway's keys.
#[derive(Clone, Debug)]
pub struct GatewayService {
    keys: Option<Arc<PublishedKeys>>,
    log: Option<Arc<Served>>,
}

impl GatewayService {
    /// The service of these keys. None: this server is no gateway.
    pub fn new(keys: Option<Arc<PublishedKeys>>) -> Self {
        Self { keys, log: None }
    }

    /// The same, with what the public log says of the keys.
    pub(crate) fn with_log(self, log: Option<Arc<Served>>) -> Self {
        Self { log, ..self }
    }
}

#[tonic::async_trait]
impl Gateway for GatewayService {
    async fn get_gateway_keys(
        &self,
        _: tonic::Request<GetGatewayKeysRequest>,
    ) -> Result<tonic::Response<GatewayKeys>, Status> {
        let keys = self.keys.as_ref();
        let keys = keys.ok_or_else(|| Status::unimplemented("this server is no gateway"))?;
        let Some(log) = &self.log else { return Ok(tonic::Response::new(keys.message())) };
        // A relay would hand on keys without it for a minute.
        let view = log.gateway().ok_or_else(|| Status::unavailable(NOT_SAID))?;
        Ok(tonic::Response::new(GatewayKeys { view: Some(view), ..keys.message() }))
    }
}

/// The route of sealed requests. `calls` carries out what was sealed.
pub fn gateway_route<S, B>(opener: Opener, gates: Arc<DeviceGates>, calls: S) -> Router
where
    S: Service<http::Request<Body>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    let answer = move |request: Request| {
        let (opener, gates, calls) = (opener.clone(), Arc::clone(&gates), calls.clone());
        async move { answer(&opener, &gates, calls, request).await.unwrap_or_else(|refusal| refusal) }
    };
    Router::new().route(PATH, post(answer))
}

/// The sealed answer, or a refusal that the relay can read.
async fn answer<S, B>(
    opener: &Opener,
    gates: &DeviceGates,
    calls: S,
    request: Request,
) -> Result<Response<PageBody>, Response<PageBody>>
where
    S: Service<http::Request<Body>, Response = Response<B>, Error = Infallible> + Send,
    S::Future: Send,
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    if request.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != REQUEST_TYPE) {
        return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a sealed request is expected\n"));
    }
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
    gates.admit_sealed(&peer).map_err(|status| come_again(&status))?;
    // The bytes are charged as they arrive, as those of all requests.
    let sealed = received(request.into_body(), SEALED_REQUEST_BYTES_MAX, |_| true).await;
    let sealed = sealed.map_err(|error| not_received(&error))?;
    let mut opened = opener.open(sealed).await.map_err(not_opened)?;
    let request = std::mem::take(&mut opened.request);
    let answer = match call(&request, &peer) {
        // Within what is sealed, so that the relay learns nothing from it.
        None => message(StatusCode::BAD_REQUEST, &[], b""),
        Some(call) => {
            let Ok(answered) = calls.oneshot(call).await;
            let (head, body) = answered.into_parts();
            let body = to_bytes(PageBody::new(body), usize::MAX).await;
            let body = body.map_err(|_| refusal(StatusCode::BAD_GATEWAY, "cut off\n"))?;
            let headers: Vec<_> = ANSWERED
                .iter()
                .filter_map(|name| Some((name.as_str(), head.headers.get(name)?.as_bytes())))
                .collect();
            message(head.status, &headers, &body)
        }
    };
    let sealed = opened.seal(&answer).map_err(not_opened)?;
    let mut response = Response::new(PageBody::from(sealed));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(ANSWER_TYPE));
    Ok(response)
}

/// The call in an opened request.
fn call(request: &[u8], peer: &Peer) -> Option<http::Request<Body>> {
    let message = Message::read_bhttp(&mut Cursor::new(request)).ok()?;
    let ControlData::Request { method, path, .. } = message.control() else { return None };
    let path = str::from_utf8(path).ok().filter(|path| path.starts_with(SERVICE))?;
    if method != Method::POST.as_str().as_bytes() {
        return None;
    }
    // Nothing else is carried out, gRPC with its streams least of all.
    let mut declared = message.header().get_all(CONTENT_TYPE.as_str().as_bytes());
    if declared.next() != Some(CONNECT_TYPE.as_bytes()) || declared.next().is_some() {
        return None;
    }
    let mut call = http::Request::post(path).version(http::Version::HTTP_2);
    call = call.header(CONTENT_TYPE, CONNECT_TYPE);
    for key in message.header().get_all(APP_KEY_HEADER.as_bytes()) {
        call = call.header(APP_KEY_HEADER, HeaderValue::from_bytes(key).ok()?);
    }
    // The relay's connection has passed its rate, and is one of many for its place among calls.
    let peer = Peer::new(PeerState { calls: Arc::clone(&peer.calls), ..PeerState::default() });
    let content = PageBody::from(message.content().to_vec());
    call.extension(peer).body(Body::new(content)).ok()
}

/// An answer as binary HTTP.
fn message(status: StatusCode, headers: &[(&str, &[u8])], content: &[u8]) -> Vec<u8> {
    let status = BinaryStatus::try_from(status.as_u16()).unwrap_or(BinaryStatus::OK);
    let mut message = Message::response(status);
    for (name, value) in headers {
        message.put_header(*name, *value);
    }
    message.write_content(content);
    let mut bytes = Vec::with_capacity(ANSWER_BYTES_MIN.max(content.len() + 256));
    // Writing to memory does not fail.
    message.write_bhttp(Mode::KnownLength, &mut bytes).ok();
    pad(&mut bytes, ANSWER_BYTES_MIN);
    bytes
}

fn refusal(status: StatusCode, message: &'static str) -> Response<PageBody> {
    let mut response = Response::new(PageBody::from(message));
    *response.status_mut() = status;
    response
}

fn not_opened(error: OpenError) -> Response<PageBody> {
    match error {
        OpenError::Sealed => {
            let mut response = refusal(StatusCode::BAD_REQUEST, KEY_PROBLEM);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
            response
        }
        OpenError::Full => {
            let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "come again\n");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        OpenError::Failed => refusal(StatusCode::INTERNAL_SERVER_ERROR, "the gateway failed\n"),
    }
}

/// The answer to a request of which the body did not arrive.
fn not_received(error: &ReceiveError<axum::Error>) -> Response<PageBody> {
    let ReceiveError::Broken(error) = error else {
        return refusal(StatusCode::PAYLOAD_TOO_LARGE, "the sealed request is too long\n");
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(status) = error.downcast_ref::<Status>() {
            return come_again(status);
        }
        cause = error.source();
    }
    refusal(StatusCode::BAD_REQUEST, "the request did not arrive\n")
}

/// The refusal of a request for which there is no room or time.
fn come_again(status: &Status) -> Response<PageBody> {
    match status.code() {
        Code::ResourceExhausted => {
            let mut response = refusal(StatusCode::TOO_MANY_REQUESTS, "come again\n");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        _ => refusal(StatusCode::REQUEST_TIMEOUT, "the request did not arrive\n"),
    }
}
