//! The checkpointer: a thread that copies the log into the database while the writer goes on.
//!
//! A checkpoint copies up to thousands of pages and syncs them. If the writer made it, as SQLite does by
//! itself, all uploads of that time would wait. The thread copies what there is, and then what has
//! come meanwhile; only the little that came after that is left to the writer, since the log can begin
//! anew only when nothing in it is to be copied.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, DEFAULT_NAME, OpenFlags};

use super::files::OpenFiles;
use super::sqlite::opening;
use crate::store::StoreError;

/// Lengths of the log in pages of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    /// From here on it is copied.
    pub(super) full: u32,
    /// From here on the writer copies it too, after each commit: the thread does not keep up.
    pub(super) most: u32,
}

impl Lengths {
    /// 16 and 64 MiB.
    pub(super) const USUAL: Self = Self { full: 4096, most: 16_384 };
}

/// The thread, until it is dropped.
#[derive(Debug)]
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    lengths: Lengths,
    orders: SyncSender<()>,
    /// None: there is none.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stage: AtomicU8,
    /// Held while a part of the log is copied.
    copying: Mutex<()>,
}

/// Nothing is to be copied, or the copying goes on.
const GOES_ON: u8 = 0;
/// Only what came last is left to be copied.
const CAUGHT_UP: u8 = 1;
/// The log is to stay as it is.
const STOPPED: u8 = 2;

impl Shared {
    fn copying(&self) -> MutexGuard<'_, ()> {
        self.copying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.stage.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn is_stopped(&self) -> bool {
        self.stage.load(Ordering::SeqCst) == STOPPED
    }
}

impl Checkpointer {
    /// Starts the thread for a database that is open, with these files.
    ///
    /// # Errors
    /// [`StoreError::Open`] when the database can't be opened once more, or there is no thread.
    pub(super) fn start(
        database: &Path,
        files: Arc<OpenFiles>,
        lengths: Lengths,
    ) -> Result<Self, StoreError> {
        let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE;
        let connection = Connection::open_with_flags(database, flags).map_err(opening)?;
        let configure = || {
            connection.pragma_update(None, "synchronous", "FULL")?;
            // Whether the log goes at the end is for the writer to say.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        };
        configure().map_err(opening)?;
        let shared = Arc::new(Shared { stage: AtomicU8::new(GOES_ON), copying: Mutex::default() });
        let (orders, ordered) = sync_channel(1);
        let told = Arc::clone(&shared);
        let work = move || {
            for () in ordered {
                if told.is_stopped() {
                    return;
                }
                // What there is, and what comes meanwhile.
                let copied = (0..2).all(|_| copy(&connection, &files, &told));
                if copied {
                    told.change(GOES_ON, CAUGHT_UP);
                }
            }
        };
        let thread = std::thread::Builder::new().name("checkpoints".to_owned()).spawn(work);
        // Without it the writer copies.
        let thread = thread.inspect_err(|error| {
            tracing::warn!(%error, "no thread for checkpoints: uploads will wait for them");
        });
        Ok(Self { shared, lengths, orders, thread: thread.ok() })
    }

    /// Has the commits of the writer's connection tell how long the log is.
    ///
    /// # Errors
    /// [`StoreError::Open`].
    pub(super) fn follow(&self, writer: &mut Connection) -> Result<(), StoreError> {
        let (shared, lengths) = (Arc::clone(&self.shared), self.lengths);
        let orders = self.orders.clone();
        let Lengths { full, most } = lengths;
        let most = if self.thread.is_some() { most } else { full };
        let (mut before, mut next) = (0, full);
        let hook = move |log: &mut rusqlite::hooks::Wal, pages: i32| {
            let pages = u32::try_from(pages).unwrap_or(0);
            if pages < before {
                // It has begun anew.
                next = full;
            }
            before = pages;
            if shared.is_stopped() {
                return Ok(());
            }
            if shared.change(CAUGHT_UP, GOES_ON) || pages >= most {
                // A failure is one of the next commit too; while the thread copies, it does nothing.
                log.checkpoint().ok();
            } else if pages >= next && orders.try_send(()).is_ok() {
                // While somebody reads an old state the log can't begin anew: not after each commit.
                next = pages.saturating_add(full / 4);
            }
            Ok(())
        };
        writer.wal_hook(Some(hook)).map_err(opening)
    }

    /// Waits until nothing is copied, and keeps it so until the guard is dropped.
    pub(super) fn pause(&self) -> impl Drop + '_ {
        self.shared.copying()
    }

