//! The two gRPC services: wire types outside, validated types inside.

mod device;
mod operator;

pub use device::DeviceService;
pub use operator::OperatorService;

use std::sync::Arc;

use bandana_shared::identity::ExperimentId;
use tonic::Status;

use crate::registry::{Experiment, Registry};

/// The experiment of this name.
fn find(registry: &Registry, name: String) -> Result<Arc<Experiment>, Status> {
    let id =
        ExperimentId::new(name).map_err(|error| Status::invalid_argument(error.to_string()))?;
    registry.by_id(&id).ok_or_else(|| Status::not_found(format!("there is no experiment {id}")))
}

/// An error with its causes, in one line.
fn explain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"))
}
