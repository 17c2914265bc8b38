//! Trusted experiments in the embedded store.

use bandana_shared::identity::{Day, ExperimentId, UploadId};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::deletion::{ARCHIVED, was_deleted};
use super::experiments::experiment_exists;
use super::sqlite::{committing, reading};
use super::{SqliteStore, audit};
use crate::trusted::FORGOTTEN_MAX;
use crate::{
    ExperimentState, StoreError, StoreRefusal, TrustedChange, TrustedCommit, TrustedRecord,
    TrustedRefusal, TrustedVersion, damaged,
};

impl SqliteStore {
    /// Makes a change of a trusted experiment, durably.
    ///
    /// # Errors
    /// [`StoreError::Refused`]: nothing was changed.
    /// [`StoreError::Database`].
    pub fn apply_trusted_change(&mut self, change: &TrustedChange) -> Result<(), StoreError> {
        // Replaced or erased rewards must not rest in free pages.
        self.zero_freed_pages(true).map_err(committing)?;
        let outcome = self.change_trusted(change);
        self.zero_freed_pages(false).map_err(committing)?;
        let is_stopped = matches!(
            change,
            TrustedChange::Move { state: ExperimentState::Stopped, .. }
                | TrustedChange::Delete { .. }
        );
        // Removes the erased rewards from the log too.
        let erased = if is_stopped { self.erase() } else { self.erase_rest() };
        erased.map_err(committing)?;
        outcome
    }

    fn change_trusted(&mut self, change: &TrustedChange) -> Result<(), StoreError> {
        let transaction = self.connection.transaction().map_err(committing)?;
        match change {
            TrustedChange::Create(record, entry) => {
                create(&transaction, record)?;
                audit::append(&transaction, entry).map_err(committing)?;
            }
            TrustedChange::Move { id, from, to, state, entry } => {
                move_to(&transaction, id, [*from, *to], *state)?;
                audit::append(&transaction, entry).map_err(committing)?;
            }
            TrustedChange::Archive { id, from, to, entry } => {
                move_to(&transaction, id, [*from, *to], ExperimentState::Stopped)?;
                audit::append(&transaction, entry).map_err(committing)?;
            }
            TrustedChange::Delete { id, from, entry } => {
                delete(&transaction, id, *from)?;
                audit::append(&transaction, entry).map_err(committing)?;
            }
            TrustedChange::Window { id, from, to, today, back } => {
                move_window(&transaction, id, [*from, *to], today.back(*back))?;
            }
            TrustedChange::Commit(commit) => replace(&transaction, commit)?,
        }
        forget(&transaction, change.id())?;
        transaction.commit().map_err(committing)
    }
}

fn create(transaction: &Transaction<'_>, record: &TrustedRecord) -> Result<(), StoreError> {
    let TrustedRecord { id, specification, state, version, oldest, private, released, .. } = record;
    if was_deleted(transaction, id).map_err(reading)? {
        return Err(StoreError::Refused(StoreRefusal::ExperimentWasDeleted(id.clone())));
    }
    if trusted_exists(transaction, id).map_err(reading)?
        || experiment_exists(transaction, id).map_err(reading)?
    {
        return Err(StoreError::Refused(StoreRefusal::ExperimentExists(id.clone())));
    }
    let insert = "INSERT INTO trusted_experiment
        (id, specification, state, sequence, stamp, oldest_day, private, released)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    let (name, state, oldest) = (id.as_str(), state.name(), oldest.get());
    let TrustedVersion { sequence, stamp } = version;
    let values = params![name, specification, state, sequence, stamp, oldest, private, released];
    transaction.execute(insert, values).map(drop).map_err(committing)
}

pub(super) fn trusted_exists(connection: &Connection, id: &ExperimentId) -> rusqlite::Result<bool> {
    let query = "SELECT 1 FROM intact_trusted_experiment WHERE id = ?";
    Ok(connection.query_row(query, [id.as_str()], |_| Ok(())).optional()?.is_some())
}

