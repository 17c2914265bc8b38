//! The running server: listeners, threads, and an orderly end.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::limits::UPLOAD_BYTES_MAX;
use bandana_shared::wire::v1::device_server::DeviceServer;
use bandana_shared::wire::v1::operator_server::OperatorServer;
use thiserror::Error;
use tokio::sync::{oneshot, watch};
use tonic::service::interceptor::InterceptedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::clock::Clock;
use crate::ending::ending;
use crate::gates::{
    CallLimits, DeviceGate, DeviceGates, HEALTH_REQUEST_BYTES_MAX, OPERATOR_REQUEST_BYTES_MAX,
    http2_server,
};
use crate::ingest::WriterError;
use crate::network::{ConnectionLimits, Listener};
use crate::opening::Core;
use crate::security::{
    AppKeys, Authorization, Reloader, Tls, TlsError, TlsFiles, TokenKind, Tokens, TokensError,
};
use crate::service::{DeviceService, Exports, OperatorService};
use crate::store::{EmbeddedSettings, PostgresSettings, StoreError};

/// What the health service tells about: the server as a whole, and each service.
const HEALTH_SERVICES: [&str; 3] = ["", "bandana.v1.Device", "bandana.v1.Operator"];

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// What is durable.
    pub store: StoreSettings,
    /// Address for devices. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Address for operators. Beyond loopback only with TLS, and with tokens or with
    /// client certificates.
    pub operator_listen: SocketAddr,
    /// TLS for devices. None: in the clear.
    pub device_tls: Option<TlsFiles>,
    /// TLS for operators. None: in the clear.
    pub operator_tls: Option<TlsFiles>,
    /// What connections of each service may take.
    pub connections: ConnectionLimits,
    /// What calls may take.
    pub calls: CallLimits,
    /// File of the keys of apps. None: devices are asked for none.
    pub app_keys: Option<PathBuf>,
    /// File of the tokens of operators. None: nobody is asked for one.
    pub operator_tokens: Option<PathBuf>,
    /// Longest time from the signal to the end.
    pub drain_deadline: Duration,
}

/// Where experiments and uploads are kept.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// In a directory that this process has for itself.
    Embedded {
        /// The directory.
        data_dir: PathBuf,
        /// Its limits.
        settings: EmbeddedSettings,
    },
    /// In a database that replicas share.
    Postgres(PostgresSettings),
}

impl ServerSettings {
    /// Whether operators are known, and nobody on the way hears them.
    fn operators_are_safe(&self) -> bool {
        let tls = self.operator_tls.as_ref();
        tls.is_some_and(|tls| self.operator_tokens.is_some() || tls.client_ca.is_some())
    }
}

/// A server that listens. Dropping it without [`Self::run`] ends it without an
/// orderly close; nothing acknowledged is lost.
#[derive(Debug)]
pub struct Server {
    device: Listener,
    operator: Listener,
    tokens: Option<Arc<Tokens>>,
    gates: Arc<DeviceGates>,
    reloader: Reloader,
    connections: ConnectionLimits,
    calls: CallLimits,
    clock: Arc<dyn Clock>,
    core: Core,
    drain_deadline: Duration,
}

