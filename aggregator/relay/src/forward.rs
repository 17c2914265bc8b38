//! The forwarder of sealed requests to the gateway, and of its keys to devices.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body as PageBody;
use axum::extract::Request;
use bandana_edge::clock::Clock;
use bandana_edge::memory::{Budget, received};
use bandana_edge::outgoing::Outgoing;
use bandana_edge::peer::Peer;
use bandana_shared::gateway::{
    ANSWER_BYTES_MIN, ANSWER_SEALING_BYTES, ANSWER_TYPE, PATH, PROBLEM_TYPE, REQUEST_TYPE,
    SEALED_REQUEST_BYTES_MAX,
};
use bandana_shared::wire::v1::gateway_client::GatewayClient;
use bandana_shared::wire::v1::gateway_server::Gateway;
use bandana_shared::wire::v1::{GatewayKeys, GetGatewayKeysRequest};
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tonic::body::Body;
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tower::Service as _;

use crate::addresses::Addresses;
use crate::delay::RandomDelay;

/// Connections to the gateway, which share the requests: a server limits each.
const CONNECTIONS: usize = 4;

/// Most bytes of the gateway's keys: far more than one configuration and 8 signatures take.
const KEYS_BYTES_MAX: usize = 4 * 1024;

/// The time for which all devices are told that there are no keys, after the gateway gave none.
const NO_KEYS_TIME: Duration = Duration::from_secs(1);

/// Most bytes of an answer: more than an experiment with the most arms takes.
const ANSWER_BYTES_MAX: usize = ANSWER_BYTES_MIN * 4 * 4 * 4 * 4 + ANSWER_SEALING_BYTES;

/// The waits that a device is told, in seconds: so few that they are no mark.
const WAITS: [u32; 5] = [1, 10, 60, 600, 3600];

/// The time for which all devices get the same keys without a question to the gateway; and the same
/// when it could not open a request, which may be a stranger's.
const KEYS_TIME: Duration = Duration::from_mins(1);
const KEYS_TIME_MIN: Duration = Duration::from_secs(1);

/// Longest time for an answer of the gateway, and until it begins.
const ANSWER_TIME: Duration = Duration::from_secs(20);
const BEGIN_TIME: Duration = Duration::from_secs(15);

/// The flow-control window of an answer, in bytes: what is not read yet is beside the budget.
const WINDOW: u32 = 64 * 1024;

/// Longest time for connecting to the gateway.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Passes on sealed requests.
#[derive(Clone, Debug)]
pub(crate) struct Forwarder {
    connections: Arc<[Outgoing; CONNECTIONS]>,
    next: Arc<AtomicUsize>,
    delay: RandomDelay,
    clock: Arc<dyn Clock>,
    budget: Budget,
    /// The last question for the gateway's keys, and when it was asked. All who wait for its answer
    /// get the same, be it keys or a failure.
    keys: Arc<Mutex<Option<(Duration, AskedKeys)>>>,
    /// Whether the gateway could not open a request since.
    doubted: Arc<AtomicBool>,
}

impl Forwarder {
    pub(crate) fn new(
        gateway: &Endpoint,
        delay: RandomDelay,
        clock: Arc<dyn Clock>,
        budget: Budget,
    ) -> Self {
        let gateway = gateway
            .clone()
            .connect_timeout(CONNECT_TIME)
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(16 * WINDOW);
        let connections = std::array::from_fn(|_| Outgoing::new(gateway.clone(), BEGIN_TIME));
        Self {
            connections: Arc::new(connections),
            next: Arc::default(),
            delay,
            clock,
            budget,
            keys: Arc::default(),
            doubted: Arc::default(),
        }
    }

    /// The service of the gateway's keys, for devices.
    pub(crate) fn keys(&self) -> Keys {
        Keys { forwarder: self.clone() }
    }

    fn connection(&self) -> Outgoing {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.connections[turn % CONNECTIONS].clone()
    }

