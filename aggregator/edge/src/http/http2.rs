//! The HTTP/2 server of devices, which runs the calls of a connection on that connection's task.
//!
//! A task for each call, as servers usually have, costs more than most calls do: calls of devices
//! take microseconds, or wait for the writer. Here their answers also leave together, and what the
//! writer acknowledges together wakes a connection once.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::CatchUnwind;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use http::{Request, Response};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use prost::bytes::Buf;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::transport::server::Connected as _;
use tower::Service;

use crate::admission::limit_http2;
use crate::peer::Peer;
use crate::shutdown::ShutdownSignal;
use crate::transport::{Connection, ConnectionLimits};

/// Serves a service over HTTP/2. The service must always be ready.
#[derive(Clone, Debug)]
pub struct Http2Server<S> {
    limits: ConnectionLimits,
    service: S,
}

impl<S, B> Http2Server<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: HttpBody<Data: Buf + Send, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    /// A server of this service.
    pub fn new(service: S, limits: &ConnectionLimits) -> Self {
        Self { limits: *limits, service }
    }

    /// Serves these connections until shutdown, and then finishes calls under way.
    pub async fn serve<E>(
        self,
        connections: impl Stream<Item = Result<Connection, E>>,
        ending: ShutdownSignal,
    ) {
        // Closed when the last connection has ended.
        let (open, mut closed) = mpsc::channel::<Infallible>(1);
        let mut connections = Box::pin(connections);
        let mut end = std::pin::pin!(ending.clone().wait());
        loop {
            let connection = tokio::select! {
                connection = connections.next() => connection,
                () = &mut end => break,
            };
            let Some(Ok(connection)) = connection else { break };
            let serving = self.serve_one(connection, ending.clone());
            let open = open.clone();
            tokio::spawn(async move {
                serving.await;
                drop(open);
            });
        }
        // Connections not yet accepted are closed, rather than kept waiting.
        drop((connections, open));
        closed.recv().await;
    }

    /// Serves one connection until it ends.
    fn serve_one(
        &self,
        connection: Connection,
        ending: ShutdownSignal,
    ) -> impl Future<Output = ()> + Send + use<S, B> {
        let peer = connection.connect_info();
        let service = PeerService { service: self.service.clone(), peer };
        let started = StartedCalls::default();
        let mut builder = http2::Builder::new(started.clone());
        builder.timer(TokioTimer::new());
        limit_http2(&mut builder, &self.limits);
        ConnectionTask {
            connection: Some(Box::pin(builder.serve_connection(TokioIo::new(connection), service))),
            started,
            running: FuturesUnordered::new(),
            ending: Some(Box::pin(ending.wait())),
        }
    }
}

/// A service with the peer of a connection, which each of its requests is told.
#[derive(Debug)]
struct PeerService<S> {
    service: S,
    peer: Peer,
}

impl<S> hyper::service::Service<Request<Incoming>> for PeerService<S>
where
    S: Service<Request<Body>> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, request: Request<Incoming>) -> S::Future {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.peer.clone());
        self.service.clone().call(request)
    }
}

type StartedCall = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls of a connection that have arrived and not begun; the executor of its HTTP/2.
#[derive(Clone, Default)]
struct StartedCalls(Arc<Mutex<Vec<StartedCall>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for StartedCalls {
    fn execute(&self, call: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(call));
    }
}

impl StartedCalls {
    /// Moves the calls to those that are running.
    fn begin(&self, running: &FuturesUnordered<RunningCall>) {
        for call in self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            running.push(AssertUnwindSafe(call).catch_unwind());
        }
    }
}

/// A call that has begun. When it panics it ends, and its peer is told; other calls go on.
type RunningCall = CatchUnwind<AssertUnwindSafe<StartedCall>>;

/// A connection and its calls.
struct ConnectionTask<C> {
    /// None: it has ended.
    connection: Option<Pin<Box<C>>>,
    started: StartedCalls,
    running: FuturesUnordered<RunningCall>,
    /// None: the server shuts down, and the peer was told.
    ending: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<C: GracefulConnection> Future for ConnectionTask<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.ending.as_mut().is_some_and(|ending| ending.as_mut().poll(context).is_ready()) {
            this.ending = None;
            if let Some(connection) = &mut this.connection {
                connection.as_mut().graceful_shutdown();
            }
        }
        loop {
            // The peer learns of an error by itself. Calls under way learn that it is gone.
            let connection = this.connection.as_mut();
            if connection.is_some_and(|connection| connection.as_mut().poll(context).is_ready()) {
                this.connection = None;
            }
            this.started.begin(&this.running);
            let mut has_ended = false;
            while let Poll::Ready(Some(ended)) = this.running.poll_next_unpin(context) {
                has_ended = true;
                if ended.is_err() {
                    tracing::error!("a call ended unexpectedly; the log has the cause");
                }
            }
            if this.connection.is_none() && this.running.is_empty() {
                return Poll::Ready(());
            }
            if !has_ended {
                return Poll::Pending;
            }
            // What the calls have answered is written.
        }
    }
}
