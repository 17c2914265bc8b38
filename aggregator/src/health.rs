//! Readiness, for health checks and probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream::{StreamExt as _, select_all};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthService, HealthServer};
use tonic_health::server::HealthReporter;

use crate::telemetry::methods::METHODS;

/// What the health service tells about, on both ports: the server as a whole, and each service.
fn services() -> impl Iterator<Item = &'static str> {
    std::iter::once("").chain(METHODS.services())
}

/// Whether the server takes calls: not before the store has been read, and not once the
/// server goes down.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Whether it does now.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Says how the server is, over gRPC and to [`Readiness`].
#[derive(Clone, Debug)]
pub(crate) struct Health {
    reporter: HealthReporter,
    readiness: Readiness,
}

impl Health {
    /// The health of a server that does not serve yet, and the service that tells it.
    pub(crate) async fn starting() -> (Self, HealthServer<impl HealthService>) {
        let (reporter, service) = tonic_health::server::health_reporter();
        let health = Self { reporter, readiness: Readiness::default() };
        health.tell(ServingStatus::NotServing).await;
        (health, service)
    }

    pub(crate) fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Says that calls are taken.
    pub(crate) async fn serving(&self) {
        self.readiness.0.store(true, Ordering::Release);
        self.tell(ServingStatus::Serving).await;
    }

    /// Says whether calls are taken, by whether the store can take uploads, as all of these know:
    /// while it can't, they are better sent to others.
    pub(crate) async fn follow(self, able: Vec<watch::Receiver<bool>>) {
        let all = able.clone();
        // It may be so from the start.
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

    /// Says that no more calls are taken. Whoever watches is told, and the watch ends.
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
