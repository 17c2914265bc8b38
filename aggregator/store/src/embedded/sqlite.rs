//! The SQLite database of the embedded store, in one directory.
//!
//! Write-ahead log, `synchronous = FULL`, one writing connection. The exclusive locks are not
//! SQLite's, so that `sqlite3` can look inside while a server runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::identity::{Day, StoreId, UploadId};
use bandana_shared::stored;
use bandana_shared::tally::Tally;
use bandana_sqlite::acknowledged::{self, Acknowledged, Progress};
use bandana_sqlite::{
    BUSY_TIMEOUT, DirectoryLock, LockedDatabase, OpenFiles, SqliteError, data_version,
    sync_directory, zero_freed_pages,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, Transaction, params};

use super::{checksums, expiry, progress, schema};
use crate::{Delta, GroupRow, Presence, SeenIds, StoreError, StoredDeltas, damaged, stored_arm};

/// The SQLite database. Its owner is the only process that writes.
#[derive(Debug)]
pub struct SqliteStore {
    pub(super) connection: Connection,
    id: StoreId,
    files: Arc<OpenFiles>,
    /// The key up to which groups of expired days have been folded. None: none are left.
    pub(super) looked_through: Option<i64>,
    /// Whether the log may still contain erased data, since a reader held it.
    owes_erasure: bool,
    _lock: DirectoryLock,
    /// None: the file can't be written.
    acknowledged: Option<Acknowledged>,
    left: Left,
}

/// The state of the database after its only writer's last commit.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// SQLite's `data_version`, which changes when another connection has written.
    version: i64,
    progress: Progress,
}

