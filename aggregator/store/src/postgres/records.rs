//! Records of experiments in the database.

use std::collections::HashMap;

use bandana_learners::TallySnapshot;
use bandana_learners::window::Memory;
use bandana_shared::identity::{Digest, UnixSeconds};
use bandana_shared::policy::Weights;
use bandana_shared::signing::{PublicKey, Signature};
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::decode_specification;
use tokio_postgres::{GenericClient, Row};

use super::days::day;
use super::deletion::SHOWN;
use crate::counts::{CountRow, Counts};
use crate::deletion::ARCHIVED;
use crate::learner_config;
use crate::served_policy;
use crate::{
    ExperimentKey, ExperimentRecord, ExperimentState, StoreError, StoredPolicy, WrittenRecord,
    damaged, postgres, revision_and_cell,
};

/// The tallies of experiments, with their history and without those of a limited memory.
pub type Tallies = HashMap<ExperimentKey, TallySnapshot>;

/// The records of these experiments, in the order of their keys, with these tallies.
pub(super) async fn records(
    client: &impl GenericClient,
    keys: &[i64],
    tallies: &Tallies,
) -> Result<Vec<ExperimentRecord>, StoreError> {
    let failed = postgres("reading");
    let query = format!(
        "SELECT key, state, learner, floor_weight, version, weights, policy_reports,
            window_days, discount, burn_in_reports, holdout_share, {ARCHIVED}, record
        FROM intact_experiment e WHERE key = ANY ($1) AND {SHOWN} ORDER BY key"
    );
    let experiments = client.query(&query, &[&keys]).await.map_err(failed)?;
    let query = "SELECT experiment, bytes FROM intact_specification WHERE experiment = ANY ($1)
        ORDER BY experiment, revision";
    let mut revisions: HashMap<i64, Vec<Specification>> = HashMap::new();
    for row in client.query(query, &[&keys]).await.map_err(failed)? {
        let specification = decode_specification(row.get::<_, &[u8]>(1))
            .map_err(|error| damaged(format!("a specification: {error}")))?;
        revisions.entry(row.get(0)).or_default().push(specification);
    }
    let newest = |key: &i64| revisions.get(key).and_then(|revisions| revisions.last());
    let newest: Vec<&Specification> = keys.iter().filter_map(newest).collect();
    let mut signatures = signatures(client, &newest).await?;
    let mut records = Vec::new();
    for row in experiments {
        let key: i64 = row.get(0);
        let revisions = revisions.remove(&key).unwrap_or_default();
        let newest = revisions
            .last()
            .ok_or_else(|| damaged("an experiment without specification".to_owned()))?;
        let key = ExperimentKey(key);
        let mut counted = tallies.get(&key).cloned().unwrap_or_default();
        let cells = counted.tallies.len().max(newest.cells().len());
        counted.tallies.resize(cells, Tally::EMPTY);
        let signatures = signatures.remove(&newest.digest()).unwrap_or_default();
        records.push(record(&row, key, revisions, signatures, counted)?);
    }
    Ok(records)
}

fn record(
    row: &Row,
    key: ExperimentKey,
    revisions: Vec<Specification>,
    signatures: Vec<Signature>,
    mut counted: TallySnapshot,
) -> Result<ExperimentRecord, StoreError> {
    let state: &str = row.get(1);
    let guardrails = (row.get(9), row.get(10));
    let config = learner_config(row.get(2), row.get(3), row.get(7), row.get(8), guardrails)?;
    counted.remember(config.memory);
    let state = ExperimentState::from_name(state);
    let (version, weights, reports): (i64, Vec<i64>, i64) = (row.get(4), row.get(5), row.get(6));
    let positive = |number: i64| u64::try_from(number).map_err(|_| damaged("a policy".to_owned()));
    let weights: Vec<u64> = weights.into_iter().map(positive).collect::<Result<_, _>>()?;
    let weights = Weights::new(&weights).map_err(|error| damaged(error.to_string()))?;
    let fits = revisions.last().is_some_and(|newest| {
        let lists = newest.measurement().lists();
        (newest.arms().len(), lists) == (weights.len(), weights.segments())
    });
    if !fits {
        return Err(damaged("a policy for another revision".to_owned()));
    }
    let policy = served_policy(positive(version)?, weights);
    Ok(ExperimentRecord {
        key,
        config,
        state: state.ok_or_else(|| damaged("state of an experiment".to_owned()))?,
        is_archived: row.get(11),
        written: WrittenRecord::from_bytes(row.get(12))?,
        revisions,
        signatures,
        tallies: counted.tallies,
        days: counted.days,
        history: counted.history,
        policy: Some(StoredPolicy { policy, reports: positive(reports)? }),
    })
}

