//! The table of trusted experiments.
//!
//! Every change begins with locking the experiment's row, for the length of the transaction. The
//! second of two concurrent changes finds another version.

use bandana_shared::identity::{Day, ExperimentId, UploadId};

use super::{TrustedChange, TrustedCommit, TrustedRecord, TrustedVersion};
use crate::database::{Database, Row, Value};
use crate::deletion::{ARCHIVED, was_deleted};
use crate::experiments::has_id;
use crate::{ExperimentState, StoreError, StoreRefusal, TrustedRefusal, audit, damaged};

/// The disclosures of trusted experiments, of which databases add many in ways of their own.
pub(crate) trait Disclosures: Database {
    /// Adds disclosures, and returns those that were there already.
    async fn add(
        &self,
        experiment: i64,
        disclosures: &[(Day, UploadId)],
    ) -> Result<Vec<(Day, UploadId)>, StoreError>;

    /// The subset of these disclosures that were counted.
    async fn counted(
        &self,
        id: &ExperimentId,
        disclosures: &[(Day, UploadId)],
    ) -> Result<Vec<(Day, UploadId)>, StoreError>;

    /// Deletes ids of days before the window.
    async fn forget(&self, id: &ExperimentId) -> Result<(), StoreError>;

    /// Deletes disclosures that are being handed over, which contain rewards too.
    async fn drop_handed(&self, id: &ExperimentId) -> Result<(), StoreError>;
}

/// Makes a change of a trusted experiment, within the caller's transaction.
pub(crate) async fn change(
    db: &impl Disclosures,
    change: &TrustedChange,
) -> Result<(), StoreError> {
    match change {
        TrustedChange::Create(record, entry) => {
            create(db, record).await?;
            audit::append(db, entry).await?;
            // From here on, audited changes take turns, so an earlier one is visible.
            if was_deleted(db, &record.id).await? {
                let refusal = StoreRefusal::ExperimentWasDeleted(record.id.clone());
                return Err(StoreError::Refused(refusal));
            }
            if has_id(db, "experiment", &record.id).await? {
                let refusal = StoreRefusal::ExperimentExists(record.id.clone());
                return Err(StoreError::Refused(refusal));
            }
            Ok(())
        }
        TrustedChange::Move { id, from, to, state, entry } => {
            let update = "UPDATE trusted_experiment SET state = $6, sequence = $4, stamp = $5,
                    private = CASE WHEN $6 = 'stopped' THEN NULL ELSE private END
                WHERE id = $1 AND sequence = $2 AND stamp = $3";
            change_row(db, update, (id, *from, *to), [state.name().into()]).await?;
            if *state == ExperimentState::Stopped {
                db.drop_handed(id).await?;
            }
            db.forget(id).await?;
            audit::append(db, entry).await
        }
        TrustedChange::Archive { id, from, to, entry } => {
            let update = "UPDATE trusted_experiment SET sequence = $4, stamp = $5
                WHERE id = $1 AND sequence = $2 AND stamp = $3 AND state = 'stopped'";
            change_row(db, update, (id, *from, *to), []).await?;
            db.forget(id).await?;
            audit::append(db, entry).await
        }
        TrustedChange::Delete { id, from, entry } => {
            delete(db, id, *from).await?;
            audit::append(db, entry).await
        }
        TrustedChange::Window { id, from, to, today, back } => {
            let begin = no_later_than_today(db, "$6") + " - $7";
            let update = format!(
                "UPDATE trusted_experiment SET sequence = $4, stamp = $5, oldest_day = {begin}
                WHERE id = $1 AND sequence = $2 AND stamp = $3 AND oldest_day < {begin}"
            );
            let values = [(*today).into(), (*back).into()];
            match change_row(db, &update, (id, *from, *to), values).await {
                // The window begins there or later already.
                Err(StoreError::Refused(StoreRefusal::Trusted(_)))
                    if has_version(db, id, *from).await? => {}
                changed => changed?,
            }
            db.forget(id).await
        }
        TrustedChange::Commit(commit) => replace(db, commit).await,
    }
}

async fn create(db: &impl Database, record: &TrustedRecord) -> Result<(), StoreError> {
    let TrustedRecord { id, specification, state, version, oldest, private, released, .. } = record;
    // A replica whose clock is ahead must not exclude today.
    let oldest_day = no_later_than_today(db, "$6");
    let insert = format!(
        "INSERT INTO trusted_experiment
        (id, specification, state, sequence, stamp, oldest_day, private, released)
        VALUES ($1, $2, $3, $4, $5, {oldest_day}, $7, $8)
        ON CONFLICT (id) DO NOTHING"
    );
    let values = [
        id.into(),
        specification.into(),
        state.name().into(),
        version.sequence.into(),
        version.stamp.into(),
        (*oldest).into(),
        private.as_ref().into(),
        released.into(),
    ];
    match db.run(&insert, &values).await? {
        0 => Err(StoreError::Refused(StoreRefusal::ExperimentExists(id.clone()))),
        _ => Ok(()),
    }
}

/// SQL: this day, or the day by the database's clock if that is earlier.
fn no_later_than_today(db: &impl Database, day: &str) -> String {
    db.dialect().today.map_or_else(|| day.to_owned(), |today| format!("LEAST({day}, {today})"))
}

