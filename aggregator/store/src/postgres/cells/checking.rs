//! Checks of store cells for people: whether each one is the right database, and its share of ids.

use std::sync::Arc;

use bandana_shared::identity::{Day, StoreId};
use tokio_postgres::GenericClient;

use super::opening::{check, content};
use super::records::{self, HomeRecords};
use crate::cells::{CellsError, Generation, HASH_PREFIX, Routes, StoreCell};
use crate::postgres::connection::{PgConnection, Target, Waits};
use crate::postgres::days::{day, number};
use crate::postgres::verify::{Experiments, Verified, verify_as};
use crate::postgres::{PostgresSettings, schema};
use crate::{DatabaseError, StoreError, Verification, postgres};

/// The state of a store's cells.
#[derive(Debug)]
pub struct CellReport {
    /// The id of the store.
    pub store: StoreId,
    /// The generations, ordered by day.
    pub generations: Vec<Generation>,
    /// The cells with their databases. No database: the settings list none. An error: the cell is not
    /// in order.
    pub cells: Vec<(StoreCell, Option<String>, Result<StoreId, StoreError>)>,
}

/// Compares the listed databases with the store cells that the home knows.
///
/// Blocks; must not be called from asynchronous code.
///
/// # Errors
/// [`StoreError`] when the home can't be read.
pub fn check_cells(settings: &PostgresSettings) -> Result<CellReport, StoreError> {
    let (store, known) = read_home(settings)?;
    let mut cells = Vec::new();
    for number in (settings.cells.len()..known.cells.len()).map(StoreCell::at) {
        let missing = CellsError::TooFew { listed: settings.cells.len(), known: known.cells.len() };
        cells.push((number, None, Err(missing.into())));
    }
    for number in (0..settings.cells.len()).map(StoreCell::at) {
        let settings = settings.of_cell(number);
        let checked = check_one(&settings, (store, &known), number);
        cells.push((number, Some(settings.url.to_string()), checked));
    }
    Ok(CellReport { store, generations: known.generations, cells })
}

fn read_home(settings: &PostgresSettings) -> Result<(StoreId, HomeRecords), StoreError> {
    let mut link = PgConnection::new(Arc::new(Target::new(settings)?), Waits::READING)?;
    link.run("reading", async |session| {
        schema::version_of(session).await?;
        super::refuse_cell(&session.client).await?;
        Ok((schema::id(&session.client).await?, records::records(&session.client).await?))
    })
}

fn check_one(
    settings: &PostgresSettings,
    (store, known): (StoreId, &HomeRecords),
    number: StoreCell,
) -> Result<StoreId, StoreError> {
    let url = settings.url.to_string();
    let mut link = PgConnection::new(Arc::new(Target::new(settings)?), Waits::READING)?;
    link.run("reading", async |session| {
        let found = content(session).await?;
        check((number, url.clone()), (store, known), found)?;
        if !known.cells.contains_key(&number) {
            return Err(CellsError::Unknown { number, url }.into());
        }
        records::check_generations(&session.client, &known.generations, number).await?;
        schema::id(&session.client).await
    })
}

/// Verifies every store cell, and adds what is found to the verification of the home.
pub(in crate::postgres) fn verify_cells(
    settings: &PostgresSettings,
    experiments: Option<&Experiments>,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    if settings.cells.is_empty() && !verification.is_sound() {
        return Ok(());
    }
    let (store, known) = match read_home(settings) {
        Err(error) if error.is_damage() => {
            verification.say(error.to_string());
            return Ok(());
        }
        home => home?,
    };
    let routes = Routes::new(known.generations.clone(), None);
    if settings.cells.len() < known.cells.len() {
        verification.warnings.push(format!(
            "this store has {} store cells, and {} were read; list all in `cells`",
            known.cells.len(),
            settings.cells.len()
        ));
    }
    for number in (0..settings.cells.len()).map(StoreCell::at) {
        let settings = settings.of_cell(number);
        let verified = check_one(&settings, (store, &known), number).and_then(|_| {
            verify_as(&settings, &Verified::Cell { number, routes: &routes, experiments })
        });
        let (found, _) = verified.map_err(|error| {
            let (url, source) = (settings.url.to_string(), Box::new(error));
            StoreError::from(DatabaseError::Cell { number, url, source })
        })?;
        verification.include(&format!("store cell {number}: "), found);
    }
    Ok(())
}

/// Checks that every id is in the store cell that it belongs to.
pub(in crate::postgres) async fn verify_shares(
    client: &impl GenericClient,
    cell: StoreCell,
    routes: &Routes,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("ids, against the store cell that they belong to");
    let failed = postgres("reading");
    let days =
        client.query("SELECT day, count(*) FROM upload GROUP BY day ORDER BY day", &[]).await;
    for row in days.map_err(failed)? {
        let (of_day, ids): (Day, i64) = (day(row.get(0))?, row.get(1));
        verification.examined(ids.unsigned_abs());
        let Some(generation) = routes.generation(of_day) else {
            verification.say(format!("day {of_day} has {ids} ids, which belong to the home"));
            continue;
        };
        let Some(place) = generation.cells.iter().position(|other| *other == cell) else {
            verification.say(format!("day {of_day} has {ids} ids, which belong to other cells"));
            continue;
        };
        let shares = i64::try_from(generation.cells.len()).unwrap_or(i64::MAX);
        let place = i64::try_from(place).unwrap_or(i64::MAX);
        let query = format!(
            "SELECT count(*) FROM upload WHERE day = $1 AND
             (('x' || encode(substring(sha256('{HASH_PREFIX}'::bytea || uuid_send(id)) FROM 1 FOR 4),
                 'hex'))::bit(32)::bigint * $2) >> 32 <> $3"
        );
        let row = client.query_one(&query, &[&number(of_day), &shares, &place]).await;
        let strangers: i64 = row.map_err(failed)?.get(0);
        if strangers > 0 {
            verification
                .say(format!("day {of_day} has {strangers} ids that belong to other store cells"));
        }
    }
    Ok(())
}