impl Server {
    /// Opens the store, starts the writer and the policy thread, and binds both
    /// addresses.
    ///
    /// # Errors
    /// [`ServerError`] says what can't be used.
    pub async fn bind(
        settings: ServerSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServerError> {
        if !settings.operator_listen.ip().is_loopback() && !settings.operators_are_safe() {
            return Err(ServerError::OperatorBeyondLoopback(settings.operator_listen));
        }
        let ServerSettings { connections, calls, .. } = settings;
        let open = |path| Tokens::open(TokenKind::Operator, path, Arc::clone(&clock));
        let tokens = settings.operator_tokens.map(open).transpose()?.map(Arc::new);
        let open = |path| AppKeys::open(path, calls.app_rate, Arc::clone(&clock));
        let keys = settings.app_keys.map(open).transpose()?.map(Arc::new);
        let files = tokens.clone().into_iter().chain(keys.as_ref().map(|keys| keys.tokens()));
        let files = files.collect();
        let rate = calls.connection_rate;
        let gates = Arc::new(DeviceGates::new(keys, rate, calls.calls, Arc::clone(&clock)));
        let open = |files: Option<TlsFiles>| files.map(Tls::open).transpose();
        let device_tls = open(settings.device_tls)?.map(Arc::new);
        let operator_tls = open(settings.operator_tls)?.map(Arc::new);
        let tls = [&device_tls, &operator_tls].into_iter().flatten().map(Arc::clone).collect();
        let reloader = Reloader { tokens: files, tls };
        let listen = async |address, tls| {
            let bound = Listener::bind(address, tls, connections).await;
            bound.map_err(|source| ServerError::Listen { address, source })
        };
        let device = listen(settings.listen, device_tls).await?;
        let operator = listen(settings.operator_listen, operator_tls).await?;

        let core = Core::open(settings.store, Arc::clone(&clock)).await?;
        let drain_deadline = settings.drain_deadline;
        Ok(Self {
            device,
            operator,
            tokens,
            gates,
            reloader,
            connections,
            calls,
            clock,
            core,
            drain_deadline,
        })
    }

    /// The address that devices reach.
    ///
    /// # Errors
    /// [`ServerError::Address`] when the operating system does not tell.
    pub fn device_address(&self) -> Result<SocketAddr, ServerError> {
        self.device.address().map_err(ServerError::Address)
    }

    /// The address that operators reach.
    ///
    /// # Errors
    /// [`ServerError::Address`] when the operating system does not tell.
    pub fn operator_address(&self) -> Result<SocketAddr, ServerError> {
        self.operator.address().map_err(ServerError::Address)
    }

    /// Reads again the files that may change while the server runs.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Serves until `signal`, then ends in order: health NOT_SERVING, streams
    /// closed, calls under way answered, queue committed, store closed.
    ///
    /// # Errors
    /// [`ServerError`] when a listener or the store fails. After a failed commit
    /// it returns at once: nothing further may be acknowledged.
    pub async fn run(self, signal: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { device, operator, tokens, clock, core, connections, drain_deadline, .. } = self;
        let Self { calls, gates, .. } = self;
        let Core { registry, ingest, reader, mut ended, policies_ended, reachable } = core;
        let exports = Exports::new(reader.clone());
        let (notifier, ending) = ending();
        let (mut health, health_service) = tonic_health::server::health_reporter();
        let device_service = DeviceService::new(
            Arc::clone(&registry),
            ingest.clone(),
            clock.clone(),
            ending.clone(),
            calls.stream_idle_time,
        );
        let operator_service =
            OperatorService::new(registry, ingest.clone(), reader, exports, clock, ending.clone());
        tell(&health, ServingStatus::Serving).await;
        let told = tokio::spawn(tell_reachable(health.clone(), reachable));

        let health_service = health_service.max_decoding_message_size(HEALTH_REQUEST_BYTES_MAX);
        let device_service =
            DeviceServer::new(device_service).max_decoding_message_size(UPLOAD_BYTES_MAX);
        let device = http2_server(&connections, calls.request_time)
            .add_service(health_service.clone())
            .add_service(DeviceGate::new(gates, device_service))
            .serve_with_incoming_shutdown(device.incoming(), ending.clone().wait());
        let operator_service = OperatorServer::new(operator_service)
            .max_decoding_message_size(OPERATOR_REQUEST_BYTES_MAX);
        let operator = http2_server(&connections, calls.request_time)
            .add_service(health_service)
            .add_service(InterceptedService::new(operator_service, Authorization::new(tokens)))
            .serve_with_incoming_shutdown(operator.incoming(), ending.wait());
        let mut serving = Box::pin(async { tokio::try_join!(device, operator) });

        tokio::select! {
            () = signal => {}
            outcome = &mut serving => { outcome.map_err(ServerError::Transport)?; }
            outcome = &mut ended => return writer_ended(outcome),
            outcome = policies_ended => match outcome {
                Err(_) => return Err(ServerError::PolicyThreadPanicked),
                Ok(outcome) => outcome?,
            },
        }
        tracing::info!("draining");
        told.abort();
        tell(&health, ServingStatus::NotServing).await;
        for service in HEALTH_SERVICES {
            // Whoever watches is told, and the watch ends.
            health.clear_service_status(service).await;
        }
        notifier.notify();
        let drain = async {
            // The writer works on while calls under way are answered.
            if tokio::time::timeout(drain_deadline / 2, &mut serving).await.is_err() {
                tracing::warn!("calls are still under way; closing their connections");
            }
            ingest.stop().await;
            writer_ended((&mut ended).await)
        };
        tokio::time::timeout(drain_deadline, drain)
            .await
            .unwrap_or(Err(ServerError::Drain(drain_deadline)))
    }
}

fn writer_ended(
    outcome: Result<Result<(), WriterError>, oneshot::error::RecvError>,
) -> Result<(), ServerError> {
    let outcome = outcome.map_err(|_| ServerError::WriterPanicked)?;
    outcome.map_err(ServerError::Writer)
}

async fn tell(health: &HealthReporter, status: ServingStatus) {
    for service in HEALTH_SERVICES {
        health.set_service_status(service, status).await;
    }
}

/// While the database can't be reached, calls are better sent to others.
async fn tell_reachable(health: HealthReporter, reachable: Option<watch::Receiver<bool>>) {
    let Some(mut reachable) = reachable else { return };
    while reachable.changed().await.is_ok() {
        let is_reachable = *reachable.borrow_and_update();
        let status = if is_reachable { ServingStatus::Serving } else { ServingStatus::NotServing };
        tell(&health, status).await;
    }
}

/// Why a server can't start, or ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The operators' port must not be reachable from elsewhere.
    #[error(
        "the operators' address {0} is not on loopback; there the service needs TLS, and tokens \
         or client certificates. Set them, or use 127.0.0.1 and a tunnel"
    )]
    OperatorBeyondLoopback(SocketAddr),
    /// There can be no TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Operators can't be told apart.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// An address can't be bound.
    #[error("can't listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// An address can't be read.
    #[error("the operating system does not tell the bound address")]
    Address(#[source] std::io::Error),
    /// A thread can't be started.
    #[error("can't start a thread")]
    Thread(#[source] std::io::Error),
    /// The operating system has no randomness.
    #[error("the operating system's random source failed")]
    Entropy(#[source] getrandom::Error),
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store can't be opened, without a word.
    #[error("opening the store panicked")]
    OpeningPanicked,
    /// Policies are not recomputed any more.
    #[error("the policy thread panicked; nothing that was acknowledged is lost")]
    PolicyThreadPanicked,
    /// The writer can't start, or had to end.
    #[error("the writer ended; what was not committed was not acknowledged")]
    Writer(#[from] WriterError),
    /// The writer is gone without a word.
    #[error("the writer panicked; nothing that was acknowledged is lost")]
    WriterPanicked,
    /// A listener failed.
    #[error("serving failed")]
    Transport(#[source] tonic::transport::Error),
    /// The end took too long.
    #[error("the queue was not committed within {0:?}; what was not acknowledged may be lost")]
    Drain(Duration),
}
