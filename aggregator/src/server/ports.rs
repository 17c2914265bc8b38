//! The services of both ports, and their answers before the store is open.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use bandana_edge::admission::{
    BATCH_BYTES_MAX, CallLimits, DeviceGate, DeviceGates, OPERATOR_REQUEST_BYTES_MAX,
};
use bandana_edge::auth::{Authorization, OperatorGate};
use bandana_edge::clock::Clock;
use bandana_edge::connect::Connect;
use bandana_edge::gateway::Gateway;
use bandana_edge::http::{Http1Server, Http2Server, OneHost};
use bandana_edge::memory::{Budget, HeldMetrics, HoldingLayer};
use bandana_edge::shutdown::ShutdownSignal;
use bandana_edge::telemetry::metrics::CallMetrics;
use bandana_edge::telemetry::{Calls, Port};
use bandana_edge::transport::{ConnectionLimits, Incoming, Listener};
use bandana_shared::identity::StoreId;
use bandana_shared::limits::UPLOAD_BYTES_MAX;
use bandana_shared::wire::v1::batches_server::BatchesServer;
use bandana_shared::wire::v1::gateway_server::GatewayServer;
use bandana_shared::wire::v1::operator_server::OperatorServer;
use bandana_shared::wire::v1::transparency_log_server::TransparencyLogServer;
use bandana_shared::wire::v1::trusted_operator_server::TrustedOperatorServer;
use bandana_shared::wire::v1::trusted_server::TrustedServer;
use bandana_store::StoreReader;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tower::Layer as _;
use tower::util::option_layer;

use crate::api::{
    BatchesService, DeviceServer, DeviceService, Exports, GatewayService, LogService,
    OperatorService, ReadinessGate, TrustedService, gateway_route, with_reflection,
};
use crate::dashboard::{DashboardState, OperatorServices};
use crate::disclosures::DisclosureWriterHandle;
use crate::http::Origins;
use crate::ingest::Ingest;
use crate::queries::{DataSetSettings, Queries};
use crate::readiness::FewWatches;
use crate::registry::Registry;
use crate::server::ServerError;
use crate::transparency::{LogMetrics, LogParts, Publisher, PublisherParts, Served};

/// The work on both ports, until the end.
pub(crate) type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The services that are available from the start.
#[derive(Debug)]
pub(crate) struct EarlyServices {
    pub(crate) device_health: HealthServer<FewWatches>,
    pub(crate) operator_health: HealthServer<FewWatches>,
    pub(crate) pages: Router,
    pub(crate) connections: ConnectionLimits,
    pub(crate) calls: CallLimits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: CallMetrics,
    /// The budget for the memory of calls.
    pub(crate) budget: Budget,
    pub(crate) held: HeldMetrics,
}

/// The parts of which services are built.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) store: StoreId,
    pub(crate) registry: Arc<Registry>,
    pub(crate) ingest: Ingest,
    pub(crate) reader: StoreReader,
    pub(crate) disclosures: DisclosureWriterHandle,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ending: ShutdownSignal,
    pub(crate) data_sets: DataSetSettings,
    pub(crate) dashboard_state: DashboardState,
    /// The budget for the memory of encoded answers to devices.
    pub(crate) budget: Budget,
    /// None: devices can't call through relays.
    pub(crate) gateway: Option<Gateway>,
    /// What the public log says. None: there is none.
    pub(crate) log: Option<Arc<Served>>,
}

impl Parts {
    /// Has this log say what devices are served, until the server ends.
    pub(crate) fn publishing(mut self, log: Option<LogParts>, metrics: &LogMetrics) -> Self {
        let Some(log) = log else { return self };
        self.log = Some(Arc::clone(&log.served));
        let parts = PublisherParts {
            registry: Arc::clone(&self.registry),
            keys: self.gateway.as_ref().map(|gateway| Arc::clone(&gateway.keys)),
            ingest: self.ingest.clone(),
            reader: self.reader.clone(),
            clock: Arc::clone(&self.clock),
            store: self.store,
            metrics: metrics.clone(),
        };
        // It ends by itself; what it waits for is neither the queue nor a lock.
        tokio::spawn(Publisher::new(log, parts).run(self.ending.clone()));
        self
    }
}

/// The switches that open the remaining services once the store is open.
#[derive(Debug)]
pub(crate) struct ClosedServices {
    device: ReadinessGate,
    operator: ReadinessGate,
    calls: CallLimits,
    /// Counts the calls of devices.
    of_devices: Calls,
    pages: Router,
}