fn move_to(
    transaction: &Transaction<'_>,
    id: &ExperimentId,
    [from, to]: [TrustedVersion; 2],
    state: ExperimentState,
) -> Result<(), StoreError> {
    let update = "UPDATE trusted_experiment SET state = ?4, sequence = ?5, stamp = ?6,
            private = CASE WHEN ?4 = 'stopped' THEN NULL ELSE private END
        WHERE id = ?1 AND sequence = ?2 AND stamp = ?3";
    let name = id.as_str();
    let values = params![name, from.sequence, from.stamp, state.name(), to.sequence, to.stamp];
    moved(transaction.execute(update, values).map_err(committing)?)
}

/// Removes a stopped experiment of this version, with its disclosure ids.
fn delete(
    transaction: &Transaction<'_>,
    id: &ExperimentId,
    version: TrustedVersion,
) -> Result<(), StoreError> {
    let values = params![id.as_str(), version.sequence, version.stamp];
    let names = "DELETE FROM trusted_disclosure WHERE experiment = (
        SELECT key FROM trusted_experiment WHERE id = ? AND sequence = ? AND stamp = ?)";
    transaction.execute(names, values).map_err(committing)?;
    let delete = "DELETE FROM trusted_experiment
        WHERE id = ? AND sequence = ? AND stamp = ? AND state = 'stopped'";
    moved(transaction.execute(delete, values).map_err(committing)?)
}

fn move_window(
    transaction: &Transaction<'_>,
    id: &ExperimentId,
    [from, to]: [TrustedVersion; 2],
    oldest: Day,
) -> Result<(), StoreError> {
    let update = "UPDATE trusted_experiment
        SET oldest_day = ?4, sequence = ?5, stamp = ?6
        WHERE id = ?1 AND sequence = ?2 AND stamp = ?3 AND oldest_day < ?4";
    let name = id.as_str();
    let values = params![name, from.sequence, from.stamp, oldest.get(), to.sequence, to.stamp];
    if transaction.execute(update, values).map_err(committing)? == 1 {
        return Ok(());
    }
    // The window may begin on that day or later already.
    let query =
        "SELECT 1 FROM intact_trusted_experiment WHERE id = ? AND sequence = ? AND stamp = ?";
    let mut query = transaction.prepare(query).map_err(reading)?;
    let is_there = query.exists(params![name, from.sequence, from.stamp]).map_err(reading)?;
    moved(usize::from(is_there))
}

fn moved(rows: usize) -> Result<(), StoreError> {
    if rows == 1 { Ok(()) } else { Err(TrustedRefusal::Moved.into()) }
}

fn replace(transaction: &Transaction<'_>, commit: &TrustedCommit) -> Result<(), StoreError> {
    let TrustedCommit { id, from, to, private, released, disclosures } = commit;
    let update = "UPDATE trusted_experiment
        SET private = ?4, released = ?5, sequence = ?6, stamp = ?7
        WHERE id = ?1 AND sequence = ?2 AND stamp = ?3 AND state = 'running'
        RETURNING key";
    let mut update = transaction.prepare_cached(update).map_err(committing)?;
    let name = id.as_str();
    let values = params![name, from.sequence, from.stamp, private, released, to.sequence, to.stamp];
    let key = update.query_row(values, |row| row.get::<_, i64>(0));
    let key = key.optional().map_err(committing)?.ok_or(TrustedRefusal::Moved)?;
    let insert = "INSERT INTO trusted_disclosure (experiment, day, id) VALUES (?, ?, ?)
        ON CONFLICT DO NOTHING";
    let mut insert = transaction.prepare_cached(insert).map_err(committing)?;
    let mut known = Vec::new();
    for (day, disclosure) in disclosures {
        let values = params![key, day.get(), disclosure.as_bytes()];
        if insert.execute(values).map_err(committing)? == 0 {
            known.push((*day, *disclosure));
        }
    }
    if known.is_empty() { Ok(()) } else { Err(TrustedRefusal::Known(known).into()) }
}

