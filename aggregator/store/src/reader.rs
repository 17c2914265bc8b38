//! Reading a store while a server has it open.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bandana_shared::identity::{CellIndex, Day, ExperimentId, Revision, UploadId};
use bandana_shared::tally::Tally;
use bandana_sqlite::{BUSY_TIMEOUT, DATABASE_FILE};
use rusqlite::{Connection, OpenFlags};
use tokio::sync::mpsc;
use tokio_postgres::Client;

use super::embedded::{self, reading};
use super::postgres::{Connectivity, PgConnection, Tables, Target, Waits};
use super::{
    AuditQuery, AuditRecord, CuratorName, DailyTally, DamageError, DataSetRecord, DatabaseError,
    DebitRecord, ExperimentKey, KeptAnswer, OpenCell, PostgresSettings, QuestionKey, RevisionTally,
    SessionRecord, SessionUpdate, StoreCell, StoreCells, StoreError, StoredEpoch, TrustedRecord,
    audit, log, over_revisions, queries, trusted,
};
use crate::daily_tallies::{daily_tallies, days_with_tallies};
use crate::database::{Database, Dialect, Row, Value};
use crate::fingerprint::FingerprintKey;
use crate::trusted::Disclosures as _;

/// Reads committed data on its own connections, so that no commit waits for a read.
///
/// The methods block, and must not be called from asynchronous code.
#[derive(Clone, Debug)]
pub struct StoreReader {
    place: StoreLocation,
    /// The store cells, for counts.
    cells: Vec<CellLink>,
    /// The channel that damage is reported to, once. None: only the caller of a read learns of
    /// damage.
    damage: Option<mpsc::UnboundedSender<StoreError>>,
}

#[derive(Clone, Debug)]
enum StoreLocation {
    /// A directory; every call opens a connection.
    Embedded(PathBuf),
    /// One connection, which calls take turns on, so that readers can't take the connections that
    /// writers need.
    Postgres(Arc<Mutex<PgConnection>>),
}

/// A connection to a store cell.
type CellLink = (Arc<StoreCells>, StoreCell, Arc<Mutex<PgConnection>>);

impl StoreReader {
    /// A reader of the store in `directory`, which must be open.
    pub fn new(directory: &Path) -> Self {
        let place = StoreLocation::Embedded(directory.join(DATABASE_FILE));
        Self { place, cells: Vec::new(), damage: None }
    }

    /// A reader of a database that replicas share, which must have its tables. The first read
    /// connects.
    ///
    /// # Errors
    /// [`StoreError`] when a file can't be used.
    pub fn of_postgres(settings: &PostgresSettings) -> Result<Self, StoreError> {
        Self::of_target(Arc::new(Target::new(settings)?), None)
    }

    /// As [`Self::of_postgres`], over connections to this target that use this connectivity.
    ///
    /// # Errors
    /// [`StoreError::Open`] when its runtime can't start.
    pub fn of_target(
        target: Arc<Target>,
        connectivity: Option<Connectivity>,
    ) -> Result<Self, StoreError> {
        let link = PgConnection::new(target, Waits::READING)?.with_connectivity(connectivity);
        let place = StoreLocation::Postgres(Arc::new(Mutex::new(link)));
        Ok(Self { place, cells: Vec::new(), damage: None })
    }

    /// Reads counts in these store cells too.
    ///
    /// # Errors
    /// [`StoreError::Open`] when a runtime can't start.
    pub fn over(self, cells: &Arc<StoreCells>) -> Result<Self, StoreError> {
        let link = |cell: &OpenCell| {
            let link = Arc::new(Mutex::new(cell.link(Waits::READING)?));
            Ok((Arc::clone(cells), cell.number(), link))
        };
        let cells = cells.all().iter().map(link).collect::<Result<_, StoreError>>()?;
        Ok(Self { cells, ..self })
    }

