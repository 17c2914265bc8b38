//! The HTTP/1.1 server.

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::transport::server::Connected as _;
use tower::{Layer as _, ServiceExt as _};

use crate::memory::HoldingLayer;
use crate::peer::Peer;
use crate::shutdown::ShutdownSignal;
use crate::telemetry::Calls;
use crate::transport::{Connection, ConnectionLimits};

/// Serves the pages over HTTP/1.1.
#[derive(Clone, Debug)]
pub struct PageServer {
    builder: http1::Builder,
    pages: Router,
    calls: Calls,
    holding: HoldingLayer,
}

impl PageServer {
    /// A server of these pages, which counts calls and charges their memory to the budget.
    pub fn new(
        pages: Router,
        calls: Calls,
        holding: HoldingLayer,
        limits: &ConnectionLimits,
    ) -> Self {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.handshake_time)
            .max_header_size(usize::try_from(limits.header_bytes).unwrap_or(usize::MAX));
        Self { builder, pages, calls, holding }
    }

    /// Serves these connections until shutdown, and then finishes requests under way.
    pub async fn serve<E>(
        self,
        connections: impl Stream<Item = Result<Connection, E>>,
        ending: ShutdownSignal,
    ) {
        let open = GracefulShutdown::new();
        let mut connections = Box::pin(connections);
        let mut end = std::pin::pin!(ending.wait());
        loop {
            let connection = tokio::select! {
                connection = connections.next() => connection,
                () = &mut end => break,
            };
            let Some(Ok(connection)) = connection else { break };
            let peer = connection.connect_info();
            let serving = open.watch(self.serve_one(connection, peer));
            // The peer learns of the error by itself.
            tokio::spawn(async move { serving.await.ok() });
        }
        // Connections not yet accepted are closed, rather than kept waiting.
        drop(connections);
        open.shutdown().await;
    }

    /// Serves one connection until it ends.
    pub(crate) fn serve_one<S>(
        &self,
        stream: S,
        peer: Peer,
    ) -> impl GracefulConnection<Error = hyper::Error> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let held = self.holding.layer(self.pages.clone());
        let service = self.calls.layer(held).map_request(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            request
        });
        let service = TowerToHyperService::new(service);
        self.builder.serve_connection(TokioIo::new(stream), service)
    }
}
