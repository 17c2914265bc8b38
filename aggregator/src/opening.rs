//! From settings to what services are made of.

use std::sync::{Arc, Mutex, mpsc};

use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::ingest::{Ingest, Writer, WriterError};
use crate::policy;
use crate::registry::{Experiment, Registry};
use crate::replica::Follower;
use crate::server::{ServerError, StoreSettings};
use crate::store::{EmbeddedStore, PostgresStore, Store, StoreError, StoreReader};
use crate::telemetry::Metrics;
use crate::trusted::keeper::KeeperError;
use crate::trusted::shelf::Shelf;

/// The store, read into memory.
pub(crate) struct Opening {
    registry: Arc<Registry>,
    ingest: Ingest,
    reader: StoreReader,
    trusted: Option<Arc<Mutex<Shelf>>>,
    writer: Writer,
    policies: Policies,
}

/// Where policies come from.
enum Policies {
    /// They are computed here, for these experiments at once.
    Own(mpsc::Receiver<Arc<Experiment>>),
    /// They are shared with other replicas.
    Shared(Box<Follower>, watch::Receiver<bool>),
}

/// What there is while a server serves.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) registry: Arc<Registry>,
    pub(crate) ingest: Ingest,
    pub(crate) reader: StoreReader,
    /// The trusted experiments, where there is a directory to keep them in.
    pub(crate) trusted: Option<Arc<Mutex<Shelf>>>,
    /// What the writer ended with.
    pub(crate) ended: oneshot::Receiver<Result<(), WriterError>>,
    /// What the thread that computes or follows policies ended with; fails when it
    /// panicked.
    pub(crate) policies_ended: oneshot::Receiver<Result<(), StoreError>>,
    /// Whether the database can be reached. None: it is part of this process.
    pub(crate) reachable: Option<watch::Receiver<bool>>,
}

impl Opening {
    /// Reads the store, on a thread of its own: it can take seconds.
    pub(crate) async fn of(
        settings: StoreSettings,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, ServerError> {
        let (clock, ingest_metrics) = (Arc::clone(clock), metrics.ingest.clone());
        let (opened, opening) = oneshot::channel::<Result<Self, ServerError>>();
        spawn("opening", move || {
            let read = || {
                let (store, reader) = open(&settings, &*clock)?;
                let trusted = shelf(&settings)?;
                let ids = store.window(clock.day()).ids.map(|(ids, _)| ids);
                let random = getrandom::u64().map_err(ServerError::Entropy)?;
                let registry = Arc::new(Registry::new(random, Arc::clone(&clock)));
                let (due, experiments_due) = mpsc::channel();
                let (writer, ingest) = Writer::open(
                    store,
                    Arc::clone(&registry),
                    Arc::clone(&clock),
                    due,
                    ingest_metrics,
                )?;
                let policies = match &settings {
                    StoreSettings::Embedded { .. } => Policies::Own(experiments_due),
                    StoreSettings::Postgres(settings) => {
                        let (follower, reachable) = Follower::new(settings, &registry, clock)?;
                        Policies::Shared(Box::new(follower), reachable)
                    }
                };
                tracing::info!(experiments = registry.all().len(), ids, "store opened");
                Ok(Self { registry, ingest, reader, trusted, writer, policies })
            };
            // Whoever waited may have been told to end.
            drop(opened.send(read()));
        })?;
        opening.await.map_err(|_| ServerError::OpeningPanicked)?
    }

    /// Starts the writer and what policies come from.
    pub(crate) fn start(self, clock: Arc<dyn Clock>) -> Result<Core, ServerError> {
        let Self { registry, ingest, reader, trusted, writer, policies } = self;
        let (end, ended) = oneshot::channel();
        // The server that waited for it may have been dropped.
        spawn("writer", move || drop(end.send(writer.run())))?;
        let (end, policies_ended) = oneshot::channel();
        let mut reachable = None;
        match policies {
            Policies::Own(due) => {
                let registry = Arc::clone(&registry);
                spawn("policy", move || {
                    policy::run(&due, &registry, &*clock);
                    // Nobody may be left to hear it.
                    end.send(Ok(())).ok();
                })?;
            }
            Policies::Shared(follower, is_reachable) => {
                reachable = Some(is_reachable);
                spawn("follower", move || drop(end.send(follower.run())))?;
            }
        }
        Ok(Core { registry, ingest, reader, trusted, ended, policies_ended, reachable })
    }
}

fn open(
    settings: &StoreSettings,
    clock: &dyn Clock,
) -> Result<(Box<dyn Store>, StoreReader), StoreError> {
    Ok(match settings {
        StoreSettings::Embedded { data_dir, settings } => {
            let mut store = EmbeddedStore::open(data_dir, *settings)?;
            store.start_on(clock.day());
            (Box::new(store), StoreReader::new(data_dir))
        }
        StoreSettings::Postgres(settings) => {
            let store = PostgresStore::open(settings)?;
            (Box::new(store), StoreReader::of_postgres(settings)?)
        }
    })
}

/// The trusted experiments; the directory is this process's own by now.
fn shelf(settings: &StoreSettings) -> Result<Option<Arc<Mutex<Shelf>>>, KeeperError> {
    match settings {
        StoreSettings::Embedded { data_dir, .. } => {
            Ok(Some(Arc::new(Mutex::new(Shelf::open(data_dir.clone())?))))
        }
        StoreSettings::Postgres(_) => Ok(None),
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop).map_err(ServerError::Thread)
}
