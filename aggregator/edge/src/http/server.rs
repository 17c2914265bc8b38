//! The HTTP/1.1 server.

use std::convert::Infallible;

use http::{Request, Response};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use hyper_util::service::TowerToHyperService;
use prost::bytes::Buf;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::transport::server::Connected as _;
use tower::{Service, ServiceExt as _};

use crate::peer::Peer;
use crate::shutdown::ShutdownSignal;
use crate::transport::{Connection, ConnectionLimits};

/// Serves a service over HTTP/1.1.
#[derive(Clone, Debug)]
pub struct Http1Server<S> {
    builder: http1::Builder,
    service: S,
}

impl<S, B> Http1Server<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: HttpBody<Data: Buf + Send, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    /// A server of this service.
    pub fn new(service: S, limits: &ConnectionLimits) -> Self {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.handshake_time)
            .max_header_size(usize::try_from(limits.header_bytes).unwrap_or(usize::MAX));
        Self { builder, service }
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
    pub fn serve_one<C>(
        &self,
        stream: C,
        peer: Peer,
    ) -> impl GracefulConnection<Error = hyper::Error> + Send + use<C, S, B>
    where
        C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let service = self.service.clone().map_request(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            request
        });
        let service = TowerToHyperService::new(service);
        self.builder.serve_connection(TokioIo::new(stream), service)
    }
}
