//! The startup of a server: building the parts of services from the settings.

use std::sync::{Arc, mpsc};

use bandana_edge::clock::Clock;
use bandana_shared::identity::StoreId;
use bandana_store::{
    Connectivity, EmbeddedStore, Handover, Heartbeat, OpenCell, OpenFiles, OpenedCells,
    PostgresSettings, PostgresStore, Presence, Store, StoreCells, StoreError, StoreReader, Target,
    Waits,
};
use futures_util::future::try_join_all;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{oneshot, watch};

use crate::disclosures::{DisclosureWriter, DisclosureWriterHandle};
use crate::ingest::IngestMetrics;
use crate::ingest::{Ingest, Writer, WriterError, try_again};
use crate::metrics::Metrics;
use crate::policy_updater;
use crate::registry::{Experiment, Registry};
use crate::replica::Follower;
use crate::server::{ServerError, StoreSettings};

/// The store, loaded into memory.
pub(crate) struct LoadedStore {
    store: StoreId,
    files: Option<Arc<OpenFiles>>,
    registry: Arc<Registry>,
    ingest: Ingest,
    reader: StoreReader,
    /// Damage that readers of the store have detected.
    damage: UnboundedReceiver<StoreError>,
    window_days: u32,
    /// The writer of uploads, and further writers if any.
    writers: Vec<Writer>,
    policies: Policies,
}

/// The source of policies.
enum Policies {
    /// Computed in this process; at once for the experiments on this channel.
    Own(mpsc::Receiver<Arc<Experiment>>),
    /// Shared with other replicas.
    Shared {
        follower: Box<Follower>,
        /// Of the database, and of each store cell.
        heartbeats: Vec<Heartbeat>,
        handover: Box<Handover>,
        /// Whether the database is reachable, according to each connection.
        reachable: [watch::Receiver<bool>; 2],
    },
}

/// An opened store.
struct Opened {
    id: StoreId,
    /// The open files to watch, if the store is in files.
    files: Option<Arc<OpenFiles>>,
    store: Box<dyn Store>,
    reader: StoreReader,
    shared: Option<Shared>,
}

/// The additional parts of a store that replicas share.
struct Shared {
    cells: Arc<StoreCells>,
    /// A store for the uploads of each store cell.
    cell_stores: Vec<Box<dyn Store>>,
    cell_heartbeats: Vec<Heartbeat>,
    /// Connections for changes and for disclosures.
    stores: [Box<dyn Store>; 2],
    target: Arc<Target>,
    heartbeat: Heartbeat,
    connectivity: Connectivity,
}

/// The parts of a running server.
#[derive(Debug)]
pub(crate) struct Core {
    /// The store's id.
    pub(crate) store: StoreId,
    pub(crate) registry: Arc<Registry>,
    pub(crate) ingest: Ingest,
    pub(crate) reader: StoreReader,
    /// The handle of the disclosure writer.
    pub(crate) disclosures: DisclosureWriterHandle,
    /// Damage that readers of the store have detected.
    pub(crate) damage: UnboundedReceiver<StoreError>,
    /// The outcome of the writer.
    pub(crate) ended: oneshot::Receiver<Result<(), WriterError>>,
    /// The outcome of the thread that computes or follows policies; fails when it panicked.
    pub(crate) policies_ended: oneshot::Receiver<Result<(), StoreError>>,
    /// Fails when the thread that takes disclosures panicked.
    pub(crate) disclosures_ended: oneshot::Receiver<()>,
    /// Whether the store can accept uploads, according to several observers: all must agree. A
    /// shared database must be reachable; an embedded store must have room for further upload ids.
    pub(crate) reachable: Vec<watch::Receiver<bool>>,
}

