//! The dashboard's state: the services that its API calls.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tonic::Status;

use super::refusal::Refusal;
use crate::admission::CallLimits;
use crate::api::{OperatorService, TrustedService};
use crate::transport::ConnectionLimits;

/// The operators' services, once they have started.
#[derive(Clone, Debug)]
pub struct DashboardState {
    services: Arc<OnceLock<(OperatorService, TrustedService)>>,
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
    pub fn open(&self, operator: OperatorService, trusted: TrustedService) {
        // The first services set remain.
        self.services.set((operator, trusted)).ok();
    }

    pub(super) fn service(&self) -> Result<&OperatorService, Refusal> {
        Ok(&self.services()?.0)
    }

    /// The service for experiments with a trusted curator.
    pub(super) fn trusted(&self) -> Result<&TrustedService, Refusal> {
        Ok(&self.services()?.1)
    }

    fn services(&self) -> Result<&(OperatorService, TrustedService), Refusal> {
        let starting = || Status::unavailable("the aggregator is starting; call again");
        Ok(self.services.get().ok_or_else(starting)?)
    }
}
