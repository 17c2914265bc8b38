//! From settings to what services are made of.

use std::sync::{Arc, mpsc};

use bandana_shared::identity::StoreId;
use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::ingest::{Ingest, Writer, WriterError};
use crate::policy;
use crate::registry::{Experiment, Registry};
use crate::replica::Follower;
use crate::server::{ServerError, StoreSettings};
use crate::store::{
    EmbeddedStore, OpenFiles, PostgresStore, Presence, Store, StoreError, StoreReader,
};
use crate::telemetry::Metrics;
use crate::trusted::keeper::{Keeper, KeeperHandle};

/// The store, read into memory.
pub(crate) struct Opening {
    store: StoreId,
    files: Option<Arc<OpenFiles>>,
    registry: Arc<Registry>,
    ingest: Ingest,
    reader: StoreReader,
    window_days: u32,
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
    /// Which store it is.
    pub(crate) store: StoreId,
    pub(crate) registry: Arc<Registry>,
    pub(crate) ingest: Ingest,
    pub(crate) reader: StoreReader,
    /// The way of disclosures to trusted experiments.
    pub(crate) keeper: KeeperHandle,
    /// What the writer ended with.
    pub(crate) ended: oneshot::Receiver<Result<(), WriterError>>,
    /// What the thread that computes or follows policies ended with; fails when it
    /// panicked.
    pub(crate) policies_ended: oneshot::Receiver<Result<(), StoreError>>,
    /// Fails when the thread that takes disclosures panicked.
    pub(crate) keeper_ended: oneshot::Receiver<()>,
    /// Whether the database can be reached. None: it is part of this process.
    pub(crate) reachable: Option<watch::Receiver<bool>>,
}

impl Opening {
    /// Reads the store, on a thread of its own: it can take seconds.
    pub(crate) async fn of(
        (presence, settings): (Presence, StoreSettings),
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, ServerError> {
        let (clock, ingest_metrics) = (Arc::clone(clock), metrics.ingest.clone());
        let (opened, opening) = oneshot::channel::<Result<Self, ServerError>>();
        spawn("opening", move || {
            let read = || {
                let Opened { id, files, store, reader } = Opened::of(presence, &settings, &*clock)?;
                let ids = store.window(clock.day()).ids.map(|(ids, _)| ids);
                let random = getrandom::u64().map_err(ServerError::Entropy)?;
                let registry = Arc::new(Registry::new(random, Arc::clone(&clock)));
                let trusted =
                    show_trusted(&reader, &registry).map_err(|error| match &settings {
                        StoreSettings::Embedded { data_dir, .. } => error.located(data_dir),
                        StoreSettings::Postgres(_) => error,
                    })?;
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
                        Policies::Shared(Box::new(follower.expecting(id)), reachable)
                    }
                };
                let experiments = registry.all().len();
                tracing::info!(store = %id, experiments, trusted, ids, "store opened");
                let window_days = settings.window_days();
                Ok(Self {
                    store: id,
                    files,
                    registry,
                    ingest,
                    reader,
                    window_days,
                    writer,
                    policies,
                })
            };
            // Whoever waited may have been told to end.
            drop(opened.send(read()));
        })?;
        opening.await.map_err(|_| ServerError::OpeningPanicked)?
    }

    /// Starts the writer and what policies come from.
    pub(crate) fn start(self, clock: Arc<dyn Clock>) -> Result<Core, ServerError> {
        let Self { store, files, registry, ingest, reader, window_days, writer, policies } = self;
        let (keeper, handle) = Keeper::new(
            Arc::clone(&registry),
            ingest.clone(),
            reader.clone(),
            Arc::clone(&clock),
            window_days,
        );
        if let Some(files) = files {
            tokio::spawn(ingest.clone().look_after(files));
        }
        let (end, ended) = oneshot::channel();
        // The server that waited for it may have been dropped.
        spawn("writer", move || drop(end.send(writer.run())))?;
        let (end, keeper_ended) = oneshot::channel();
        spawn("keeper", move || {
            keeper.run();
            // Nobody may be left to hear it.
            end.send(()).ok();
        })?;
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
        Ok(Core {
            store,
            registry,
            ingest,
            reader,
            keeper: handle,
            ended,
            policies_ended,
            keeper_ended,
            reachable,
        })
    }
}

/// A store, and what reads beside it.
struct Opened {
    id: StoreId,
    /// What to look after, if it is in files.
    files: Option<Arc<OpenFiles>>,
    store: Box<dyn Store>,
    reader: StoreReader,
}

impl Opened {
    fn of(
        presence: Presence,
        settings: &StoreSettings,
        clock: &dyn Clock,
    ) -> Result<Self, StoreError> {
        Ok(match settings {
            StoreSettings::Embedded { data_dir, settings } => {
                let mut store = EmbeddedStore::open_with(presence, data_dir, *settings)?;
                store.start_on(clock.day());
                let (id, files) = (store.id(), Some(store.files()));
                Self { id, files, store: Box::new(store), reader: StoreReader::new(data_dir) }
            }
            StoreSettings::Postgres(settings) => {
                let store = PostgresStore::open_with(presence, settings)?;
                let id = store.id();
                let reader = StoreReader::of_postgres(settings)?.expecting(id);
                Self { id, files: None, store: Box::new(store), reader }
            }
        })
    }
}

/// Shows the trusted experiments, and tells how many there are.
fn show_trusted(reader: &StoreReader, registry: &Registry) -> Result<usize, StoreError> {
    let records = reader.trusted(None)?;
    for record in &records {
        registry.trusted().show(record)?;
    }
    Ok(records.len())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop).map_err(ServerError::Thread)
}