impl LoadedStore {
    /// Loads the store on a separate thread, because it can take seconds.
    pub(crate) async fn of(
        (presence, settings): (Presence, StoreSettings),
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<Self, ServerError> {
        let (clock, ingest_metrics) = (Arc::clone(clock), metrics.ingest.clone());
        let (opened, opening) = oneshot::channel::<Result<Self, ServerError>>();
        spawn("opening", move || {
            let read = || Self::read(presence, &settings, &clock, ingest_metrics);
            // The receiver may have been shut down.
            drop(opened.send(read()));
        })?;
        opening.await.map_err(|_| ServerError::OpeningPanicked)?
    }

    fn read(
        presence: Presence,
        settings: &StoreSettings,
        clock: &Arc<dyn Clock>,
        metrics: IngestMetrics,
    ) -> Result<Self, ServerError> {
        let Opened { id, files, store, reader, shared } = open(presence, settings, &**clock)?;
        let trusted = reader.trusted(None)?;
        let (found, damage) = unbounded_channel();
        let reader = reader.telling(found);
        let ids = store.window(clock.day()).ids.map(|(ids, _)| ids);
        let random = getrandom::u64().map_err(ServerError::Entropy)?;
        let registry = Arc::new(Registry::new(random, Arc::clone(clock)));
        for record in &trusted {
            registry.trusted().publish_record(record).map_err(|error| match settings {
                StoreSettings::Embedded { data_dir, .. } => error.located(data_dir),
                StoreSettings::Postgres(_) => error,
            })?;
        }
        let trusted = trusted.len();
        let (due, experiments_due) = mpsc::channel();
        let (of_registry, of_clock) = (Arc::clone(&registry), Arc::clone(clock));
        let (writer, mut ingest) = Writer::open(store, of_registry, of_clock, due, metrics)?;
        let mut writers = Vec::new();
        let policies = match shared {
            None => Policies::Own(experiments_due),
            Some(Shared {
                cells,
                cell_stores,
                cell_heartbeats,
                stores,
                target,
                heartbeat,
                connectivity,
            }) => {
                writers.extend(writer.beside(&mut ingest, stores));
                for (cell, of_cell) in cells.all().iter().zip(writer.of_cells(
                    &mut ingest,
                    cells.routing(),
                    cell_stores,
                )) {
                    cell.commits_by(of_cell.commits().subscribe());
                    writers.push(of_cell);
                }
                ingest.metrics().watch_cells(Arc::clone(&cells));
                let answers = connectivity.watch();
                let handover =
                    Handover::of_target(Arc::clone(&target), Some(connectivity.clone()))?;
                let handover = Box::new(handover);
                let (follower, follows) =
                    Follower::of_target(target, Some(connectivity), &registry, Arc::clone(clock))?;
                let mut follower = follower.over(cells)?;
                follower.begin(&registry)?;
                let follower = Box::new(follower);
                let heartbeats = std::iter::once(heartbeat).chain(cell_heartbeats).collect();
                Policies::Shared { follower, heartbeats, handover, reachable: [answers, follows] }
            }
        };
        writers.insert(0, writer);
        let experiments = registry.all().len();
        tracing::info!(store = %id, experiments, trusted, ids, "store opened");
        let window_days = settings.window_days();
        Ok(Self {
            store: id,
            files,
            registry,
            ingest,
            reader,
            damage,
            window_days,
            writers,
            policies,
        })
    }

    /// Starts the writers and the source of policies.
    pub(crate) fn start(self, clock: Arc<dyn Clock>) -> Result<Core, ServerError> {
        let Self { store, files, registry, ingest, reader, damage, .. } = self;
        let Self { window_days, writers, policies, .. } = self;
        let (mut disclosures, handle) = DisclosureWriter::new(
            Arc::clone(&registry),
            ingest.clone(),
            reader.clone(),
            Arc::clone(&clock),
            window_days,
        );
        // The first writer accepts the uploads.
        let room = writers.first().map(Writer::room);
        let commits = writers.first().map(Writer::commits);
        if let (Some(files), Some(room)) = (files, &room) {
            tokio::spawn(ingest.clone().look_after(Arc::downgrade(&files), room.clone()));
        }
        tokio::spawn(ingest.clone().look_at_cells());
        let ended = write(writers)?;
        let (end, policies_ended) = oneshot::channel();
        let mut reachable = Vec::new();
        match policies {
            Policies::Own(due) => {
                reachable.extend(room);
                let registry = Arc::clone(&registry);
                let harm = ingest.harm_watch();
                spawn("policy", move || {
                    policy_updater::run(&due, &registry, &*clock, harm);
                    // The receiver may be gone.
                    end.send(Ok(())).ok();
                })?;
            }
            Policies::Shared { follower, heartbeats, handover, reachable: told } => {
                reachable.extend(told);
                if let Some(commits) = commits {
                    reachable.push(commits.subscribe());
                    tokio::spawn(try_again(commits));
                }
                disclosures = disclosures.sharing_by(*handover)?;
                for heartbeat in heartbeats {
                    // The thread ends by itself when its receivers are gone.
                    spawn("heartbeat", move || heartbeat.run())?;
                }
                let follower = follower.watching(ingest.harm_watch());
                spawn("follower", move || drop(end.send(follower.run())))?;
            }
        }
        let (end, disclosures_ended) = oneshot::channel();
        spawn("disclosures", move || {
            disclosures.run();
            // The receiver may be gone.
            end.send(()).ok();
        })?;
        Ok(Core {
            store,
            registry,
            ingest,
            reader,
            disclosures: handle,
            damage,
            ended,
            policies_ended,
            disclosures_ended,
            reachable,
        })
    }
}

/// Starts the writers. The outcome arrives when all have ended, or one has failed.
fn write(writers: Vec<Writer>) -> Result<oneshot::Receiver<Result<(), WriterError>>, ServerError> {
    let mut running = Vec::new();
    for writer in writers {
        let (end, ended) = oneshot::channel();
        // The server that waited for the outcome may have been dropped.
        spawn("writer", move || drop(end.send(writer.run())))?;
        running.push(ended);
    }
    let (end, ended) = oneshot::channel();
    tokio::spawn(async move {
        let outcomes = running.into_iter().map(async |ended| match ended.await {
            Ok(outcome) => outcome.map_err(Some),
            // The writer panicked.
            Err(_) => Err(None),
        });
        let outcome = match try_join_all(outcomes).await {
            Ok(_) => Ok(()),
            Err(Some(error)) => Err(error),
            // Dropping the sender reports the panic.
            Err(None) => return,
        };
        end.send(outcome).ok();
    });
    Ok(ended)
}

fn open(
    presence: Presence,
    settings: &StoreSettings,
    clock: &dyn Clock,
) -> Result<Opened, StoreError> {
    match settings {
        StoreSettings::Embedded { data_dir, settings } => {
            let mut store = EmbeddedStore::open_with(presence, data_dir, *settings)?;
            store.start_on(clock.day());
            let (id, files) = (store.id(), Some(store.files()));
            let (store, reader) = (Box::new(store), StoreReader::new(data_dir));
            Ok(Opened { id, files, store, reader, shared: None })
        }
        StoreSettings::Postgres(settings) => open_shared(presence, settings, clock),
    }
}

/// Opens the shared store. All connections use one target, which learns from the first one the id
/// of the store to expect.
fn open_shared(
    presence: Presence,
    settings: &PostgresSettings,
    clock: &dyn Clock,
) -> Result<Opened, StoreError> {
    let target = Arc::new(Target::new(settings)?);
    let (heartbeat, connectivity) = Heartbeat::new(Arc::clone(&target))?;
    let pulsing = || Some(connectivity.clone());
    let store = PostgresStore::open_at(presence, settings, Arc::clone(&target), pulsing())?;
    let id = store.id();
    let home = (Arc::clone(&target), pulsing());
    let OpenedCells { cells, heartbeats: cell_heartbeats } =
        OpenedCells::open(presence, settings, home, id, clock.day())?;
    let store = store.into_home(&cells);
    let reader = StoreReader::of_target(Arc::clone(&target), pulsing())?.over(&cells)?;
    let beside = |waits| -> Result<Box<dyn Store>, StoreError> {
        let target = Arc::clone(&target);
        let store = PostgresStore::beside(id, settings, target, waits, pulsing())?;
        Ok(Box::new(store.into_home(&cells)))
    };
    let stores = [beside(Waits::CHANGES)?, beside(Waits::DISCLOSURES)?];
    let of_cell = |cell: &OpenCell| -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(cell.store(&cells)?))
    };
    let cell_stores = cells.all().iter().map(of_cell).collect::<Result<_, _>>()?;
    let shared =
        Shared { cells, cell_stores, cell_heartbeats, stores, target, heartbeat, connectivity };
    let shared = Some(shared);
    Ok(Opened { id, files: None, store: Box::new(store), reader, shared })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), ServerError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(drop).map_err(ServerError::Thread)
}
