//! Adding store cells to a store, and taking them out of use, from a later day on.

use std::sync::Arc;

use bandana_shared::identity::{Day, StoreId};

use super::opening::{Content, check, content};
use super::records::{self, CellPlace, HomeRecords};
use crate::cells::{CellsError, Generation, STORE_CELLS_MAX, StoreCell};
use crate::postgres::connection::{PgConnection, Target, Waits};
use crate::postgres::{PostgresSettings, schema};
use crate::{DatabaseError, Presence, StoreError, postgres};

/// A change of the store cells that share uploads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellChange {
    /// The listed store cells that get no uploads any more.
    pub without: Vec<StoreCell>,
    /// The first day of the change. None: the earliest.
    pub from: Option<Day>,
    /// Whether nothing is to be changed.
    pub is_plan: bool,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellPlan {
    /// The store cells that are new.
    pub added: Vec<StoreCell>,
    /// The generations before.
    pub before: Vec<Generation>,
    /// The generation that begins. None: nothing changes.
    pub next: Option<Generation>,
}

/// Makes the listed databases store cells of the store, and has them share the uploads from a later
/// day on. It can be repeated after a failure.
///
/// Blocks; must not be called from asynchronous code.
///
/// # Errors
/// [`StoreError`]; no upload is counted elsewhere then.
pub fn grow_cells(
    settings: &PostgresSettings,
    change: &CellChange,
) -> Result<CellPlan, StoreError> {
    let mut link = PgConnection::new(Arc::new(Target::new(settings)?), Waits::CHANGES)?;
    let id = link.run_for_long(async |session| {
        let id = schema::prepare(session, Presence::Required).await?;
        super::refuse_cell(&session.client).await?;
        Ok(id)
    })?;
    grow_at(&mut link, settings, id, change)
}

/// As [`grow_cells`], over a connection to the home with this id.
pub(super) fn grow_at(
    home: &mut PgConnection,
    settings: &PostgresSettings,
    id: StoreId,
    change: &CellChange,
) -> Result<CellPlan, StoreError> {
    let listed = settings.cells.len();
    let known = home.read(async |client| records::records(client).await)?;
    if listed < known.cells.len() {
        return Err(CellsError::TooFew { listed, known: known.cells.len() }.into());
    }
    if listed > STORE_CELLS_MAX {
        return Err(CellsError::TooMany { listed }.into());
    }
    let all: Vec<StoreCell> = (0..listed).map(StoreCell::at).collect();
    if let Some(other) = change.without.iter().find(|cell| !all.contains(cell)) {
        return Err(CellsError::NoSuchCell { number: other.get(), listed }.into());
    }
    let is_in_use = |cell: &StoreCell| !change.without.contains(cell);
    let in_use: Vec<StoreCell> = all.iter().copied().filter(is_in_use).collect();
    if in_use.is_empty() {
        return Err(CellsError::NoneLeft.into());
    }
    let cells = &settings.cells;
    let twice = cells.iter().enumerate().find(|(place, url)| cells[..*place].contains(url));
    if let Some((place, url)) = twice {
        return Err(CellsError::Twice { number: StoreCell::at(place), url: url.to_string() }.into());
    }
    let mut added = Vec::new();
    for &number in &all {
        let cell = make(settings, (id, &known), number, change.is_plan)?;
        if !known.cells.contains_key(&number) {
            added.push((number, cell));
        }
    }
    let new: Vec<StoreCell> = added.iter().map(|(number, _)| *number).collect();
    let before = known.generations;
    if new.is_empty() && before.last().is_some_and(|last| last.cells == in_use) {
        return Ok(CellPlan { added: new, before, next: None });
    }
    let doing = "adding store cells";
    let next = home.run(doing, async |session| {
        let transaction = session.client.transaction().await.map_err(postgres(doing))?;
        let known = if change.is_plan { Vec::new() } else { identified(&added) };
        let next = records::add(&transaction, &known, (&in_use, change.from)).await?;
        if change.is_plan {
            transaction.rollback().await.map_err(postgres(doing))?;
        } else {
            transaction.commit().await.map_err(postgres(doing))?;
        }
        Ok(next)
    })?;
    if !change.is_plan {
        // Each of them knows of the change, so that a home that is set back is noticed.
        let known = home.read(async |client| records::records(client).await)?;
        for &number in &all {
            make(settings, (id, &known), number, false)?;
        }
    }
    Ok(CellPlan { added: new, before, next: Some(next) })
}

fn identified(added: &[(StoreCell, Option<StoreId>)]) -> Vec<(StoreCell, StoreId)> {
    added.iter().filter_map(|(number, id)| id.map(|id| (*number, id))).collect()
}

/// Makes a database the store cell with this number, unless it is, and returns its id. In a plan,
/// only looks at it.
fn make(
    settings: &PostgresSettings,
    (home, known): (StoreId, &HomeRecords),
    number: StoreCell,
    is_plan: bool,
) -> Result<Option<StoreId>, StoreError> {
    let settings = settings.of_cell(number);
    let url = || settings.url.to_string();
    let mut link = PgConnection::new(Arc::new(Target::new(&settings)?), Waits::CHANGES)?;
    let made = link.run_for_long(async |session| {
        let found = content(session).await?;
        let is_free = match found {
            Content::Nothing => true,
            // A new store, in which nothing was done yet.
            Content::Store { id, place: None } => {
                id != home && !records::is_used(&session.client).await?
            }
            Content::Foreign | Content::Store { place: Some(_), .. } => false,
        };
        if known.cells.contains_key(&number) || !is_free {
            check((number, url()), (home, known), found)?;
        }
        if is_plan {
            return Ok(None);
        }
        let id = schema::prepare(session, Presence::Optional).await?;
        records::keep_generations(&session.client, &known.generations, number).await?;
        if is_free {
            records::set_place(&session.client, CellPlace { home, number }).await?;
        }
        Ok(Some(id))
    });
    made.map_err(|error| match error {
        // It names the database.
        StoreError::Open(_) => error,
        error => DatabaseError::Cell { number, url: url(), source: Box::new(error) }.into(),
    })
}
