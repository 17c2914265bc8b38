//! A witness as a server of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use axum::routing::post;
use bandana_edge::admission::{Shares, shares};
use bandana_edge::clock::Clock;
use bandana_edge::http::{Http1Server, Http2Server, OneHost, unknown_service};
use bandana_edge::memory::{HeldMetrics, HoldingLayer};
use bandana_edge::peer::Peer;
use bandana_edge::rate::Rate;
use bandana_edge::shutdown::shutdown_signal;
use bandana_edge::tls::{Tls, TlsFiles};
use bandana_edge::transport::{ConnectionLimits, Listener};
use http::StatusCode;
use tonic::service::Routes;
use tower::Layer as _;

use crate::addresses::Addresses;
use crate::error::RelayError;
use crate::witness::{ADD_CHECKPOINT, Witness, WitnessSettings};

/// The memory that a witness may hold for callers, in bytes.
const WITNESS_MEMORY: usize = 256 << 20;

/// The route of a witness's one call, for addresses at these rates.
pub(crate) fn route(witness: Arc<Witness>, addresses: Addresses) -> Router {
    let answer = move |request: Request| {
        let (witness, addresses) = (Arc::clone(&witness), addresses.clone());
        async move {
            let peer: Option<&Peer> = request.extensions().get();
            match addresses.pass(peer.and_then(|peer| peer.address)) {
                Ok(()) => witness.answer(request).await,
                Err(_) => StatusCode::TOO_MANY_REQUESTS.into_response(),
            }
        }
    };
    Router::new().route(ADD_CHECKPOINT, post(answer))
}

/// Settings of a witness's server.
#[derive(Debug)]
pub struct WitnessServerSettings {
    /// Listening address for logs. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// TLS for logs. None: plaintext, as behind a proxy.
    pub tls: Option<TlsFiles>,
    /// Limits on connections.
    pub connections: ConnectionLimits,
    /// Maximum time for a request to arrive.
    pub request_time: Duration,
    /// Requests of one address.
    pub rate: Option<Rate>,
    /// The witness.
    pub witness: WitnessSettings,
}

/// A witness bound to its address.
#[derive(Debug)]
pub struct WitnessServer {
    listener: Listener,
    connections: ConnectionLimits,
    holding: HoldingLayer,
    addresses: Addresses,
    witness: Arc<Witness>,
}

impl WitnessServer {
    /// Opens the witness, and binds the address. Must be called within a runtime.
    ///
    /// # Errors
    /// [`RelayError`] names what can't be used.
    pub fn bind(
        settings: WitnessServerSettings,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, RelayError> {
        let WitnessServerSettings { listen, tls, request_time, rate, witness, .. } = settings;
        let tls = tls.map(Tls::open).transpose()?.map(Arc::new);
        let witness = Arc::new(Witness::open(witness, Arc::clone(clock))?);
        let Shares { devices, calls, .. } = shares(settings.connections, WITNESS_MEMORY);
        let listener = Listener::bind(listen, tls, devices)
            .map_err(|source| RelayError::Listen { address: listen, source })?
            .with_addresses();
        let holding = HoldingLayer::new(calls, request_time, HeldMetrics::default());
        let addresses = Addresses::new(rate, clock);
        Ok(Self { listener, connections: devices, holding, addresses, witness })
    }

    /// The bound address.
    ///
    /// # Errors
    /// [`RelayError::Address`] when the operating system does not report it.
    pub fn address(&self) -> Result<SocketAddr, RelayError> {
        self.listener.address().map_err(RelayError::Address)
    }

    /// Serves until `signal`.
    pub async fn run(self, signal: impl Future<Output = ()>) {
        let Self { listener, connections, holding, addresses, witness } = self;
        let (notifier, ending) = shutdown_signal();
        let routes = route(witness, addresses.clone()).fallback(unknown_service);
        let services = holding.layer(OneHost(Routes::from(routes).prepare()));
        let incoming = listener.until(ending.clone()).incoming();
        let plain = Http1Server::new(services.clone(), &connections);
        let plain = plain.serve(incoming.http1, ending.clone());
        let serving = Http2Server::new(services, &connections);
        let serving = serving.serve(incoming.http2, ending);
        let mut serving = Box::pin(async {
            tokio::join!(serving, plain);
        });
        tokio::select! {
            () = signal => {}
            () = &mut serving => return,
            () = addresses.forget_regularly() => {}
        }
        notifier.notify();
        // A request under way is asked again.
        tokio::time::timeout(Duration::from_secs(5), serving).await.ok();
    }
}
