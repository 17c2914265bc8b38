//! The running server: listeners, threads, and shutdown.

mod error;
pub(crate) mod ports;
mod reloader;
mod settings;
pub(crate) mod startup;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::admission::{CallLimits, DeviceGates, Shares, shares};
use bandana_edge::auth::{AppKeys, Authorization, TokenKind, Tokens};
use bandana_edge::clock::Clock;
use bandana_edge::gateway::Gateway;
use bandana_edge::memory::Budget;
use bandana_edge::shutdown::shutdown_signal;
use bandana_edge::tls::Tls;
use bandana_edge::transport::{ConnectionLimits, Listener};
use bandana_store::Presence;
use futures_util::FutureExt as _;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::ports::{EarlyServices, Parts};
use self::startup::{Core, LoadedStore};
use crate::dashboard::DashboardState;
use crate::http::{Origins, Pages};
use crate::ingest::{Ingest, WriterError};
use crate::metrics::Metrics;
use crate::queries::DataSetSettings;
use crate::readiness::Health;
use crate::registry::Registry;
use crate::transparency::LogParts;
pub use error::ServerError;
pub use reloader::Reloader;
pub use settings::{ServerSettings, StoreSettings};

/// Maximum time that shutdown waits for a replica to give up its lease.
const RESIGNATION: Duration = Duration::from_secs(2);

/// The settings of the addresses.
const DEVICES_LISTEN: &str = "--listen, $BANDANA_LISTEN, or `listen` in [devices]";
const OPERATORS_LISTEN: &str =
    "--operator-listen, $BANDANA_OPERATOR_LISTEN, or `listen` in [operators]";

/// A server bound to its addresses. Dropping it without [`Self::run`] closes them.
#[derive(Debug)]
pub struct Server {
    device: Listener,
    operator: Listener,
    tokens: Option<Arc<Tokens>>,
    gates: Arc<DeviceGates>,
    gateway: Option<Gateway>,
    log: Option<LogParts>,
    reloader: Reloader,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    budget: Budget,
    store: (Presence, StoreSettings),
    connections: ConnectionLimits,
    calls: CallLimits,
    cors_origins: Option<Origins>,
    data_sets: DataSetSettings,
    drain_deadline: Duration,
}

impl Server {
    /// Binds both addresses. Requests are answered and the store is opened only in [`Self::run`].
    ///
    /// # Errors
    /// [`ServerError`] names the unusable setting or resource.
    pub fn bind(settings: ServerSettings, clock: Arc<dyn Clock>) -> Result<Self, ServerError> {
        if !settings.operator_listen.ip().is_loopback() && !settings.operators_are_safe() {
            return Err(ServerError::OperatorBeyondLoopback(settings.operator_listen));
        }
        let ServerSettings { connections, calls, .. } = settings;
        let open = |path| Tokens::open(TokenKind::Operator, path, Arc::clone(&clock));
        let tokens = settings.operator_tokens.map(open).transpose()?.map(Arc::new);
        let open = |path| AppKeys::open(path, calls.app_rates, Arc::clone(&clock));
        let keys = settings.app_keys.map(open).transpose()?.map(Arc::new);
        let files = tokens.clone().into_iter().chain(keys.as_ref().map(|keys| keys.tokens()));
        let files = files.collect();
        let rates = calls.connection_rates;
        let gates = Arc::new(DeviceGates::new(keys, rates, calls.calls, Arc::clone(&clock)));
        let device_tls = settings.device_tls.map(Tls::open);
        let device_tls = device_tls.transpose()?.map(Arc::new);
        let operator_tls = settings.operator_tls.map(Tls::open);
        let operator_tls = operator_tls.transpose()?.map(Arc::new);
        let tls = [&device_tls, &operator_tls].into_iter().flatten().map(Arc::clone).collect();
        let gateway = settings.gateway.map(|files| Gateway::open(files, Arc::clone(&clock)));
        let gateway = gateway.transpose()?;
        let log = settings.log.as_ref().map(LogParts::open).transpose()?;
        let gateway_keys = gateway.as_ref().map(|gateway| Arc::clone(&gateway.keys));
        let reloader = Reloader { tokens: files, tls, gateway_keys };
        let Shares { devices, operators, calls: budget } = shares(connections, calls.memory);
        let listen = |address, tls, limits, setting| {
            let bound = Listener::bind(address, tls, limits);
            bound.map_err(|source| ServerError::Listen { address, setting, source })
        };
        let metrics = Arc::new(Metrics::new(&clock, budget.clone()));
        let device = listen(settings.listen, device_tls, devices, DEVICES_LISTEN)?;
        let operator = listen(settings.operator_listen, operator_tls, operators, OPERATORS_LISTEN)?;
        Ok(Self {
            device: device.counted(metrics.device_connections.clone()),
            operator: operator.counted(metrics.operator_connections.clone()),
            tokens,
            gates,
            gateway,
            log,
            reloader,
            clock,
            metrics,
            budget,
            store: (settings.presence, settings.store),
            connections,
            calls,
            cors_origins: settings.cors_origins,
            data_sets: settings.data_sets,
            drain_deadline: settings.drain_deadline,
        })
    }

    /// The bound address for devices.
    ///
    /// # Errors
    /// [`ServerError::Address`] when the operating system does not report it.
    pub fn device_address(&self) -> Result<SocketAddr, ServerError> {
        self.device.address().map_err(ServerError::Address)
    }

    /// The bound address for operators.
    ///
    /// # Errors
    /// [`ServerError::Address`] when the operating system does not report it.
    pub fn operator_address(&self) -> Result<SocketAddr, ServerError> {
        self.operator.address().map_err(ServerError::Address)
    }