impl SqliteStore {
    /// Opens the store in `directory`, creating both when they are missing.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        Self::open_with(Presence::Optional, directory)
    }

    /// Opens the store in `directory`, or creates both if `presence` allows it.
    ///
    /// # Errors
    /// [`StoreError`] when `presence` does not hold; when the directory can't be used or another
    /// process has it; when the database is damaged, foreign or newer. Nothing is created then.
    pub fn open_with(presence: Presence, directory: &Path) -> Result<Self, StoreError> {
        let mut store = Self::open_unchecked(presence, directory, schema::prepare)?;
        checksums::watch(&store.connection).map_err(opening)?;
        store.check_acknowledged(directory)?;
        store.settle().map_err(opening)?;
        store.acknowledged = Acknowledged::open(directory, store.id).inspect_err(cannot_note).ok();
        store.acknowledge()?;
        let unusable = |source| SqliteError::directory(directory, source);
        sync_directory(directory).map_err(unusable)?;
        if store.files.is_open_to_others(directory) {
            tracing::warn!(
                directory = %directory.display(),
                "not only its owner can read the store, which has secret rewards and keys; shut \
                 the directory with `chmod 700`"
            );
        }
        Ok(store)
    }

    /// The store, after `prepare` has checked or upgraded its tables.
    fn open_unchecked(
        presence: Presence,
        directory: &Path,
        prepare: impl FnOnce(&mut Connection) -> Result<(), StoreError>,
    ) -> Result<Self, StoreError> {
        // They are dropped in reverse.
        let LockedDatabase { lock, file, mut connection } =
            LockedDatabase::open(presence, directory, schema::create, |connection| {
                schema::version_of(connection).map(drop).map_err(while_opening)
            })?;
        prepare(&mut connection)?;
        let id = connection.query_row("SELECT id FROM store", [], |row| row.get(0));
        let id = StoreId::new(id.map_err(reading)?);
        let progress = progress::of(&connection).map_err(reading)?;
        let left = Left { version: data_version(&connection).map_err(reading)?, progress };
        // The database was read, so SQLite has its files open.
        let files = Arc::new(OpenFiles::of(directory, file)?);
        // The process before this one may have ended before all groups were folded.
        let looked_through = Some(0);
        Ok(Self {
            connection,
            id,
            files,
            looked_through,
            owes_erasure: false,
            _lock: lock,
            acknowledged: None,
            left,
        })
    }

    /// The store's id.
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// The store's files, for checks by others.
    pub(super) fn files(&self) -> Arc<OpenFiles> {
        Arc::clone(&self.files)
    }

    /// Checks that a commit would be in the store that the next start finds.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`]; the store must not be used any further. Committed data is in the
    /// database file, if that is still in its place.
    pub fn check_files(&self) -> Result<(), StoreError> {
        let checked = self.files.check().inspect_err(|error| match error {
            // Perhaps only the log, which is still open and holds acknowledged data, has lost its
            // name.
            SqliteError::Replaced { .. } if self.files.has_database() => {
                self.checkpoint().ok();
            }
            SqliteError::Replaced { .. } => {}
            _ => self.keep_log(),
        });
        Ok(checked?)
    }

    /// Checks that no other program has written to the store, and that a commit would be in the
    /// store that the next start finds.
    ///
    /// # Errors
    /// As [`Self::check_files`]; [`StoreError::Damage`] when another program has written.
    pub fn check(&mut self) -> Result<(), StoreError> {
        self.check_files()?;
        let version = data_version(&self.connection).map_err(reading)?;
        if version == self.left.version {
            return Ok(());
        }
        let Left { progress: expected, .. } = self.left;
        let found = match progress::of(&self.connection) {
            Ok(found) if found == expected => None,
            Ok(found) => Some(format!("the store had come to {expected}, and is at {found}")),
            // A statement does not fit the tables any more.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
                Some(error.to_string())
            }
            Err(error) => return Err(reading(error)),
        };
        if let Some(found) = found {
            self.keep_log();
            return Err(written(&found));
        }
        // The log was copied, or the file was shortened.
        self.left.version = version;
        Ok(())
    }

    /// Checks that the store has all acknowledged commits.
    fn check_acknowledged(&self, directory: &Path) -> Result<(), StoreError> {
        let unusable = |source| SqliteError::directory(directory, source);
        let known = acknowledged::read(directory, self.id).map_err(unusable)?;
        let found = progress::of(&self.connection).map_err(reading)?;
        match known.and_then(|known| progress::lacks(found, known)) {
            None => Ok(()),
            Some(what) => {
                self.keep_log();
                Err(damaged(what))
            }
        }
    }

    /// Writes the store's progress to the acknowledgement file, after a commit and before its
    /// acknowledgement.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`]; [`StoreError::Damage`] when another program has written meanwhile:
    /// the commit may be on top of an older store.
    pub(super) fn acknowledge(&mut self) -> Result<(), StoreError> {
        if data_version(&self.connection).map_err(reading)? != self.left.version {
            self.keep_log();
            return Err(written("it did so during a commit"));
        }
        let progress = progress::of(&self.connection).map_err(reading)?;
        self.left.progress = progress;
        let Some(file) = &mut self.acknowledged else { return Ok(()) };
        if let Err(error) = file.note(progress) {
            // The commit is durable all the same. The file states less progress, and nothing wrong.
            cannot_note(&error);
            self.acknowledged = None;
        }
        Ok(())
    }

    /// Keeps the log for the repair of the database.
    fn keep_log(&self) {
        let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.connection.set_db_config(keep, true).ok();
    }

    /// Sets whether deleted data is overwritten in all pages, or only in pages that are written
    /// anyway, which costs nothing.
    pub(super) fn zero_freed_pages(&self, all: bool) -> rusqlite::Result<()> {
        zero_freed_pages(&self.connection, all)
    }

    /// Makes all readable data durable. After a crash the log may hold transactions that were never
    /// synced. Their ids are in the system's cache and would be answered as duplicates, and a power
    /// cut could still lose them.
    fn settle(&mut self) -> rusqlite::Result<()> {
        if !self.checkpoint()? {
            // The previous process may have been stopping an experiment.
            self.owes_erasure = true;
            // A reader holds an old state. A commit syncs the log as well.
            let touch = "UPDATE watermark SET oldest_day = oldest_day";
            self.connection.execute(touch, [])?;
        }
        Ok(())
    }

    /// Removes erased data from the log. While a reader holds the log, the removal is left to a
    /// later commit.
    pub(super) fn erase(&mut self) -> rusqlite::Result<()> {
        self.owes_erasure = !self.checkpoint()?;
        Ok(())
    }

    /// Retries a removal that is still due.
    pub(super) fn erase_rest(&mut self) -> rusqlite::Result<()> {
        if self.owes_erasure { self.erase() } else { Ok(()) }
    }

    /// Copies the log into the database file and syncs both. Returns `false` when a reader prevents
    /// it, without waiting.
    fn checkpoint(&self) -> rusqlite::Result<bool> {
        let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.connection.busy_timeout(Duration::ZERO)?;
        let busy: i64 = self.connection.query_row(truncate, [], |row| row.get(0))?;
        self.connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(busy == 0)
    }

    /// The oldest day whose uploads are still taken.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn oldest_day(&self) -> Result<Day, StoreError> {
        let query = "SELECT oldest_day FROM intact_watermark";
        self.connection.query_row(query, [], |row| row.get(0)).map(Day::new).map_err(reading)
    }

    /// The ids of every upload in the replay window.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read.
    pub fn seen_ids(&self) -> Result<SeenIds, StoreError> {
        SeenIds::gather(|each| self.visit_ids(each))
    }

    /// Calls `visit` with the day and the ids of every group in the replay
    /// window, in the order of the commits, so mostly day by day.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`]; [`StoreError::Damage`] when ids are not as they
    /// were written.
    pub fn visit_ids(&self, mut visit: impl FnMut(Day, &[[u8; 16]])) -> Result<(), StoreError> {
        let oldest = self.oldest_day()?;
        // The rows are checked here, before the day is used, since the view would read each of them
        // twice.
        let query = "SELECT checksum, key, day, ids, deltas FROM upload_group ORDER BY key";
        let mut statement = self.connection.prepare(query).map_err(reading)?;
        let mut rows = statement.query([]).map_err(reading)?;
        while let Some(row) = rows.next().map_err(reading)? {
            if !checksums::is_intact("upload_group", row).map_err(reading)? {
                let key: i64 = row.get(1).map_err(reading)?;
                return Err(damaged(format!("group {key} of uploads is not as it was written")));
            }
            let day = Day::new(row.get(2).map_err(reading)?);
            if day < oldest {
                continue;
            }
            let ids = row.get_ref(3).map_err(reading)?;
            let ids = ids.as_blob().map_err(|error| damaged(error.to_string()))?;
            let ids = ids.as_chunks().0;
            // SQLite checks its own structures only, and takes the ids for opaque bytes.
            if !ids.is_sorted_by(|one, next| one < next) {
                return Err(damaged(format!("the ids of a group of day {day}")));
            }
            visit(day, ids);
        }
        Ok(())
    }

    /// Commits a group of uploads durably: ids and deltas in one transaction, which also folds some
    /// groups of expired days.
    ///
    /// # Errors
    /// [`StoreError`]: it is unknown whether the group is durable, and the store must not be used
    /// any further.
    pub fn commit_group(&mut self, rows: &[GroupRow]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction().map_err(committing)?;
        for row in rows {
            insert_group(&transaction, row)?;
            for delta in &row.deltas {
                add_to_tally(&transaction, row.day, delta).map_err(committing)?;
            }
        }
        let looked_through = match self.looked_through {
            Some(key) => expiry::fold(&transaction, key)?,
            None => None,
        };
        transaction.commit().map_err(committing)?;
        self.looked_through = looked_through;
        self.erase_rest().map_err(committing)
    }

    /// Copies the log into the database file, unless a reader prevents it, and closes both.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`]; those of [`Self::check`].
    pub fn close(mut self) -> Result<(), StoreError> {
        self.check()?;
        let failed = |source| SqliteError::Failed { doing: "closing", source };
        self.checkpoint().map_err(failed)?;
        self.connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        Ok(self.connection.close().map_err(|(_, source)| failed(source))?)
    }
}

