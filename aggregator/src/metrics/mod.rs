//! All metrics of a server, in the text format of OpenMetrics.
//!
//! The only private data are counts of committed reports; the numbers of ones among them are never
//! shown. The id of an experiment is the only label whose values are not fixed here; operators
//! choose it.

mod experiments;

use std::fmt;
use std::sync::{Arc, OnceLock};

use bandana_edge::clock::Clock;
use bandana_edge::memory::{Budget, HeldMetrics};
use bandana_edge::telemetry::metrics::{
    CallMetrics, ConnectionMetrics, Process, register_connections,
};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry as Exposition;

use crate::ingest::Ingest;
use crate::ingest::IngestMetrics;
use crate::readiness::Readiness;
use crate::registry::Registry;
use crate::transparency::LogMetrics;
use experiments::{Current, Opened};

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    exposition: Exposition,
    opened: Arc<OnceLock<Opened>>,
    /// Metrics of calls.
    pub calls: CallMetrics,
    /// Metrics of uploads, from arrival to commit.
    pub ingest: IngestMetrics,
    /// Metrics of devices' connections.
    pub device_connections: ConnectionMetrics,
    /// Metrics of operators' connections.
    pub operator_connections: ConnectionMetrics,
    /// Calls and requests on the operators' port without authorisation.
    pub unauthorised: Counter,
    /// Metrics of the memory held for callers.
    pub held: HeldMetrics,
    /// Metrics of the public log.
    pub(crate) log: LogMetrics,
}

impl Metrics {
    /// Metrics of a starting server with this budget for callers.
    pub fn new(clock: &Arc<dyn Clock>, budget: Budget) -> Self {
        let mut exposition = Exposition::default();
        exposition.register_collector(Box::new(Process));
        let bandana = exposition.sub_registry_with_prefix("bandana");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        bandana.register("build", "The program", version);
        let ingest = IngestMetrics::registered(Arc::clone(clock), bandana);
        let opened = Arc::new(OnceLock::new());
        bandana.register_collector(Box::new(Current {
            opened: Arc::clone(&opened),
            ingest: ingest.clone(),
            clock: Arc::clone(clock),
        }));
        let calls = CallMetrics::default();
        bandana.register_collector(Box::new(calls.clone()));
        let unauthorised = Counter::default();
        bandana.register(
            "operator_calls_unauthorised",
            "Calls and requests on the operators' port without a valid token",
            unauthorised.clone(),
        );
        let (device_connections, operator_connections) = register_connections(bandana);
        let held = HeldMetrics::registered(budget, bandana);
        let log = LogMetrics::registered(bandana);
        Self {
            exposition,
            opened,
            calls,
            ingest,
            device_connections,
            operator_connections,
            unauthorised,
            held,
            log,
        }
    }

    /// Shows these experiments, this queue and this readiness from now on.
    pub(crate) fn opened(&self, registry: Arc<Registry>, ingest: Ingest, readiness: Readiness) {
        // A server opens its store once.
        self.opened.set(Opened { registry, ingest, readiness }).ok();
    }

    /// All metrics as they are now.
    ///
    /// # Errors
    /// Never, as long as writing to a string does not fail.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.exposition)?;
        Ok(text)
    }
}
