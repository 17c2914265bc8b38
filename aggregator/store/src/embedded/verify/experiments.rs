//! Checks that stored experiments can be decoded and that their parts match.

use std::collections::BTreeMap;

use bandana_learners::Learner;
use bandana_shared::identity::{Digest, ExperimentId};
use bandana_shared::specification::Specification;
use bandana_shared::wire::decode_specification;
use rusqlite::{Connection, Row};

use super::super::deletion::deleted_keys;
use super::super::{ready, schema};
use super::{noted, unreadable};
use crate::{ExperimentState, StoreError, Verification, WrittenRecord, signatures};

/// The facts about an experiment that checks of its tallies need.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: String,
    /// The number of cells of the newest revision that can be decoded.
    pub(super) arms: usize,
    /// Whether the experiment was deleted. Groups of the replay window may still name it.
    pub(super) is_deleted: bool,
}

/// A row of the table of experiments.
struct Stored {
    key: i64,
    id: String,
    state: String,
    learner: String,
    floor_weight: f64,
}

/// Checks every experiment, and returns them by key.
pub(super) fn check(
    connection: &Connection,
    verification: &mut Verification,
) -> Result<BTreeMap<i64, Known>, StoreError> {
    verification.begin("experiments and their revisions");
    let rows = || {
        let query = "SELECT key, id, state, learner, floor_weight FROM experiment ORDER BY key";
        let mut statement = connection.prepare(query)?;
        let rows = statement.query_map([], stored)?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    let deleted = if verification.schema_version >= schema::WITH_AUDIT {
        noted(verification, "what was deleted", deleted_keys(connection))?.unwrap_or_default()
    } else {
        Vec::new()
    };
    let (mut experiments, mut layered) = (BTreeMap::new(), Vec::new());
    for row in noted(verification, "the experiments", rows())?.unwrap_or_default() {
        verification.examined(1);
        if deleted.contains(&row.key) {
            gone(connection, &row, verification)?;
            experiments.insert(row.key, Known { id: row.id, arms: 0, is_deleted: true });
            continue;
        }
        check_config(&row, verification);
        if verification.schema_version >= schema::WITH_RECORDS {
            check_record(connection, &row, verification)?;
        }
        let revisions = revisions(connection, &row, verification)?;
        let newest = revisions.last();
        let arms = newest.map_or(0, |newest| newest.cells().len());
        let layer = newest.and_then(|newest| newest.participation().layer.clone());
        if let (Some(state), Some(layer)) = (ExperimentState::from_name(&row.state), layer) {
            layered.push((row.id.clone(), state, layer));
        }
        if verification.schema_version >= schema::WITH_SIGNATURES {
            for revision in &revisions {
                if let Err(error) = ready(signatures::of(connection, revision)) {
                    let what = format!("a signature of experiment {}", row.id);
                    unreadable(verification, &what, error)?;
                }
            }
        }
        experiments.insert(row.key, Known { id: row.id, arms, is_deleted: false });
    }
    verification.compare_layers(&layered);
    Ok(experiments)
}

/// Checks that only digests are left of a deleted experiment's revisions. Remaining tallies are
/// reported elsewhere, since the experiment counts as one without arms.
fn gone(
    connection: &Connection,
    row: &Stored,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    let query = "SELECT count(*) FROM specification WHERE experiment = ? AND length(bytes) > 0";
    let count = connection.query_row(query, [row.key], |row| row.get::<_, u64>(0));
    if noted(verification, "the revisions", count)?.is_some_and(|count| count > 0) {
        verification.say(format!("experiment {} was deleted, and has revisions", row.id));
    }
    Ok(())
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let (key, id, state) = (row.get(0)?, row.get(1)?, row.get(2)?);
    Ok(Stored { key, id, state, learner: row.get(3)?, floor_weight: row.get(4)? })
}

fn check_config(row: &Stored, verification: &mut Verification) {
    let Stored { id, state, learner, floor_weight, .. } = row;
    if ExperimentId::new(id.clone()).is_err() {
        verification.say(format!("experiment {id:?}: no experiment can be called that"));
    }
    if ExperimentState::from_name(state).is_none() {
        verification.say(format!("experiment {id}: there is no state {state:?}"));
    }
    if learner.parse::<Learner>().is_err() {
        verification.say(format!("experiment {id}: there is no learner {learner:?}"));
    }
    if !(0.0..=1.0).contains(floor_weight) {
        verification.say(format!("experiment {id}: {floor_weight} is no least share of traffic"));
    }
}

fn check_record(
    connection: &Connection,
    row: &Stored,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    let query = "SELECT record FROM experiment WHERE key = ?";
    let bytes = connection.query_row(query, [row.key], |row| row.get::<_, Vec<u8>>(0));
    let bytes = noted(verification, "a record", bytes)?.unwrap_or_default();
    if let Err(error) = WrittenRecord::from_bytes(&bytes) {
        verification.say(format!("experiment {}: {error}", row.id));
    }
    Ok(())
}

fn revisions(
    connection: &Connection,
    experiment: &Stored,
    verification: &mut Verification,
) -> Result<Vec<Specification>, StoreError> {
    let id = &experiment.id;
    let rows = || {
        let query = "SELECT digest, revision, bytes FROM specification WHERE experiment = ?
            ORDER BY revision";
        let mut statement = connection.prepare_cached(query)?;
        let row = |row: &Row<'_>| {
            Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, u32>(1)?, row.get::<_, Vec<u8>>(2)?))
        };
        let rows = statement.query_map([experiment.key], row)?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    let what = format!("a revision of experiment {id}");
    let rows = noted(verification, &what, rows())?.unwrap_or_default();
    if rows.is_empty() {
        verification.say(format!("experiment {id} has no revision"));
    }
    let mut revisions: Vec<Specification> = Vec::new();
    for (expected, (digest, revision, bytes)) in (1_u32..).zip(rows) {
        let specification = match decode_specification(&bytes) {
            Ok(specification) => specification,
            Err(error) => {
                verification.say(format!(
                    "experiment {id}: revision {revision} can't be understood: {error}"
                ));
                continue;
            }
        };
        let own: Digest = specification.digest();
        if own.as_bytes()[..] != digest[..] {
            verification.say(format!(
                "experiment {id}: revision {revision} is not what its digest names, but {own}"
            ));
        }
        let numbers = [specification.revision().get(), revision];
        if specification.experiment_id().as_str() != id || numbers != [expected; 2] {
            verification.say(format!(
                "experiment {id}: where revision {expected} should be is revision {} of {}",
                specification.revision().get(),
                specification.experiment_id()
            ));
        }
        if revisions.last().is_some_and(|before| before.arms().len() > specification.arms().len()) {
            verification.say(format!("experiment {id}: revision {revision} lacks an arm"));
        }
        revisions.push(specification);
    }
    Ok(revisions)
}
