//! What commands that call a server have in common.

use bandana_shared::identity::{ExperimentId, IdentityError};
use bandana_shared::specification::Specification;
use bandana_shared::wire::WireError;
use bandana_shared::wire::v1::ExperimentStatus;

pub(super) use crate::operator_client::{Client, Connection};

/// Reads an experiment's id from the command line.
pub(super) fn experiment_id(text: &str) -> Result<ExperimentId, IdentityError> {
    ExperimentId::new(text)
}

/// Runs `work` to its end.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// The current revision, if its digest shows that nothing of it is unknown here.
pub(super) fn current_revision(status: &ExperimentStatus) -> Result<Specification, WireError> {
    let message = status.specification.as_ref().ok_or(WireError::Missing("specification"))?;
    let specification = Specification::try_from(message)?;
    if specification.digest().as_bytes()[..] == status.digest[..] {
        Ok(specification)
    } else {
        Err(WireError::DigestMismatch)
    }
}
