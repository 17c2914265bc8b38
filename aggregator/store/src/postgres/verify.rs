//! Verification that the rows of a database are consistent, as replicas leave them.
//!
//! The deltas of single uploads are not kept, so tallies can't be computed again. The invariants
//! that must hold between the rows can be checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bandana_shared::identity::Day;
use tokio_postgres::{GenericClient, IsolationLevel, Row};

use super::cells::{verify_cells, verify_shares};
use super::connection::{PgConnection, Session, Target, Waits};
use super::database::Tables;
use super::days::{day, number, partitions};
use super::deletion::SHOWN;
use super::records::records;
use super::{PostgresSettings, REPLICAS_MAX, checksums, schema};
use crate::cells::{Routes, StoreCell};
use crate::{
    AuditQuery, DamageError, StoreError, Verification, audit, postgres, queries, revision_and_cell,
    trusted,
};

/// Entries of the audit log held in memory at the same time.
const AUDIT_PAGE: u32 = 1000;

/// Settings for a long read, which only the end of a day waits for.
const PATIENTLY: &str = "SET LOCAL statement_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0";

/// Checks a database as of one moment, while replicas work on it, and changes nothing.
///
/// Blocks; must not be called from asynchronous code.
///
/// # Errors
/// [`StoreError`] when the database can't be read, or its schema version is unknown. Damage is
/// among the findings.
pub fn verify_database(settings: &PostgresSettings) -> Result<Verification, StoreError> {
    let (mut verification, experiments) = verify_as(settings, &Verified::Store)?;
    verify_cells(settings, experiments.as_ref(), &mut verification)?;
    Ok(verification)
}

/// The experiments of a store by their keys: the id, and the number of cells.
pub(super) type Experiments = BTreeMap<i64, (String, usize)>;

/// The database that is verified.
#[derive(Debug)]
pub(super) enum Verified<'a> {
    /// A store, or the home of store cells.
    Store,
    /// A store cell.
    Cell {
        number: StoreCell,
        routes: &'a Routes,
        /// The experiments of the home. None: they could not be read.
        experiments: Option<&'a Experiments>,
    },
}

/// Checks one database. Also returns the experiments of a store that could be read.
pub(super) fn verify_as(
    settings: &PostgresSettings,
    verified: &Verified<'_>,
) -> Result<(Verification, Option<Experiments>), StoreError> {
    let mut link = PgConnection::new(Arc::new(Target::new(settings)?), Waits::READING)?;
    link.run_for_long(async |session| verify(session, verified).await)
}

async fn verify(
    session: &mut Session,
    verified: &Verified<'_>,
) -> Result<(Verification, Option<Experiments>), StoreError> {
    let failed = postgres("reading");
    let version = schema::version_of(session).await?;
    if let Verified::Store = verified
        && let Err(error) = super::cells::refuse_cell(&session.client).await
        && !error.is_damage()
    {
        return Err(error);
    }
    let builder = session.client.build_transaction();
    let builder = builder.isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let client = builder.start().await.map_err(failed)?;
    client.batch_execute(PATIENTLY).await.map_err(failed)?;
    let mut verification = Verification::new(version);
    let mut found = None;
    let checked = match verified {
        Verified::Store => check_all(&client, &mut verification, &mut found).await,
        Verified::Cell { number, routes, experiments } => {
            check_cell(&client, (*number, routes), *experiments, &mut verification).await
        }
    };
    client.rollback().await.map_err(failed)?;
    match checked {
        // Damaged data can't be read, and the database refuses further statements of this
        // transaction.
        Err(error) if error.is_told_damage() => verification.say(error.to_string()),
        checked => checked?,
    }
    Ok((verification, found))
}

async fn check_all(
    client: &impl GenericClient,
    verification: &mut Verification,
    found: &mut Option<Experiments>,
) -> Result<(), StoreError> {
    checksums::check(client, true, verification).await?;
    if !verification.is_sound() {
        // Further checks would be refused one by one.
        return Ok(());
    }
    let oldest = window(client, verification).await?;
    verification.oldest = Some(oldest);
    let arms = found.insert(experiments(client, verification).await?);
    tallies(client, oldest, arms, verification).await?;
    uploads(client, oldest, verification).await?;
    audit_log(client, verification).await?;
    trusted_experiments(client, verification).await?;
    budgets(client, verification).await
}

