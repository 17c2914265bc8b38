//! The store of a relay that shuffles: sealed reports until their batch is handed on.
//!
//! An SQLite database in a directory of its own. One process has it. A report, its id, and the batch
//! that it fills are one transaction, so a crash loses and doubles nothing.

use std::collections::HashMap;
use std::path::Path;

use bandana_shared::identity::{CellIndex, Day, Digest, UploadId};
use bandana_shared::shuffling::{BatchSize, Envelope, ShuffledReport};
use bandana_sqlite::{Presence, SqliteError, committing, damaged, reading};
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use zeroize::Zeroizing;

use super::ShuffleError;
use super::database::RelayDatabase;
use super::origins::Origin;

/// The limits of a relay's store.
#[derive(Clone, Copy, Debug)]
pub struct ShuffleLimits {
    /// The number of days whose uploads are taken, today included.
    pub replay_window_days: u32,
    /// Most ids of counted uploads, and most reports that wait.
    pub reports_max: u64,
    /// Most of a batch that may come from one address: more than 0, to 1.
    pub share_per_address: f64,
}

impl ShuffleLimits {
    /// Most reports of one address in a batch of this size: one at least.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of at most 16384, and a cast saturates"
    )]
    fn most_of_address(&self, batch: BatchSize) -> u32 {
        // A decimal fraction is rarely a float: a tenth of 10 must be 1.
        ((f64::from(batch.get()) * self.share_per_address + 1e-9) as u32).max(1)
    }
}

/// Reports that wait for each other: as many as a batch has are handed on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BatchKey {
    pub(super) digest: Digest,
    pub(super) cell: CellIndex,
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
    pub(super) cell: CellIndex,
    /// The sealed reports, one after the other.
    pub(super) reports: Vec<u8>,
    /// The digest of the keys that they are sealed for; none of a batch that an earlier version filled.
    pub(super) keys: Vec<u8>,
}

/// What was dropped at the end of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    /// Reports whose batch was not full.
    pub(super) reports: u64,
    /// Full batches that the aggregator did not take.
    pub(super) batches: u64,
}

/// The outcome for a report once its transaction is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Kept now.
    Accepted,
    /// Kept before, or by another report of the same transaction.
    Duplicate,
    /// The report's day is before the replay window.
    Expired {
        /// The oldest day whose reports are taken.
        oldest: Day,
    },
    /// The report's day is after today.
    FutureDay {
        /// The relay's day.
        today: Day,
    },
    /// The store has as many reports, or remembers as many ids, as it may.
    Full,
    /// The replay window lies after today, since the clock was once too far ahead. No day can be
    /// judged.
    ClockBehind,
}

/// What became of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// None: nothing was kept, since its origin has its share of the batch that fills.
    pub(super) verdicts: Vec<Option<Verdict>>,
    /// Whether there is a new batch.
    pub(super) is_batch_filled: bool,
}

/// The store. After an error it must not be used any further.
#[derive(Debug)]
pub(super) struct ReportStore {
    database: RelayDatabase,
    limits: ShuffleLimits,
    held: Held,
}

/// What is in the database, counted.
#[derive(Debug)]
struct Held {
    oldest: Day,
    ids: u64,
    /// Reports that wait, and those in batches.
    reports: u64,
    waiting: HashMap<BatchKey, (i64, u32)>,
}

impl ReportStore {
    /// Opens the store in `directory`, or makes one if `presence` allows it.
    ///
    /// # Errors
    /// As [`RelayDatabase::open`].
    pub(super) fn open(
        presence: Presence,
        directory: &Path,
        limits: ShuffleLimits,
    ) -> Result<Self, SqliteError> {
        let database = RelayDatabase::open(presence, directory)?;
        let held = Held::read(database.connection()).map_err(|error| error.located(directory))?;
        Ok(Self { database, limits, held })
    }

    /// The oldest day whose uploads are taken.
    pub(super) fn oldest(&self) -> Day {
        self.held.oldest
    }

    /// The numbers of remembered ids and of kept reports.
    pub(super) fn kept(&self) -> (u64, u64) {
        (self.held.ids, self.held.reports)
    }

    /// The batches that wait for more reports, each with its number of reports.
    pub(super) fn waiting_batches(&self) -> impl Iterator<Item = (BatchKey, u32)> {
        self.held.waiting.iter().map(|(batch_key, (_, reports))| (*batch_key, *reports))
    }

    /// Keeps reports, and makes batches of those that fill one, in one transaction. Each gets a
    /// verdict, which holds once this returns.
    ///
    /// # Errors
    /// [`ShuffleError`]: nothing was kept, or it is not known.
    pub(super) fn keep(
        &mut self,
        reports: &[(Envelope, Origin)],
        today: Day,
    ) -> Result<Kept, ShuffleError> {
        let Self { database, limits, held } = self;
        database.commit(|transaction| {
            held.forget_before(
                transaction,
                today.back(limits.replay_window_days.saturating_sub(1)),
            )?;
            let mut kept =
                Kept { verdicts: Vec::with_capacity(reports.len()), is_batch_filled: false };
            for report in reports {
                let (verdict, fills) = held.keep(transaction, report, today, *limits)?;
                kept.verdicts.push(verdict);
                kept.is_batch_filled |= fills;
            }
            Ok(kept)
        })
    }

