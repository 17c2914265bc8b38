//! The store of a relay that shuffles: sealed reports until their batch is handed on.
//!
//! An SQLite database in a directory of its own. One process has it. A report, its id, and the batch
//! that it fills are one transaction, so a crash loses and doubles nothing.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bandana_shared::identity::{ArmIndex, Day, Digest, StoreId, UploadId};
use bandana_shared::shuffling::{BatchSize, Envelope, ShuffledReport};
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use zeroize::Zeroizing;

use crate::store::acknowledged::{self, Acknowledged, Progress};
use crate::store::{
    DatabaseError, DirectoryLock, LockedDatabase, OpenError, OpenFiles, Presence, StoreError,
    Verdict, committing, damaged, opening, reading, sync_directory,
};

/// The application id that marks the file as a relay's: "BNDR".
const APPLICATION_ID: i64 = 0x424e_4452;

/// The schema version of this program.
const VERSION: i64 = 1;

/// The limits of a relay's store.
#[derive(Clone, Copy, Debug)]
pub struct ShuffleLimits {
    /// The number of days whose uploads are taken, today included.
    pub replay_window_days: u32,
    /// Most ids of counted uploads, and most reports that wait.
    pub reports_max: u64,
}

/// Reports that wait for each other: as many as a batch has are handed on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pile {
    pub(super) digest: Digest,
    pub(super) arm: ArmIndex,
    pub(super) batch: BatchSize,
    /// The aggregator's keys that they are sealed for: whoever opens a batch sees which.
    pub(super) keys: [u8; 16],
}

/// A full batch, as it is handed on again and again until it is settled.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) key: i64,
    pub(super) id: UploadId,
    pub(super) digest: Digest,
    pub(super) day: Day,
    pub(super) arm: ArmIndex,
    /// The sealed reports, one after the other.
    pub(super) reports: Vec<u8>,
}

/// What was dropped at the end of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    /// Reports whose batch was not full.
    pub(super) reports: u64,
    /// Full batches that the aggregator did not take.
    pub(super) batches: u64,
}

/// The store. Its owner is the only process that writes.
#[derive(Debug)]
pub(super) struct ReportStore {
    connection: Connection,
    files: OpenFiles,
    _lock: DirectoryLock,
    /// SQLite's number of this connection's view: another one when another program has written.
    version: i64,
    acknowledged: Acknowledged,
    limits: ShuffleLimits,
    held: Held,
}

/// What is in the database, counted: changed once a transaction is committed.
#[derive(Clone, Debug)]
struct Held {
    oldest: Day,
    commits: u64,
    /// Batches that were filled since the store was opened.
    filled: u64,
    ids: u64,
    /// Reports in piles and batches.
    reports: u64,
    piles: HashMap<Pile, (i64, u32)>,
}

impl ReportStore {
    /// Opens the store in `directory`, or makes one if `presence` allows it.
    ///
    /// # Errors
    /// [`StoreError`] when the directory can't be used, another process has it, or the database is
    /// damaged, not a relay's, or lacks what was acknowledged.
    pub(super) fn open(
        presence: Presence,
        directory: &Path,
        limits: ShuffleLimits,
    ) -> Result<Self, StoreError> {
        let located = |error: StoreError| error.located(directory);
        let database = LockedDatabase::open(presence, directory, create, check);
        // They are dropped in reverse.
        let LockedDatabase { lock, file, connection } = database.map_err(located)?;
        let is_whole: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(opening)?;
        if is_whole != "ok" {
            return Err(located(damaged(is_whole)));
        }
        // What can be read must be durable: a crash may have left transactions that were not synced.
        let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: i64 = connection.query_row(truncate, [], |row| row.get(0)).map_err(opening)?;
        if busy != 0 {
            connection.execute("UPDATE store SET commits = commits", []).map_err(opening)?;
        }
        let unusable =
            |source| StoreError::Open(OpenError::Directory { path: directory.to_owned(), source });
        sync_directory(directory).map_err(unusable)?;
        let held = Held::read(&connection).map_err(located)?;
        let id = connection.query_row("SELECT id FROM store", [], |row| row.get(0));
        let id = StoreId::new(id.map_err(reading)?);
        let progress = Progress::of_commits(held.commits);
        let known = acknowledged::read(directory, id).map_err(unusable)?;
        if known.is_some_and(|known| progress.is_behind(known)) {
            return Err(located(damaged(format!(
                "reports that were acknowledged are missing: its log was removed, or an older copy \
                 put in its place. To go on with what is there, remove {}; reports since then are \
                 lost or count twice",
                acknowledged::path(directory).display()
            ))));
        }
        let files = OpenFiles::of(directory, Arc::clone(&file)).map_err(located)?;
        let mut acknowledged = Acknowledged::open(directory, id).map_err(unusable)?;
        acknowledged.note(progress).map_err(unusable)?;
        let version = version(&connection).map_err(reading)?;
        Ok(Self { connection, files, _lock: lock, version, acknowledged, limits, held })
    }

