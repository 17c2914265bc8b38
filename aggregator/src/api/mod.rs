//! The gRPC services: wire types outside, validated types inside.

mod alarm_watch;
mod audited_action;
mod batches;
mod device;
mod device_server;
mod estimate_messages;
mod exports;
mod gateway;
mod operator;
mod operator_messages;
mod readiness_gate;
mod reflection;
mod transparency;
mod trusted;
mod upload_stream;

pub use batches::BatchesService;
pub use device::DeviceService;
pub use device_server::DeviceServer;
pub use exports::Exports;
pub use gateway::{GatewayService, gateway_route};
pub use operator::OperatorService;
pub(crate) use operator_messages::NONLINEAR;
pub(crate) use readiness_gate::ReadinessGate;
pub use reflection::with_reflection;
pub(crate) use transparency::LogService;
pub use trusted::TrustedService;

use std::pin::Pin;
use std::sync::Arc;

use bandana_edge::shutdown::ShutdownSignal;
use bandana_edge::status::{GOING_DOWN, UNREADABLE, with_cause};
use bandana_shared::identity::ExperimentId;
use bandana_shared::specification::Specification;
use bandana_store::{DamageError, StoreError};
use futures_util::stream::{self, Stream, StreamExt as _};
use tonic::Status;

use crate::registry::ReplicaUnavailable;
use crate::registry::{Experiment, Registry};

/// The experiment of this name.
async fn find(registry: &Registry, name: String) -> Result<Arc<Experiment>, Status> {
    let id =
        ExperimentId::new(name).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let found = registry.find(&id).await;
    found.map_err(|error| unanswered(&error))?.ok_or_else(|| unknown(&id))
}

fn unanswered(error: &ReplicaUnavailable) -> Status {
    Status::unavailable(error.to_string())
}

/// The message for a report of a cell that a specification does not have.
fn unknown_cell(cell: u32, specification: &Specification) -> String {
    let cells = specification.cells();
    if cells.len() == cells.arms() {
        format!("there is no arm {cell}; the specification has {} arms", cells.arms())
    } else {
        format!("there is no cell {cell}; the specification has {}, so {cells}", cells.len())
    }
}

fn unknown(id: &ExperimentId) -> Status {
    Status::not_found(format!("there is no experiment {id}"))
}

/// The items of a stream until the server shuts down, and then an error, so that the shutdown is
/// not taken for the end of the data.
fn until_end<T: Send + 'static>(
    items: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ending: ShutdownSignal,
) -> Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>> {
    let cut = move || ending.has_come().then(|| Err(Status::unavailable(GOING_DOWN)));
    Box::pin(items.chain(stream::once(async move { cut() }).filter_map(std::future::ready)))
}

/// The status for a caller when the store can't be read; the cause is logged.
fn unreadable(cause: impl std::error::Error + Send + Sync + 'static) -> Status {
    let status = match (&cause as &dyn std::error::Error).downcast_ref() {
        Some(StoreError::Damage(DamageError::Ended)) => Status::unavailable(cause.to_string()),
        _ => Status::unavailable(UNREADABLE),
    };
    with_cause(status, cause)
}
