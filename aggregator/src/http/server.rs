//! HTTP/1.1.

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::transport::server::Connected as _;
use tower::{Layer as _, ServiceExt as _};

use crate::ending::Ending;
use crate::held::HoldingLayer;
use crate::network::{Connection, ConnectionLimits};
use crate::telemetry::Calls;

/// Serves the pages on these connections until the server goes down, and answers then
/// what was asked before.
pub async fn serve<E>(
    connections: impl Stream<Item = Result<Connection, E>>,
    pages: Router,
    calls: Calls,
    holding: HoldingLayer,
    limits: ConnectionLimits,
    ending: Ending,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.handshake_time)
        .max_header_size(usize::try_from(limits.header_bytes).unwrap_or(usize::MAX));
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
        let held = holding.layer(pages.clone());
        let service = calls.layer(held).map_request(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            request
        });
        let service = TowerToHyperService::new(service);
        let serving = open.watch(builder.serve_connection(TokioIo::new(connection), service));
        // Whoever is at the other end knows what went wrong.
        tokio::spawn(async move { serving.await.ok() });
    }
    // Those that nobody has taken yet are closed, rather than kept waiting.
    drop(connections);
    open.shutdown().await;
}
