//! Private queries of data sets, with this server's writer and for its operators' port.

use std::sync::Arc;

use bandana_edge::auth::{Authorization, OperatorGate};
use bandana_edge::clock::Clock;
pub use bandana_queries::DataSetSettings;
use bandana_queries::{ChangeError, Changes, CuratorService};
use bandana_store::{CuratorChange, StoreReader};
use tonic::service::Routes;

use crate::ingest::{ExperimentChangeError, Ingest};

/// The service for data sets.
#[derive(Clone, Debug)]
pub struct Queries(CuratorService);

impl Queries {
    /// Whether this program answers queries.
    pub const ARE_BUILT_IN: bool = true;

    /// The service over the data sets of a store.
    pub fn new(
        ingest: &Ingest,
        reader: &StoreReader,
        clock: &Arc<dyn Clock>,
        settings: DataSetSettings,
    ) -> Self {
        let writer = Arc::new(ingest.clone());
        Self(CuratorService::new(writer, reader.clone(), Arc::clone(clock), settings))
    }

    /// Adds the service to those of a port, for callers with a token.
    pub(crate) fn mount(self, routes: Routes, authorization: &Authorization) -> Routes {
        routes.add_service(OperatorGate::new(authorization, self.0.into_server()))
    }

    /// The service, for calls within the process.
    pub(crate) fn curator(&self) -> &CuratorService {
        &self.0
    }
}

#[tonic::async_trait]
impl Changes for Ingest {
    async fn apply(&self, change: CuratorChange) -> Result<(), ChangeError> {
        self.apply_query_change(change).await.map_err(|error| match error {
            ExperimentChangeError::Store(error) => ChangeError::Store(error),
            _ => ChangeError::Ended,
        })
    }
}
