//! Changes of experiments, each in one transaction with its policy and its audit entry.

use bandana_learners::LearnerConfig;
use bandana_learners::TallySnapshot;
use bandana_learners::guardrails::Guardrails;
use bandana_shared::identity::ExperimentId;
use bandana_shared::specification::Specification;
use bandana_shared::wire::decode_specification;
use tokio_postgres::Transaction;

use super::database::Tables;
use super::deletion::SHOWN;
use super::records::{Tallies, add, records, tallies};
use crate::deletion::was_deleted;
use crate::experiments::{self, add_revision, has_id};
use crate::{
    AuditEntry, ExpectedState, ExperimentChange, ExperimentKey, ExperimentRecord, ExperimentState,
    StoreError, StoreRefusal, WrittenRecord, audit, damaged, postgres,
};
use crate::{learner_config, memory_columns};

/// Makes a change, and returns the experiment as changed.
pub(super) async fn change(
    transaction: &Transaction<'_>,
    change: &ExperimentChange<'_>,
    entry: &AuditEntry,
    elsewhere: &Tallies,
) -> Result<ExperimentRecord, StoreError> {
    let lock = "SELECT key FROM experiment WHERE key = $1 FOR NO KEY UPDATE";
    let (key, db) = (change.key(), Tables::committing(transaction));
    transaction.execute(lock, &[&key.0]).await.map_err(postgres("committing"))?;
    match change.expected() {
        None => exists(transaction, key, &entry.experiment).await?,
        Some(expected) => {
            let known = check(transaction, expected, &entry.experiment, elsewhere).await?;
            if change.is_late(&known, entry) {
                return Err(StoreError::Refused(StoreRefusal::Outdated(Box::new(known))));
            }
        }
    }
    experiments::change(&db, change).await?;
    renew_policy(transaction, key, elsewhere).await?;
    audit::append(&db, entry).await?;
    read(transaction, key, elsewhere).await
}

/// Adds an experiment. Its versions begin at `first_version`.
pub(super) async fn create(
    transaction: &Transaction<'_>,
    specification: &Specification,
    (config, record): (LearnerConfig, &WrittenRecord),
    state: ExperimentState,
    first_version: i64,
    entry: &AuditEntry,
) -> Result<ExperimentRecord, StoreError> {
    let failed = postgres("committing");
    let arms = specification.arms().len();
    let terms = record.terms(specification).map_err(|error| damaged(error.to_string()))?;
    let nothing = TallySnapshot::default();
    let weights = config.weigh_on(specification, (arms, &terms), &nothing, &[]);
    let weights = weights.map_err(|error| damaged(error.to_string()))?;
    let weights: Vec<i64> = weights.iter().map(signed).collect();
    let insert = "INSERT INTO experiment
            (id, state, learner, floor_weight, version, weights, policy_reports, window_days,
            discount, burn_in_reports, holdout_share, record)
        VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8, $9, $10, $11)
        ON CONFLICT (id) DO NOTHING RETURNING key";
    let id = specification.experiment_id();
    let (name, state, learner) = (id.as_str(), state.name(), config.learner.name());
    let (window, discount) = memory_columns(config.memory);
    let Guardrails { burn_in_reports, holdout_share } = config.guardrails;
    let row = transaction
        .query_opt(
            insert,
            &[
                &name,
                &state,
                &learner,
                &config.floor_weight,
                &first_version,
                &weights,
                &window,
                &discount,
                &i64::from(burn_in_reports),
                &holdout_share,
                &record.to_bytes(),
            ],
        )
        .await
        .map_err(failed)?;
    let Some(row) = row else { return Err(taken(transaction, id).await?) };
    let key = ExperimentKey(row.get(0));
    let db = Tables::committing(transaction);
    add_revision(&db, key, specification).await?;
    audit::append(&db, entry).await?;
    // From here on, audited changes take turns, so an earlier one is visible.
    if has_id(&db, "trusted_experiment", id).await? || was_deleted(&db, id).await? {
        return Err(taken(transaction, id).await?);
    }
    check_layer(transaction, key, specification).await?;
    read(transaction, key, &Tallies::new()).await
}

/// Refuses a new experiment that could be given to the same installations as another one of its layer
/// that has not ended. Must be called when audited changes take turns.
async fn check_layer(
    transaction: &Transaction<'_>,
    key: ExperimentKey,
    specification: &Specification,
) -> Result<(), StoreError> {
    let Some(part) = &specification.participation().layer else { return Ok(()) };
    let query = format!(
        "SELECT DISTINCT ON (e.key) s.bytes
         FROM experiment e JOIN intact_specification s ON s.experiment = e.key
         WHERE e.key <> $1 AND e.state <> $2 AND {SHOWN} ORDER BY e.key, s.revision DESC"
    );
    let stopped = ExperimentState::Stopped.name();
    let rows = transaction.query(&query, &[&key.0, &stopped]).await;
    for row in rows.map_err(postgres("committing"))? {
        let other = decode_specification(row.get(0))
            .map_err(|error| damaged(format!("a specification: {error}")))?;
        if let Some(other_part) = &other.participation().layer
            && other_part.overlaps(part)
        {
            let (part, other_part) = (part.clone(), other_part.clone());
            let other = other.experiment_id().clone();
            return Err(StoreError::Refused(StoreRefusal::LayerOverlap {
                part,
                other,
                other_part,
            }));
        }
    }
    Ok(())
}

