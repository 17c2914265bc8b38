//! Records of store cells: at home the cells and their generations, in a cell its place.

use std::collections::BTreeMap;

use bandana_shared::identity::{Day, StoreId};
use tokio_postgres::{GenericClient, Row};

use crate::cells::{CellsError, Generation, StoreCell};
use crate::postgres::days::{DATABASE_DAY, day, number};
use crate::postgres::schema::store_id;
use crate::{StoreError, damaged, postgres};

/// The first day of a first generation after today, where replicas without store cells may still
/// take uploads. They hear of it within seconds.
const DAYS_AHEAD: u32 = 2;

/// The store cells of a store, as its home knows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct HomeRecords {
    /// The cells with their ids.
    pub(crate) cells: BTreeMap<StoreCell, StoreId>,
    /// The generations, ordered by day.
    pub(crate) generations: Vec<Generation>,
}

/// The place of a database as a store cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellPlace {
    pub(crate) home: StoreId,
    pub(crate) number: StoreCell,
}

/// The cells and generations of a home.
pub(crate) async fn records(client: &impl GenericClient) -> Result<HomeRecords, StoreError> {
    let query = "SELECT number, id FROM intact_store_cell ORDER BY number";
    let rows = client.query(query, &[]).await.map_err(postgres("reading"))?;
    let of = |row: &Row| Ok((cell(row.get::<_, i32>(0).into())?, store_id(row.get(1))?));
    let cells = rows.iter().map(of).collect::<Result<_, StoreError>>()?;
    Ok(HomeRecords { cells, generations: generations(client).await? })
}

/// The generations of a home, ordered by day.
pub(crate) async fn generations(
    client: &impl GenericClient,
) -> Result<Vec<Generation>, StoreError> {
    let query = "SELECT from_day, cells FROM intact_store_cell_generation ORDER BY from_day";
    let rows = client.query(query, &[]).await.map_err(postgres("reading"))?;
    let of = |row: &Row| {
        let cells = row.get::<_, Vec<i64>>(1).into_iter().map(cell);
        Ok(Generation { from: day(row.get(0))?, cells: cells.collect::<Result<_, StoreError>>()? })
    };
    rows.iter().map(of).collect()
}

/// Checks that the home knows all generations that a cell knows, and returns those.
pub(crate) async fn check_generations(
    client: &impl GenericClient,
    known: &[Generation],
    cell: StoreCell,
) -> Result<Vec<Generation>, StoreError> {
    let kept = generations(client).await?;
    match kept.iter().find(|kept| !known.contains(kept)) {
        Some(unknown) => Err(CellsError::HomeSetBack { number: cell, day: unknown.from }.into()),
        None => Ok(kept),
    }
}

/// Keeps the home's generations in a cell too, so that a home that was set back is noticed.
pub(crate) async fn keep_generations(
    client: &impl GenericClient,
    known: &[Generation],
    cell: StoreCell,
) -> Result<(), StoreError> {
    let kept = check_generations(client, known, cell).await?;
    let insert = "INSERT INTO store_cell_generation (from_day, cells) VALUES ($1, $2)
        ON CONFLICT DO NOTHING";
    for new in known.iter().filter(|known| !kept.contains(known)) {
        let cells: Vec<i64> = new.cells.iter().map(|cell| cell.get().into()).collect();
        let failed = postgres("telling a store cell about the others");
        client.execute(insert, &[&number(new.from), &cells]).await.map_err(failed)?;
    }
    Ok(())
}

fn cell(number: i64) -> Result<StoreCell, StoreError> {
    let cell = u32::try_from(number).ok().and_then(StoreCell::new);
    cell.ok_or_else(|| damaged(format!("a store cell with the number {number}")))
}

/// The place of a database as a store cell. None: it is none.
pub(crate) async fn place(client: &impl GenericClient) -> Result<Option<CellPlace>, StoreError> {
    let query = "SELECT home, number FROM intact_store_cell_place";
    let row = client.query_opt(query, &[]).await.map_err(postgres("reading"))?;
    let of = |row: Row| {
        Ok(CellPlace { home: store_id(row.get(0))?, number: cell(row.get::<_, i32>(1).into())? })
    };
    row.map(of).transpose()
}