async fn check_cell(
    client: &impl GenericClient,
    (cell, routes): (StoreCell, &Routes),
    experiments: Option<&Experiments>,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    checksums::check(client, true, verification).await?;
    if !verification.is_sound() {
        return Ok(());
    }
    let oldest = window(client, verification).await?;
    if let Some(experiments) = experiments {
        tallies(client, oldest, experiments, verification).await?;
    }
    uploads(client, oldest, verification).await?;
    verify_shares(client, cell, routes, verification).await
}

/// Checks that the spent part of each budget is the sum of its debits.
async fn budgets(
    client: &impl GenericClient,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("budgets of data sets, against their debits");
    for (name, amounts) in queries::budgets(&Tables::reading(client)).await? {
        verification.examined(1);
        queries::verify(&name, amounts, verification);
    }
    Ok(())
}

/// Checks that there is one watermark, and no data before it that should be gone.
async fn window(
    client: &impl GenericClient,
    verification: &mut Verification,
) -> Result<Day, StoreError> {
    verification.begin("replay window");
    let failed = postgres("reading");
    let rows = client.query("SELECT oldest_day FROM watermark", &[]).await.map_err(failed)?;
    let [row] = &rows[..] else {
        return Err(crate::damaged(format!("the watermark has {} rows", rows.len())));
    };
    let oldest = day(row.get(0))?;
    for (name, of_day) in partitions(client).await? {
        verification.examined(1);
        match of_day {
            Some(of_day) if of_day < number(oldest) => verification
                .say(format!("there is a table {name}, whose day is before the replay window")),
            Some(_) => {}
            None => verification.say(format!("there is a partition {name}, which is not ours")),
        }
    }
    Ok(oldest)
}

/// Checks every experiment with its policy, and returns the id and the number of cells of each.
async fn experiments(
    client: &impl GenericClient,
    verification: &mut Verification,
) -> Result<Experiments, StoreError> {
    verification.begin("experiments, revisions and policies");
    let failed = postgres("reading");
    let query = format!("SELECT e.key, e.id, {SHOWN} FROM experiment e ORDER BY e.key");
    let (mut arms, mut layered) = (BTreeMap::new(), Vec::new());
    for row in client.query(&query, &[]).await.map_err(failed)? {
        let (key, id): (i64, String) = (row.get(0), row.get(1));
        verification.examined(1);
        if !row.get::<_, bool>(2) {
            deleted(client, key, &id, verification).await?;
            continue;
        }
        let mut known = 0;
        match records(client, &[key], &HashMap::new()).await {
            Ok(found) => {
                for record in &found {
                    let newest = record.revisions.last();
                    let layer = newest.and_then(|newest| newest.participation().layer.clone());
                    layered.extend(layer.map(|layer| (id.clone(), record.state, layer)));
                }
                let revisions = found.iter().flat_map(|record| &record.revisions);
                let query = "SELECT digest, revision FROM specification WHERE experiment = $1
                    ORDER BY revision";
                let stored = client.query(query, &[&key]).await.map_err(failed)?;
                for (expected, (revision, row)) in (1_i64..).zip(revisions.zip(stored)) {
                    let (digest, stored): (&[u8], i64) = (row.get(0), row.get(1));
                    let is_own = revision.digest().as_bytes()[..] == *digest
                        && [i64::from(revision.revision().get()), stored] == [expected; 2]
                        && revision.experiment_id().as_str() == id
                        && revision.cells().len() >= known;
                    if !is_own {
                        verification.say(format!(
                            "experiment {id}: revision {expected} is not what it is stored as"
                        ));
                    }
                    known = revision.cells().len();
                }
            }
            Err(error @ StoreError::Damage(DamageError::Data { .. } | DamageError::Stored(_))) => {
                verification.say(format!("experiment {id}: {error}"));
            }
            Err(error) => return Err(error),
        }
        arms.insert(key, (id, known));
    }
    verification.compare_layers(&layered);
    Ok(arms)
}

/// Checks that only its row is left of a deleted experiment, and numbers of reports within the
/// replay window.
async fn deleted(
    client: &impl GenericClient,
    key: i64,
    id: &str,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    let query =
        "SELECT EXISTS (SELECT FROM specification WHERE experiment = $1 AND length(bytes) > 0),
        EXISTS (SELECT FROM tally JOIN watermark ON day < oldest_day WHERE experiment = $1)";
    let row = client.query_one(query, &[&key]).await.map_err(postgres("reading"))?;
    for (column, what) in [(0, "revisions"), (1, "tallies of days before the replay window")] {
        if row.get(column) {
            verification.say(format!("experiment {id} was deleted, and has {what}"));
        }
    }
    Ok(())
}

