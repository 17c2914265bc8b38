//! The database of a relay that shuffles: of one process, whole, and with every acknowledged commit.

use std::path::Path;

use bandana_shared::identity::StoreId;
use bandana_sqlite::acknowledged::{self, Acknowledged, Progress};
use bandana_sqlite::{
    DirectoryLock, LockedDatabase, OpenFiles, Presence, SqliteError, committing, damaged,
    data_version, opening, reading, sync_directory,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction};

use super::ShuffleError;

/// The application id that marks the file as a relay's: "BNDR".
const APPLICATION_ID: i64 = 0x424e_4452;

/// The schema version of this program.
const VERSION: i64 = 2;

/// The database. Its owner is the only process that writes.
#[derive(Debug)]
pub(super) struct RelayDatabase {
    connection: Connection,
    files: OpenFiles,
    _lock: DirectoryLock,
    /// SQLite's number of this connection's view: another one when another program has written.
    version: i64,
    acknowledged: Acknowledged,
    commits: u64,
}

impl RelayDatabase {
    /// Opens the database in `directory`, or makes one if `presence` allows it.
    ///
    /// # Errors
    /// [`SqliteError`] when the directory can't be used, another process has it, or the database is
    /// damaged, not a relay's, or lacks what was acknowledged.
    pub(super) fn open(presence: Presence, directory: &Path) -> Result<Self, SqliteError> {
        Self::open_in(presence, directory).map_err(|error| error.located(directory))
    }

    fn open_in(presence: Presence, directory: &Path) -> Result<Self, SqliteError> {
        // They are dropped in reverse.
        let LockedDatabase { lock, file, mut connection } =
            LockedDatabase::open(presence, directory, create, check)?;
        let unusable = |source| SqliteError::directory(directory, source);
        let (id, commits) = connection
            .query_row("SELECT id, commits FROM store", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(reading)?;
        let (id, progress) = (StoreId::new(id), Progress::of_commits(commits));
        let known = acknowledged::read(directory, id).map_err(unusable)?;
        let is_whole: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(opening)?;
        let damage = if is_whole != "ok" {
            Some(is_whole)
        } else if known.is_some_and(|known| progress.is_behind(known)) {
            Some(format!(
                "reports that were acknowledged are missing: its log was removed, or an older copy \
                 put in its place. To go on with what is there, remove {}; reports since then are \
                 lost or count twice",
                acknowledged::path(directory).display()
            ))
        } else {
            None
        };
        if let Some(damage) = damage {
            // Closing would fold the log into the database, and leave less for a repair.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).ok();
            return Err(damaged(damage));
        }
        upgrade(&mut connection).map_err(opening)?;
        settle(&connection).map_err(opening)?;
        sync_directory(directory).map_err(unusable)?;
        let files = OpenFiles::of(directory, file)?;
        let mut acknowledged = Acknowledged::open(directory, id).map_err(unusable)?;
        acknowledged.note(progress).map_err(unusable)?;
        let version = data_version(&connection).map_err(reading)?;
        Ok(Self { connection, files, _lock: lock, version, acknowledged, commits })
    }

    /// The connection, for reading.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Makes a change, as one transaction that is durable once this returns.
    ///
    /// # Errors
    /// [`ShuffleError`]: nothing was changed, or it is not known. The database must not be used any
    /// further.
    pub(super) fn commit<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, ShuffleError>,
    ) -> Result<T, ShuffleError> {
        self.check()?;
        let transaction = self.connection.transaction().map_err(committing)?;
        let changed = change(&transaction)?;
        self.commits += 1;
        let count = "UPDATE store SET commits = ?";
        let mut count = transaction.prepare_cached(count).map_err(committing)?;
        count.execute([self.commits]).map_err(committing)?;
        drop(count);
        transaction.commit().map_err(committing)?;
        // A commit into files that no start will find is none.
        self.check()?;
        if let Err(error) = self.acknowledged.note(Progress::of_commits(self.commits)) {
            // It is durable all the same.
            tracing::warn!(%error, "what is acknowledged can't be noted beside the relay's store");
        }
        Ok(changed)
    }

    /// Checks that no other program has written, and that the next start will find these files.
    fn check(&self) -> Result<(), SqliteError> {
        self.files.check()?;
        if data_version(&self.connection).map_err(reading)? == self.version {
            return Ok(());
        }
        Err(damaged("another program has written to the relay's store".to_owned()))
    }

    /// Makes closing as abrupt as the end of a killed process.
    #[cfg(test)]
    pub(super) fn keep_log(&self) {
        let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.connection.set_db_config(keep, true).unwrap();
    }
}

/// Makes durable what can be read: a crash may have left transactions that were not synced.
fn settle(connection: &Connection) -> rusqlite::Result<()> {
    let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
    let busy: i64 = connection.query_row(truncate, [], |row| row.get(0))?;
    if busy != 0 {
        // A reader holds an old state. A commit syncs the log as well.
        connection.execute("UPDATE store SET commits = commits", [])?;
    }
    Ok(())
}

fn create(connection: &mut Connection) -> Result<(), SqliteError> {
    let create = || {
        connection.execute_batch(include_str!("tables.sql"))?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", VERSION)
    };
    create().map_err(opening)
}

/// Brings a database of an earlier version to this one.
fn upgrade(connection: &mut Connection) -> rusqlite::Result<()> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found < VERSION {
        let transaction = connection.transaction()?;
        transaction.execute_batch(
            "ALTER TABLE report ADD COLUMN origin BLOB;
             ALTER TABLE batch ADD COLUMN keys BLOB;
             DROP INDEX report_by_pile;
             CREATE INDEX report_by_origin ON report (pile, origin);",
        )?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()?;
    }
    Ok(())
}

fn check(connection: &Connection) -> Result<(), SqliteError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let marks = pragma("application_id").and_then(|mark| Ok((mark, pragma("user_version")?)));
    match marks.map_err(opening)? {
        (APPLICATION_ID, 1..=VERSION) => Ok(()),
        (APPLICATION_ID, found) if found > VERSION => {
            Err(SqliteError::NewerSchema { found, known: VERSION })
        }
        _ => Err(SqliteError::ForeignFile),
    }
}