    /// Reads counts, in the store and in all of its cells.
    fn read_counts<T>(
        &self,
        read: &impl AsyncFn(&Reading<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut counts = vec![self.read(read)?];
        for (cells, number, link) in &self.cells {
            let read = again(link, read);
            let Some(cell) = cells.all().get(number.index()) else { continue };
            counts.push(cell.note(read)?);
        }
        Ok(counts)
    }

    /// Makes the reader report damage to this channel too.
    #[must_use]
    pub fn telling(self, damage: mpsc::UnboundedSender<StoreError>) -> Self {
        Self { damage: Some(damage), ..self }
    }

    fn read<T>(
        &self,
        read: &impl AsyncFn(&Reading<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let outcome = match &self.place {
            StoreLocation::Embedded(database) => {
                let outcome = connect(database)
                    .and_then(|connection| embedded::ready(read(&Reading::Embedded(&connection))));
                outcome.map_err(|error| error.of_damaged_file(database))
            }
            StoreLocation::Postgres(link) => again(link, read),
        };
        outcome.map_err(|error| self.tell(error))
    }

    /// Reports damage to the channel, and returns the error for the caller.
    fn tell(&self, error: StoreError) -> StoreError {
        match &self.damage {
            Some(damage) if error.is_damage() => {
                // The receiver is gone when the server is ending.
                damage.send(error).ok();
                StoreError::Damage(DamageError::Ended)
            }
            _ => error,
        }
    }

    /// The entries of the audit log that `query` selects, newest first.
    ///
    /// # Errors
    /// [`StoreError`] when something can't be read or understood.
    pub fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, StoreError> {
        self.read(&async |db| audit::entries(db, query).await)
    }

    /// The last epoch of the public log.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn last_epoch(&self) -> Result<Option<StoredEpoch>, StoreError> {
        self.read(&async |db| log::last(db).await)
    }

    /// Epochs of the public log from `first` on, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn epochs(&self, first: u64, limit: u32) -> Result<Vec<StoredEpoch>, StoreError> {
        self.read(&async |db| log::epochs(db, first, limit).await)
    }