/// Changes an experiment's row from the first of these versions to the second.
async fn change_row<const N: usize>(
    db: &impl Database,
    update: &str,
    (id, from, to): (&ExperimentId, TrustedVersion, TrustedVersion),
    values: [Value<'_>; N],
) -> Result<(), StoreError> {
    let versions = [from.sequence, from.stamp, to.sequence, to.stamp].map(Value::from);
    let all: Vec<_> = [id.into()].into_iter().chain(versions).chain(values).collect();
    match db.run(update, &all).await? {
        1 => Ok(()),
        _ => Err(TrustedRefusal::Moved.into()),
    }
}

/// Removes a stopped experiment of this version, with its disclosure ids.
async fn delete(
    db: &impl Database,
    id: &ExperimentId,
    version: TrustedVersion,
) -> Result<(), StoreError> {
    let query = "SELECT key FROM intact_trusted_experiment
        WHERE id = $1 AND sequence = $2 AND stamp = $3 AND state = 'stopped'";
    let values = [id.into(), version.sequence.into(), version.stamp.into()];
    let found = db.row(&(query.to_owned() + db.dialect().lock), &values).await?;
    let key: i64 = found.ok_or(TrustedRefusal::Moved)?.get(0)?;
    db.run("DELETE FROM trusted_disclosure WHERE experiment = $1", &[key.into()]).await?;
    db.run("DELETE FROM trusted_experiment WHERE key = $1", &[key.into()]).await.map(drop)
}

async fn replace(db: &impl Disclosures, commit: &TrustedCommit) -> Result<(), StoreError> {
    let TrustedCommit { id, from, to, private, released, disclosures } = commit;
    let update = format!(
        "UPDATE trusted_experiment SET private = $6, released = $7, sequence = $4, stamp = $5
        WHERE id = $1 AND sequence = $2 AND stamp = $3 AND state = 'running'
        RETURNING key, {}",
        db.dialect().today.unwrap_or("NULL")
    );
    let [sequence, stamp, next, next_stamp] =
        [from.sequence, from.stamp, to.sequence, to.stamp].map(Value::from);
    let values = [id.into(), sequence, stamp, next, next_stamp, private.into(), released.into()];
    let row = db.row(&update, &values).await?.ok_or(TrustedRefusal::Moved)?;
    let (key, database_day): (i64, Option<Day>) = (row.get(0)?, row.get(1)?);
    // One day of tolerance around midnight, as for uploads.
    if let Some(latest) = database_day.map(|day| day.forward(1))
        && disclosures.iter().any(|(day, _)| *day > latest)
    {
        return Err(TrustedRefusal::Future { latest }.into());
    }
    if !disclosures.is_empty() {
        let known = db.add(key, disclosures).await?;
        if !known.is_empty() {
            return Err(TrustedRefusal::Known(known).into());
        }
    }
    db.forget(id).await
}

async fn has_version(
    db: &impl Database,
    id: &ExperimentId,
    version: TrustedVersion,
) -> Result<bool, StoreError> {
    let query = "SELECT EXISTS (SELECT 1 FROM intact_trusted_experiment
        WHERE id = $1 AND sequence = $2 AND stamp = $3)";
    db.value(query, &[id.into(), version.sequence.into(), version.stamp.into()]).await
}

/// The trusted experiments with these ids, or all of them, by id.
pub(crate) async fn trusted(
    db: &impl Database,
    ids: Option<&[&ExperimentId]>,
) -> Result<Vec<TrustedRecord>, StoreError> {
    let ids = ids.map(|ids| ids.iter().map(|id| Value::from(*id)).collect::<Vec<_>>());
    let wanted = ids.as_ref().map_or("TRUE".to_owned(), |ids| {
        let places: Vec<_> = (1..=ids.len()).map(|place| format!("${place}")).collect();
        format!("id IN ({})", places.join(", "))
    });
    let select = format!(
        "SELECT id, specification, state, sequence, stamp, oldest_day, private, released, {ARCHIVED}
        FROM intact_trusted_experiment e WHERE {wanted} ORDER BY id"
    );
    db.rows(&select, ids.as_deref().unwrap_or_default()).await?.iter().map(record).collect()
}

fn record(row: &Row) -> Result<TrustedRecord, StoreError> {
    let state: String = row.get(2)?;
    Ok(TrustedRecord {
        id: row.get(0)?,
        specification: row.get(1)?,
        state: ExperimentState::from_name(&state)
            .ok_or_else(|| damaged(format!("a trusted experiment in the state {state:?}")))?,
        version: TrustedVersion { sequence: row.get(3)?, stamp: row.get(4)? },
        oldest: row.get(5)?,
        private: row.get(6)?,
        released: row.get(7)?,
        is_archived: row.get(8)?,
    })
}

/// The versions of all trusted experiments.
pub(crate) async fn versions(
    db: &impl Database,
) -> Result<Vec<(ExperimentId, TrustedVersion)>, StoreError> {
    let query = "SELECT id, sequence, stamp FROM trusted_experiment ORDER BY id";
    let version =
        |row: &Row| Ok((row.get(0)?, TrustedVersion { sequence: row.get(1)?, stamp: row.get(2)? }));
    db.rows(query, &[]).await?.iter().map(version).collect()
}

/// The number of stored ids of an experiment's disclosures, and whether a local experiment has its id.
pub(crate) async fn disclosed(
    db: &impl Database,
    id: &ExperimentId,
) -> Result<(u64, bool), StoreError> {
    let query = "SELECT count(*), EXISTS (SELECT 1 FROM experiment WHERE id = $1)
        FROM trusted_disclosure
        WHERE experiment = (SELECT key FROM trusted_experiment WHERE id = $1)";
    let row = db.row(query, &[id.into()]).await?;
    row.map_or(Ok((0, false)), |row| Ok((row.get(0)?, row.get(1)?)))
}
