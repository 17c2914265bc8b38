//! Durable changes of data sets, budgets and sessions, which the server's writer makes.

use std::fmt::Debug;

use bandana_store::{CuratorChange, StoreError};
use thiserror::Error;

/// The server's writer, which makes one change of the store after the other.
#[tonic::async_trait]
pub trait Changes: Debug + Send + Sync {
    /// Makes a change, and waits until it is durable.
    ///
    /// # Errors
    /// [`ChangeError`]: the answer that the change pays for must not be sent.
    async fn apply(&self, change: CuratorChange) -> Result<(), ChangeError>;
}

/// The reason why a change was not made, or is not known to be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The store refused the change, or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server is shutting down.
    #[error("the aggregator is going down")]
    Ended,
}