impl EarlyServices {
    /// Serves on both ports, with all services closed. The web pages of `cors_origins` may call that
    /// of devices.
    pub(crate) fn serve(
        self,
        (device, operator, cors_origins): (Listener, Listener, Option<Origins>),
        ending: ShutdownSignal,
    ) -> (ClosedServices, Serving) {
        let Self { device_health, operator_health, pages, connections, .. } = self;
        let Self { calls, clock, metrics, budget, held, .. } = self;
        let holding = HoldingLayer::new(budget, calls.request_time, held);
        let of_devices = Calls::new(Port::Device, Arc::clone(&clock), metrics.clone());
        let closed = ClosedServices {
            device: ReadinessGate::new(device_health, Routes::default()),
            operator: ReadinessGate::new(operator_health, Routes::from(pages.clone())),
            calls,
            of_devices: of_devices.clone(),
            pages: pages.clone(),
        };
        let of_operators = Calls::new(Port::Operator, clock, metrics);
        let connect = connect(closed.device.clone());
        let connect = option_layer(cors_origins.map(|origins| origins.layer())).layer(connect);
        let device_services = of_devices.layer(holding.layer(OneHost(connect)));
        let operator_services = OneHost(closed.operator.clone());
        let operator_services = of_operators.layer(holding.layer(operator_services));
        let serving = async move {
            let operator = operator.until(ending.clone());
            let Incoming { http2, http1 } = operator.incoming();
            let of_devices = device.until(ending.clone()).incoming();
            let plain = Http1Server::new(device_services.clone(), &connections);
            let plain = plain.serve(of_devices.http1, ending.clone());
            let device = Http2Server::new(device_services, &connections);
            let device = device.serve(of_devices.http2, ending.clone());
            let operator = Http2Server::new(operator_services, &connections);
            let operator = operator.serve(http2, ending.clone());
            let pages = OneHost(Routes::from(pages));
            let pages = Http1Server::new(of_operators.layer(holding.layer(pages)), &connections);
            tokio::join!(device, operator, plain, pages.serve(http1, ending));
        };
        (closed, Box::pin(serving))
    }
}

/// A service whose calls reach a [`DeviceServer`], by the Connect protocol too.
fn connect<S>(service: S) -> Connect<S> {
    Connect::with_unframed(service, DeviceServer::takes_unframed)
}

impl ClosedServices {
    /// Opens the services: calls reach the services over this store.
    pub(crate) fn open(
        self,
        parts: Parts,
        gates: Arc<DeviceGates>,
        authorization: &Authorization,
    ) -> Result<(), ServerError> {
        let Parts { store, registry, ingest, reader, disclosures, clock, ending, .. } = parts;
        let Parts { data_sets, dashboard_state, budget, gateway, log, .. } = parts;
        let trusted = TrustedService::new(
            Arc::clone(&registry),
            &ingest,
            disclosures,
            Arc::clone(&clock),
            budget.clone(),
        );
        let exports = Exports::new(reader.clone(), budget.clone());
        let epochs =
            TransparencyLogServer::new(LogService::new(log.clone(), reader.clone(), store))
                .max_decoding_message_size(UPLOAD_BYTES_MAX);
        let device = DeviceService::new(
            Arc::clone(&registry),
            ingest.clone(),
            Arc::clone(&clock),
            ending.clone(),
            self.calls.stream_idle_time,
            store,
            budget,
        );
        device.serve_log(log.clone());
        let opener = gateway.as_ref().map(|gateway| gateway.opener.clone());
        let batches = BatchesServer::new(BatchesService::new(device.clone(), opener))
            .max_decoding_message_size(BATCH_BYTES_MAX);
        let batches = OperatorGate::new(authorization, batches);
        let device = DeviceServer::new(device);
        let queries = Queries::new(&ingest, &reader, &clock, data_sets);
        let operator =
            OperatorService::new(registry, ingest, reader, exports, Arc::clone(&clock), ending);
        dashboard_state.open(OperatorServices {
            operator: operator.clone(),
            trusted: trusted.clone(),
            queries: queries.clone(),
        });
        let operator =
            OperatorServer::new(operator).max_decoding_message_size(OPERATOR_REQUEST_BYTES_MAX);
        let operator = OperatorGate::new(authorization, operator);

        let device = DeviceGate::new(Arc::clone(&gates), device);
        let disclosing =
            TrustedServer::new(trusted.clone()).max_decoding_message_size(UPLOAD_BYTES_MAX);
        let disclosing = DeviceGate::new(Arc::clone(&gates), disclosing);
        let keys = gateway.as_ref().map(|gateway| Arc::clone(&gateway.keys));
        let keys = GatewayServer::new(GatewayService::new(keys).with_log(log))
            .max_decoding_message_size(UPLOAD_BYTES_MAX);
        // For relays and those who watch, who have no app's key.
        let for_all = DeviceGates::new(None, self.calls.connection_rates, self.calls.calls, clock);
        let for_all = Arc::new(for_all);
        let keys = DeviceGate::new(Arc::clone(&for_all), keys);
        let epochs = DeviceGate::new(for_all, epochs);
        let mut of_devices = Routes::new(disclosing).add_service(keys).add_service(epochs);
        if let Some(Gateway { opener, .. }) = gateway {
            let calls = self.of_devices.layer(connect(device.clone()));
            let sealed = gateway_route(opener, gates, calls);
            of_devices = Routes::from(of_devices.into_axum_router().merge(sealed));
        }
        self.device.open(Some(device), of_devices);
        let trusted = TrustedOperatorServer::new(trusted)
            .max_decoding_message_size(OPERATOR_REQUEST_BYTES_MAX);
        let trusted = OperatorGate::new(authorization, trusted);
        let routes = Routes::from(self.pages).add_service(operator);
        let routes = queries.mount(routes, authorization).add_service(trusted);
        let routes = routes.add_service(batches);
        self.operator.open(None, with_reflection(routes, authorization)?);
        Ok(())
    }
}
