//! The dashboard's state: the services that calls of its pages go to.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tonic::Status;

use super::refusal::Refusal;
use crate::admission::CallLimits;
use crate::api::{OperatorService, TrustedService};
use crate::transport::ConnectionLimits;

/// The operators' services, once there are any.
#[derive(Clone, Debug)]
pub struct DashboardState {
    services: Arc<OnceLock<(OperatorService, TrustedService)>>,
    /// Within which a request must have been sent.
    pub(super) request_time: Duration,
    /// After which an answer that goes on ends, to be asked for again.
    pub(super) watch_time: Duration,
}

impl DashboardState {
    /// A dashboard_state without services yet.
    pub fn new(connections: &ConnectionLimits, calls: &CallLimits) -> Self {
        Self {
            services: Arc::default(),
            request_time: calls.request_time,
            // Over HTTP/1.1 whoever listens is silent, and silence ends a connection.
            watch_time: connections.idle_time / 4 * 3,
        }
    }

    /// From now on these services are called.
    pub fn open(&self, operator: OperatorService, trusted: TrustedService) {
        // A dashboard_state that is open stays so.
        self.services.set((operator, trusted)).ok();
    }

    pub(super) fn service(&self) -> Result<&OperatorService, Refusal> {
        Ok(&self.services()?.0)
    }

    /// The one for experiments with a trusted curator.
    pub(super) fn trusted(&self) -> Result<&TrustedService, Refusal> {
        Ok(&self.services()?.1)
    }

    fn services(&self) -> Result<&(OperatorService, TrustedService), Refusal> {
        let starting = || Status::unavailable("the aggregator is starting; call again");
        Ok(self.services.get().ok_or_else(starting)?)
    }
}