/// The error of a file that was looked at while it was opened.
fn while_opening(error: StoreError) -> StoreError {
    match error {
        StoreError::Sqlite(SqliteError::Failed { source, .. }) => opening(source),
        other => other,
    }
}

fn written(what: &str) -> StoreError {
    damaged(format!(
        "another program has written to the database while a server had it open, as `.restore` of \
         sqlite3 does: {what}"
    ))
}

/// Accepts the rows of the store in `directory` as they are, after a repair by hand: computes their
/// checksums anew.
///
/// # Errors
/// As [`SqliteStore::open_with`] with [`Presence::Required`], except for damaged rows;
/// [`SqliteError::ForeignFile`] also for a store of an earlier version, which has no checksums.
pub fn seal_directory(directory: &Path) -> Result<(), StoreError> {
    let seal = |connection: &mut Connection| {
        if schema::version_of(connection)? != schema::VERSION {
            return Err(SqliteError::ForeignFile.into());
        }
        let transaction = connection.transaction().map_err(committing)?;
        checksums::seal(&transaction).map_err(committing)?;
        transaction.commit().map_err(committing)
    };
    let sealed = SqliteStore::open_unchecked(Presence::Required, directory, seal);
    let unusable = |source| SqliteError::directory(directory, source);
    let sealed = sealed.and_then(|store| {
        // The operator has given up the missing commits.
        acknowledged::forget(directory).map_err(unusable)?;
        store.close()
    });
    sealed.map_err(|error| error.located(directory))
}