    /// The oldest day whose uploads are taken.
    pub(super) fn oldest(&self) -> Day {
        self.held.oldest
    }

    /// The number of batches that were filled since the store was opened.
    pub(super) fn filled(&self) -> u64 {
        self.held.filled
    }

    /// The numbers of remembered ids and of kept reports.
    pub(super) fn kept(&self) -> (u64, u64) {
        (self.held.ids, self.held.reports)
    }

    /// The piles, each with its number of reports.
    pub(super) fn piles(&self) -> impl Iterator<Item = (Pile, u32)> {
        self.held.piles.iter().map(|(pile, (_, reports))| (*pile, *reports))
    }

    /// Keeps reports, and makes batches of those that fill one, in one transaction. Each gets a
    /// verdict, which holds once this returns.
    ///
    /// # Errors
    /// [`StoreError`]: nothing was kept, or it is not known. The store must not be used any further.
    pub(super) fn keep(
        &mut self,
        envelopes: &[Envelope],
        today: Day,
    ) -> Result<Vec<Verdict>, StoreError> {
        self.check()?;
        let mut held = self.held.clone();
        let transaction = self.connection.transaction().map_err(committing)?;
        let oldest = today.back(self.limits.replay_window_days.saturating_sub(1));
        if held.oldest < oldest {
            held.oldest = oldest;
            let forget = "DELETE FROM seen WHERE day < ?";
            let forgotten = transaction.execute(forget, [oldest.get()]).map_err(committing)?;
            held.ids = held.ids.saturating_sub(forgotten as u64);
            let set = "UPDATE store SET oldest_day = ?";
            transaction.execute(set, [oldest.get()]).map_err(committing)?;
        }
        let mut verdicts = Vec::with_capacity(envelopes.len());
        for envelope in envelopes {
            verdicts.push(held.keep(&transaction, envelope, today, self.limits)?);
        }
        count_commit(&transaction, &mut held)?;
        transaction.commit().map_err(committing)?;
        self.acknowledge(held)?;
        Ok(verdicts)
    }

    /// Checks that no other program has written, and that the next start will find these files.
    fn check(&self) -> Result<(), StoreError> {
        self.files.check()?;
        if version(&self.connection).map_err(reading)? == self.version {
            return Ok(());
        }
        Err(damaged("another program has written to the relay's store".to_owned()))
    }

    /// Notes a commit, after it and before its answers: one into files that no start will find is none.
    fn acknowledge(&mut self, held: Held) -> Result<(), StoreError> {
        self.check()?;
        self.held = held;
        if let Err(error) = self.acknowledged.note(Progress::of_commits(self.held.commits)) {
            // The commit is durable all the same.
            tracing::warn!(%error, "what is acknowledged can't be noted beside the relay's store");
        }
        Ok(())
    }