    /// The reloader of files that may change while the server runs.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    fn announce(&self) -> Result<(), ServerError> {
        let (device, operator) = (self.device_address()?, self.operator_address()?);
        tracing::info!(%device, %operator, "listening; opening the store");
        Ok(())
    }

    /// Answers probes at once, opens the store, calls `ready`, and serves until `signal`. Shutdown
    /// follows this order: health NOT_SERVING, streams closed, calls under way answered, queue
    /// committed, store closed, the lease of a replica given up.
    ///
    /// # Errors
    /// [`ServerError`] when a listener, the store or `ready` fails. After a failed
    /// commit it returns at once: nothing further may be acknowledged.
    pub async fn run(
        self,
        signal: impl Future<Output = ()>,
        ready: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), ServerError> {
        self.announce()?;
        let ports = (self.device, self.operator, self.cors_origins);
        let Self { tokens, gates, gateway, log, clock, metrics, .. } = self;
        let Self { connections, calls, store, data_sets, drain_deadline, budget, .. } = self;
        let (notifier, ending) = shutdown_signal();
        let mut health = Health::starting().await;
        let authorization =
            Authorization::new(tokens, metrics.unauthorised.clone(), Arc::clone(&clock));
        let dashboard_state = DashboardState::new(&connections, &calls);
        let pages = Pages {
            authorization: authorization.clone(),
            metrics: Arc::clone(&metrics),
            readiness: health.readiness(),
            dashboard_state: dashboard_state.clone(),
        };
        let limits = (connections, calls);
        let early = early_services(&health, &pages, limits, Arc::clone(&clock), budget.clone());
        let (closed, mut serving) = early.serve(ports, ending.clone());
        let mut signal = std::pin::pin!(signal);

        let opening = LoadedStore::of(store, &clock, &metrics);
        let opening = tokio::select! {
            () = &mut signal => return Ok(()),
            () = &mut serving => return Err(ServerError::ServingEnded),
            opening = opening => opening?,
        };
        let core = opening.start(Arc::clone(&clock))?;
        let Core { mut ended, mut policies_ended, mut disclosures_ended, mut damage, .. } = core;
        let Core { store, registry, ingest, reader, disclosures, reachable, .. } = core;
        metrics.opened(Arc::clone(&registry), ingest.clone(), health.readiness());
        let (followed, queue) = (Arc::clone(&registry), ingest.clone());
        let parts = Parts {
            store,
            registry,
            ingest,
            reader,
            disclosures,
            clock,
            ending,
            data_sets,
            dashboard_state,
            budget,
            gateway,
            log: None,
        };
        closed.open(parts.publishing(log, &metrics.log), gates, &authorization)?;
        health.serving().await;
        let following = tokio::spawn(health.clone().follow(reachable));
        ready().map_err(ServerError::Announcement)?;

        tokio::select! {
            () = signal => {}
            () = &mut serving => return Err(ServerError::ServingEnded),
            outcome = &mut ended => return writer_ended(outcome),
            Some(error) = damage.recv() => return Err(error.into()),
            outcome = &mut disclosures_ended => {
                outcome.map_err(|_| ServerError::KeeperPanicked)?;
                // It ends with success only when all services have ended.
                return Err(serving.map(|()| ServerError::ServingEnded).await);
            }
            outcome = &mut policies_ended => {
                outcome.map_err(|_| ServerError::PolicyThreadPanicked)??;
                // It ends with success only when the writer has ended.
                return writer_ended(ended.await);
            }
        }
        // A mere signal would leave time for it to report readiness again.
        following.abort();
        following.await.ok();
        health.draining().await;
        notifier.notify();
        let rest = Rest { ingest: queue, ended, policies_ended, registry: followed };
        rest.end(&mut serving, drain_deadline).await
    }
}

/// The services that both ports provide from the start.
fn early_services(
    health: &Health,
    pages: &Pages,
    (connections, calls): (ConnectionLimits, CallLimits),
    clock: Arc<dyn Clock>,
    budget: Budget,
) -> EarlyServices {
    EarlyServices {
        device_health: health.service(),
        operator_health: health.service(),
        pages: pages.router(),
        connections,
        calls,
        clock,
        metrics: pages.metrics.calls.clone(),
        budget,
        held: pages.metrics.held.clone(),
    }
}

/// The parts that end after the ports.
struct Rest<P> {
    ingest: Ingest,
    ended: oneshot::Receiver<Result<(), WriterError>>,
    policies_ended: P,
    registry: Arc<Registry>,
}

impl<P: Future> Rest<P> {
    /// Waits until calls under way are answered and the queue is committed.
    async fn end(
        self,
        serving: impl Future<Output = ()>,
        within: Duration,
    ) -> Result<(), ServerError> {
        tracing::info!("draining");
        let deadline = Instant::now() + within;
        let drain = async {
            // The writer keeps running while calls under way are answered.
            if tokio::time::timeout(within / 2, serving).await.is_err() {
                tracing::warn!("calls are still under way; closing their connections");
            }
            self.ingest.stop().await;
            writer_ended(self.ended.await)
        };
        let drained = tokio::time::timeout_at(deadline, drain).await;
        drained.unwrap_or(Err(ServerError::Drain(within)))?;
        self.registry.end_following();
        let resigned = deadline.min(Instant::now() + RESIGNATION);
        // On a timeout the lease expires by itself.
        tokio::time::timeout_at(resigned, self.policies_ended).await.ok();
        Ok(())
    }
}

fn writer_ended(
    outcome: Result<Result<(), WriterError>, oneshot::error::RecvError>,
) -> Result<(), ServerError> {
    let outcome = outcome.map_err(|_| ServerError::WriterPanicked)?;
    outcome.map_err(ServerError::Writer)
}