    /// The keys of all batches, in the order in which they were filled.
    ///
    /// # Errors
    /// [`SqliteError`].
    pub(super) fn batches(&self) -> Result<Vec<i64>, SqliteError> {
        let query = "SELECT key FROM batch ORDER BY key";
        let mut statement = self.database.connection().prepare_cached(query).map_err(reading)?;
        let keys = statement.query_map([], |row| row.get(0)).map_err(reading)?;
        keys.collect::<Result<_, _>>().map_err(reading)
    }

    /// The batch with this key, unless it is settled.
    ///
    /// # Errors
    /// [`SqliteError`].
    pub(super) fn batch(&self, key: i64) -> Result<Option<Batch>, SqliteError> {
        let query = "SELECT key, id, digest, day, arm, reports, keys FROM batch WHERE key = ?";
        let mut statement = self.database.connection().prepare_cached(query).map_err(reading)?;
        let row = statement.query_row([key], |row| {
            let names: (i64, [u8; 16], [u8; 16], u32) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let keys = row.get::<_, Option<Vec<u8>>>(6)?.unwrap_or_default();
            Ok((names, row.get::<_, u32>(4)?, row.get::<_, Vec<u8>>(5)?, keys))
        });
        let Some(((key, id, digest, day), arm, reports, keys)) = row.optional().map_err(reading)?
        else {
            return Ok(None);
        };
        let (id, digest, day) = (UploadId::new(id), Digest::new(digest), Day::new(day));
        Ok(Some(Batch { key, id, digest, day, cell: cell_index(arm)?, reports, keys }))
    }

    /// Forgets a batch that the aggregator has, or will never take.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub(super) fn settle(&mut self, batch: &Batch) -> Result<(), ShuffleError> {
        let Self { database, held, .. } = self;
        database.commit(|transaction| {
            let delete = "DELETE FROM batch WHERE key = ?";
            let deleted = transaction.execute(delete, [batch.key]).map_err(committing)?;
            let reports = deleted * batch.reports.len() / ShuffledReport::SEALED_BYTES;
            held.reports = held.reports.saturating_sub(reports as u64);
            Ok(())
        })
    }

    /// Forgets all reports of an experiment that has ended.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub(super) fn drop_experiment(&mut self, digest: Digest) -> Result<Dropped, ShuffleError> {
        let Self { database, held, .. } = self;
        database.commit(|transaction| {
            let name = digest.as_bytes();
            let run = |statement: &str| transaction.execute(statement, [name]).map_err(committing);
            let bytes = "SELECT coalesce(sum(length(reports)), 0) FROM batch WHERE digest = ?";
            let bytes = transaction.query_row(bytes, [name], |row| row.get::<_, u64>(0));
            let in_batches = bytes.map_err(committing)? / ShuffledReport::SEALED_BYTES as u64;
            let waiting =
                "DELETE FROM report WHERE pile IN (SELECT key FROM pile WHERE digest = ?)";
            let reports = run(waiting)? as u64;
            run("DELETE FROM pile WHERE digest = ?")?;
            let batches = run("DELETE FROM batch WHERE digest = ?")? as u64;
            held.waiting.retain(|batch_key, _| batch_key.digest != digest);
            held.reports = held.reports.saturating_sub(reports + in_batches);
            Ok(Dropped { reports, batches })
        })
    }
}

impl Held {
    fn read(connection: &Connection) -> Result<Self, SqliteError> {
        let number = |query: &str| {
            connection.query_row(query, [], |row| row.get::<_, u64>(0)).map_err(reading)
        };
        let oldest = connection.query_row("SELECT oldest_day FROM store", [], |row| row.get(0));
        let in_batches = "SELECT coalesce(sum(length(reports)), 0) FROM batch";
        let in_batches = number(in_batches)? / ShuffledReport::SEALED_BYTES as u64;
        let mut held = Self {
            oldest: Day::new(oldest.map_err(reading)?),
            ids: number("SELECT count(*) FROM seen")?,
            reports: number("SELECT count(*) FROM report")? + in_batches,
            waiting: HashMap::new(),
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
            let batch_key =
                BatchKey { digest: Digest::new(digest), cell: cell_index(arm)?, batch, keys };
            held.waiting.insert(batch_key, (key, reports));
        }
        Ok(held)
    }

    /// Moves the replay window on, never back.
    fn forget_before(
        &mut self,
        transaction: &Transaction<'_>,
        oldest: Day,
    ) -> Result<(), ShuffleError> {
        if self.oldest < oldest {
            self.oldest = oldest;
            let forget = "DELETE FROM seen WHERE day < ?";
            let forgotten = transaction.execute(forget, [oldest.get()]).map_err(committing)?;
            self.ids = self.ids.saturating_sub(forgotten as u64);
            let set = "UPDATE store SET oldest_day = ?";
            transaction.execute(set, [oldest.get()]).map_err(committing)?;
        }
        Ok(())
    }

