//! The PostgreSQL database that replicas share.
//!
//! A replica keeps no state of its own. A unique key decides whether an upload is new, within the
//! statement that counts it.

mod cells;
mod changes;
mod checksums;
mod commit;
mod connection;
mod database;
mod days;
mod deletion;
mod disclosures;
mod handover;
mod heartbeat;
mod hosts;
mod records;
mod schema;
mod settings;
mod snapshot;
mod verify;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::explain::explain;
use bandana_shared::identity::{Day, Digest, StoreId};
use bandana_shared::specification::Specification;
use tokio::time::Instant;

use cells::Part;
pub use cells::{CellChange, CellPlan, CellReport, check_cells, grow_cells};
pub use cells::{CellNews, OpenCell, OpenedCells, StoreCells};
pub use checksums::seal_database;
use connection::LONG_ANSWER;
pub use connection::{PgConnection, Target, Waits};
pub(super) use database::Tables;
pub use handover::{Handover, HandoverMessage, Slot};
pub use heartbeat::{Connectivity, Heartbeat};
pub use records::Tallies;
pub use settings::{DatabaseUrl, DatabaseUrlError, PostgresSettings};
pub use snapshot::{ChangeFeed, Settled};
pub use verify::verify_database;

use super::{
    AuditEntry, Committed, CuratorChange, DatabaseError, EpochToAdd, ExpectedState,
    ExperimentChange, ExperimentRecord, ExperimentState, LearnerConfig, Presence, Store,
    StoreError, TrustedChange, Window, WrittenRecord, postgres,
};
use crate::deletion::deleted;
use crate::{ValidUpload, Verdict, log, queries, trusted};

/// The time for which a group of uploads is retried before its senders are told to come back.
const PATIENCE: Duration = Duration::from_millis(2500);

/// The pause before the first retry. It doubles, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The pause before a failed move of the replay window or a failed creation of partitions is
/// retried.
const WINDOW_PAUSE: Duration = Duration::from_secs(30);

/// Most sessions of a store cell that are lost one after another before an attempt is given up.
const SESSIONS_MAX: usize = 3;

/// The number of tally numbers for replicas that count at the same time. With more replicas, some
/// share a number and wait for each other's commits.
const REPLICAS_MAX: i32 = 256;

/// The class of the advisory locks for replica numbers: "BNDR".
const REPLICA_NUMBERS: i32 = 0x424e_4452;

/// A connection to the database through which experiments and uploads are written.
#[derive(Debug)]
pub struct PostgresStore {
    link: PgConnection,
    id: StoreId,
    settings: PostgresSettings,
    /// The number under which this replica's tallies are kept, for this connection.
    replica: Option<i32>,
    /// The first day of the replay window, as last read.
    oldest: Day,
    /// The newest day with a counted upload, as last read or committed here.
    newest: Option<Day>,
    /// The day for which partitions exist.
    prepared: Option<Day>,
    /// The time at which to retry moving the window.
    move_after: Option<Instant>,
    /// The time at which to retry creating partitions.
    prepare_after: Option<Instant>,
    /// The heartbeat's connectivity. None: the store has no heartbeat.
    connectivity: Option<Connectivity>,
    /// Whether the last group was given up.
    is_down: bool,
    /// The part of the store that is behind this connection.
    part: Part,
}

