//! Stub for private queries of data sets in a build without them.

use std::path::PathBuf;
use std::sync::Arc;

use bandana_edge::auth::Authorization;
use bandana_edge::clock::Clock;
use bandana_store::StoreReader;
use tonic::service::Routes;

use crate::ingest::Ingest;

/// Settings of data sets, which a configuration for this program leaves as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSetSettings {
    /// The directory of their files.
    pub directory: Option<PathBuf>,
    /// The part of each budget that one analyst may spend, in percent.
    pub analyst_percent: u32,
}

/// The service for data sets, which this program does not have.
#[derive(Clone, Debug)]
pub struct Queries;

impl Queries {
    /// Whether this program answers queries.
    pub const ARE_BUILT_IN: bool = false;

    /// No service.
    pub fn new(_: &Ingest, _: &StoreReader, _: &Arc<dyn Clock>, _: DataSetSettings) -> Self {
        Self
    }

    /// Adds nothing.
    pub(crate) fn mount(self, routes: Routes, _: &Authorization) -> Routes {
        let Self = self;
        routes
    }
}