    /// Keeps a report. Returns whether it fills a batch, too.
    fn keep(
        &mut self,
        transaction: &Transaction<'_>,
        (envelope, origin): &(Envelope, Origin),
        today: Day,
        limits: ShuffleLimits,
    ) -> Result<(Option<Verdict>, bool), ShuffleError> {
        let Envelope { id, day, digest, cell, batch, keys, report } = envelope;
        let refused = |verdict| Ok((Some(verdict), false));
        if self.oldest > today {
            return refused(Verdict::ClockBehind);
        }
        if *day < self.oldest {
            return refused(Verdict::Expired { oldest: self.oldest });
        }
        if *day > today {
            return refused(Verdict::FutureDay { today });
        }
        let execute = |statement: &str, values: &[&dyn rusqlite::ToSql]| {
            transaction.prepare_cached(statement)?.execute(values)
        };
        let known = "SELECT 1 FROM seen WHERE day = ? AND id = ?";
        let names = params![day.get(), id.as_bytes()];
        let mut known = transaction.prepare_cached(known).map_err(committing)?;
        if known.exists(names).map_err(committing)? {
            return refused(Verdict::Duplicate);
        }
        if self.ids >= limits.reports_max || self.reports >= limits.reports_max {
            return refused(Verdict::Full);
        }
        let batch_key = BatchKey { digest: *digest, cell: *cell, batch: *batch, keys: *keys };
        let known = self.waiting.get(&batch_key).copied();
        let most = limits.most_of_address(*batch);
        if let Some((key, _)) = known.filter(|_| most < batch.get()) {
            let count = "SELECT count(*) FROM report WHERE pile = ? AND origin = ?";
            let mut count = transaction.prepare_cached(count).map_err(committing)?;
            let count = count.query_row(params![key, origin.0], |row| row.get::<_, u32>(0));
            if count.map_err(committing)? >= most {
                return Ok((None, false));
            }
        }
        execute("INSERT INTO seen (day, id) VALUES (?, ?)", names).map_err(committing)?;
        let (key, mut waiting) = if let Some(known) = known {
            known
        } else {
            let insert = "INSERT INTO pile (digest, arm, batch, keys) VALUES (?, ?, ?, ?)";
            let values = params![digest.as_bytes(), cell.to_u32(), batch.get(), keys];
            execute(insert, values).map_err(committing)?;
            (transaction.last_insert_rowid(), 0)
        };
        let insert = "INSERT INTO report (pile, origin, sealed) VALUES (?, ?, ?)";
        execute(insert, params![key, origin.0, report]).map_err(committing)?;
        waiting += 1;
        let fills = waiting >= batch.get();
        if fills {
            shuffle(transaction, (key, batch_key), today)?;
            waiting = 0;
        }
        self.ids += 1;
        self.reports += 1;
        self.waiting.insert(batch_key, (key, waiting));
        Ok((Some(Verdict::Accepted), fills))
    }
}

/// Makes a batch of the reports that wait under a key.
///
/// # Privacy
/// Nothing in the batch is left of the order of arrival: each order is equally likely, and drawn from
/// a cipher with a key of the operating system's randomness. Without randomness there is no batch.
/// Freed pages of the relay's own disk keep the order for a while.
fn shuffle(
    transaction: &Transaction<'_>,
    (key, batch_key): (i64, BatchKey),
    today: Day,
) -> Result<(), ShuffleError> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(ShuffleError::Entropy)?;
    let mut random = ChaCha20Rng::from_seed(*seed);
    let query = "SELECT sealed FROM report WHERE pile = ?";
    let mut statement = transaction.prepare_cached(query).map_err(committing)?;
    let rows = statement.query_map([key], |row| row.get(0)).map_err(committing)?;
    let mut reports: Vec<[u8; ShuffledReport::SEALED_BYTES]> =
        rows.collect::<Result<_, _>>().map_err(committing)?;
    if reports.len() != batch_key.batch.get() as usize {
        let (found, expected) = (reports.len(), batch_key.batch.get());
        return Err(damaged(format!("a batch of {expected} reports has {found}")).into());
    }
    reports.shuffle(&mut random);
    let mut id = [0; 16];
    random.fill_bytes(&mut id);
    let insert =
        "INSERT INTO batch (id, digest, day, arm, reports, keys) VALUES (?, ?, ?, ?, ?, ?)";
    let (digest, arm, reports) =
        (batch_key.digest.as_bytes(), batch_key.cell.to_u32(), reports.concat());
    let names = params![id, digest, today.get(), arm, reports, batch_key.keys];
    transaction.prepare_cached(insert).map_err(committing)?.execute(names).map_err(committing)?;
    let delete = "DELETE FROM report WHERE pile = ?";
    transaction.prepare_cached(delete).map_err(committing)?.execute([key]).map_err(committing)?;
    Ok(())
}

fn cell_index(cell: u32) -> Result<CellIndex, SqliteError> {
    let cell = usize::try_from(cell).ok().and_then(|cell| CellIndex::new(cell).ok());
    cell.ok_or_else(|| damaged("a cell beyond the greatest".to_owned()))
}

#[cfg(test)]
mod tests;
