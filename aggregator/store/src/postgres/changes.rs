//! Changes of experiments, each in one transaction with its policy and its audit entry.

use bandana_learners::LearnerConfig;
use bandana_learners::TallySnapshot;
use bandana_learners::guardrails::Guardrails;
use bandana_shared::identity::{ExperimentId, UnixSeconds};
use bandana_shared::limits::SIGNATURES_MAX;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::wire::decode_specification;
use tokio_postgres::{GenericClient, Transaction};

use super::deletion::{SHOWN, was_deleted};
use super::records::{Tallies, add, records, tallies};
use super::{audit, trusted};
use crate::{
    AuditAction, AuditEntry, ExpectedState, ExperimentKey, ExperimentRecord, ExperimentState,
    StoreError, StoreRefusal, WrittenRecord, damaged, postgres,
};
use crate::{learner_config, memory_columns};

/// A change of an experiment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    /// Add a revision.
    Revision(ExpectedState, &'a Specification),
    /// Set the state.
    State(ExpectedState, ExperimentState),
    /// Archive or unarchive the experiment.
    Archive(ExpectedState),
    /// Write the record, which has been the first one so far, and set the state.
    Record(ExpectedState, ExperimentState, (&'a WrittenRecord, &'a WrittenRecord)),
    /// Add a signature to this revision, and drop signatures that have expired by this time.
    Signature(ExperimentKey, &'a Specification, &'a Signature, UnixSeconds),
}

impl Change<'_> {
    fn key(&self) -> ExperimentKey {
        match self {
            Self::Revision(ExpectedState { key, .. }, _)
            | Self::State(ExpectedState { key, .. }, _)
            | Self::Archive(ExpectedState { key, .. })
            | Self::Record(ExpectedState { key, .. }, ..)
            | Self::Signature(key, ..) => *key,
        }
    }
}

/// Makes a change, and returns the experiment as changed.
pub(super) async fn change(
    transaction: &Transaction<'_>,
    change: Change<'_>,
    entry: &AuditEntry,
    elsewhere: &Tallies,
) -> Result<ExperimentRecord, StoreError> {
    let failed = postgres("committing");
    let lock = "SELECT key FROM experiment WHERE key = $1 FOR NO KEY UPDATE";
    let key = change.key();
    transaction.execute(lock, &[&key.0]).await.map_err(failed)?;
    match change {
        Change::Revision(expected, specification) => {
            check(transaction, expected, &entry.experiment, elsewhere).await?;
            insert_specification(transaction, key, specification).await?;
        }
        Change::State(expected, state) => {
            check(transaction, expected, &entry.experiment, elsewhere).await?;
            let update = "UPDATE experiment SET state = $2 WHERE key = $1";
            transaction.execute(update, &[&key.0, &state.name()]).await.map_err(failed)?;
        }
        Change::Archive(expected) => {
            let known = check(transaction, expected, &entry.experiment, elsewhere).await?;
            // Another replica was first.
            if known.is_archived == (entry.action == AuditAction::Archive) {
                return Err(StoreError::Refused(StoreRefusal::Outdated(Box::new(known))));
            }
        }
        Change::Record(expected, state, (before, record)) => {
            let known = check(transaction, expected, &entry.experiment, elsewhere).await?;
            if known.written != *before {
                return Err(StoreError::Refused(StoreRefusal::Outdated(Box::new(known))));
            }
            let update = "UPDATE experiment SET record = $2, state = $3 WHERE key = $1";
            let (bytes, state) = (record.to_bytes(), state.name());
            transaction.execute(update, &[&key.0, &bytes, &state]).await.map_err(failed)?;
        }
        Change::Signature(_, specification, signature, now) => {
            exists(transaction, key, &entry.experiment).await?;
            sign(transaction, specification, signature, now).await?;
        }
    }
    renew_policy(transaction, key, elsewhere).await?;
    audit::append(transaction, entry).await?;
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
    insert_specification(transaction, key, specification).await?;
    audit::append(transaction, entry).await?;
    // From here on, audited changes take turns, so an earlier one is visible.
    if trusted::exists(transaction, "trusted_experiment", id).await?
        || was_deleted(transaction, id).await?
    {
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
async fn taken(client: &impl GenericClient, id: &ExperimentId) -> Result<StoreError, StoreError> {
    let id = id.clone();
    Ok(if was_deleted(client, &id).await? {
        StoreError::Refused(StoreRefusal::ExperimentWasDeleted(id))
    } else {
        StoreError::Refused(StoreRefusal::ExperimentExists(id))
    })
}

/// Refuses a change of a deleted experiment.
async fn exists(
    client: &impl GenericClient,
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

async fn insert_specification(
    client: &impl GenericClient,
    key: ExperimentKey,
    specification: &Specification,
) -> Result<(), StoreError> {
    let insert = "INSERT INTO specification (digest, experiment, revision, bytes)
        VALUES ($1, $2, $3, $4)";
    let digest = specification.digest();
    let (digest, bytes) = (&digest.as_bytes()[..], specification.canonical_bytes());
    let revision = i64::from(specification.revision().get());
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&digest, &key.0, &revision, &bytes];
    client.execute(insert, &values).await.map_err(postgres("committing"))?;
    Ok(())
}

async fn sign(
    client: &impl GenericClient,
    specification: &Specification,
    signature: &Signature,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    let failed = postgres("committing");
    let digest = specification.digest();
    let (digest, key) = (&digest.as_bytes()[..], signature.key());
    let key = &key.as_bytes()[..];
    let forget = "DELETE FROM signature WHERE digest = $1 AND (expires <= $2 OR public_key = $3)";
    client.execute(forget, &[&digest, &signed(now.get()), &key]).await.map_err(failed)?;
    let count = "SELECT count(*) FROM intact_signature WHERE digest = $1";
    let others: i64 = client.query_one(count, &[&digest]).await.map_err(failed)?.get(0);
    if usize::try_from(others).is_ok_and(|others| others >= SIGNATURES_MAX) {
        return Err(StoreError::Refused(StoreRefusal::TooManySignatures));
    }
    let insert = "INSERT INTO signature (digest, public_key, expires, signature)
        VALUES ($1, $2, $3, $4)";
    let (expires, bytes) = (signed(signature.expires().get()), &signature.as_bytes()[..]);
    client.execute(insert, &[&digest, &key, &expires, &bytes]).await.map_err(failed)?;
    Ok(())
}
