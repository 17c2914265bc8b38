//! The embedded store: an SQLite database, and the ids of counted uploads in memory.
//!
//! One process owns the store, so its memory holds the complete state.

mod backup;
mod changes;
mod checksums;
mod database;
mod deletion;
mod disclosures;
mod error_mapping;
mod experiments;
mod expiry;
mod progress;
mod read_only;
mod schema;
mod sqlite;
mod verify;
mod watermark;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandana_shared::identity::{Day, Digest, StoreId};
use bandana_shared::specification::Specification;
use bandana_sqlite::OpenFiles;

pub use backup::{Backup, BackupError, BackupProgress};
pub(super) use checksums::read_intact;
pub(super) use database::ready;
pub(super) use sqlite::reading;
pub use sqlite::{SqliteStore, seal_directory};
pub use verify::{verify_directory, verify_file};
pub use watermark::{Watermark, WatermarkError};

use super::{
    AuditEntry, Committed, CuratorChange, EpochToAdd, ExpectedState, ExperimentChange,
    ExperimentRecord, ExperimentState, GroupRow, LearnerConfig, Presence, Store, StoreError,
    StoreRefusal, TrustedChange, Window, WrittenRecord,
};
use crate::deletion::deleted;
use crate::{DedupState, IdShares, SeenIds, ValidUpload, decide};

/// Limits of the embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedSettings {
    /// The length of the replay window in days, including today; at least 1.
    pub replay_window_days: u32,
    /// Most upload ids that are remembered, at about 20 bytes of memory each.
    pub ids_max: usize,
}

/// A database in a directory, with the exact set of its upload ids in memory.
#[derive(Debug)]
pub struct EmbeddedStore {
    directory: PathBuf,
    database: SqliteStore,
    seen: SeenIds,
    shares: IdShares,
    oldest: Day,
    /// Whether the clock is doubted: it is so far ahead that the window would drop all remembered
    /// ids, and no upload has confirmed the day. None: to be determined, at the start and again
    /// once a clock that was behind is set right.
    doubted: Option<bool>,
    settings: EmbeddedSettings,
}

impl EmbeddedStore {
    /// Opens the store in `directory`, creating both when they are missing.
    ///
    /// # Errors
    /// As [`Self::open_with`].
    pub fn open(directory: &Path, settings: EmbeddedSettings) -> Result<Self, StoreError> {
        Self::open_with(Presence::Optional, directory, settings)
    }

    /// Opens the store in `directory`, or creates both if `presence` allows it.
    ///
    /// # Errors
    /// As [`SqliteStore::open_with`], and when the content can't be read.
    pub fn open_with(
        presence: Presence,
        directory: &Path,
        settings: EmbeddedSettings,
    ) -> Result<Self, StoreError> {
        let open = || {
            let database = SqliteStore::open_with(presence, directory)?;
            let (seen, oldest) = (database.seen_ids()?, database.oldest_day()?);
            let directory = directory.to_owned();
            let shares = IdShares::default();
            Ok(Self { directory, database, seen, shares, oldest, doubted: None, settings })
        };
        open().map_err(|error: StoreError| error.located(directory))
    }

    /// The store's id.
    pub fn id(&self) -> StoreId {
        self.database.id()
    }

    /// The store's files, for checks by others.
    pub fn files(&self) -> Arc<OpenFiles> {
        self.database.files()
    }

    /// Warns at the start, rather than with the first upload, when the clock is doubted.
    pub fn start_on(&mut self, today: Day) {
        if today >= self.oldest {
            self.doubted = Some(self.doubt(self.begin(today), today));
        }
    }

