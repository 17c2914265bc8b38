//! From a data directory to what services are made of.

use std::path::Path;
use std::sync::{Arc, mpsc};

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::ingest::{Ingest, Writer, WriterError, WriterSettings};
use crate::policy;
use crate::registry::{Experiment, Registry};
use crate::server::ServerError;
use crate::store::{SqliteStore, StoreReader};
use crate::telemetry::Metrics;

/// The store, read into memory.
pub(crate) struct Opening {
    registry: Arc<Registry>,
    ingest: Ingest,
    reader: StoreReader,
    writer: Writer,
    experiments_due: mpsc::Receiver<Arc<Experiment>>,
}

/// What is there while a server serves.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) registry: Arc<Registry>,
    pub(crate) ingest: Ingest,
    pub(crate) reader: StoreReader,
    /// What the writer ended with.
    pub(crate) ended: oneshot::Receiver<Result<(), WriterError>>,
    /// Tells when the policy thread has done its work; fails when it panicked.
    pub(crate) policy_ended: oneshot::Receiver<()>,
}

impl Opening {
    /// Reads the store, on a thread of its own: it can take seconds.
    pub(crate) async fn of(
        directory: &Path,
        settings: WriterSettings,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, ServerError> {
        let (directory, clock) = (directory.to_owned(), Arc::clone(clock));
        let metrics = metrics.ingest.clone();
        let (opened, opening) = oneshot::channel::<Result<Self, ServerError>>();
        spawn("opening", move || {
            let read = || {
                let store =
                    SqliteStore::open(&directory).map_err(|error| error.located(&directory))?;
                let reader = StoreReader::new(&directory);
                let random = getrandom::u64().map_err(ServerError::Entropy)?;
                let registry = Arc::new(Registry::new(random, Arc::clone(&clock)));
                let (due, experiments_due) = mpsc::channel();
                let (writer, ingest) =
                    Writer::open(store, Arc::clone(&registry), clock, settings, due, metrics)
                        .map_err(|error| error.located(&directory))?;
                Ok(Self { registry, ingest, reader, writer, experiments_due })
            };
            // Whoever waited may have been told to end.
            drop(opened.send(read()));
        })?;
        let opening = opening.await.map_err(|_| ServerError::OpeningPanicked)??;
        let (experiments, ids) = (opening.registry.all().len(), opening.writer.ids());
        tracing::info!(experiments, ids, "store opened");
        Ok(opening)
    }

    /// Starts the writer and the policy thread.
    pub(crate) fn start(self, clock: Arc<dyn Clock>) -> Result<Core, ServerError> {
        let Self { registry, ingest, reader, writer, experiments_due } = self;
        let (end, ended) = oneshot::channel();
        // The server that waited for it may have been dropped.
        spawn("writer", move || drop(end.send(writer.run())))?;
        let policy_registry = Arc::clone(&registry);
        let (policy_end, policy_ended) = oneshot::channel();
        spawn("policy", move || {
            policy::run(&experiments_due, &policy_registry, &*clock);
            // Nobody may be left to hear it.
            policy_end.send(()).ok();
        })?;
        Ok(Core { registry, ingest, reader, ended, policy_ended })
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop).map_err(ServerError::Thread)
}