fn cannot_note(error: &std::io::Error) {
    tracing::warn!(
        %error,
        "the note beside the store of what is acknowledged can't be written, so the loss of a log \
         would not be noticed"
    );
}

fn insert_group(transaction: &Transaction<'_>, row: &GroupRow) -> Result<(), StoreError> {
    let ids: Vec<u8> = row.ids.iter().flat_map(UploadId::as_bytes).copied().collect();
    let deltas = stored::to_bytes(&StoredDeltas::new(&row.deltas))?;
    let insert = "INSERT INTO upload_group (day, ids, deltas) VALUES (?, ?, ?)";
    let mut statement = transaction.prepare_cached(insert).map_err(committing)?;
    statement.execute(params![row.day.get(), ids, deltas]).map_err(committing)?;
    Ok(())
}

fn add_to_tally(transaction: &Transaction<'_>, day: Day, delta: &Delta) -> rusqlite::Result<()> {
    let upsert = "INSERT INTO tally (experiment, day, arm, reports, ones) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET reports = reports + excluded.reports, ones = ones + excluded.ones";
    let arm = stored_arm(delta.revision, delta.cell);
    let (reports, ones) = (delta.tally.reports(), delta.tally.ones());
    let values = params![delta.experiment.0, day.get(), arm, reports, ones];
    transaction.prepare_cached(upsert)?.execute(values)?;
    for (symbol, count) in delta.tally.beyond_bits() {
        let upsert = "INSERT INTO symbol_tally (experiment, day, arm, symbol, reports)
            VALUES (?, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET reports = reports + excluded.reports";
        let values = params![delta.experiment.0, day.get(), arm, symbol.get(), count];
        transaction.prepare_cached(upsert)?.execute(values)?;
    }
    Ok(())
}

/// Adds the deltas of expired groups for one experiment, day and arm to the checkpoint.
pub(super) fn add_to_checkpoint(
    transaction: &Transaction<'_>,
    (experiment, day, arm): (i64, u32, u32),
    tally: &Tally,
) -> rusqlite::Result<()> {
    let insert = "INSERT INTO checkpoint (experiment, day, arm, reports, ones) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET reports = reports + excluded.reports, ones = ones + excluded.ones";
    let values = params![experiment, day, arm, tally.reports(), tally.ones()];
    transaction.prepare_cached(insert)?.execute(values)?;
    for (symbol, count) in tally.beyond_bits() {
        let insert = "INSERT INTO symbol_checkpoint (experiment, day, arm, symbol, reports)
            VALUES (?, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET reports = reports + excluded.reports";
        let values = params![experiment, day, arm, symbol.get(), count];
        transaction.prepare_cached(insert)?.execute(values)?;
    }
    Ok(())
}

/// The error of a database that could not be opened.
pub(super) fn opening(source: rusqlite::Error) -> StoreError {
    bandana_sqlite::opening(source).into()
}

/// The error of a read.
pub(crate) fn reading(source: rusqlite::Error) -> StoreError {
    bandana_sqlite::reading(source).into()
}

/// The error of a commit.
pub(super) fn committing(source: rusqlite::Error) -> StoreError {
    bandana_sqlite::committing(source).into()
}