/// Checks that tallies belong to existing arms, and to replicas within the window only.
async fn tallies(
    client: &impl GenericClient,
    oldest: Day,
    arms: &Experiments,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("tallies");
    let query = format!(
        "SELECT experiment, day, arm, replica, COALESCE(NOT {SHOWN}, false)
         FROM tally LEFT JOIN experiment e ON e.key = experiment ORDER BY 1, 2, 3, 4"
    );
    for row in client.query(&query, &[]).await.map_err(postgres("reading"))? {
        verification.examined(1);
        let (key, day, arm, replica): (i64, i32, i32, i32) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let shown = index(arm).map_or_else(|| arm.to_string(), |arm| arm.to_string());
        let place = match arms.get(&key) {
            Some((id, _)) => format!("experiment {id}, day {day}, arm {shown}"),
            None => format!("experiment number {key}, day {day}, arm {shown}"),
        };
        match arms.get(&key) {
            None if row.get(4) => {}
            None => verification.say(format!("{place}: there is no such experiment")),
            Some((_, known)) if index(arm).is_some_and(|arm| arm < *known) => {}
            Some((_, known)) => verification.say(format!("{place}: it has {known} cells")),
        }
        let is_expired = day < number(oldest);
        if is_expired && replica != 0 {
            verification.say(format!("{place}: replica {replica} has a tally of an expired day"));
        }
        if !is_expired && !(1..=REPLICAS_MAX).contains(&replica) {
            verification.say(format!("{place}: there is no replica {replica}"));
        }
    }
    Ok(())
}

/// The index of the cell in a stored number.
fn index(stored: i32) -> Option<usize> {
    let (_, arm) = revision_and_cell(u32::try_from(stored).ok()?).ok()?;
    Some(arm.get())
}

/// Checks that each day has at least one report for each of its uploads.
async fn uploads(
    client: &impl GenericClient,
    oldest: Day,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("uploads of each day, against its reports");
    let query = "
        SELECT day, COALESCE(u.uploads, 0), COALESCE(t.reports, 0)
        FROM (SELECT day, count(*) AS uploads FROM upload GROUP BY day) u
        FULL JOIN (SELECT day, sum(reports)::bigint AS reports FROM tally WHERE day >= $1
                   GROUP BY day) t USING (day)
        ORDER BY day";
    let rows = client.query(query, &[&number(oldest)]).await.map_err(postgres("reading"))?;
    let of_day = |row: Row| -> (i32, i64, i64) { (row.get(0), row.get(1), row.get(2)) };
    for (day, uploads, reports) in rows.into_iter().map(of_day) {
        verification.examined(u64::try_from(uploads).unwrap_or_default());
        if reports < uploads || (uploads == 0 && reports > 0) {
            verification
                .say(format!("day {day} has {uploads} uploads, and {reports} reports from them"));
        }
    }
    Ok(())
}

async fn trusted_experiments(
    client: &impl GenericClient,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("trusted experiments and their disclosures");
    let db = Tables::reading(client);
    let records = match trusted::trusted(&db, None).await {
        Ok(records) => records,
        Err(error @ StoreError::Damage(DamageError::Data { .. })) => {
            verification.say(error.to_string());
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for record in &records {
        verification.examined(1);
        trusted::verify(record, verification);
        let (names, is_taken) = trusted::disclosed(&db, &record.id).await?;
        verification.examined(names);
        trusted::verify_names(record, names, is_taken, verification);
    }
    Ok(())
}

async fn audit_log(
    client: &impl GenericClient,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("entries of the audit log");
    let mut query = AuditQuery { experiment: None, limit: AUDIT_PAGE, before: None };
    loop {
        match audit::entries(&Tables::reading(client), &query).await {
            Ok(entries) => {
                verification.examined(entries.len() as u64);
                let Some(last) = entries.last() else { return Ok(()) };
                query.before = Some(last.number);
            }
            Err(error @ StoreError::Damage(DamageError::Data { .. })) => {
                verification.say(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}
