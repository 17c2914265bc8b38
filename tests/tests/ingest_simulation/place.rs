//! The disk of a simulated server, and its state after a crash.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bandana_shared::identity::Day;
use bandana_store::{
    EmbeddedSettings, EmbeddedStore, PostgresSettings, PostgresStore, SqliteStore, Store,
};
use bandana_tests::postgres::Postgres;
use tempfile::TempDir;

/// Length of the replay window, in days.
pub(crate) const WINDOW: u32 = 3;

const DATABASE: &str = "bandana.sqlite3";
const LOG: &str = "bandana.sqlite3-wal";

/// The location of the store.
pub(crate) enum Place {
    Embedded { root: TempDir, current: Mutex<PathBuf> },
    Postgres { url: String, replicas: usize, id_partitions: u32 },
}

impl Place {
    /// An empty directory, in memory if possible: thousands of worlds would mostly wait for a disk.
    pub(crate) fn embedded() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let root =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }?;
        let current = Mutex::new(root.path().join("0"));
        Ok(Self::Embedded { root, current })
    }

    /// An empty database, for one to three replicas, in one of the layouts of a day's ids.
    pub(crate) fn postgres(server: &Postgres, seed: u64) -> anyhow::Result<Self> {
        let replicas = usize::try_from(seed % 3)? + 1;
        let id_partitions = if (seed / 3).is_multiple_of(2) { 1 } else { 4 };
        Ok(Self::Postgres { url: server.database()?, replicas, id_partitions })
    }

    pub(crate) fn replicas(&self) -> usize {
        match self {
            Self::Embedded { .. } => 1,
            Self::Postgres { replicas, .. } => *replicas,
        }
    }

    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self, Self::Embedded { .. })
    }

    fn directory(&self) -> anyhow::Result<PathBuf> {
        match self {
            Self::Embedded { current, .. } => {
                Ok(current.lock().unwrap_or_else(PoisonError::into_inner).clone())
            }
            Self::Postgres { .. } => anyhow::bail!("not a directory"),
        }
    }

    /// Opens the store as at the start of a server.
    pub(crate) fn open(&self, today: Day, ids_max: usize) -> anyhow::Result<Box<dyn Store>> {
        if let Self::Postgres { url, id_partitions, .. } = self {
            return Ok(Box::new(PostgresStore::open(&PostgresSettings {
                url: url.parse()?,
                ca: None,
                password_file: None,
                replay_window_days: WINDOW,
                id_partitions: *id_partitions,
                cells: Vec::new(),
            })?));
        }
        let settings = EmbeddedSettings { replay_window_days: WINDOW, ids_max };
        let mut store = EmbeddedStore::open(&self.directory()?, settings)?;
        store.start_on(today);
        Ok(Box::new(store))
    }

    /// The store, while no server has it open.
    pub(crate) fn sqlite(&self) -> anyhow::Result<SqliteStore> {
        Ok(SqliteStore::open_existing(&self.directory()?)?)
    }

    /// The length of the log.
    pub(crate) fn log_length(&self) -> anyhow::Result<u64> {
        if !self.is_embedded() {
            return Ok(0);
        }
        Ok(fs::metadata(self.directory()?.join(LOG)).map_or(0, |log| log.len()))
    }

    /// Replaces the store by its state after a crash at this moment, with the log cut to this
    /// length. An open handle still sees the old state.
    pub(crate) fn crash(&self, log_length: u64) -> anyhow::Result<()> {
        let Self::Embedded { root, current } = self else { return Ok(()) };
        let before = self.directory()?;
        let number: u32 = before.strip_prefix(root.path())?.display().to_string().parse()?;
        let after = root.path().join((number + 1).to_string());
        fs::create_dir(&after)?;
        fs::copy(before.join(DATABASE), after.join(DATABASE))?;
        if let Ok(mut log) = fs::read(before.join(LOG)) {
            log.truncate(usize::try_from(log_length)?);
            fs::write(after.join(LOG), log)?;
        }
        *current.lock().unwrap_or_else(PoisonError::into_inner) = after;
        Ok(())
    }
}