/// Makes a database a store cell.
pub(crate) async fn set_place(
    client: &impl GenericClient,
    place: CellPlace,
) -> Result<(), StoreError> {
    let insert = "INSERT INTO store_cell_place (one, home, number) VALUES (1, $1, $2)";
    let number = i32::try_from(place.number.get()).unwrap_or(i32::MAX);
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
        [&&place.home.as_bytes()[..], &number];
    client.execute(insert, &values).await.map_err(postgres("making a store cell"))?;
    Ok(())
}

/// Whether a database has experiments, ids of uploads or store cells of its own.
pub(crate) async fn is_used(client: &impl GenericClient) -> Result<bool, StoreError> {
    let query = "SELECT EXISTS (SELECT FROM experiment) OR EXISTS (SELECT FROM tally)
        OR EXISTS (SELECT FROM store_cell) OR EXISTS (SELECT FROM trusted_experiment)
        OR EXISTS (SELECT FROM curator_data_set)";
    Ok(client.query_one(query, &[]).await.map_err(postgres("reading"))?.get(0))
}

/// Makes sure that routes are final up to the day after `today`, or after the day that follows the
/// database's if that is earlier. Returns the last day of final routes, and the generations.
///
/// The generations are read last: one that begins by that day was added before it became final.
pub(crate) async fn route_until(
    client: &impl GenericClient,
    today: Day,
) -> Result<(Day, Vec<Generation>), StoreError> {
    let raise = format!(
        "UPDATE store_cell_routing SET routed_until = LEAST($1, {DATABASE_DAY} + 1) + 1
         WHERE routed_until <= LEAST($1, {DATABASE_DAY} + 1)"
    );
    let failed = postgres("routing uploads");
    client.execute(&raise, &[&number(today)]).await.map_err(failed)?;
    let until = routed_until(client).await?;
    Ok((until, generations(client).await?))
}

async fn routed_until(client: &impl GenericClient) -> Result<Day, StoreError> {
    let query = "SELECT routed_until FROM intact_store_cell_routing";
    day(client.query_one(query, &[]).await.map_err(postgres("routing uploads"))?.get(0))
}

/// The earliest day from which a new generation can count.
pub(crate) async fn earliest(client: &impl GenericClient) -> Result<Day, StoreError> {
    let known = generations(client).await?;
    let routed = routed_until(client).await?;
    let query = format!("SELECT {DATABASE_DAY}, (SELECT max(day) FROM tally)");
    let row = client.query_one(&query, &[]).await.map_err(postgres("reading"))?;
    let (today, newest): (Day, Option<i32>) = (day(row.get(0))?, row.get(1));
    Ok(match known.last() {
        Some(last) => routed.max(last.from).forward(1),
        // Nothing was ever counted, by any replica.
        None if newest.is_none() && routed == Day::new(0) && !is_used(client).await? => Day::new(0),
        None => routed.forward(1).max(today.forward(DAYS_AHEAD)),
    })
}

/// Adds cells and a generation, within the caller's transaction. Replicas can't route meanwhile.
pub(crate) async fn add(
    client: &impl GenericClient,
    added: &[(StoreCell, StoreId)],
    (in_use, from): (&[StoreCell], Option<Day>),
) -> Result<Generation, StoreError> {
    let failed = postgres("adding store cells");
    client
        .batch_execute(
            "SELECT FROM store_cell_routing FOR UPDATE; LOCK TABLE store_cell_generation",
        )
        .await
        .map_err(failed)?;
    let earliest = earliest(client).await?;
    let from = from.unwrap_or(earliest);
    if from < earliest {
        return Err(CellsError::TooEarly { day: from, earliest }.into());
    }
    let insert = "INSERT INTO store_cell (number, id) VALUES ($1, $2)";
    for (number, id) in added {
        let number = i32::try_from(number.get()).unwrap_or(i32::MAX);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&number, &&id.as_bytes()[..]];
        client.execute(insert, &values).await.map_err(failed)?;
    }
    let cells: Vec<i64> = in_use.iter().map(|cell| cell.get().into()).collect();
    let insert = "INSERT INTO store_cell_generation (from_day, cells) VALUES ($1, $2)";
    client.execute(insert, &[&number(from), &cells]).await.map_err(failed)?;
    Ok(Generation { from, cells: in_use.to_vec() })
}