/// The experiment with its tallies, here and elsewhere.
async fn read(
    transaction: &Transaction<'_>,
    key: ExperimentKey,
    elsewhere: &Tallies,
) -> Result<ExperimentRecord, StoreError> {
    let mut tallies = tallies(transaction, Some(key.0), 0, i32::MAX).await?;
    add(&mut tallies, elsewhere);
    let record = records(transaction, &[key.0], &tallies).await?.pop();
    record.ok_or_else(|| damaged(format!("there is no experiment with the key {}", key.0)))
}

/// The reason why an id is taken.
async fn taken(transaction: &Transaction<'_>, id: &ExperimentId) -> Result<StoreError, StoreError> {
    let id = id.clone();
    Ok(if was_deleted(&Tables::committing(transaction), &id).await? {
        StoreError::Refused(StoreRefusal::ExperimentWasDeleted(id))
    } else {
        StoreError::Refused(StoreRefusal::ExperimentExists(id))
    })
}

/// Refuses a change of a deleted experiment.
async fn exists(
    client: &Transaction<'_>,
    key: ExperimentKey,
    id: &ExperimentId,
) -> Result<(), StoreError> {
    let query = format!("SELECT {SHOWN} FROM experiment e WHERE key = $1");
    let row = client.query_opt(&query, &[&key.0]).await.map_err(postgres("committing"))?;
    match row {
        Some(row) if !row.get::<_, bool>(0) => {
            Err(StoreError::Refused(StoreRefusal::ExperimentGone(id.clone())))
        }
        _ => Ok(()),
    }
}

pub(super) async fn check(
    transaction: &Transaction<'_>,
    expected: ExpectedState,
    id: &ExperimentId,
    elsewhere: &Tallies,
) -> Result<ExperimentRecord, StoreError> {
    exists(transaction, expected.key, id).await?;
    let record = read(transaction, expected.key, elsewhere).await?;
    if record.expected() == Some(expected) {
        return Ok(record);
    }
    Err(StoreError::Refused(StoreRefusal::Outdated(Box::new(record))))
}

/// Computes the policy for the changed experiment.
async fn renew_policy(
    transaction: &Transaction<'_>,
    key: ExperimentKey,
    elsewhere: &Tallies,
) -> Result<(), StoreError> {
    let failed = postgres("committing");
    // Until it is renewed, the policy may be for other arms, and must not be served.
    let query = "SELECT bytes, (SELECT bytes FROM intact_specification
                WHERE experiment = e.key ORDER BY revision LIMIT 1),
            learner, floor_weight, window_days, discount, burn_in_reports, holdout_share, record
        FROM intact_experiment e JOIN intact_specification s ON s.experiment = e.key
        WHERE e.key = $1 ORDER BY s.revision DESC LIMIT 1";
    let row = transaction.query_opt(query, &[&key.0]).await.map_err(failed)?;
    let gone = || damaged(format!("there is no experiment with the key {}", key.0));
    let row = row.ok_or_else(gone)?;
    let decode = |column: usize| {
        decode_specification(row.get::<_, &[u8]>(column))
            .map_err(|error| damaged(format!("a specification: {error}")))
    };
    let (specification, first) = (decode(0)?, decode(1)?);
    let guardrails = (row.get(6), row.get(7));
    let config = learner_config(row.get(2), row.get(3), row.get(4), row.get(5), guardrails)?;
    let mut tallies = tallies(transaction, Some(key.0), 0, i32::MAX).await?;
    add(&mut tallies, elsewhere);
    let mut counted = tallies.remove(&key).unwrap_or_default();
    counted.remember(config.memory);
    let terms = WrittenRecord::from_bytes(row.get(8))?.terms(&specification);
    let terms = terms.map_err(|error| damaged(error.to_string()))?;
    let initial = (first.arms().len(), &terms);
    let weights = config.weigh_on(&specification, initial, &counted, &[]);
    let weights = weights.map_err(|error| damaged(error.to_string()))?;
    let weights: Vec<i64> = weights.iter().map(signed).collect();
    let reports = signed(counted.tallies.iter().map(|tally| tally.reports()).sum());
    let update = "UPDATE experiment SET version = version + 1, weights = $2, policy_reports = $3
        WHERE key = $1";
    transaction.execute(update, &[&key.0, &weights, &reports]).await.map_err(failed)?;
    Ok(())
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
