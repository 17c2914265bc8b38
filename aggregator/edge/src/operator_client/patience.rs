//! Patience with a server that is starting, or does not listen yet.

use std::error::Error;
use std::future::Future;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::Service;

use crate::pushback::STARTING;
use crate::telemetry::is_streamed;

/// Default of the seconds to wait.
const WAIT_SECONDS: u32 = 5;

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Pauses in a second.
const PAUSES_PER_SECOND: u32 = 10;

/// The time for an answer that is no stream to arrive, once it has begun, and its most bytes.
const ANSWER_TIME: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How long to wait for a server.
#[derive(Clone, Copy, Debug, Args)]
pub struct Wait {
    /// Seconds to wait for a server that is starting or does not listen yet. 0 means: fail at once.
    #[arg(long, value_name = "SECONDS", env = "BANDANA_WAIT_SECONDS",
          default_value_t = WAIT_SECONDS, value_parser = clap::value_parser!(u32).range(0..=3600))]
    wait_seconds: u32,
}

impl Default for Wait {
    fn default() -> Self {
        Self { wait_seconds: WAIT_SECONDS }
    }
}

impl Wait {
    /// Connects as soon as the server listens, within the time to wait. Calls through the channel
    /// wait for what is left of it while the server says that it is starting.
    ///
    /// # Errors
    /// When the server can't be reached then, or at once for any other reason.
    pub async fn connect(self, endpoint: &Endpoint) -> Result<Patient, tonic::transport::Error> {
        let patience = Patience::new(self, endpoint.uri());
        loop {
            match endpoint.connect().await {
                Ok(channel) => {
                    if patience.is_heard(&channel).await
                        || !patience.pause("it does not answer yet").await
                    {
                        return Ok(Patient { channel, patience });
                    }
                }
                Err(error) => {
                    if !is_absence(&error) || !patience.pause("nothing listens there yet").await {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The phrase for an error that may have come after the wait.
    pub(super) fn describe(self, error: &tonic::transport::Error) -> String {
        match self.wait_seconds {
            seconds @ 1.. if is_absence(error) => format!(" within {seconds} s"),
            _ => String::new(),
        }
    }
}

/// The pauses that are left for a server.
#[derive(Clone, Debug)]
struct Patience {
    wait: Wait,
    url: Arc<str>,
    left: Arc<AtomicU32>,
}

impl Patience {
    fn new(wait: Wait, url: &Uri) -> Self {
        let left = Arc::new(AtomicU32::new(wait.wait_seconds * PAUSES_PER_SECOND));
        Self { wait, url: url.to_string().into(), left }
    }

    /// Waits a little, after a word on a terminal the first time. False: there is no time left.
    async fn pause(&self, why: &str) -> bool {
        let take = |left: u32| left.checked_sub(1);
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let Ok(before) = before else { return false };
        if before == self.wait.wait_seconds * PAUSES_PER_SECOND {
            self.tell(why);
        }
        tokio::time::sleep(PAUSE).await;
        true
    }

    #[expect(clippy::print_stderr, reason = "commands wait, and people see why")]
    fn tell(&self, why: &str) {
        if io::stderr().is_terminal() {
            let (url, seconds) = (&self.url, self.wait.wait_seconds);
            eprintln!("waiting up to {seconds} s for {url}: {why}");
        }
    }

    /// Whether somebody is at the other end. A tunnel or the proxy of a container accepts
    /// connections before the server does, and closes them.
    async fn is_heard(&self, channel: &Channel) -> bool {
        let wait = Duration::from_secs(self.wait.wait_seconds.into());
        if wait.is_zero() {
            return true;
        }
        let mut health = HealthClient::new(channel.clone());
        let check = health.check(HealthCheckRequest::default());
        // Who does not answer in this time is left to the limits of the calls.
        let answer = tokio::time::timeout(wait, check).await;
        // A status that a server has sent has no cause.
        !matches!(answer, Ok(Err(status)) if status.source().is_some())
    }
}

/// Whether an error is that nobody listens, or that the connection was closed before an answer.
fn is_absence(error: &(dyn Error + 'static)) -> bool {
    let chain =
        std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    let mut io = chain.filter_map(|error| error.downcast_ref::<io::Error>());
    io.any(|error| {
        matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
        )
    })
}

/// A channel that makes a call again while the server refuses it because it is starting.
#[derive(Clone, Debug)]
pub struct Patient {
    channel: Channel,
    patience: Patience,
}

impl Patient {
    /// The channel alone, for those who wait by themselves.
    pub fn into_channel(self) -> Channel {
        self.channel
    }
}

type Answer = Result<Response<Body>, Box<dyn Error + Send + Sync>>;

impl Service<Request<Body>> for Patient {
    type Response = Response<Body>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.channel.poll_ready(context))?;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The clone has not been asked whether it is ready.
        let next = self.channel.clone();
        let mut channel = std::mem::replace(&mut self.channel, next);
        let patience = self.patience.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            loop {
                let again = Request::from_parts(parts.clone(), body_of(body.clone()));
                let response = channel.call(again).await?;
                if !is_starting(&response) || !patience.pause("it is starting").await {
                    return if is_streamed(parts.uri.path()) {
                        Ok(response)
                    } else {
                        whole(response).await
                    };
                }
                std::future::poll_fn(|context| channel.poll_ready(context)).await?;
            }
        })
    }
}

/// An answer that has arrived: it may begin in time, and never end.
async fn whole(response: Response<Body>) -> Answer {
    let (head, body) = response.into_parts();
    let arriving = Limited::new(body, ANSWER_BYTES_MAX).collect();
    let body = tokio::time::timeout(ANSWER_TIME, arriving).await.map_err(|_| {
        let seconds = ANSWER_TIME.as_secs();
        Status::deadline_exceeded(format!("the answer did not arrive within {seconds} s"))
    })?;
    Ok(Response::from_parts(head, Body::new(body?.map_err(|never| match never {}))))
}

fn body_of(bytes: Bytes) -> Body {
    Body::new(Full::new(bytes).map_err(|never| match never {}))
}

/// Whether a call was refused before it reached a service, since the server is starting.
fn is_starting(response: &Response<Body>) -> bool {
    Status::from_header_map(response.headers())
        .is_some_and(|status| status.code() == Code::Unavailable && status.message() == STARTING)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_ends_is_given_up() {
        let bytes = stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, Status>(Frame::data(Bytes::from_static(b"x"))), ()))
        });
        let trickling = Response::new(Body::new(StreamBody::new(Box::pin(bytes))));
        let error = whole(trickling).await.unwrap_err();
        let status = error.downcast_ref::<Status>().unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        let whole = whole(Response::new(body_of(Bytes::from_static(b"message")))).await.unwrap();
        assert_eq!(whole.into_body().collect().await.unwrap().to_bytes(), "message");
    }
}
