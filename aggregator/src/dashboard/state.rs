//! The dashboard's state: the services that its API calls.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bandana_edge::admission::CallLimits;
use bandana_edge::transport::ConnectionLimits;
use tonic::Status;

use super::refusal::Refusal;
use crate::api::{OperatorService, TrustedService};
use crate::queries::Queries;

/// The services that pages call.
#[derive(Clone, Debug)]
pub struct OperatorServices {
    /// The service for experiments.
    pub operator: OperatorService,
    /// The service for experiments with a trusted curator.
    pub trusted: TrustedService,
    /// The service for data sets.
    pub queries: Queries,
}

/// The operators' services, once they have started.
#[derive(Clone, Debug)]
pub struct DashboardState {
    services: Arc<OnceLock<OperatorServices>>,
    /// Time limit for receiving a request.
    pub(super) request_time: Duration,
    /// Time limit of a streamed response; the page then requests a new one.
    pub(super) watch_time: Duration,
}

impl DashboardState {
    /// A state without services yet.
    pub fn new(connections: &ConnectionLimits, calls: &CallLimits) -> Self {
        Self {
            services: Arc::default(),
            request_time: calls.request_time,
            // Over HTTP/1.1 a client that only listens is silent, and idle connections are closed.
            // So a stream ends before the idle time does.
            watch_time: connections.idle_time / 4 * 3,
        }
    }

    /// Sets the services to call.
    pub fn open(&self, services: OperatorServices) {
        // The first services set remain.
        self.services.set(services).ok();
    }

    pub(super) fn service(&self) -> Result<&OperatorService, Refusal> {
        Ok(&self.services()?.operator)
    }

    /// The service for experiments with a trusted curator.
    pub(super) fn trusted(&self) -> Result<&TrustedService, Refusal> {
        Ok(&self.services()?.trusted)
    }

    pub(super) fn services(&self) -> Result<&OperatorServices, Refusal> {
        let starting = || Status::unavailable("the aggregator is starting; call again");
        Ok(self.services.get().ok_or_else(starting)?)
    }
}