    /// Runs `work`, and adds the place to its errors. The result counts as done only if the commit
    /// is in the files that the next start will find, and no other program has written to them. The
    /// files are also checked before the work, so that no log is written beside another program's
    /// files.
    fn here<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let outcome = self.database.check().and_then(|()| work(self));
        // When files are gone, SQLite's own error misleads; the check of the files names the cause.
        let checked = self.database.check_files().and(outcome);
        let noted = checked.and_then(|done| self.database.acknowledge().map(|()| done));
        noted.map_err(|error| error.located(&self.directory))
    }

    /// Moves the replay window when a new day has begun.
    fn expire(&mut self, uploads: &[ValidUpload], today: Day) -> Result<(), StoreError> {
        if today < self.oldest {
            self.doubted = None;
            return Ok(());
        }
        let begin = self.begin(today);
        let borne_out = uploads.iter().any(|upload| (begin..=today).contains(&upload.day));
        let doubted = match self.doubted {
            Some(doubted) => doubted,
            None => self.doubt(begin, today),
        };
        self.doubted = Some(doubted && !borne_out);
        if self.doubted == Some(false) && begin > self.oldest {
            self.database.expire_before(begin)?;
            self.seen.forget_before(begin);
            self.shares.forget_before(begin);
            self.oldest = begin;
        }
        Ok(())
    }

    /// The first day of the window that ends with `today`.
    fn begin(&self, today: Day) -> Day {
        today.back(self.settings.replay_window_days.saturating_sub(1))
    }

    /// Whether a window with this first day would drop all remembered ids.
    fn is_doubtful(&self, begin: Day) -> bool {
        self.seen.newest_day().is_some_and(|newest| newest < begin)
    }

    fn doubt(&self, begin: Day, today: Day) -> bool {
        let doubtful = self.is_doubtful(begin);
        if doubtful {
            tracing::warn!(
                %today,
                "no upload is as new as the replay window, so the clock may be wrong; the window \
                 stays where it is until such an upload comes"
            );
        }
        doubtful
    }

    fn check_expected(&self, expected: ExpectedState) -> Result<ExperimentRecord, StoreError> {
        let record = self.database.experiment(expected.key)?;
        if record.expected() == Some(expected) {
            return Ok(record);
        }
        Err(StoreError::Refused(StoreRefusal::Outdated(Box::new(record))))
    }

    fn commit_here(
        &mut self,
        uploads: &[ValidUpload],
        today: Day,
    ) -> Result<Committed, StoreError> {
        self.expire(uploads, today)?;
        let state = DedupState {
            seen: &self.seen,
            shares: &self.shares,
            ids_max: self.settings.ids_max,
            oldest: self.oldest,
            today,
        };
        let decision = decide(uploads, &state);
        if !decision.rows.is_empty() {
            self.database.commit_group(&decision.rows)?;
        }
        for row in &decision.rows {
            for id in &row.ids {
                self.seen.insert(row.day, *id);
            }
        }
        for ((day, key), ids) in &decision.shares {
            self.shares.add(*day, key, *ids);
        }
        let of_row = |row: GroupRow| row.deltas.into_iter().map(move |delta| (row.day, delta));
        let deltas = decision.rows.into_iter().flat_map(of_row).collect();
        Ok(Committed { verdicts: decision.verdicts, deltas })
    }
}

impl Store for EmbeddedStore {
    fn load(&mut self) -> Result<Vec<ExperimentRecord>, StoreError> {
        self.here(|store| store.database.experiments())
    }

    fn window(&self, today: Day) -> Window {
        let begin = self.begin(today);
        let doubted = self.doubted.unwrap_or_else(|| self.is_doubtful(begin));
        let oldest = if doubted { self.oldest } else { self.oldest.max(begin) };
        let ids = Some((self.seen.len(), self.settings.ids_max));
        Window { oldest, newest: self.seen.newest_day(), ids }
    }

    fn commit(&mut self, uploads: &[ValidUpload], today: Day) -> Result<Committed, StoreError> {
        self.here(|store| store.commit_here(uploads, today))
    }

    fn create_experiment_with(
        &mut self,
        specification: &Specification,
        settings: (LearnerConfig, &WrittenRecord),
        state: ExperimentState,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.here(|store| {
            let key =
                store.database.create_experiment_with(specification, settings, state, entry)?;
            store.database.experiment(key)
        })
    }

    fn apply_experiment_change(
        &mut self,
        change: ExperimentChange<'_>,
        entry: &AuditEntry,
    ) -> Result<ExperimentRecord, StoreError> {
        self.here(|store| {
            if let Some(expected) = change.expected() {
                let known = store.check_expected(expected)?;
                if change.is_late(&known, entry) {
                    return Err(StoreError::Refused(StoreRefusal::Outdated(Box::new(known))));
                }
            }
            store.database.apply_experiment_change(&change, entry)?;
            store.database.experiment(change.key())
        })
    }

    fn delete(&mut self, expected: ExpectedState, entry: &AuditEntry) -> Result<(), StoreError> {
        self.here(|store| {
            store.check_expected(expected)?;
            store.database.delete(expected.key, entry)
        })
    }

    fn deleted(&mut self) -> Result<Vec<Digest>, StoreError> {
        self.here(|store| ready(deleted(&store.database.connection)))
    }

    fn apply_query_change(&mut self, change: &CuratorChange) -> Result<(), StoreError> {
        self.here(|store| store.database.apply_query_change(change))
    }

    fn apply_trusted_change(&mut self, change: &TrustedChange) -> Result<(), StoreError> {
        self.here(|store| store.database.apply_trusted_change(change))
    }

    fn add_epoch(&mut self, addition: &EpochToAdd) -> Result<(), StoreError> {
        self.here(|store| store.database.add_epoch(addition))
    }

    fn check(&mut self, today: Day) -> Result<(), StoreError> {
        self.here(|store| store.expire(&[], today))
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.database.close().map_err(|error| error.located(&self.directory))
    }
}