    /// The days of these on which an experiment has tallies, and how many, in order.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn days_with_tallies(
        &self,
        experiment: ExperimentKey,
        days: &RangeInclusive<Day>,
    ) -> Result<Vec<(Day, u64)>, StoreError> {
        let counts = self.read_counts(&async |db| days_with_tallies(db, experiment, days).await)?;
        let mut most: BTreeMap<Day, u64> = BTreeMap::new();
        for (day, tallies) in counts.into_iter().flatten() {
            // Most have the same arms. A day has at least as many as each of them.
            let of_day = most.entry(day).or_default();
            *of_day = tallies.max(*of_day);
        }
        Ok(most.into_iter().collect())
    }

    /// The tallies of an experiment on these days, by day and then by arm, as committed at one
    /// moment.
    ///
    /// They are read at once, since the write-ahead log can't be shortened during a read, and the
    /// caller may be slow. So callers ask for few days at a time, by [`Self::days_with_tallies`].
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn daily_tallies(
        &self,
        experiment: ExperimentKey,
        days: &RangeInclusive<Day>,
    ) -> Result<Vec<DailyTally>, StoreError> {
        let rows = self.daily_tallies_by_revision(experiment, days)?;
        Ok(over_revisions(rows).into_iter().map(|row| row.daily).collect())
    }

    /// [`Self::daily_tallies`] of each revision, by day, revision and arm.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn daily_tallies_by_revision(
        &self,
        experiment: ExperimentKey,
        days: &RangeInclusive<Day>,
    ) -> Result<Vec<RevisionTally>, StoreError> {
        let mut counts = self.read_counts(&async |db| daily_tallies(db, experiment, days).await)?;
        if counts.len() == 1 {
            return Ok(counts.pop().unwrap_or_default());
        }
        let mut sums: BTreeMap<(Day, Option<Revision>, CellIndex), Tally> = BTreeMap::new();
        for RevisionTally { revision, daily } in counts.into_iter().flatten() {
            *sums.entry((daily.day, revision, daily.cell)).or_default() += daily.tally;
        }
        let sum = |((day, revision, cell), tally)| RevisionTally {
            revision,
            daily: DailyTally { day, cell, tally },
        };
        Ok(sums.into_iter().map(sum).collect())
    }

    /// The curator's data set of this name, or all of them by name.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn data_sets(&self, name: Option<&CuratorName>) -> Result<Vec<DataSetRecord>, StoreError> {
        self.read(&async |db| queries::data_sets(db, name).await)
    }

    /// The data sets whose names come after this one, by the bytes of names.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn data_sets_after(
        &self,
        after: &str,
        limit: u32,
    ) -> Result<Vec<DataSetRecord>, StoreError> {
        self.read(&async |db| queries::data_sets_after(db, after, limit).await)
    }

    /// The debits of a data set, by this caller or by all, before a number, newest first.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn debits(
        &self,
        of: (&CuratorName, Option<&str>),
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<DebitRecord>, StoreError> {
        self.read(&async |db| queries::debits(db, of, before, limit).await)
    }

    /// What this caller has spent of the budget of a data set, in billionths.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn spent_by(&self, of: (&CuratorName, &str)) -> Result<u64, StoreError> {
        self.read(&async |db| queries::spent_by(db, of).await)
    }

    /// A session of the curator.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn session(&self, name: &CuratorName) -> Result<Option<SessionRecord>, StoreError> {
        self.read(&async |db| queries::session(db, name).await)
    }

    /// The key of fingerprints. The key must not leave this process.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn fingerprint_key(&self) -> Result<FingerprintKey, StoreError> {
        self.read(&async |db| queries::fingerprint_key(db).await)
    }

    /// The answer to a question, if it is kept.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn kept_answer(&self, question: &QuestionKey) -> Result<Option<KeptAnswer>, StoreError> {
        self.read(&async |db| queries::kept(db, question).await)
    }

    /// The number of rounds of a session. Updates that are read afterwards belong to these rounds
    /// or to later ones.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn session_rounds(&self, name: &CuratorName) -> Result<Option<u64>, StoreError> {
        self.read(&async |db| queries::rounds(db, name).await)
    }

    /// The first updates of a session in order, starting at a number.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn session_updates(
        &self,
        name: &CuratorName,
        from: u32,
        limit: u32,
    ) -> Result<Vec<SessionUpdate>, StoreError> {
        self.read(&async |db| queries::updates(db, name, from, limit).await)
    }

    /// The trusted experiment of this name, or all of them by name.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn trusted(&self, id: Option<&ExperimentId>) -> Result<Vec<TrustedRecord>, StoreError> {
        self.read(&async |db| trusted::trusted(db, id.as_ref().map(std::slice::from_ref)).await)
    }

    /// The subset of these disclosures to a trusted experiment that were counted and whose days are
    /// not forgotten.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read or understood.
    pub fn disclosed(
        &self,
        id: &ExperimentId,
        disclosures: &[(Day, UploadId)],
    ) -> Result<Vec<(Day, UploadId)>, StoreError> {
        self.read(&async |db| match db {
            Reading::Embedded(db) => db.counted(id, disclosures).await,
            Reading::Postgres(db) => db.counted(id, disclosures).await,
        })
    }
}

/// The database that is read.
enum Reading<'a> {
    Embedded(&'a Connection),
    Postgres(Tables<'a, Client>),
}

impl Database for Reading<'_> {
    fn dialect(&self) -> &'static Dialect {
        match self {
            Self::Embedded(db) => db.dialect(),
            Self::Postgres(db) => db.dialect(),
        }
    }

    async fn run(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        match self {
            Self::Embedded(db) => db.run(sql, values).await,
            Self::Postgres(db) => db.run(sql, values).await,
        }
    }

    async fn rows(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Embedded(db) => db.rows(sql, values).await,
            Self::Postgres(db) => db.rows(sql, values).await,
        }
    }

    async fn take_turns(&self) -> Result<(), StoreError> {
        match self {
            Self::Embedded(db) => db.take_turns().await,
            Self::Postgres(db) => db.take_turns().await,
        }
    }
}

/// Reads over a connection that may have been lost since the last call.
fn again<T>(
    link: &Mutex<PgConnection>,
    read: &impl AsyncFn(&Reading<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
    let read = async |client: &Client| read(&Reading::Postgres(Tables::reading(client))).await;
    match link.read(read) {
        // The second attempt connects anew.
        Err(StoreError::Database(DatabaseError::Postgres { .. })) => link.read(read),
        outcome => outcome,
    }
}

fn connect(database: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(reading)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(reading)?;
    embedded::read_intact(&connection).map_err(reading)?;
    Ok(connection)
}