impl PostgresStore {
    /// Connects, and creates the tables or brings them up to date.
    ///
    /// Blocks, as the other methods do; must not be called from asynchronous code.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open(settings: &PostgresSettings) -> Result<Self, StoreError> {
        Self::open_with(Presence::Optional, settings)
    }

    /// Connects, and creates the tables or brings them up to date, as `presence` allows.
    ///
    /// # Errors
    /// [`StoreError`] when there is no such database, it belongs to a newer program, or `presence`
    /// does not hold. Nothing is created then.
    pub fn open_with(presence: Presence, settings: &PostgresSettings) -> Result<Self, StoreError> {
        Self::open_at(presence, settings, Arc::new(Target::new(settings)?), None)
    }

    /// As [`Self::open_with`], over connections to this target that use this connectivity.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open_at(
        presence: Presence,
        settings: &PostgresSettings,
        target: Arc<Target>,
        connectivity: Option<Connectivity>,
    ) -> Result<Self, StoreError> {
        let unknown = StoreId::new([0; 16]);
        let mut store = Self::beside(unknown, settings, target, Waits::UPLOADS, connectivity)?;
        let mut prepare = |store: &mut Self| {
            store.link.run_for_long(async |session| {
                let id = schema::prepare(session, presence).await?;
                cells::refuse_cell(&session.client).await?;
                checksums::check_at_start(session).await?;
                let sweep = session.client.batch_execute(handover::SWEEP).await;
                sweep.map_err(postgres("removing what was handed over"))?;
                Ok(id)
            })
        };
        store.id = store.patiently(&mut prepare)?;
        store.link.expect(store.id);
        (store.oldest, _) = store.link.run("reading", days::window)?;
        store.newest = store.link.run("reading", days::newest)?;
        Ok(store)
    }

    /// Another connection to the database of an open store. It connects on first use.
    ///
    /// # Errors
    /// [`StoreError::Open`] when its runtime can't start.
    pub fn beside(
        id: StoreId,
        settings: &PostgresSettings,
        target: Arc<Target>,
        waits: Waits,
        connectivity: Option<Connectivity>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            link: PgConnection::new(target, waits)?.with_connectivity(connectivity.clone()),
            id,
            settings: settings.clone(),
            replica: None,
            oldest: Day::new(0),
            newest: None,
            prepared: None,
            move_after: None,
            prepare_after: None,
            connectivity,
            is_down: false,
            part: Part::Whole,
        })
    }

    /// The store's id.
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// Tries until an attempt succeeds or fails for good, or [`PATIENCE`] is over. If the operation
    /// before was given up, there is a single attempt.
    fn patiently<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let begin = Instant::now();
        let mut is_first = true;
        let mut pause = PAUSE_MIN;
        loop {
            let outcome = attempt(self);
            match &outcome {
                Err(StoreError::Database(DatabaseError::Silent)) => return outcome,
                Err(error) if error.is_passing() => {
                    // The connection may have been lost long ago and only now be noticed.
                    if self.is_down || (!is_first && begin.elapsed() >= PATIENCE) {
                        self.is_down = true;
                        return outcome;
                    }
                    is_first = false;
                    tracing::warn!(
                        error = explain(error),
                        "the database did not answer; once more"
                    );
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                _ => {
                    self.is_down = false;
                    return outcome;
                }
            }
        }
    }

    /// Takes a number that no other connection has. The database reserves it for the life of the
    /// connection, so the number of a dead replica is free again.
    fn number(&mut self) -> Result<i32, StoreError> {
        if let Some(number) = self.replica.filter(|_| self.link.is_open()) {
            return Ok(number);
        }
        let number = self.link.run("counting replicas", async |session| {
            schema::check(session).await?;
            let take = "SELECT pg_try_advisory_lock($1, $2)";
            for number in 1..=REPLICAS_MAX {
                let row = session.client.query_one(take, &[&REPLICA_NUMBERS, &number]).await;
                if row.map_err(postgres("counting replicas"))?.get(0) {
                    return Ok(number);
                }
            }
            Ok(REPLICAS_MAX)
        })?;
        self.replica = Some(number);
        Ok(number)
    }

    /// Moves the replay window to the days up to `today`, and creates their partitions.
    fn prepare(&mut self, today: Day) -> Result<(), StoreError> {
        let is_behind = self.begin(today) > self.oldest;
        if is_behind && self.move_after.is_none_or(|at| Instant::now() >= at) {
            self.move_window(today)?;
        }
        if self.prepared.is_none_or(|prepared| prepared < today)
            && self.prepare_after.is_none_or(|at| Instant::now() >= at)
        {
            match self.make_room(today, &[]) {
                Ok(()) => self.prepared = Some(today),
                // Another replica is creating them, and days have partitions before they come.
                Err(error) if error.is_locked() => {
                    self.prepare_after = Some(Instant::now() + WINDOW_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The first day of the window that ends with `today`.
    fn begin(&self, today: Day) -> Day {
        today.back(self.settings.replay_window_days.saturating_sub(1))
    }

    fn move_window(&mut self, today: Day) -> Result<(), StoreError> {
        let (oldest, database_day) = self.link.run("reading", days::window)?;
        self.oldest = oldest;
        // Uses the earlier of the two clocks, as the statement does, so that commits don't wait in
        // vain.
        if self.begin(today.min(database_day)) > oldest {
            let days = self.settings.replay_window_days;
            let doing = "moving the replay window";
            let moved = self.link.run_within(LONG_ANSWER, doing, async |session| {
                days::expire(session, today, days).await
            });
            match moved {
                Ok(oldest) => self.oldest = oldest,
                // A window that was never moved has more days than there can be tables.
                Err(error) if oldest == Day::new(0) => return Err(error),
                // Ids are kept for longer: nothing is counted twice.
                Err(error) => {
                    tracing::warn!(error = explain(&error), "the replay window was not moved");
                }
            }
        }
        // By the database's clock, the time may not have come.
        let is_behind = self.begin(today) > self.oldest;
        self.move_after = is_behind.then(|| Instant::now() + WINDOW_PAUSE);
        Ok(())
    }

    fn make_room(&mut self, today: Day, others: &[i32]) -> Result<(), StoreError> {
        let days = self.settings.replay_window_days;
        let parts = self.settings.id_partitions;
        self.link.run_within(LONG_ANSWER, "making room for a day", async |session| {
            days::ensure(session, (today, days), others, parts).await
        })
    }

    /// Decides about the uploads without a verdict, whatever the outcome of the others.
    fn try_commit(
        &mut self,
        uploads: &[ValidUpload],
        today: Day,
        verdicts: &mut [Option<Verdict>],
    ) -> Result<(), StoreError> {
        let _committing = self.connectivity.as_ref().map(Connectivity::committing);
        self.prepare(today)?;
        let replica = self.number()?;
        let mut outcome = self.statement(uploads, today, replica, verdicts);
        if outcome.as_ref().is_err_and(StoreError::lacks_partition) {
            let days: BTreeSet<i32> = uploads.iter().map(|u| days::number(u.day)).collect();
            self.make_room(today, &days.into_iter().collect::<Vec<_>>())?;
            outcome = self.statement(uploads, today, replica, verdicts);
        }
        self.oldest = outcome?.unwrap_or(self.oldest);
        Ok(())
    }

    /// Runs the statement that commits. A store cell is told about experiments first, once for each
    /// session.
    fn statement(
        &mut self,
        uploads: &[ValidUpload],
        today: Day,
        replica: i32,
        verdicts: &mut [Option<Verdict>],
    ) -> Result<Option<Day>, StoreError> {
        let id = self.id;
        for _ in 0..SESSIONS_MAX {
            let told = self.told();
            let oldest = self.link.run("committing", async |session| {
                if told.is_some_and(|told| told != session.number) {
                    return Ok(None);
                }
                commit::commit(session, (id, uploads), today, replica, verdicts).await.map(Some)
            })?;
            match oldest {
                Some(oldest) => return Ok(oldest),
                None => self.be_told()?,
            }
        }
        Err(StoreError::Database(DatabaseError::Slow { doing: "connecting" }))
    }

    /// Makes sure that the connection works: an operation without retries must not fail because the
    /// connection was lost long ago.
    fn wake(&mut self) -> Result<(), StoreError> {
        let id = self.id;
        // A retry is safe, since nothing has begun.
        let awake = self.patiently(|store| {
            store.link.run("reading", async |session| schema::check_store(session, id).await)
        });
        awake.map_err(StoreError::not_made)
    }
}

impl Store for PostgresStore {
    fn load(&mut self) -> Result<Vec<ExperimentRecord>, StoreError> {
        self.patiently(|store| store.link.run("reading", snapshot::everything))
    }

    fn window(&self, _: Day) -> Window {
        Window { oldest: self.oldest, newest: self.newest, ids: None }
    }

    fn commit(&mut self, uploads: &[ValidUpload], today: Day) -> Result<Committed, StoreError> {
        let mut verdicts = vec![None; uploads.len()];
        let today = self.routed(today);
        let committed = self.patiently(|store| store.try_commit(uploads, today, &mut verdicts));
        self.noted(committed)?;
        let verdicts: Vec<Verdict> = verdicts.into_iter().flatten().collect();
        let judged = uploads.iter().zip(&verdicts);
        let counted = judged.filter(|(_, verdict)| **verdict == Verdict::Accepted);
        self.newest = self.newest.max(counted.map(|(upload, _)| upload.day).max());
        Ok(Committed { verdicts, deltas: Vec::new() })
    }

    fn create_experiment_with(
        &mut self,
        specification: &Specification,
        settings: (LearnerConfig, &WrittenRecord),
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.wake()?;
        // Policy versions of an earlier experiment with this name are not repeated.
        let random = getrandom::u64()
            .map_err(|source| StoreError::Database(DatabaseError::Entropy { source }))?;
        let first_version = changes::signed((random >> 2).max(1));
        let created = self.link.change(async |transaction| {
            let version = first_version;
            changes::create(transaction, specification, settings, state, version, entry).await
        })?;
        self.tell_cells();
        Ok(created)
    }

    fn apply_experiment_change(
        &mut self,
        change: ExperimentChange<'_>,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.wake()?;
        let elsewhere = self.elsewhere();
        let changed = self.link.change(async |transaction| {
            changes::change(transaction, &change, entry, &elsewhere).await
        })?;
        self.tell_cells();
        Ok(changed)
    }

    fn delete(&mut self, expected: ExpectedState, entry: &AuditEntry) -> Result<(), StoreError> {
        self.wake()?;
        let elsewhere = self.elsewhere();
        self.link.change(async |transaction| {
            deletion::delete(transaction, expected, entry, &elsewhere).await
        })?;
        self.tell_cells();
        Ok(())
    }

    fn deleted(&mut self) -> Result<Vec<Digest>, StoreError> {
        self.patiently(|store| {
            store.link.read(async |client| deleted(&Tables::reading(client)).await)
        })
    }

    fn apply_query_change(&mut self, change: &CuratorChange) -> Result<(), StoreError> {
        self.wake()?;
        self.link.change(async |transaction| {
            queries::change(&Tables::committing(transaction), change).await
        })
    }

    fn apply_trusted_change(&mut self, change: &TrustedChange) -> Result<(), StoreError> {
        self.wake()?;
        self.link.change(async |transaction| {
            trusted::change(&Tables::committing(transaction), change).await
        })
    }

    fn add_epoch(&mut self, addition: &EpochToAdd) -> Result<(), StoreError> {
        self.wake()?;
        self.link
            .change(async |transaction| log::add(&Tables::committing(transaction), addition).await)
    }

    fn check(&mut self, today: Day) -> Result<(), StoreError> {
        self.look(today);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        // Committed data is in the database; the connection closes by itself.
        Ok(())
    }
}