async fn signatures(
    client: &impl GenericClient,
    revisions: &[&Specification],
) -> Result<HashMap<Digest, Vec<Signature>>, StoreError> {
    let failed = postgres("reading");
    let digests: Vec<Vec<u8>> = revisions.iter().map(|r| r.digest().as_bytes().to_vec()).collect();
    let by_digest: HashMap<Digest, &Specification> =
        revisions.iter().map(|revision| (revision.digest(), *revision)).collect();
    let query = "SELECT digest, public_key, expires, signature FROM intact_signature
        WHERE digest = ANY ($1) ORDER BY digest, public_key";
    let mut signatures: HashMap<Digest, Vec<Signature>> = HashMap::new();
    for row in client.query(query, &[&digests]).await.map_err(failed)? {
        let digest =
            Digest::try_from(row.get::<_, &[u8]>(0)).map_err(|e| damaged(e.to_string()))?;
        let length = || damaged(format!("a signature of {digest} is too short or too long"));
        let key: [u8; 32] = row.get::<_, &[u8]>(1).try_into().map_err(|_| length())?;
        let bytes: [u8; 64] = row.get::<_, &[u8]>(3).try_into().map_err(|_| length())?;
        let key = PublicKey::new(key).map_err(|error| damaged(error.to_string()))?;
        let expires = u64::try_from(row.get::<_, i64>(2)).unwrap_or_default();
        let signature = Signature::new(key, UnixSeconds::new(expires), bytes);
        if !by_digest.get(&digest).is_some_and(|revision| signature.fits(*revision)) {
            return Err(damaged(format!("the signature of {digest} by {key} does not fit")));
        }
        signatures.entry(digest).or_default().push(signature);
    }
    Ok(signatures)
}

/// The tallies of the days from `from` on and before `before`, of all experiments or one.
pub(super) async fn tallies(
    client: &impl GenericClient,
    only: Option<i64>,
    from: i32,
    before: i32,
) -> Result<Tallies, StoreError> {
    // A single statement sees a single state.
    let query =
        "SELECT experiment, day, arm, 1, sum(reports)::bigint, sum(ones)::bigint FROM intact_tally
        WHERE day >= $2 AND day < $3 AND ($1::bigint IS NULL OR experiment = $1)
        GROUP BY experiment, day, arm
        UNION ALL SELECT experiment, day, arm, symbol, 0, sum(reports)::bigint
        FROM intact_symbol_tally
        WHERE day >= $2 AND day < $3 AND ($1::bigint IS NULL OR experiment = $1)
        GROUP BY experiment, day, arm, symbol";
    let rows = client.query(query, &[&only, &from, &before]).await.map_err(postgres("reading"))?;
    let number = |number: i64| u64::try_from(number).map_err(|e| damaged(e.to_string()));
    let mut counts: Counts<(i64, i32, i32)> = Counts::new();
    for row in rows {
        let symbol: i32 = row.get(3);
        let symbol = u8::try_from(symbol).map_err(|error| damaged(error.to_string()))?;
        let (reports, count) = (number(row.get(4))?, number(row.get(5))?);
        let counted = CountRow { symbol, reports, count };
        counts.add((row.get(0), row.get(1), row.get(2)), counted)?;
    }
    let mut all = Tallies::new();
    for ((experiment, of_day, stored), tally) in counts.tallies()? {
        let stored = u32::try_from(stored).map_err(|error| damaged(error.to_string()))?;
        let (revision, cell) = revision_and_cell(stored)?;
        let counted = all.entry(ExperimentKey(experiment)).or_default();
        counted.add(Memory::Everything, (day(of_day)?, revision, cell, tally));
    }
    Ok(all)
}

/// The experiments that a store cell knows, with their states; none for deleted ones.
pub(super) async fn states(
    client: &impl GenericClient,
) -> Result<Vec<(ExperimentKey, Option<ExperimentState>)>, StoreError> {
    let query = format!("SELECT key, state, {SHOWN} FROM experiment e ORDER BY key");
    let rows = client.query(&query, &[]).await.map_err(postgres("reading"))?;
    let of = |row: &Row| {
        let state = ExperimentState::from_name(row.get(1)).filter(|_| row.get(2));
        (ExperimentKey(row.get(0)), state)
    };
    Ok(rows.iter().map(of).collect())
}

/// Adds the tallies of other days.
pub(super) fn add(tallies: &mut Tallies, others: &Tallies) {
    for (key, other) in others {
        tallies.entry(*key).or_default().extend(other);
    }
}
