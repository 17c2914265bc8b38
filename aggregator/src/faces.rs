//! What both ports answer.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bandana_shared::limits::UPLOAD_BYTES_MAX;
use bandana_shared::wire::v1::device_server::DeviceServer;
use bandana_shared::wire::v1::operator_server::OperatorServer;
use tonic::service::Routes;
use tonic::transport::Server as GrpcServer;
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::Layer as _;

use crate::clock::Clock;
use crate::ending::Ending;
use crate::http;
use crate::ingest::Ingest;
use crate::network::{ConnectionLimits, Incoming, Listener};
use crate::registry::Registry;
use crate::security::Authorization;
use crate::server::ServerError;
use crate::service::{DeviceService, Gate, OperatorService, with_reflection};
use crate::telemetry::metrics::CallMetrics;
use crate::telemetry::{Calls, Port};

/// Silence on a connection after which its other end is asked for a sign of
/// life, so that connections of devices that are gone do not pile up.
const KEEPALIVE_INTERVAL: Duration = Duration::from_mins(1);

/// How long it has for that.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// What is answered from the start.
#[derive(Debug)]
pub(crate) struct Faces<H: Health> {
    pub(crate) health: HealthServer<H>,
    pub(crate) pages: Router,
    pub(crate) connections: ConnectionLimits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: CallMetrics,
}

/// What is answered once there is a store.
#[derive(Debug)]
pub(crate) struct Gates<H: Health> {
    device: Gate,
    operator: Gate,
    health: HealthServer<H>,
    pages: Router,
}

impl<H: Health> Faces<H> {
    /// Serves on both ports, with gates that are closed.
    pub(crate) fn serve(
        self,
        device: Listener,
        operator: Listener,
        ending: Ending,
    ) -> (Gates<H>, impl Future<Output = Result<(), ServerError>>) {
        let Self { health, pages, connections, clock, metrics } = self;
        let gates = Gates {
            device: Gate::new(Routes::new(health.clone())),
            operator: Gate::new(Routes::from(pages.clone()).add_service(health.clone())),
            health,
            pages: pages.clone(),
        };
        let of_devices = Calls::new(Port::Device, Arc::clone(&clock), metrics.clone());
        let of_operators = Calls::new(Port::Operator, clock, metrics);
        let device_services = of_devices.layer(gates.device.clone());
        let operator_services = of_operators.layer(gates.operator.clone());
        let serving = async move {
            let Incoming { http2, http1 } = operator.incoming_by_protocol();
            let device = grpc(connections).serve_with_incoming_shutdown(
                device_services,
                device.incoming(),
                ending.clone().wait(),
            );
            let operator = grpc(connections).serve_with_incoming_shutdown(
                operator_services,
                http2,
                ending.clone().wait(),
            );
            let pages = http::serve(http1, pages, of_operators, connections, ending);
            let pages = async {
                pages.await;
                Ok(())
            };
            let served = tokio::try_join!(device, operator, pages);
            served.map(drop).map_err(ServerError::Transport)
        };
        (gates, serving)
    }
}

fn grpc(connections: ConnectionLimits) -> GrpcServer {
    GrpcServer::builder()
        .max_concurrent_streams(connections.streams_per_connection)
        .http2_max_header_list_size(connections.header_bytes)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
}

impl<H: Health> Gates<H> {
    /// Lets calls through to the services over this store.
    pub(crate) fn open(
        self,
        registry: &Arc<Registry>,
        ingest: &Ingest,
        clock: &Arc<dyn Clock>,
        ending: &Ending,
        authorization: &Authorization,
    ) -> Result<(), ServerError> {
        let parts = || (Arc::clone(registry), ingest.clone(), Arc::clone(clock), ending.clone());
        let (registry, ingest, clock, ending) = parts();
        let device = DeviceService::new(registry, ingest, clock, ending);
        let device = DeviceServer::new(device).max_decoding_message_size(UPLOAD_BYTES_MAX);
        let (registry, ingest, clock, ending) = parts();
        let operator = OperatorService::new(registry, ingest, clock, ending);
        let operator = OperatorServer::with_interceptor(operator, authorization.clone());

        self.device.open(Routes::new(self.health.clone()).add_service(device));
        let routes = Routes::from(self.pages).add_service(self.health).add_service(operator);
        self.operator.open(with_reflection(routes, authorization)?);
        Ok(())
    }
}