    /// Leaves the log as it is, for good.
    pub(super) fn stop(&self) {
        self.shared.stage.store(STOPPED, Ordering::SeqCst);
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.stop();
        // The writer's connection may still have the other end: one more order, and it sees that.
        self.orders.try_send(()).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Copies what the log has now, unless the files are not those of the store any more. Returns whether
/// it was done.
fn copy(connection: &Connection, files: &OpenFiles, shared: &Shared) -> bool {
    let _copying = shared.copying();
    if shared.is_stopped() || files.check().is_err() {
        return false;
    }
    connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::PASSIVE).is_ok()
}

#[cfg(test)]
mod tests {
    use bandana_shared::identity::{Day, UploadId};

    use super::*;
    use crate::store::embedded::SqliteStore;
    use crate::store::embedded::sqlite::DATABASE_FILE;
    use crate::store::{GroupRow, Presence};

    const DAY: Day = Day::new(20_000);
    const LENGTHS: Lengths = Lengths { full: 32, most: u32::MAX };
    const PAGE: u64 = 4096;
    const COMMITS_MAX: u64 = 20_000;

    fn group(number: u64) -> GroupRow {
        let id = |place: u64| {
            UploadId::new(
                (number * 1000 + place).to_be_bytes().repeat(2).try_into().unwrap_or([0; 16]),
            )
        };
        GroupRow { day: DAY, ids: (0..500).map(id).collect(), deltas: Vec::new() }
    }

    fn length(database: &Path) -> std::io::Result<u64> {
        Ok(std::fs::metadata(database)?.len())
    }

    fn counted(store: &SqliteStore) -> Result<usize, StoreError> {
        let mut ids = 0;
        store.visit_ids(|_, group| ids += group.len())?;
        Ok(ids)
    }

    #[test]
    fn the_log_is_copied_while_commits_go_on_and_begins_anew() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let (database, log) =
            (folder.path().join(DATABASE_FILE), folder.path().join(format!("{DATABASE_FILE}-wal")));
        let mut store = SqliteStore::open_with(Presence::Optional, folder.path())?;
        store.copy_log_beside(folder.path(), LENGTHS)?;
        let (mut commits, begin) = (0, length(&database)?);
        // Each commit is four pages and more. Without a new beginning the log would have all of them.
        while commits * 4 * PAGE < 4 * length(&log)? || length(&database)? == begin {
            anyhow::ensure!(commits < COMMITS_MAX, "the log has {} bytes", length(&log)?);
            store.commit_group(&[group(commits)])?;
            commits += 1;
        }
        assert_eq!(counted(&store)? as u64, commits * 500);
        // As after a crash: nothing is closed in order.
        let copy = tempfile::tempdir()?;
        for name in [&database, &log] {
            let to = copy.path().join(name.file_name().unwrap_or_default());
            std::fs::copy(name, to)?;
        }
        drop(store);
        assert_eq!(counted(&SqliteStore::open(copy.path())?)? as u64, commits * 500);
        Ok(())
    }

    #[test]
    fn a_log_that_is_to_stay_is_not_copied() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let database = folder.path().join(DATABASE_FILE);
        let mut store = SqliteStore::open_with(Presence::Optional, folder.path())?;
        store.copy_log_beside(folder.path(), LENGTHS)?;
        store.keep_log();
        let begin = length(&database)?;
        for number in 0..100 {
            store.commit_group(&[group(number)])?;
        }
        drop(store);
        assert_eq!(length(&database)?, begin, "all of it is in the log");
        assert_eq!(counted(&SqliteStore::open(folder.path())?)?, 50_000);
        Ok(())
    }
}
