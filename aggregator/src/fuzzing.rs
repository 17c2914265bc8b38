//! Access to private parsers of this crate, for the fuzzing package.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use bandana_edge::auth::Authorization;
use bandana_edge::clock::{Clock, SystemClock};
use bandana_edge::http::Http1Server;
use bandana_edge::memory::{Budget, Held, HoldingLayer};
use bandana_edge::peer::{Calling, Peer};
use bandana_edge::shutdown::{ShutdownNotifier, shutdown_signal};
use bandana_edge::telemetry::{Calls, Port, Watched};
use bandana_store::Presence;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use tokio::task::yield_now;
use tower::Layer as _;

use crate::api::{Exports, OperatorService, TrustedService};
use crate::configuration::{Configuration, Given, Origin, STORE_SETTINGS};
use crate::dashboard::{DashboardState, OperatorServices};
use crate::http::Pages;
use crate::metrics::Metrics;
use crate::queries::{DataSetSettings, Queries};
use crate::readiness::Readiness;
use crate::registry::Registry;
use crate::server::ServerSettings;
use crate::server::startup::{Core, LoadedStore};
use crate::views::experiment_settings::ExperimentSettings;

/// Parses a key file, and checks the round trip.
pub fn key_file(text: &str) {
    crate::cli::fuzz_key_file(text);
}

/// Parses the file of a new experiment, and builds the request.
pub fn draft(text: &str) {
    if let Ok(settings) = toml::from_str::<ExperimentSettings>(text) {
        settings.request(true).ok();
    }
}

/// Parses a URI and a body as the dashboard does.
pub fn request(address: &[u8], body: &[u8]) {
    let uri = Uri::try_from(address);
    crate::dashboard::fuzz_requests(uri.as_ref().ok(), body);
}

/// Capacity of an in-memory connection in each direction, in bytes.
const PIPE_BYTES: usize = 64 * 1024;

/// Memory budget for calls, in bytes.
const MEMORY: usize = 64 << 20;

/// Time limit of a call before the connection is closed, first in scheduler turns and then in
/// milliseconds.
const TURNS: u32 = 8;
const MILLISECONDS: u32 = 4;

/// Time limit for a closed connection to end.
const ENDLESS: Duration = Duration::from_secs(5);

/// The pages, with their calls counted and their memory charged.
type PageService = Watched<Held<axum::Router>>;

/// A server's pages over in-memory connections.
#[derive(Debug)]
pub struct PagesInMemory {
    runtime: Runtime,
    server: Http1Server<PageService>,
    budget: Budget,
    registry: Arc<Registry>,
    /// Dropping this shuts the server down.
    _ending: ShutdownNotifier,
}

impl PagesInMemory {
    /// The pages of a server without tokens, over a store in this directory.
    ///
    /// # Panics
    /// When the server can't start.
    pub fn open(directory: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let text = directory.display().to_string();
        let place = Given { setting: STORE_SETTINGS[0], text, origin: Origin::Default };
        let configuration = Configuration::load(None, vec![place]);
        let (configuration, _) = configuration.expect("nothing else must be set");
        let ServerSettings { connections, calls, store, .. } = configuration.into();
        let budget = Budget::new(MEMORY);
        let metrics = Arc::new(Metrics::new(&clock, budget.clone()));
        let dashboard_state = DashboardState::new(&connections, &calls);
        let (notifier, ending) = shutdown_signal();
        let core = runtime.block_on(async {
            let opening = LoadedStore::of((Presence::Optional, store), &clock, &metrics).await;
            opening.expect("a store").start(Arc::clone(&clock)).expect("threads")
        });
        let Core { registry, ingest, reader, disclosures, .. } = core;
        let (shown, readiness) = (Arc::clone(&registry), Readiness::default());
        metrics.opened(Arc::clone(&registry), ingest.clone(), readiness.clone());
        let (known, time) = (Arc::clone(&registry), Arc::clone(&clock));
        let trusted = TrustedService::new(known, &ingest, disclosures, time, budget.clone());
        let exports = Exports::new(reader.clone(), budget.clone());
        let data_sets = DataSetSettings { directory: None, analyst_percent: 100 };
        let queries = Queries::new(&ingest, &reader, &clock, data_sets);
        let operator =
            OperatorService::new(registry, ingest, reader, exports, Arc::clone(&clock), ending);
        dashboard_state.open(OperatorServices { operator, trusted, queries });
        let authorization =
            Authorization::new(None, metrics.unauthorised.clone(), Arc::clone(&clock));
        let holding = HoldingLayer::new(budget.clone(), calls.request_time, metrics.held.clone());
        let watched = Calls::new(Port::Operator, clock, metrics.calls.clone());
        let pages = Pages { authorization, metrics, readiness, dashboard_state };
        let server = Http1Server::new(watched.layer(holding.layer(pages.router())), &connections);
        Self { runtime, server, budget, registry: shown, _ending: notifier }
    }

    /// The number of experiments.
    pub fn experiments(&self) -> usize {
        self.registry.all().len()
    }

    /// Sends these bytes, closes the connection, and returns the response.
    ///
    /// # Panics
    /// When the connection does not end afterwards, or still holds memory of the budget.
    pub fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        let conversation = async {
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            let peer = Peer::default();
            let calling = Arc::clone(&peer.calling);
            let serving = self.server.serve_one(theirs, peer);
            let (mut hearing, mut saying) = tokio::io::split(ours);
            let saying = async move {
                // The peer may have closed the connection in response to earlier bytes.
                saying.write_all(bytes).await.ok();
                answered(&calling).await;
                saying.shutdown().await.ok();
            };
            let (_, (), heard) = tokio::join!(serving, saying, hearing.read_to_end(&mut answer));
            heard.expect("what is in memory can be read");
        };
        let ended = async { tokio::time::timeout(ENDLESS, conversation).await };
        self.runtime.block_on(ended).expect("a connection that was closed ends");
        assert_eq!(self.budget.held(), 0, "bytes are held for nobody");
        answer
    }
}

/// Waits until no call is under way, or for a limited time: some calls wait for more input, and
/// some responses never end.
async fn answered(calling: &Calling) {
    for _ in 0..TURNS {
        yield_now().await;
    }
    for _ in 0..MILLISECONDS {
        if calling.under_way() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
