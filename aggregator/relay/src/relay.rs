//! The server of a relay of Oblivious HTTP (RFC 9458).
//!
//! It learns the addresses of devices, and sees only sealed bytes. It passes on the bytes alone: no
//! header, from its own address, after a random time. It may also shuffle reports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as PageBody;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::post;
use bandana_edge::admission::{Shares, shares};
use bandana_edge::clock::Clock;
use bandana_edge::connect::Connect;
use bandana_edge::http::{Http1Server, Http2Server, OneHost, unknown_service};
use bandana_edge::memory::{HeldMetrics, HoldingLayer};
use bandana_edge::peer::Peer;
use bandana_edge::pushback::exhausted;
use bandana_edge::rate::Rate;
use bandana_edge::shutdown::shutdown_signal;
use bandana_edge::tls::{Tls, TlsFiles};
use bandana_edge::transport::{ConnectionLimits, Listener};
use bandana_shared::gateway::PATH;
use bandana_shared::wire::v1::gateway_server::GatewayServer;
use http::Response;
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tower::Layer as _;

use crate::addresses::Addresses;
use crate::delay::RandomDelay;
use crate::error::RelayError;
use crate::forward::{self, Forwarder};
use crate::shuffle::{Shuffle, ShuffleSettings};
use crate::witness::{Witness, WitnessSettings};
use crate::witness_server;

/// Settings of a relay.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// Listening address for devices. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// TLS for devices. None: plaintext, as behind a proxy.
    pub tls: Option<TlsFiles>,
    /// The aggregator's service for devices.
    pub gateway: Endpoint,
    /// The longest time for which a request is held; each is held for a random part of it, and so is what
    /// the relay itself asks and hands on.
    pub delay_max: Duration,
    /// Requests of one address. None: as many as come.
    pub rate: Option<Rate>,
    /// Limits on connections.
    pub connections: ConnectionLimits,
    /// Bytes that may be held for callers.
    pub memory: usize,
    /// Maximum time for a request to arrive.
    pub request_time: Duration,
    /// Maximum time from the signal to the end.
    pub drain_deadline: Duration,
    /// None: the relay does not shuffle.
    pub shuffle: Option<ShuffleSettings>,
    /// None: the relay is no witness of logs.
    pub witness: Option<WitnessSettings>,
}

/// A relay bound to its address.
#[derive(Debug)]
pub struct Relay {
    listener: Listener,
    connections: ConnectionLimits,
    holding: HoldingLayer,
    addresses: Addresses,
    forwarder: Forwarder,
    shuffle: Option<Shuffle>,
    witness: Option<Arc<Witness>>,
    drain_deadline: Duration,
}

impl Relay {
    /// Binds the address. Must be called within a runtime. The gateway is connected to by the
    /// first request.
    ///
    /// # Errors
    /// [`RelayError`] names what can't be used.
    pub fn bind(settings: RelaySettings, clock: &Arc<dyn Clock>) -> Result<Self, RelayError> {
        let tls = settings.tls.map(Tls::open).transpose()?.map(Arc::new);
        let addresses = Addresses::new(settings.rate, clock);
        let Shares { devices, calls, .. } = shares(settings.connections, settings.memory);
        let (gateway, delay) = (&settings.gateway, RandomDelay(settings.delay_max));
        let forwarder = Forwarder::new(gateway, delay, Arc::clone(clock), calls.clone());
        let shuffle = settings.shuffle;
        let keys = forwarder.keys();
        let open = |settings| Shuffle::open(settings, keys, (delay, clock));
        let shuffle = shuffle.map(open).transpose()?;
        let open = |settings| Witness::open(settings, Arc::clone(clock)).map(Arc::new);
        let witness = settings.witness.map(open).transpose()?;
        let address = settings.listen;
        let listener = Listener::bind(address, tls, devices)
            .map_err(|source| RelayError::Listen { address, source })?
            .with_addresses();
        Ok(Self {
            listener,
            connections: devices,
            holding: HoldingLayer::new(
                calls.clone(),
                settings.request_time,
                HeldMetrics::default(),
            ),
            addresses,
            forwarder,
            shuffle,
            witness,
            drain_deadline: settings.drain_deadline,
        })
    }

    /// The bound address.
    ///
    /// # Errors
    /// [`RelayError::Address`] when the operating system does not report it.
    pub fn address(&self) -> Result<SocketAddr, RelayError> {
        self.listener.address().map_err(RelayError::Address)
    }

    /// Serves until `signal`. Then requests under way are answered, for as long as the deadline
    /// allows; others are dropped, and devices send them again.
    ///
    /// # Errors
    /// [`RelayError`] when serving fails.
    pub async fn run(self, signal: impl Future<Output = ()>) -> Result<(), RelayError> {
        let Self { listener, connections, holding, addresses, forwarder, .. } = self;
        let Self { shuffle, witness, drain_deadline, .. } = self;
        let (notifier, ending) = shutdown_signal();
        let keys = GatewayServer::new(forwarder.keys());
        let rates = addresses.clone();
        let sealed = move |request| {
            let (rates, forwarder) = (rates.clone(), forwarder.clone());
            async move { forward::answer(&rates, &forwarder, request).await }
        };
        let mut routes = Routes::new(keys);
        if let Some(shuffle) = &shuffle {
            routes = routes.add_service(shuffle.service());
        }
        let in_rate = from_fn_with_state(addresses.clone(), in_rate);
        let calls = routes.into_axum_router().route_layer(in_rate);
        let mut routes = calls.route(PATH, post(sealed));
        if let Some(witness) = witness {
            routes = routes.merge(witness_server::route(witness, addresses.clone()));
        }
        let routes = routes.fallback(unknown_service);
        let services = holding.layer(OneHost(Connect::new(Routes::from(routes).prepare())));
        let incoming = listener.until(ending.clone()).incoming();
        let plain = Http1Server::new(services.clone(), &connections);
        let plain = plain.serve(incoming.http1, ending.clone());
        let serving = Http2Server::new(services, &connections);
        let serving = serving.serve(incoming.http2, ending.clone());
        let mut serving = Box::pin(async {
            tokio::join!(serving, plain);
        });
        let mut shuffling = Box::pin(async {
            match shuffle {
                // What is acknowledged is on the disk: without the disk there is no relay.
                Some(shuffle) => shuffle.run().await.map_err(RelayError::Shuffle),
                None => std::future::pending().await,
            }
        });
        tokio::select! {
            () = signal => {}
            () = &mut serving => return Ok(()),
            () = addresses.forget_regularly() => {}
            ended = &mut shuffling => return ended,
        }
        notifier.notify();
        let drained = tokio::time::timeout(drain_deadline, serving).await;
        if drained.is_err() {
            let seconds = drain_deadline.as_secs();
            tracing::warn!(seconds, "requests were still under way; devices send theirs again");
        }
        Ok(())
    }
}

/// Refuses a call of an address that has had its share. That is before the body is read: a call counts also
/// when it never arrives.
async fn in_rate(
    State(addresses): State<Addresses>,
    request: Request,
    next: Next,
) -> Response<PageBody> {
    let address = request.extensions().get::<Peer>().and_then(|peer| peer.address);
    match addresses.pass(address) {
        Ok(()) => next.run(request).await,
        Err(wait) => exhausted("come again later", wait).into_http(),
    }
}
