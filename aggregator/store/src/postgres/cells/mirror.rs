//! The states of experiments in a store cell: a copy of the home's, by which its commits decide.
//!
//! A row of the copy has the version of the home's row. A version never replaces a later one, so
//! that replicas that copy at the same time agree. A version that the home no longer has is
//! replaced: the home was read after the cell, so it was set back.

use std::collections::HashMap;

use tokio_postgres::{GenericClient, Row, Transaction};

use crate::cells::{CellsError, StoreCell};
use crate::postgres::connection::{PgConnection, Session};
use crate::postgres::deletion::{SHOWN, forget_counts};
use crate::{AuditAction, ExperimentState, StoreError, postgres};

/// An experiment as far as a store cell needs to know it.
#[derive(Debug)]
struct Copied {
    key: i64,
    id: String,
    state: String,
    version: i64,
    is_deleted: bool,
}

/// Copies the states of all experiments from the home to a cell. Afterwards the cell has every
/// state that was committed at home before the call, or a later one.
pub(crate) fn copy_states(
    number: StoreCell,
    home: &mut PgConnection,
    cell: &mut PgConnection,
) -> Result<(), StoreError> {
    let known = cell.run("reading", read)?;
    let known: HashMap<i64, Copied> = known.into_iter().map(|row| (row.key, row)).collect();
    let mut changed = Vec::new();
    for row in home.run("reading", read)? {
        match known.get(&row.key) {
            Some(other) if other.id != row.id => {
                let (found, expected) = (other.id.clone(), row.id);
                return Err(CellsError::OtherExperiment { number, found, expected }.into());
            }
            Some(other) if other.is_deleted || other.version == row.version => {}
            // Nothing was counted here.
            None if row.is_deleted => {}
            other => {
                let version = other.map_or(0, |other| other.version);
                changed.push((row, version));
            }
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    let doing = "telling a store cell about experiments";
    cell.run(doing, async |session| {
        let transaction = session.client.transaction().await.map_err(postgres(doing))?;
        for (row, version) in &changed {
            write(&transaction, row, *version).await?;
        }
        transaction.commit().await.map_err(postgres(doing))
    })
}

/// The highest key of an experiment in a cell.
pub(super) async fn last_key(client: &impl GenericClient) -> Result<i64, StoreError> {
    let query = "SELECT COALESCE(max(key), 0) FROM experiment";
    Ok(client.query_one(query, &[]).await.map_err(postgres("reading"))?.get(0))
}

/// Makes keys up to this one unavailable to new experiments.
pub(super) async fn skip_keys(client: &impl GenericClient, last: i64) -> Result<(), StoreError> {
    let skip = "SELECT setval('experiment_key_seq', $1) FROM experiment_key_seq
        WHERE last_value < $1";
    client.query(skip, &[&last]).await.map_err(postgres("skipping keys"))?;
    Ok(())
}

async fn read(session: &mut Session) -> Result<Vec<Copied>, StoreError> {
    let query = format!(
        "SELECT key, id, state, version, NOT {SHOWN} FROM intact_experiment e ORDER BY key"
    );
    let rows = session.client.query(&query, &[]).await.map_err(postgres("reading"))?;
    let of = |row: &Row| Copied {
        key: row.get(0),
        id: row.get(1),
        state: row.get(2),
        version: row.get(3),
        is_deleted: row.get(4),
    };
    Ok(rows.iter().map(of).collect())
}

/// Writes a row, unless the cell has a version other than `seen` that is later.
async fn write(transaction: &Transaction<'_>, row: &Copied, seen: i64) -> Result<(), StoreError> {
    let failed = postgres("telling a store cell about experiments");
    let insert = "INSERT INTO experiment AS e
            (key, id, state, learner, floor_weight, version, weights, policy_reports)
        OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3, '', 0, $4, '{}', 0)
        ON CONFLICT (key) DO UPDATE SET state = excluded.state, version = excluded.version
        WHERE e.version < excluded.version OR e.version = $5";
    let state = if row.is_deleted { ExperimentState::Stopped.name() } else { row.state.as_str() };
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&row.key, &row.id, &state, &row.version, &seen];
    let written = transaction.execute(insert, &values).await.map_err(failed)?;
    if written == 0 || !row.is_deleted {
        return Ok(());
    }
    forget_counts(transaction, row.key).await?;
    // By this entry the window's move knows that the rest of the counts can go.
    let insert = "INSERT INTO audit (at, caller, action, experiment, detail)
        SELECT floor(extract(epoch FROM now()))::bigint, '', $2, $1, ''
        WHERE NOT EXISTS (SELECT FROM audit WHERE experiment = $1 AND action = $2)";
    let action = AuditAction::Delete.name();
    transaction.execute(insert, &[&row.id, &action]).await.map_err(failed)?;
    Ok(())
}
