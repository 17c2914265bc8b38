//! Readiness, for health checks and probes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::{StreamExt as _, select_all};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as Questions, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService};

use bandana_edge::admission::HEALTH_REQUEST_BYTES_MAX;
use bandana_edge::peer::Peer;
use bandana_edge::pushback::exhausted;
use bandana_edge::telemetry::methods::METHODS;

/// Most concurrent watches of a port. Watches have no end and need no key. Without a bound of their
/// own they would hold the memory that calls of devices need.
const WATCHES_MAX: usize = 64;

/// Most concurrent watches of one connection.
const WATCHES_PER_CONNECTION_MAX: usize = 2;

/// The delay asked of a watch that found no place. Checks are answered meanwhile.
const NO_PLACE_WAIT: Duration = Duration::from_secs(10);

/// The names that the health service knows, on both ports: the server as a whole, and each service.
fn services() -> impl Iterator<Item = &'static str> {
    std::iter::once("").chain(METHODS.services())
}

/// Whether the server takes calls: not before the store has been read, and not once the server
/// shuts down.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Whether the server takes calls now.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Reports the server's health, over gRPC and to [`Readiness`].
#[derive(Clone, Debug)]
pub(crate) struct Health {
    reporter: HealthReporter,
    readiness: Readiness,
}

impl Health {
    /// The health of a server that does not serve yet.
    pub(crate) async fn starting() -> Self {
        let health = Self { reporter: HealthReporter::new(), readiness: Readiness::default() };
        health.tell(ServingStatus::NotServing).await;
        health
    }

    /// The health service for one port.
    pub(crate) fn service(&self) -> HealthServer<FewWatches> {
        let questions = HealthService::from_health_reporter(self.reporter.clone());
        let places = Arc::new(Semaphore::new(WATCHES_MAX));
        HealthServer::new(FewWatches { questions, places })
            .max_decoding_message_size(HEALTH_REQUEST_BYTES_MAX)
    }

    pub(crate) fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Reports that calls are taken.
    pub(crate) async fn serving(&self) {
        self.readiness.0.store(true, Ordering::Release);
        self.tell(ServingStatus::Serving).await;
    }

    /// Reports whether calls are taken, by whether all of these say that the store can take
    /// uploads. While it can't, calls are better sent to other servers.
    pub(crate) async fn follow(self, able: Vec<watch::Receiver<bool>>) {
        let all = able.clone();
        // The store may be unable from the start.
        let told = able.into_iter().map(WatchStream::new);
        let mut told = select_all(told);
        while told.next().await.is_some() {
            if all.iter().all(|is_able| *is_able.borrow()) {
                self.serving().await;
            } else {
                self.readiness.0.store(false, Ordering::Release);
                self.tell(ServingStatus::NotServing).await;
            }
        }
    }

    /// Reports that no more calls are taken. Watches are told, and end.
    pub(crate) async fn draining(&mut self) {
        self.readiness.0.store(false, Ordering::Release);
        self.tell(ServingStatus::NotServing).await;
        for service in services() {
            self.reporter.clear_service_status(service).await;
        }
    }

    async fn tell(&self, status: ServingStatus) {
        for service in services() {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

/// The health service of a port, which limits watches but not checks.
#[derive(Debug)]
pub(crate) struct FewWatches {
    questions: HealthService,
    places: Arc<Semaphore>,
}

impl FewWatches {
    fn take_place(&self, of_connection: Arc<AtomicUsize>) -> Result<WatchPlace, Status> {
        let no_place = |message| exhausted(message, NO_PLACE_WAIT);
        let before = of_connection.fetch_add(1, Ordering::Relaxed);
        let of_connection = OfConnection(of_connection);
        if before >= WATCHES_PER_CONNECTION_MAX {
            return Err(no_place("the connection watches the health already; end a watch first"));
        }
        let permit = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            no_place("too many watch the health; call `Check`, or watch again later")
        })?;
        Ok(WatchPlace { _of_connection: of_connection, _permit: permit })
    }
}

/// A place among the watches of a port and of a connection, released when dropped.
struct WatchPlace {
    _of_connection: OfConnection,
    _permit: OwnedSemaphorePermit,
}

struct OfConnection(Arc<AtomicUsize>);

impl Drop for OfConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tonic::async_trait]
impl Questions for FewWatches {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.questions.check(request).await
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let peer: Option<&Peer> = request.extensions().get();
        let of_connection = peer.map(|peer| Arc::clone(&peer.watches)).unwrap_or_default();
        let place = self.take_place(of_connection)?;
        let told = self.questions.watch(request).await?;
        Ok(told.map(|told| {
            let told = told.map(move |told| {
                let _ = &place;
                told
            });
            Box::pin(told) as Self::WatchStream
        }))
    }
}
