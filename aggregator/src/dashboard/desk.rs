//! Where calls of the pages go.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tonic::Status;

use super::refusal::Refusal;
use crate::gates::CallLimits;
use crate::network::ConnectionLimits;
use crate::service::OperatorService;

/// The operators' service, once there is one.
#[derive(Clone, Debug)]
pub struct Desk {
    service: Arc<OnceLock<OperatorService>>,
    /// Within which a request must have been sent.
    pub(super) request_time: Duration,
    /// After which an answer that goes on ends, to be asked for again.
    pub(super) watch_time: Duration,
}

impl Desk {
    /// A desk without a service yet.
    pub fn new(connections: &ConnectionLimits, calls: &CallLimits) -> Self {
        Self {
            service: Arc::default(),
            request_time: calls.request_time,
            // Over HTTP/1.1 whoever listens is silent, and silence ends a connection.
            watch_time: connections.idle_time / 4 * 3,
        }
    }

    /// From now on this service is called.
    pub fn open(&self, service: OperatorService) {
        // A desk that is open stays so.
        self.service.set(service).ok();
    }

    pub(super) fn service(&self) -> Result<&OperatorService, Refusal> {
        let starting = || Status::unavailable("the aggregator is starting; call again");
        Ok(self.service.get().ok_or_else(starting)?)
    }
}
