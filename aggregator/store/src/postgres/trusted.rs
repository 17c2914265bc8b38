//! Trusted experiments in the database that replicas share.
//!
//! Every change begins with locking the experiment's row, for the length of the transaction. The
//! second of two concurrent changes finds another version.

use bandana_shared::identity::{Day, ExperimentId, UploadId};
use tokio_postgres::{GenericClient, Row, Transaction};

use super::audit;
use super::changes::signed;
use super::commit::Uuid;
use super::days::{DATABASE_DAY, day, number};
use super::deletion::{ARCHIVED, was_deleted};
use crate::trusted::FORGOTTEN_MAX;
use crate::{
    ExperimentState, StoreError, StoreRefusal, TrustedChange, TrustedCommit, TrustedRecord,
    TrustedRefusal, TrustedVersion, damaged, postgres,
};

/// A parameter of a statement.
type Value<'a> = &'a (dyn tokio_postgres::types::ToSql + Sync);

/// Makes a change of a trusted experiment.
pub(super) async fn apply_trusted_change(
    transaction: &Transaction<'_>,
    change: &TrustedChange,
) -> Result<(), StoreError> {
    match change {
        TrustedChange::Create(record, entry) => {
            create(transaction, record).await?;
            audit::append(transaction, entry).await?;
            // From here on, audited changes take turns, so an earlier one is visible.
            if was_deleted(transaction, &record.id).await? {
                return Err(StoreError::Refused(StoreRefusal::ExperimentWasDeleted(
                    record.id.clone(),
                )));
            }
            if exists(transaction, "experiment", &record.id).await? {
                return Err(StoreError::Refused(StoreRefusal::ExperimentExists(record.id.clone())));
            }
        }
        TrustedChange::Move { id, from, to, state, entry } => {
            let update = "UPDATE trusted_experiment SET state = $6, sequence = $4, stamp = $5,
                    private = CASE WHEN $6 = 'stopped' THEN NULL ELSE private END
                WHERE id = $1 AND sequence = $2 AND stamp = $3";
            change_row(transaction, update, id, [*from, *to], &[&state.name()]).await?;
            if *state == ExperimentState::Stopped {
                // Disclosures that are being handed over contain rewards too.
                let erase = "DELETE FROM trusted_handover WHERE experiment = $1";
                let erased = transaction.execute(erase, &[&id.as_str()]).await;
                erased.map_err(postgres("committing"))?;
            }
            forget(transaction, id).await?;
            audit::append(transaction, entry).await?;
        }
        TrustedChange::Archive { id, from, to, entry } => {
            let update = "UPDATE trusted_experiment SET sequence = $4, stamp = $5
                WHERE id = $1 AND sequence = $2 AND stamp = $3 AND state = 'stopped'";
            change_row(transaction, update, id, [*from, *to], &[]).await?;
            audit::append(transaction, entry).await?;
        }
        TrustedChange::Delete { id, from, entry } => {
            delete(transaction, id, *from).await?;
            audit::append(transaction, entry).await?;
        }
        TrustedChange::Window { id, from, to, today, back } => {
            let begin = format!("LEAST($6, {DATABASE_DAY}) - $7");
            let update = format!(
                "UPDATE trusted_experiment SET sequence = $4, stamp = $5, oldest_day = {begin}
                WHERE id = $1 AND sequence = $2 AND stamp = $3 AND oldest_day < {begin}"
            );
            let back = i32::try_from(*back).unwrap_or(i32::MAX);
            let values: [Value<'_>; 2] = [&number(*today), &back];
            match change_row(transaction, &update, id, [*from, *to], &values).await {
                // The window begins there or later already, by the clock of the database.
                Err(StoreError::Refused(StoreRefusal::Trusted(_)))
                    if has_version(transaction, id, *from).await? => {}
                changed => changed?,
            }
            forget(transaction, id).await?;
        }
        TrustedChange::Commit(commit) => replace(transaction, commit).await?,
    }
    Ok(())
}

async fn create(client: &impl GenericClient, record: &TrustedRecord) -> Result<(), StoreError> {
    let TrustedRecord { id, specification, state, version, oldest, private, released, .. } = record;
    // A replica whose clock is ahead must not exclude today.
    let insert = format!(
        "INSERT INTO trusted_experiment
        (id, specification, state, sequence, stamp, oldest_day, private, released)
        VALUES ($1, $2, $3, $4, $5, LEAST($6, {DATABASE_DAY}), $7, $8)
        ON CONFLICT (id) DO NOTHING"
    );
    let (name, state) = (id.as_str(), state.name());
    let (sequence, stamp) = (signed(version.sequence), signed(version.stamp));
    let oldest = number(*oldest);
    let values: [Value<'_>; 8] =
        [&name, specification, &state, &sequence, &stamp, &oldest, private, released];
    match client.execute(&insert, &values).await.map_err(postgres("committing"))? {
        0 => Err(StoreError::Refused(StoreRefusal::ExperimentExists(id.clone()))),
        _ => Ok(()),
    }
}

/// Whether a table of experiments has this id.
pub(super) async fn exists(
    client: &impl GenericClient,
    table: &'static str,
    id: &ExperimentId,
) -> Result<bool, StoreError> {
    let query = format!("SELECT EXISTS (SELECT FROM {table} WHERE id = $1)");
    let row = client.query_one(&query, &[&id.as_str()]).await.map_err(postgres("committing"))?;
    Ok(row.get(0))
}

/// Changes an experiment's row from the first of these versions to the second.
async fn change_row(
    client: &impl GenericClient,
    update: &str,
    id: &ExperimentId,
    [from, to]: [TrustedVersion; 2],
    values: &[Value<'_>],
) -> Result<(), StoreError> {
    let numbers = [from.sequence, from.stamp, to.sequence, to.stamp].map(signed);
    let name = id.as_str();
    let mut all: Vec<Value<'_>> = vec![&name];
    all.extend(numbers.iter().map(|number| number as Value<'_>));
    all.extend(values);
    match client.execute(update, &all).await.map_err(postgres("committing"))? {
        1 => Ok(()),
        _ => Err(TrustedRefusal::Moved.into()),
    }
}

/// Removes a stopped experiment of this version, with its disclosure ids.
async fn delete(
    client: &impl GenericClient,
    id: &ExperimentId,
    version: TrustedVersion,
) -> Result<(), StoreError> {
    let failed = postgres("committing");
    let delete = "WITH gone AS (
            DELETE FROM trusted_experiment
            WHERE id = $1 AND sequence = $2 AND stamp = $3 AND state = 'stopped' RETURNING key
        ), names AS (
            DELETE FROM trusted_disclosure d USING gone WHERE d.experiment = gone.key
        )
        SELECT FROM gone";
    let [sequence, stamp] = [version.sequence, version.stamp].map(signed);
    let gone = client.query_opt(delete, &[&id.as_str(), &sequence, &stamp]).await;
    gone.map_err(failed)?.map(drop).ok_or_else(|| TrustedRefusal::Moved.into())
}

async fn replace(client: &impl GenericClient, commit: &TrustedCommit) -> Result<(), StoreError> {
    let failed = postgres("committing");
    let TrustedCommit { id, from, to, private, released, disclosures } = commit;
    let update = format!(
        "UPDATE trusted_experiment SET private = $6, released = $7, sequence = $4, stamp = $5
        WHERE id = $1 AND sequence = $2 AND stamp = $3 AND state = 'running'
        RETURNING key, {DATABASE_DAY}"
    );
    let [sequence, stamp, next, next_stamp] =
        [from.sequence, from.stamp, to.sequence, to.stamp].map(signed);
    let name = id.as_str();
    let values: [Value<'_>; 7] = [&name, &sequence, &stamp, &next, &next_stamp, private, released];
    let row = client.query_opt(&update, &values).await.map_err(failed)?;
    let row = row.ok_or(TrustedRefusal::Moved)?;
    let (key, database_day): (i64, i32) = (row.get(0), row.get(1));
    // One day of tolerance around midnight, as for uploads.
    let latest = day(database_day)?.forward(1);
    if disclosures.iter().any(|(day, _)| *day > latest) {
        return Err(TrustedRefusal::Future { latest }.into());
    }
    if !disclosures.is_empty() {
        insert(client, key, disclosures).await?;
    }
    forget(client, id).await
}

async fn has_version(
    client: &impl GenericClient,
    id: &ExperimentId,
    version: TrustedVersion,
) -> Result<bool, StoreError> {
    let query =
        "SELECT FROM intact_trusted_experiment WHERE id = $1 AND sequence = $2 AND stamp = $3";
    let [sequence, stamp] = [version.sequence, version.stamp].map(signed);
    let row = client.query_opt(query, &[&id.as_str(), &sequence, &stamp]).await;
    Ok(row.map_err(postgres("committing"))?.is_some())
}

/// Deletes disclosure ids of days before the window.
async fn forget(client: &impl GenericClient, id: &ExperimentId) -> Result<(), StoreError> {
    let forget = "DELETE FROM trusted_disclosure d USING (
            SELECT n.experiment, n.day, n.id FROM trusted_experiment e
            JOIN trusted_disclosure n ON n.experiment = e.key AND n.day < e.oldest_day
            WHERE e.id = $1 LIMIT $2
        ) old WHERE d.experiment = old.experiment AND d.day = old.day AND d.id = old.id";
    let most = i64::from(FORGOTTEN_MAX);
    let done = client.execute(forget, &[&id.as_str(), &most]).await;
    done.map(drop).map_err(postgres("committing"))
}

async fn insert(
    client: &impl GenericClient,
    key: i64,
    disclosures: &[(Day, UploadId)],
) -> Result<(), StoreError> {
    let insert = "WITH fresh AS (
            INSERT INTO trusted_disclosure (experiment, day, id)
            SELECT $1, day, id FROM unnest($2::integer[], $3::uuid[]) AS d (day, id)
            ON CONFLICT DO NOTHING RETURNING day, id
        )
        SELECT a.ordinal FROM unnest($2::integer[], $3::uuid[])
            WITH ORDINALITY AS a (day, id, ordinal)
        LEFT JOIN fresh f ON f.day = a.day AND f.id = a.id WHERE f.id IS NULL";
    let (days, ids) = columns(disclosures);
    let rows = client.query(insert, &[&key, &days, &ids]).await.map_err(postgres("committing"))?;
    if rows.is_empty() {
        return Ok(());
    }
    Err(TrustedRefusal::Known(chosen(disclosures, rows)).into())
}

/// The disclosures at these positions, from 1.
fn chosen(disclosures: &[(Day, UploadId)], rows: Vec<Row>) -> Vec<(Day, UploadId)> {
    let place = |row: Row| usize::try_from(row.get::<_, i64>(0) - 1).ok();
    let places = rows.into_iter().filter_map(place);
    places.filter_map(|place| disclosures.get(place).copied()).collect()
}

fn columns(disclosures: &[(Day, UploadId)]) -> (Vec<i32>, Vec<Uuid>) {
    disclosures.iter().map(|(day, id)| (number(*day), Uuid(*id))).unzip()
}

/// The trusted experiments with these ids, or all of them, by id.
pub(crate) async fn trusted(
    client: &impl GenericClient,
    ids: Option<&[&str]>,
) -> Result<Vec<TrustedRecord>, StoreError> {
    let select = format!(
        "SELECT id, specification, state, sequence, stamp, oldest_day, private, released, {ARCHIVED}
        FROM intact_trusted_experiment e WHERE $1::text[] IS NULL OR id = ANY ($1) ORDER BY id"
    );
    let rows = client.query(&select, &[&ids]).await.map_err(postgres("reading"))?;
    rows.iter().map(record).collect()
}

fn record(row: &Row) -> Result<TrustedRecord, StoreError> {
    let (id, state): (String, String) = (row.get(0), row.get(2));
    Ok(TrustedRecord {
        id: ExperimentId::new(id).map_err(|error| damaged(error.to_string()))?,
        specification: row.get(1),
        state: ExperimentState::from_name(&state)
            .ok_or_else(|| damaged(format!("a trusted experiment in the state {state:?}")))?,
        version: version(row.get(3), row.get(4))?,
        oldest: day(row.get(5))?,
        private: row.get(6),
        released: row.get(7),
        is_archived: row.get(8),
    })
}

fn version(sequence: i64, stamp: i64) -> Result<TrustedVersion, StoreError> {
    let number = |number: i64| u64::try_from(number).map_err(|error| damaged(error.to_string()));
    Ok(TrustedVersion { sequence: number(sequence)?, stamp: number(stamp)? })
}

/// The versions of all trusted experiments.
pub(super) async fn versions(
    client: &impl GenericClient,
) -> Result<Vec<(ExperimentId, TrustedVersion)>, StoreError> {
    let query = "SELECT id, sequence, stamp FROM trusted_experiment ORDER BY id";
    let rows = client.query(query, &[]).await.map_err(postgres("reading"))?;
    let of_row = |row: Row| {
        let id = ExperimentId::new(row.get::<_, String>(0));
        Ok((id.map_err(|error| damaged(error.to_string()))?, version(row.get(1), row.get(2))?))
    };
    rows.into_iter().map(of_row).collect()
}

/// The subset of these disclosures that were counted.
pub(crate) async fn disclosed(
    client: &impl GenericClient,
    id: &ExperimentId,
    disclosures: &[(Day, UploadId)],
) -> Result<Vec<(Day, UploadId)>, StoreError> {
    let query = "SELECT a.ordinal FROM unnest($2::integer[], $3::uuid[])
            WITH ORDINALITY AS a (day, id, ordinal)
        JOIN trusted_experiment e ON e.id = $1
        JOIN intact_trusted_disclosure d ON d.experiment = e.key AND d.day = a.day AND d.id = a.id";
    let (days, ids) = columns(disclosures);
    let rows = client.query(query, &[&id.as_str(), &days, &ids]).await;
    Ok(chosen(disclosures, rows.map_err(postgres("reading"))?))
}