    /// The gateway's answer.
    async fn send(&self, sealed: bytes::Bytes) -> Result<Response<PageBody>, Refused> {
        let request = http::Request::post(PATH)
            .header(CONTENT_TYPE, REQUEST_TYPE)
            .body(Body::new(Full::from(sealed)))
            .map_err(|_| Refused::Gateway)?;
        let answer = self.connection().call(request).await.map_err(|_| Refused::Gateway)?;
        let (head, body) = answer.into_parts();
        if is(&head, PROBLEM_TYPE) && head.status == StatusCode::BAD_REQUEST {
            // The gateway may have another key since.
            self.doubted.store(true, Ordering::Relaxed);
            return Err(Refused::Key);
        }
        if matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            let wait = head.headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
            let wait = wait.and_then(|wait| wait.parse().ok()).unwrap_or(1);
            return Err(Refused::Busy(Duration::from_secs(wait)));
        }
        if head.status != StatusCode::OK || !is(&head, ANSWER_TYPE) {
            return Err(Refused::Gateway);
        }
        let hold = self.budget.hold(0).ok_or(Refused::Gateway)?;
        let body = received(body, ANSWER_BYTES_MAX, |bytes| hold.grow(bytes)).await;
        let body = body.map_err(|_| Refused::Gateway)?;
        if !is_padded(body.len()) {
            return Err(Refused::Gateway);
        }
        let mut response = Response::new(PageBody::from(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(ANSWER_TYPE));
        Ok(response)
    }
}

fn is(head: &http::response::Parts, media_type: &str) -> bool {
    head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == media_type)
}

/// Whether a sealed answer has one of the lengths that all have.
fn is_padded(bytes: usize) -> bool {
    let lengths = std::iter::successors(Some(ANSWER_BYTES_MIN), |length| length.checked_mul(4));
    lengths.take(5).any(|length| length + ANSWER_SEALING_BYTES == bytes)
}

/// The answer to a sealed request of a device.
pub(crate) async fn answer(
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
        let sealed = received(request.into_body(), SEALED_REQUEST_BYTES_MAX, |_| true).await;
        let sealed = sealed.map_err(|_| Refused::NotReceived)?;
        forwarder.delay.wait().await;
        let answer = tokio::time::timeout(ANSWER_TIME, forwarder.send(sealed)).await;
        answer.unwrap_or(Err(Refused::Gateway))
    };
    forwarded.await.unwrap_or_else(Refused::response)
}

/// Why a device gets no sealed answer. Whatever the gateway says, each has the same words.
enum Refused {
    Kind,
    Rate(Duration),
    NotReceived,
    Key,
    Busy(Duration),
    Gateway,
}

impl Refused {
    fn response(self) -> Response<PageBody> {
        let (status, text, wait) = match &self {
            Self::Kind => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "a sealed request is expected\n", None)
            }
            Self::Rate(wait) => (StatusCode::TOO_MANY_REQUESTS, "come again\n", Some(*wait)),
            Self::NotReceived => (StatusCode::BAD_REQUEST, "the request did not arrive\n", None),
            Self::Key => (StatusCode::BAD_REQUEST, "ask for the keys again\n", None),
            Self::Busy(wait) => (StatusCode::SERVICE_UNAVAILABLE, "come again\n", Some(*wait)),
            Self::Gateway => (StatusCode::BAD_GATEWAY, "the gateway does not answer\n", None),
        };
        let mut response = Response::new(PageBody::from(text));
        *response.status_mut() = status;
        if let Some(wait) = wait {
            let enough =
                WAITS.into_iter().find(|seconds| wait <= Duration::from_secs(u64::from(*seconds)));
            let seconds = enough.unwrap_or(WAITS[WAITS.len() - 1]);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if matches!(self, Self::Key) {
            let kind = HeaderValue::from_static(PROBLEM_TYPE);
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
        response
    }
}

/// A question for the gateway's keys. A failure has the time when it was told.
type AskedKeys =
    Shared<Pin<Box<dyn Future<Output = Result<GatewayKeys, (Duration, Code)>> + Send>>>;

/// The service of the gateway's keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    forwarder: Forwarder,
}

impl Keys {
    /// The gateway's keys, which are asked for anew from time to time.
    ///
    /// # Errors
    /// The status for a device when the gateway gives none.
    pub(crate) async fn get(&self) -> Result<GatewayKeys, Status> {
        let keys = self.asked().await;
        // Without the gateway's words and metadata, which could tell devices apart.
        keys.map_err(|(_, code)| Status::new(code, "the gateway gives no keys"))
    }

