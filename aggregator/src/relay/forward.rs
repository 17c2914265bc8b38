//! The forwarder of sealed requests to the gateway, and of its keys to devices.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body as PageBody;
use axum::extract::Request;
use bandana_shared::gateway::{
    ANSWER_TYPE, PATH, PROBLEM_TYPE, REQUEST_BYTES_MAX, REQUEST_TYPE, SEALING_BYTES,
};
use bandana_shared::wire::v1::gateway_client::GatewayClient;
use bandana_shared::wire::v1::gateway_server::Gateway;
use bandana_shared::wire::v1::{GatewayKeys, GetGatewayKeysRequest};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use tonic::Status;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::transport::{Channel, Endpoint};

use super::addresses::Addresses;
use crate::clock::Clock;
use crate::memory::received;
use crate::peer::Peer;

/// Connections to the gateway, which share the requests: a server limits each.
const CONNECTIONS: usize = 4;

/// Most bytes of an answer: more than an experiment with the most arms takes.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The time for which all devices get the same keys without a question to the gateway.
const KEYS_TIME: Duration = Duration::from_mins(1);

/// Longest time for an answer of the gateway.
const ANSWER_TIME: Duration = Duration::from_secs(20);

/// Longest time for connecting to the gateway.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Passes on sealed requests.
#[derive(Clone, Debug)]
pub(super) struct Forwarder {
    connections: Arc<[Channel; CONNECTIONS]>,
    next: Arc<AtomicUsize>,
    delay_max: Duration,
    clock: Arc<dyn Clock>,
    /// The gateway's keys, the same for all devices for a while.
    keys: Arc<Mutex<Option<(Duration, GatewayKeys)>>>,
}

impl Forwarder {
    pub(super) fn new(gateway: &Endpoint, delay_max: Duration, clock: Arc<dyn Clock>) -> Self {
        let gateway = gateway.clone().connect_timeout(CONNECT_TIME).tcp_nodelay(true);
        let connections = std::array::from_fn(|_| gateway.connect_lazy());
        let (connections, next, keys) = (Arc::new(connections), Arc::default(), Arc::default());
        Self { connections, next, delay_max, clock, keys }
    }

    /// The service of the gateway's keys.
    pub(super) fn keys(&self) -> Keys {
        Keys(self.clone())
    }

    fn held_keys(&self) -> MutexGuard<'_, Option<(Duration, GatewayKeys)>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self) -> Channel {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.connections[turn % CONNECTIONS].clone()
    }

    /// Waits for a random part of the longest delay; without randomness for all of it.
    async fn wait(&self) {
        // 53 bits, which a float holds exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let part = getrandom::u64().map_or(1.0, |word| (word >> 11) as f64 / (1_u64 << 53) as f64);
        tokio::time::sleep(self.delay_max.mul_f64(part)).await;
    }

    /// The gateway's answer.
    async fn send(&self, sealed: bytes::Bytes) -> Result<Response<PageBody>, Refused> {
        let mut connection = self.connection();
        let ready = poll_fn(|context| GrpcService::<Body>::poll_ready(&mut connection, context));
        ready.await.map_err(|_| Refused::Gateway)?;
        let request = http::Request::post(PATH)
            .header(CONTENT_TYPE, REQUEST_TYPE)
            .body(Body::new(Full::from(sealed)))
            .map_err(|_| Refused::Gateway)?;
        let answer = connection.call(request).await.map_err(|_| Refused::Gateway)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|_| Refused::Gateway)?.to_bytes();
        let mut response = Response::new(PageBody::from(body));
        *response.status_mut() = head.status;
        // Nothing that could tell one answer from another but for what devices look at.
        let kind = head.headers.get(CONTENT_TYPE);
        let kind = kind.filter(|kind| *kind == ANSWER_TYPE || *kind == PROBLEM_TYPE);
        if kind.is_some_and(|kind| kind == PROBLEM_TYPE) {
            // The gateway may have another key since.
            *self.held_keys() = None;
        }
        for (name, value) in [(CONTENT_TYPE, kind), (RETRY_AFTER, head.headers.get(RETRY_AFTER))] {
            if let Some(value) = value {
                response.headers_mut().insert(name, value.clone());
            }
        }
        Ok(response)
    }
}

/// The answer to a sealed request of a device.
pub(super) async fn answer(
    addresses: &Addresses,
    forwarder: &Forwarder,
    request: Request,
) -> Response<PageBody> {
    let forwarded = async {
        if request.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != REQUEST_TYPE) {
            return Err(Refused::Kind);
        }
        let peer: Option<&Peer> = request.extensions().get();
        let address = peer.and_then(|peer| peer.address);
        addresses.pass(address).map_err(Refused::Rate)?;
        let sealed = received(request.into_body(), REQUEST_BYTES_MAX + SEALING_BYTES).await;
        let sealed = sealed.map_err(|_| Refused::NotReceived)?;
        forwarder.wait().await;
        let answer = tokio::time::timeout(ANSWER_TIME, forwarder.send(sealed)).await;
        answer.unwrap_or(Err(Refused::Gateway))
    };
    forwarded.await.unwrap_or_else(Refused::response)
}

/// Why a request was not passed on.
enum Refused {
    Kind,
    Rate(Duration),
    NotReceived,
    Gateway,
}

impl Refused {
    fn response(self) -> Response<PageBody> {
        let (status, text, wait) = match self {
            Self::Kind => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "a sealed request is expected\n", None)
            }
            Self::Rate(wait) => (StatusCode::TOO_MANY_REQUESTS, "come again\n", Some(wait)),
            Self::NotReceived => (StatusCode::BAD_REQUEST, "the request did not arrive\n", None),
            Self::Gateway => (StatusCode::BAD_GATEWAY, "the gateway does not answer\n", None),
        };
        let mut response = Response::new(PageBody::from(text));
        *response.status_mut() = status;
        if let Some(wait) = wait {
            let seconds = HeaderValue::from(wait.as_secs().saturating_add(1));
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}

/// The service of the gateway's keys.
#[derive(Clone, Debug)]
pub(super) struct Keys(Forwarder);

#[tonic::async_trait]
impl Gateway for Keys {
    async fn get_gateway_keys(
        &self,
        _: tonic::Request<GetGatewayKeysRequest>,
    ) -> Result<tonic::Response<GatewayKeys>, Status> {
        let Self(forwarder) = self;
        let now = forwarder.clock.monotonic();
        let held = forwarder.held_keys().clone();
        if let Some((since, keys)) = held
            && now.saturating_sub(since) < KEYS_TIME
        {
            return Ok(tonic::Response::new(keys));
        }
        let mut gateway = GatewayClient::new(forwarder.connection());
        let asked = gateway.get_gateway_keys(GetGatewayKeysRequest {});
        let answer = tokio::time::timeout(ANSWER_TIME, asked).await;
        let answer = answer.map_err(|_| Status::unavailable("the gateway does not answer"))?;
        // Without its metadata, which could tell devices apart.
        let keys = answer.map_err(|status| Status::new(status.code(), "the gateway refused"))?;
        let keys = keys.into_inner();
        *forwarder.held_keys() = Some((now, keys.clone()));
        Ok(tonic::Response::new(keys))
    }
}
