//! From settings to what services are made of.

use std::sync::{Arc, mpsc};

use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::ingest::{Ingest, Writer, WriterError};
use crate::policy;
use crate::registry::Registry;
use crate::replica::Follower;
use crate::server::{ServerError, StoreSettings};
use crate::store::{EmbeddedStore, PostgresStore, Store, StoreError, StoreReader};

/// What there is while a server serves.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) registry: Arc<Registry>,
    pub(crate) ingest: Ingest,
    pub(crate) reader: StoreReader,
    /// What the writer ended with.
    pub(crate) ended: oneshot::Receiver<Result<(), WriterError>>,
    /// What the thread that computes or follows policies ended with; fails when it
    /// panicked.
    pub(crate) policies_ended: oneshot::Receiver<Result<(), StoreError>>,
    /// Whether the database can be reached. None: it is part of this process.
    pub(crate) reachable: Option<watch::Receiver<bool>>,
}

impl Core {
    /// Opens the store and starts the threads, on a thread of its own: it can take
    /// seconds.
    pub(crate) async fn open(
        settings: StoreSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServerError> {
        let (opened, opening) = oneshot::channel();
        // Whoever waited may have gone away.
        spawn("opening", move || drop(opened.send(Self::read(&settings, clock))))?;
        opening.await.map_err(|_| ServerError::OpeningPanicked)?
    }

    fn read(settings: &StoreSettings, clock: Arc<dyn Clock>) -> Result<Self, ServerError> {
        let (store, reader): (Box<dyn Store>, StoreReader) = match settings {
            StoreSettings::Embedded { data_dir, settings } => {
                let store = EmbeddedStore::open(data_dir, *settings)?;
                (Box::new(store), StoreReader::new(data_dir))
            }
            StoreSettings::Postgres(settings) => {
                let store = PostgresStore::open(settings)?;
                (Box::new(store), StoreReader::of_postgres(settings)?)
            }
        };
        let ids = store.window().ids.map(|(ids, _)| ids);
        let random = getrandom::u64().map_err(ServerError::Entropy)?;
        let registry = Arc::new(Registry::new(random));
        let (due, experiments_due) = mpsc::channel();
        let (writer, ingest) = Writer::open(store, Arc::clone(&registry), Arc::clone(&clock), due)?;
        tracing::info!(experiments = registry.all().len(), ids, "store opened");
        let (end, ended) = oneshot::channel();
        // The server that waited for it may have been dropped.
        spawn("writer", move || drop(end.send(writer.run())))?;
        let (end, policies_ended) = oneshot::channel();
        let mut reachable = None;
        match settings {
            StoreSettings::Embedded { .. } => {
                let registry = Arc::clone(&registry);
                spawn("policy", move || {
                    policy::run(&experiments_due, &registry, &*clock);
                    // Nobody may be left to hear it.
                    end.send(Ok(())).ok();
                })?;
            }
            StoreSettings::Postgres(settings) => {
                let (follower, is_reachable) = Follower::new(settings, &registry, clock)?;
                reachable = Some(is_reachable);
                spawn("follower", move || drop(end.send(follower.run())))?;
            }
        }
        Ok(Self { registry, ingest, reader, ended, policies_ended, reachable })
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop).map_err(ServerError::Thread)
}