    /// The last question, or a new one if its answer is too old.
    fn asked(&self) -> AskedKeys {
        let Forwarder { keys, clock, doubted, .. } = &self.forwarder;
        let mut last = keys.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock.monotonic();
        if let Some((since, asked)) = &*last {
            let is_doubted = doubted.load(Ordering::Relaxed);
            let is_current = match asked.peek() {
                None => true,
                Some(Ok(_)) => {
                    let time = if is_doubted { KEYS_TIME_MIN } else { KEYS_TIME };
                    now.saturating_sub(*since) < time
                }
                Some(Err((told, _))) => now.saturating_sub(*told) < NO_KEYS_TIME,
            };
            if is_current {
                return asked.clone();
            }
        }
        let forwarder = self.forwarder.clone();
        let asked: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            forwarder.delay.wait().await;
            let keys = forwarder.ask_for_keys().await;
            keys.map_err(|code| (forwarder.clock.monotonic(), code))
        });
        let asked = asked.shared();
        // The question goes on when those who wait have gone.
        tokio::spawn(asked.clone());
        *last = Some((now, asked.clone()));
        asked
    }
}

impl Forwarder {
    async fn ask_for_keys(&self) -> Result<GatewayKeys, Code> {
        let gateway = GatewayClient::new(self.connection());
        let mut gateway = gateway.max_decoding_message_size(KEYS_BYTES_MAX);
        let asked = gateway.get_gateway_keys(GetGatewayKeysRequest {});
        let answer = tokio::time::timeout(ANSWER_TIME, asked).await;
        let answer = answer.map_err(|_| Code::Unavailable)?;
        let keys = answer.map_err(|status| match status.code() {
            Code::DeadlineExceeded | Code::OutOfRange => Code::Unavailable,
            code => code,
        })?;
        self.doubted.store(false, Ordering::Relaxed);
        Ok(keys.into_inner())
    }
}

#[tonic::async_trait]
impl Gateway for Keys {
    async fn get_gateway_keys(
        &self,
        _: tonic::Request<GetGatewayKeysRequest>,
    ) -> Result<tonic::Response<GatewayKeys>, Status> {
        self.get().await.map(tonic::Response::new)
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::identity::Day;
    use tokio::net::TcpListener;

    use super::*;
    use bandana_edge::clock::ManualClock;

    #[tokio::test(start_paused = true)]
    async fn a_device_that_asks_for_keys_makes_the_gateway_hear_of_it_later() {
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", gateway.local_addr().unwrap());
        let endpoint = Endpoint::from_shared(url).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_day(Day::new(20_000)));
        // The first second is one of ten years with a probability of 3e-9.
        let delay = RandomDelay(Duration::from_hours(10 * 365 * 24));
        let forwarder = Forwarder::new(&endpoint, delay, clock, Budget::new(0));
        let keys = forwarder.keys();
        let told = tokio::time::timeout(Duration::from_secs(1), keys.get()).await;
        assert!(told.is_err(), "{told:?}");
        assert!(gateway.accept().now_or_never().is_none(), "the gateway was called at once");
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_for_keys_share_one_failure() {
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", gateway.local_addr().unwrap());
        let endpoint = Endpoint::from_shared(url).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_day(Day::new(20_000)));
        let at_once = RandomDelay(Duration::ZERO);
        let forwarder = Forwarder::new(&endpoint, at_once, clock, Budget::new(0));
        let keys = forwarder.keys();
        let began = tokio::time::Instant::now();
        let waiting = std::iter::repeat_with(|| {
            let keys = keys.clone();
            tokio::spawn(async move { keys.get().await })
        });
        for told in waiting.take(5).collect::<Vec<_>>() {
            told.await.unwrap().unwrap_err();
        }
        assert!(began.elapsed() <= ANSWER_TIME, "one after the other: {:?}", began.elapsed());
        // Whoever comes right after is told the same.
        keys.get().await.unwrap_err();
        assert!(began.elapsed() <= ANSWER_TIME, "{:?}", began.elapsed());
    }
}