    /// The keys of all batches, in the order in which they were filled.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub(super) fn batches(&self) -> Result<Vec<i64>, StoreError> {
        let query = "SELECT key FROM batch ORDER BY key";
        let mut statement = self.connection.prepare_cached(query).map_err(reading)?;
        let keys = statement.query_map([], |row| row.get(0)).map_err(reading)?;
        keys.collect::<Result<_, _>>().map_err(reading)
    }

    /// The batch with this key, unless it is settled.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub(super) fn batch(&self, key: i64) -> Result<Option<Batch>, StoreError> {
        let query = "SELECT key, id, digest, day, arm, reports FROM batch WHERE key = ?";
        let mut statement = self.connection.prepare_cached(query).map_err(reading)?;
        let row = statement.query_row([key], |row| {
            let names: (i64, [u8; 16], [u8; 16], u32) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok((names, row.get::<_, u32>(4)?, row.get::<_, Vec<u8>>(5)?))
        });
        let Some(((key, id, digest, day), arm, reports)) = row.optional().map_err(reading)? else {
            return Ok(None);
        };
        let (id, digest, day) = (UploadId::new(id), Digest::new(digest), Day::new(day));
        Ok(Some(Batch { key, id, digest, day, arm: arm_index(arm)?, reports }))
    }

    /// Forgets a batch that the aggregator has, or will never take.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub(super) fn settle(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.check()?;
        let mut held = self.held.clone();
        let transaction = self.connection.transaction().map_err(committing)?;
        let delete = "DELETE FROM batch WHERE key = ?";
        let deleted = transaction.execute(delete, [batch.key]).map_err(committing)?;
        if deleted > 0 {
            let reports = batch.reports.len() / ShuffledReport::SEALED_BYTES;
            held.reports = held.reports.saturating_sub(reports as u64);
        }
        count_commit(&transaction, &mut held)?;
        transaction.commit().map_err(committing)?;
        self.acknowledge(held)
    }

    /// Forgets all reports of an experiment that has ended.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub(super) fn drop_experiment(&mut self, digest: Digest) -> Result<Dropped, StoreError> {
        self.check()?;
        let mut held = self.held.clone();
        let transaction = self.connection.transaction().map_err(committing)?;
        let digest = digest.as_bytes();
        let run = |statement: &str| transaction.execute(statement, [digest]).map_err(committing);
        let of_piles = "DELETE FROM report WHERE pile IN (SELECT key FROM pile WHERE digest = ?)";
        let reports = run(of_piles)? as u64;
        run("DELETE FROM pile WHERE digest = ?")?;
        let bytes = "SELECT coalesce(sum(length(reports)), 0) FROM batch WHERE digest = ?";
        let bytes = transaction.query_row(bytes, [digest], |row| row.get::<_, u64>(0));
        let in_batches = bytes.map_err(committing)? / ShuffledReport::SEALED_BYTES as u64;
        let batches = run("DELETE FROM batch WHERE digest = ?")? as u64;
        count_commit(&transaction, &mut held)?;
        transaction.commit().map_err(committing)?;
        held.piles.retain(|pile, _| pile.digest.as_bytes() != digest);
        held.reports = held.reports.saturating_sub(reports + in_batches);
        self.acknowledge(held)?;
        Ok(Dropped { reports, batches })
    }
}

