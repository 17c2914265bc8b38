//! The running server: listeners, threads, and an orderly end.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bandana_shared::limits::UPLOAD_BYTES_MAX;
use bandana_shared::wire::v1::device_server::DeviceServer;
use bandana_shared::wire::v1::operator_server::OperatorServer;
use thiserror::Error;
use tokio::sync::oneshot;
use tonic::service::interceptor::InterceptedService;
use tonic_health::ServingStatus;

use crate::clock::Clock;
use crate::ending::ending;
use crate::gates::{
    CallLimits, DeviceGate, DeviceGates, HEALTH_REQUEST_BYTES_MAX, OPERATOR_REQUEST_BYTES_MAX,
    http2_server,
};
use crate::ingest::{Ingest, Writer, WriterError, WriterSettings};
use crate::network::{ConnectionLimits, Listener};
use crate::policy;
use crate::registry::Registry;
use crate::security::{
    AppKeys, Authorization, Reloader, Tls, TlsError, TlsFiles, TokenKind, Tokens, TokensError,
};
use crate::service::{DeviceService, Exports, OperatorService};
use crate::store::{SqliteStore, StoreError, StoreReader};

/// What the health service tells about: the server as a whole, and each service.
const HEALTH_SERVICES: [&str; 3] = ["", "bandana.v1.Device", "bandana.v1.Operator"];

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Directory of the embedded store.
    pub data_dir: PathBuf,
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
    /// Limits of the writer.
    pub writer: WriterSettings,
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
    registry: Arc<Registry>,
    clock: Arc<dyn Clock>,
    ingest: Ingest,
    reader: StoreReader,
    exports: Exports,
    data_dir: PathBuf,
    /// What the writer ended with.
    ended: oneshot::Receiver<Result<(), WriterError>>,
    /// Tells when the policy thread has done its work; fails when it panicked.
    policy_ended: oneshot::Receiver<()>,
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

        let data_dir = settings.data_dir;
        let store = SqliteStore::open(&data_dir).map_err(|error| error.located(&data_dir))?;
        let reader = StoreReader::new(&data_dir);
        let registry = Arc::new(Registry::new(getrandom::u64().map_err(ServerError::Entropy)?));
        let (due, experiments_due) = mpsc::channel();
        let (writer, ingest) =
            Writer::open(store, Arc::clone(&registry), Arc::clone(&clock), settings.writer, due)
                .map_err(|error| error.located(&data_dir))?;
        tracing::info!(experiments = registry.all().len(), ids = writer.ids(), "store opened");
        let (end, ended) = oneshot::channel();
        // The server that waited for it may have been dropped.
        spawn("writer", move || drop(end.send(writer.run())))?;
        let (policy_registry, policy_clock) = (Arc::clone(&registry), Arc::clone(&clock));
        let (policy_end, policy_ended) = oneshot::channel();
        spawn("policy", move || {
            policy::run(&experiments_due, &policy_registry, &*policy_clock);
            // Nobody may be left to hear it.
            policy_end.send(()).ok();
        })?;
        let exports = Exports::new(reader.clone());
        let drain_deadline = settings.drain_deadline;
        Ok(Self {
            device,
            operator,
            tokens,
            gates,
            reloader,
            connections,
            calls,
            registry,
            clock,
            ingest,
            reader,
            exports,
            data_dir,
            ended,
            policy_ended,
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
        let Self { device, operator, tokens, registry, clock, ingest, reader, exports, .. } = self;
        let Self { connections, calls, gates, mut ended, policy_ended, .. } = self;
        let Self { drain_deadline, data_dir, .. } = self;
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
        health.set_serving::<DeviceServer<DeviceService>>().await;
        health.set_serving::<OperatorServer<OperatorService>>().await;

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
            outcome = &mut ended => return writer_ended(outcome, &data_dir),
            Err(_) = policy_ended => return Err(ServerError::PolicyThreadPanicked),
        }
        tracing::info!("draining");
        for service in HEALTH_SERVICES {
            health.set_service_status(service, ServingStatus::NotServing).await;
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
            writer_ended((&mut ended).await, &data_dir)
        };
        tokio::time::timeout(drain_deadline, drain)
            .await
            .unwrap_or(Err(ServerError::Drain(drain_deadline)))
    }
}

fn writer_ended(
    outcome: Result<Result<(), WriterError>, oneshot::error::RecvError>,
    data_dir: &Path,
) -> Result<(), ServerError> {
    let outcome = outcome.map_err(|_| ServerError::WriterPanicked)?;
    outcome.map_err(|error| ServerError::Writer(error.located(data_dir)))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop).map_err(ServerError::Thread)
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