/// Deletes disclosure ids of days before the window, oldest first, and stores up to which day.
fn forget(transaction: &Transaction<'_>, id: &ExperimentId) -> Result<(), StoreError> {
    let newest = "SELECT max(day) FROM (SELECT d.day FROM trusted_experiment e
            JOIN trusted_disclosure d ON d.experiment = e.key AND d.day < e.oldest_day
            WHERE e.id = ? ORDER BY d.day, d.id LIMIT ?)";
    let mut newest = transaction.prepare_cached(newest).map_err(committing)?;
    let values = params![id.as_str(), FORGOTTEN_MAX];
    let newest = newest.query_row(values, |row| row.get::<_, Option<u32>>(0));
    let Some(newest) = newest.map_err(committing)? else { return Ok(()) };
    let update = "UPDATE trusted_experiment SET known_from = max(known_from, ?2 + 1) WHERE id = ?1";
    transaction.execute(update, params![id.as_str(), newest]).map_err(committing)?;
    let forget = "DELETE FROM trusted_disclosure WHERE (experiment, day, id) IN (
            SELECT d.experiment, d.day, d.id FROM trusted_experiment e
            JOIN trusted_disclosure d ON d.experiment = e.key AND d.day < e.oldest_day
            WHERE e.id = ? ORDER BY d.day, d.id LIMIT ?)";
    let mut forget = transaction.prepare_cached(forget).map_err(committing)?;
    forget.execute(params![id.as_str(), FORGOTTEN_MAX]).map(drop).map_err(committing)
}

/// The trusted experiment of this name, or all of them by name.
pub(crate) fn trusted(
    connection: &Connection,
    id: Option<&ExperimentId>,
) -> Result<Vec<TrustedRecord>, StoreError> {
    let select = format!(
        "SELECT id, specification, state, sequence, stamp, oldest_day, private, released, {ARCHIVED}
        FROM intact_trusted_experiment e WHERE ?1 IS NULL OR id = ?1 ORDER BY id"
    );
    let mut statement = connection.prepare(&select).map_err(reading)?;
    let mut rows = statement.query([id.map(ExperimentId::as_str)]).map_err(reading)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(reading)? {
        records.push(record(row)?);
    }
    Ok(records)
}

fn record(row: &Row<'_>) -> Result<TrustedRecord, StoreError> {
    let read = || -> rusqlite::Result<_> {
        let (id, state): (String, String) = (row.get(0)?, row.get(2)?);
        let version = TrustedVersion { sequence: row.get(3)?, stamp: row.get(4)? };
        let (oldest, private) = (row.get(5)?, row.get(6)?);
        Ok((id, state, version, row.get(1)?, oldest, private, row.get(7)?, row.get(8)?))
    };
    let read = read().map_err(reading)?;
    let (id, state, version, specification, oldest, private, released, is_archived) = read;
    Ok(TrustedRecord {
        id: ExperimentId::new(id).map_err(|error| damaged(error.to_string()))?,
        specification,
        state: ExperimentState::from_name(&state)
            .ok_or_else(|| damaged(format!("a trusted experiment in the state {state:?}")))?,
        version,
        oldest: Day::new(oldest),
        private,
        released,
        is_archived,
    })
}

/// The subset of these disclosures that were counted.
pub(crate) fn disclosed(
    connection: &Connection,
    id: &ExperimentId,
    disclosures: &[(Day, UploadId)],
) -> Result<Vec<(Day, UploadId)>, StoreError> {
    let query = "SELECT 1 FROM intact_trusted_disclosure WHERE day = ?2 AND id = ?3
        AND experiment = (SELECT key FROM intact_trusted_experiment WHERE id = ?1)";
    let mut statement = connection.prepare(query).map_err(reading)?;
    let mut known = Vec::new();
    for (day, disclosure) in disclosures {
        let values = params![id.as_str(), day.get(), disclosure.as_bytes()];
        if statement.exists(values).map_err(reading)? {
            known.push((*day, *disclosure));
        }
    }
    Ok(known)
}