impl Held {
    fn read(connection: &Connection) -> Result<Self, StoreError> {
        let number = |query: &str| {
            connection.query_row(query, [], |row| row.get::<_, u64>(0)).map_err(reading)
        };
        let marks = "SELECT oldest_day, commits FROM store";
        let marks = connection.query_row(marks, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let (oldest, commits) = marks.map_err(reading)?;
        let in_batches = "SELECT coalesce(sum(length(reports)), 0) FROM batch";
        let in_batches = number(in_batches)? / ShuffledReport::SEALED_BYTES as u64;
        let mut held = Self {
            oldest: Day::new(oldest),
            commits,
            filled: 0,
            ids: number("SELECT count(*) FROM seen")?,
            reports: number("SELECT count(*) FROM report")? + in_batches,
            piles: HashMap::new(),
        };
        let query = "SELECT key, digest, arm, batch, keys,
            (SELECT count(*) FROM report WHERE pile = pile.key) FROM pile";
        let mut statement = connection.prepare(query).map_err(reading)?;
        let mut rows = statement.query([]).map_err(reading)?;
        while let Some(row) = rows.next().map_err(reading)? {
            let names = || Ok((row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
            let (digest, arm, batch, keys) = names().map_err(reading)?;
            let numbers = || Ok((row.get(0)?, row.get(5)?));
            let (key, reports) = numbers().map_err(reading)?;
            let batch = BatchSize::new(batch).map_err(|error| damaged(error.to_string()))?;
            let pile = Pile { digest: Digest::new(digest), arm: arm_index(arm)?, batch, keys };
            held.piles.insert(pile, (key, reports));
        }
        Ok(held)
    }

    fn keep(
        &mut self,
        transaction: &Transaction<'_>,
        envelope: &Envelope,
        today: Day,
        limits: ShuffleLimits,
    ) -> Result<Verdict, StoreError> {
        let Envelope { id, day, digest, arm, batch, keys, report } = envelope;
        if self.oldest > today {
            return Ok(Verdict::ClockBehind);
        }
        if *day < self.oldest {
            return Ok(Verdict::Expired { oldest: self.oldest });
        }
        if *day > today {
            return Ok(Verdict::FutureDay { today });
        }
        let execute = |statement: &str, values: &[&dyn rusqlite::ToSql]| {
            transaction.prepare_cached(statement)?.execute(values)
        };
        let known = "SELECT 1 FROM seen WHERE day = ? AND id = ?";
        let names = params![day.get(), id.as_bytes()];
        let mut known = transaction.prepare_cached(known).map_err(committing)?;
        if known.exists(names).map_err(committing)? {
            return Ok(Verdict::Duplicate);
        }
        if self.ids >= limits.reports_max || self.reports >= limits.reports_max {
            return Ok(Verdict::Full);
        }
        execute("INSERT INTO seen (day, id) VALUES (?, ?)", names).map_err(committing)?;
        let pile = Pile { digest: *digest, arm: *arm, batch: *batch, keys: *keys };
        let (key, mut waiting) = if let Some(known) = self.piles.get(&pile) {
            *known
        } else {
            let insert = "INSERT INTO pile (digest, arm, batch, keys) VALUES (?, ?, ?, ?)";
            let values = params![digest.as_bytes(), arm.to_u32(), batch.get(), keys];
            execute(insert, values).map_err(committing)?;
            (transaction.last_insert_rowid(), 0)
        };
        let insert = "INSERT INTO report (pile, sealed) VALUES (?, ?)";
        execute(insert, params![key, report]).map_err(committing)?;
        waiting += 1;
        if waiting >= batch.get() {
            shuffle(transaction, (key, pile), today)?;
            self.filled += 1;
            waiting = 0;
        }
        self.ids += 1;
        self.reports += 1;
        self.piles.insert(pile, (key, waiting));
        Ok(Verdict::Accepted)
    }
}

/// Counts a commit, so that a store without it is known to lack something.
fn count_commit(transaction: &Transaction<'_>, held: &mut Held) -> Result<(), StoreError> {
    held.commits += 1;
    let set = "UPDATE store SET commits = ?";
    transaction
        .prepare_cached(set)
        .map_err(committing)?
        .execute([held.commits])
        .map_err(committing)?;
    Ok(())
}

/// SQLite's `data_version`, which changes when another connection has committed.
fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

/// Makes a batch of a pile.
///
/// # Privacy
/// Nothing in the batch is left of the order of arrival: each order is equally likely, and drawn from a cipher
/// with a key of the operating system's randomness. Without randomness there is no batch.
fn shuffle(
    transaction: &Transaction<'_>,
    (key, pile): (i64, Pile),
    today: Day,
) -> Result<(), StoreError> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed)
        .map_err(|source| StoreError::Database(DatabaseError::Entropy { source }))?;
    let mut random = ChaCha20Rng::from_seed(*seed);
    let query = "SELECT sealed FROM report WHERE pile = ?";
    let mut statement = transaction.prepare_cached(query).map_err(committing)?;
    let rows = statement.query_map([key], |row| row.get(0)).map_err(committing)?;
    let mut reports: Vec<[u8; ShuffledReport::SEALED_BYTES]> =
        rows.collect::<Result<_, _>>().map_err(committing)?;
    if reports.len() != pile.batch.get() as usize {
        let (found, expected) = (reports.len(), pile.batch.get());
        return Err(damaged(format!("a batch of {expected} reports has {found}")));
    }
    reports.shuffle(&mut random);
    let mut id = [0; 16];
    random.fill_bytes(&mut id);
    let insert = "INSERT INTO batch (id, digest, day, arm, reports) VALUES (?, ?, ?, ?, ?)";
    let names =
        params![id, pile.digest.as_bytes(), today.get(), pile.arm.to_u32(), reports.concat()];
    transaction.prepare_cached(insert).map_err(committing)?.execute(names).map_err(committing)?;
    let delete = "DELETE FROM report WHERE pile = ?";
    transaction.prepare_cached(delete).map_err(committing)?.execute([key]).map_err(committing)?;
    Ok(())
}

fn create(file: &Path) -> Result<(), StoreError> {
    let create = || {
        let connection = Connection::open(file)?;
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.execute_batch(include_str!("tables.sql"))?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", VERSION)?;
        connection.close().map_err(|(_, error)| error)
    };
    create().map_err(opening)
}

fn check(connection: &Connection) -> Result<(), StoreError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let marks = pragma("application_id").and_then(|mark| Ok((mark, pragma("user_version")?)));
    match marks.map_err(opening)? {
        (APPLICATION_ID, VERSION) => Ok(()),
        (APPLICATION_ID, found) if found > VERSION => {
            Err(StoreError::Open(OpenError::NewerSchema { found, known: VERSION }))
        }
        _ => Err(StoreError::Open(OpenError::ForeignFile)),
    }
}

