//! Connections of commands to a running server.

use bandana_shared::identity::{ExperimentId, IdentityError};

pub(super) use bandana_edge::operator_client::{Client, Connection};

/// Reads an experiment's id from the command line.
pub(super) fn experiment_id(text: &str) -> Result<ExperimentId, IdentityError> {
    ExperimentId::new(text)
}

/// Runs `work` to its end.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
