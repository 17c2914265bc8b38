//! Channels to other servers, which notice a silent connection and make a new one.
//!
//! A connection can go silent without an end: a firewall forgets it, a host loses its power, a
//! proxy hangs. Pings end such a connection within seconds. Where something on the way answers the
//! pings by itself, a call without an answer has the next one made on a new connection.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tower::Service;

/// The silence after which a ping is sent.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The time for a ping's answer where a new connection costs nothing.
const PING_TIME: Duration = Duration::from_secs(5);

/// Has connections of this endpoint end when nobody at their other end answers a ping within
/// `ping_time`.
fn noticing_silence(endpoint: Endpoint, ping_time: Duration) -> Endpoint {
    endpoint
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(ping_time)
        .keep_alive_while_idle(true)
}

/// Has connecting take no longer than `patience`, and each call no longer than `call_time`. A server
/// that answers no ping within `patience` is given up: a busy one gets the same patience whatever it is
/// asked for.
pub fn with_patience(endpoint: Endpoint, patience: Duration, call_time: Duration) -> Endpoint {
    noticing_silence(endpoint.connect_timeout(patience).timeout(call_time), patience)
}

/// A channel that connects when it is needed, and anew after a call without an answer. Clones share
/// the connection.
#[derive(Clone, Debug)]
pub struct Outgoing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    answer_time: Duration,
    /// The connection, and how many were given up before it.
    current: Mutex<(u64, Channel)>,
}

impl Outgoing {
    /// Calls of this endpoint, whose answers must begin within this time. Must be called within a
    /// runtime.
    pub fn new(endpoint: Endpoint, answer_time: Duration) -> Self {
        let endpoint = noticing_silence(endpoint, PING_TIME);
        let current = Mutex::new((0, endpoint.connect_lazy()));
        Self(Arc::new(Inner { endpoint, answer_time, current }))
    }

    fn current(&self) -> (u64, Channel) {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives a connection up, unless another call has done so.
    fn give_up(&self, number: u64) {
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == number {
            *current = (number + 1, self.0.endpoint.connect_lazy());
        }
    }
}

type Answer = Result<Response<Body>, Box<dyn Error + Send + Sync>>;

impl Service<Request<Body>> for Outgoing {
    type Response = Response<Body>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Each call waits by itself.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let outgoing = self.clone();
        Box::pin(async move {
            let (number, mut channel) = outgoing.current();
            let answer = async {
                poll_fn(|context| channel.poll_ready(context)).await?;
                channel.call(request).await
            };
            let time = outgoing.0.answer_time;
            if let Ok(answer) = tokio::time::timeout(time, answer).await {
                return Ok(answer?);
            }
            outgoing.give_up(number);
            let seconds = time.as_secs();
            let message = format!("the server did not answer within {seconds} s");
            Err(Status::deadline_exceeded(message).into())
        })
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::wire::v1::GetGatewayKeysRequest;
    use bandana_shared::wire::v1::gateway_client::GatewayClient;
    use tokio::net::TcpListener;
    use tonic::Code;

    use super::*;

    /// Accepts connections, takes what is sent, and never answers.
    #[tokio::test]
    async fn after_a_call_without_an_answer_there_is_a_new_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let endpoint = Endpoint::from_shared(url).unwrap();
        let outgoing = Outgoing::new(endpoint, Duration::from_millis(20));
        let mut silent = Vec::new();
        for _ in 0..3 {
            let call = async || {
                let mut client = GatewayClient::new(outgoing.clone());
                client.get_gateway_keys(GetGatewayKeysRequest {}).await
            };
            let (one, other, accepted) = tokio::join!(call(), call(), listener.accept());
            silent.push(accepted.unwrap());
            for status in [one.unwrap_err(), other.unwrap_err()] {
                assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
            }
        }
    }

    /// The clock moves by itself whenever nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn a_call_is_given_up_when_its_patience_is_over_and_not_before() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let patience = Duration::from_secs(30);
        for call_time in [patience, 20 * patience] {
            let endpoint = Endpoint::from_shared(url.clone()).unwrap();
            let channel = with_patience(endpoint, patience, call_time).connect().await.unwrap();
            let _silent = listener.accept().await.unwrap();
            let begin = tokio::time::Instant::now();
            let call = GatewayClient::new(channel).get_gateway_keys(GetGatewayKeysRequest {}).await;
            let waited = begin.elapsed();
            assert!(patience <= waited && waited < 2 * patience, "{waited:?}: {call:?}");
            assert!(call.is_err(), "{call:?}");
        }
    }
}