fn arm_index(arm: u32) -> Result<ArmIndex, StoreError> {
    let arm = usize::try_from(arm).ok().and_then(|arm| ArmIndex::new(arm).ok());
    arm.ok_or_else(|| damaged("an arm beyond the greatest".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::config::DbConfig;

    const TODAY: Day = Day::new(20_000);
    const LIMITS: ShuffleLimits = ShuffleLimits { replay_window_days: 7, reports_max: 100 };

    fn envelope(number: u8, arm: usize) -> Envelope {
        Envelope {
            id: UploadId::new([number; 16]),
            day: TODAY,
            digest: Digest::new([1; 16]),
            arm: ArmIndex::new(arm).unwrap(),
            batch: BatchSize::new(3).unwrap(),
            keys: [8; 16],
            report: [number; ShuffledReport::SEALED_BYTES],
        }
    }

    fn open(directory: &Path, limits: ShuffleLimits) -> Result<ReportStore, StoreError> {
        ReportStore::open(Presence::Optional, directory, limits)
    }

    fn batches(store: &ReportStore) -> Vec<Batch> {
        let keys = store.batches().unwrap().into_iter();
        keys.map(|key| store.batch(key).unwrap().unwrap()).collect()
    }

    #[test]
    fn reports_wait_for_as_many_of_their_arm_as_a_batch_has() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), LIMITS).unwrap();
        let few = [envelope(1, 0), envelope(2, 0), envelope(3, 1), envelope(4, 1)];
        assert_eq!(store.keep(&few, TODAY).unwrap(), [Verdict::Accepted; 4]);
        assert!(batches(&store).is_empty());
        drop(store);

        let mut store = open(folder.path(), LIMITS).unwrap();
        let again = [envelope(2, 0), envelope(5, 0), envelope(5, 0)];
        let verdicts = store.keep(&again, TODAY).unwrap();
        assert_eq!(verdicts, [Verdict::Duplicate, Verdict::Accepted, Verdict::Duplicate]);
        let full = batches(&store);
        assert_eq!(full.len(), 1);
        let reports = full[0].reports.chunks(ShuffledReport::SEALED_BYTES);
        let mut numbers: Vec<u8> = reports.map(|report| report[0]).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 5]);
        assert_eq!((full[0].day, full[0].arm.get()), (TODAY, 0));

        // A settled batch is gone, and its ids are not.
        store.settle(&full[0]).unwrap();
        drop(store);
        let mut store = open(folder.path(), LIMITS).unwrap();
        assert!(batches(&store).is_empty());
        assert_eq!(store.keep(&[envelope(1, 0)], TODAY).unwrap(), [Verdict::Duplicate]);
        let waiting: Vec<u32> = store.piles().map(|(_, reports)| reports).collect();
        assert_eq!(waiting.iter().sum::<u32>(), 2);
        let dropped = store.drop_experiment(Digest::new([1; 16])).unwrap();
        assert_eq!(dropped, Dropped { reports: 2, batches: 0 });
        assert_eq!(store.piles().count(), 0);
        assert_eq!(store.keep(&[envelope(3, 1)], TODAY).unwrap(), [Verdict::Duplicate]);
    }

    #[test]
    fn reports_for_other_keys_are_in_no_batch_together() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), LIMITS).unwrap();
        let other = |number| Envelope { keys: [9; 16], ..envelope(number, 0) };
        let mixed = [envelope(1, 0), other(2), envelope(3, 0), other(4)];
        store.keep(&mixed, TODAY).unwrap();
        assert!(batches(&store).is_empty());
        drop(store);
        let mut store = open(folder.path(), LIMITS).unwrap();
        store.keep(&[other(5)], TODAY).unwrap();
        let full = batches(&store);
        assert_eq!(full.len(), 1);
        let reports = full[0].reports.chunks(ShuffledReport::SEALED_BYTES);
        assert!(reports.map(|report| report[0]).all(|number| [2, 4, 5].contains(&number)));
    }

    #[test]
    fn days_outside_of_the_window_are_refused_and_the_window_never_goes_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = open(folder.path(), LIMITS).unwrap();
        let of_day = |day| Envelope { day, ..envelope(1, 0) };
        let oldest = TODAY.back(6);
        let days = [TODAY.back(7), TODAY.forward(1), oldest];
        let verdicts = store.keep(&days.map(of_day), TODAY).unwrap();
        let future = Verdict::FutureDay { today: TODAY };
        assert_eq!(verdicts, [Verdict::Expired { oldest }, future, Verdict::Accepted]);
        // The next day forgets the id, and refuses its day.
        let oldest = oldest.forward(1);
        let verdicts = store.keep(&[of_day(TODAY.back(6))], TODAY.forward(1)).unwrap();
        assert_eq!(verdicts, [Verdict::Expired { oldest }]);
        let verdicts = store.keep(&[of_day(TODAY.back(6))], TODAY).unwrap();
        assert_eq!(verdicts, [Verdict::Expired { oldest }]);
        let verdicts = store.keep(&[of_day(TODAY.back(8))], TODAY.back(8)).unwrap();
        assert_eq!(verdicts, [Verdict::ClockBehind]);
    }

    #[test]
    fn a_full_store_takes_no_more_and_still_knows_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let limits = ShuffleLimits { reports_max: 2, ..LIMITS };
        let mut store = open(folder.path(), limits).unwrap();
        let many = [envelope(1, 0), envelope(2, 0), envelope(3, 0), envelope(1, 0)];
        let verdicts = store.keep(&many, TODAY).unwrap();
        let [accepted, duplicate] = [Verdict::Accepted, Verdict::Duplicate];
        assert_eq!(verdicts, [accepted, accepted, Verdict::Full, duplicate]);
    }

    #[test]
    fn a_directory_has_one_owner_and_must_stay_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("relay");
        let mut store = open(&directory, LIMITS).unwrap();
        let second = open(&directory, LIMITS).unwrap_err();
        assert!(matches!(second, StoreError::Open(OpenError::Locked { .. })), "{second}");
        std::fs::rename(&directory, folder.path().join("elsewhere")).unwrap();
        assert!(store.keep(&[envelope(1, 0)], TODAY).is_err());
    }

    #[test]
    fn a_store_that_lacks_what_was_acknowledged_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let missing = ReportStore::open(Presence::Required, folder.path(), LIMITS).unwrap_err();
        assert!(matches!(missing, StoreError::Open(OpenError::Missing { .. })), "{missing}");
        let mut store = open(folder.path(), LIMITS).unwrap();
        store.keep(&[envelope(1, 0)], TODAY).unwrap();
        let copy = tempfile::tempdir().unwrap();
        drop(store);
        let database = folder.path().join("bandana.sqlite3");
        std::fs::copy(&database, copy.path().join("old")).unwrap();
        let mut store = open(folder.path(), LIMITS).unwrap();
        store.keep(&[envelope(2, 0)], TODAY).unwrap();
        // As of a process that was killed: the log is not copied into the database.
        store.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        drop(store);
        let log = folder.path().join("bandana.sqlite3-wal");
        assert!(std::fs::metadata(&log).unwrap().len() > 0);
        std::fs::remove_file(&log).unwrap();
        let refused = open(folder.path(), LIMITS).unwrap_err();
        assert!(format!("{refused:?}").contains("acknowledged"), "{refused:?}");
        std::fs::copy(copy.path().join("old"), &database).unwrap();
        assert!(open(folder.path(), LIMITS).is_err());
        // Whoever has nothing better can say so.
        std::fs::remove_file(acknowledged::path(folder.path())).unwrap();
        let mut store = open(folder.path(), LIMITS).unwrap();
        let both = [envelope(1, 0), envelope(2, 0)];
        let verdicts = store.keep(&both, TODAY).unwrap();
        assert_eq!(verdicts, [Verdict::Duplicate, Verdict::Accepted]);
        // Another program writes while it is open.
        let other = Connection::open(&database).unwrap();
        other.execute("DELETE FROM seen", []).unwrap();
        assert!(store.keep(&[envelope(3, 0)], TODAY).is_err());
    }

    #[test]
    fn every_order_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let limits = ShuffleLimits { reports_max: 10_000, ..LIMITS };
        let mut store = open(folder.path(), limits).unwrap();
        let mut orders: HashMap<Vec<u8>, u32> = HashMap::new();
        for round in 0..200_u16 {
            let three = [1, 2, 3].map(|number| {
                let mut id = [number; 16];
                id[..2].copy_from_slice(&round.to_be_bytes());
                Envelope { id: UploadId::new(id), ..envelope(number, 0) }
            });
            store.keep(&three, TODAY).unwrap();
            let batch = batches(&store).pop().unwrap();
            let reports = batch.reports.chunks(ShuffledReport::SEALED_BYTES);
            *orders.entry(reports.map(|report| report[0]).collect()).or_default() += 1;
            store.settle(&batch).unwrap();
        }
        // Each of the six has a sixth: fewer than 8 of 200 has odds below 1e-7.
        assert_eq!(orders.len(), 6);
        assert!(orders.values().all(|times| *times >= 8), "{orders:?}");
    }
}
