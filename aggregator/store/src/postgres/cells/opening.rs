//! Opening the store cells of a store: each database must be the cell that the home knows.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use arc_swap::ArcSwap;
use bandana_edge::explain::explain;
use bandana_shared::identity::{Day, StoreId};
use tokio_postgres::GenericClient;

use super::growing::{CellChange, grow_at};
use super::records::{self, CellPlace, HomeRecords};
use super::{OpenCell, StoreCells, mirror};
use crate::cells::{CellsError, Routes, Routing, STORE_CELLS_MAX, StoreCell};
use crate::postgres::connection::{PgConnection, Session, Target, Waits};
use crate::postgres::heartbeat::{Connectivity, Heartbeat};
use crate::postgres::{PostgresSettings, checksums, schema};
use crate::{OpenError, Presence, StoreError, postgres};

/// Store cells, and the heartbeats that must be started.
#[derive(Debug)]
pub struct OpenedCells {
    /// The store cells.
    pub cells: Arc<StoreCells>,
    /// The heartbeats of their connections.
    pub heartbeats: Vec<Heartbeat>,
}

/// The content of a database that is listed as a store cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// No tables.
    Nothing,
    /// Tables of something else.
    Foreign,
    /// A store or a store cell.
    Store { id: StoreId, place: Option<CellPlace> },
}

impl OpenedCells {
    /// Opens the cells that `settings` list, at the home `home` with the id `id`. With
    /// [`Presence::Optional`], an unused home gets its cells. A cell that does not answer is left for
    /// later; one that is another database is an error.
    ///
    /// # Errors
    /// [`StoreError`] when a cell is another database, or the settings do not fit what is stored.
    pub fn open(
        presence: Presence,
        settings: &PostgresSettings,
        (home, connectivity): (Arc<Target>, Option<Connectivity>),
        id: StoreId,
        today: Day,
    ) -> Result<Self, StoreError> {
        let mut link = PgConnection::new(Arc::clone(&home), Waits::FOLLOWING)?;
        let known = link.read(async |client| records::records(client).await)?;
        let is_new = presence != Presence::Required
            && known.cells.is_empty()
            && !settings.cells.is_empty()
            && !link.read(async |client| records::is_used(client).await)?;
        let known = if is_new {
            grow_at(&mut link, settings, id, &CellChange::default())?;
            link.read(async |client| records::records(client).await)?
        } else {
            known
        };
        agree(settings, &known)?;
        let routing = Arc::new(Routing::default());
        routing.set(if known.cells.is_empty() {
            Routes::new(known.generations.clone(), None)
        } else {
            link.route_until(today)?
        });
        let (mut cells, mut heartbeats) = (Vec::new(), Vec::new());
        for (&number, &expected) in &known.cells {
            let settings = settings.of_cell(number);
            let target = Arc::new(Target::new(&settings)?);
            let (heartbeat, connectivity) = Heartbeat::new(Arc::clone(&target))?;
            heartbeats.push(heartbeat.of_cell(number));
            cells.push(OpenCell {
                number,
                id: expected,
                settings,
                target,
                connectivity,
                counted: ArcSwap::default(),
                problem: Mutex::default(),
                commits: OnceLock::new(),
            });
        }
        let last_key = open_all(&cells, id, &known)?;
        link.run("skipping keys", async |s| mirror::skip_keys(&s.client, last_key).await)?;
        let cells = StoreCells { home, home_connectivity: connectivity, cells, routing };
        Ok(Self { cells: Arc::new(cells), heartbeats })
    }
}

/// Checks that the settings list as many cells as the home knows.
fn agree(settings: &PostgresSettings, known: &HomeRecords) -> Result<(), CellsError> {
    let (listed, known) = (settings.cells.len(), known.cells.len());
    if listed == 0 && known > 0 {
        return Err(CellsError::NotListed { known });
    }
    if listed < known {
        return Err(CellsError::TooFew { listed, known });
    }
    if listed > STORE_CELLS_MAX {
        return Err(CellsError::TooMany { listed });
    }
    match settings.cells.get(known) {
        Some(url) => {
            let (number, url) = (StoreCell::at(known), url.to_string());
            Err(CellsError::Unknown { number, url })
        }
        None => Ok(()),
    }
}

/// Opens all cells at once, and returns the highest key of an experiment in them.
fn open_all(cells: &[OpenCell], home: StoreId, known: &HomeRecords) -> Result<i64, StoreError> {
    let outcomes = thread::scope(|scope| {
        let opening = cells.iter().map(|cell| scope.spawn(move || open(cell, home, known)));
        let opening: Vec<_> = opening.collect();
        opening.into_iter().map(|opening| opening.join().ok()).collect::<Vec<_>>()
    });
    let mut last = 0;
    for (cell, outcome) in cells.iter().zip(outcomes) {
        match cell.note(outcome.unwrap_or(Ok(0))) {
            Ok(key) => last = last.max(key),
            Err(error) if is_fatal(&error) => return Err(error),
            Err(error) => {
                let error = explain(&error);
                tracing::error!(error, "a store cell is not open; the others are");
            }
        }
    }
    Ok(last)
}

/// Whether a cell is not what it should be, rather than out of order.
fn is_fatal(error: &StoreError) -> bool {
    let cause = std::error::Error::source(error);
    let cause = cause.and_then(|cause| cause.downcast_ref::<Box<StoreError>>());
    cause.is_some_and(|cause| matches!(**cause, StoreError::Open(_)))
}

/// Opens a cell, and returns the highest key of an experiment in it.
fn open(cell: &OpenCell, home: StoreId, known: &HomeRecords) -> Result<i64, StoreError> {
    let mut link = PgConnection::new(Arc::clone(&cell.target), Waits::UPLOADS)?;
    let last = link.run_for_long(async |session| {
        let content = content(session).await?;
        check((cell.number, cell.url()), (home, known), content)?;
        schema::prepare(session, Presence::Required).await?;
        checksums::check_at_start(session).await?;
        records::keep_generations(&session.client, &known.generations, cell.number).await?;
        mirror::last_key(&session.client).await
    });
    link.expect(cell.id);
    last
}

/// The content of a database, whatever its version.
pub(super) async fn content(session: &mut Session) -> Result<Content, StoreError> {
    let failed = postgres("reading");
    let exists = "SELECT to_regclass('store') IS NOT NULL,
        to_regclass('intact_store_cell_place') IS NOT NULL,
        EXISTS (SELECT FROM pg_class WHERE relnamespace = current_schema()::regnamespace
                AND relkind IN ('r', 'p', 'v', 'm', 'f'))";
    let row = session.client.query_one(exists, &[]).await.map_err(failed)?;
    if !row.get::<_, bool>(0) {
        return Ok(if row.get(2) { Content::Foreign } else { Content::Nothing });
    }
    let id = schema::id(&session.client).await?;
    let place = if row.get(1) { records::place(&session.client).await? } else { None };
    Ok(Content::Store { id, place })
}

/// Checks that a database is the store cell that the home knows by this number.
pub(super) fn check(
    (number, url): (StoreCell, String),
    (home, known): (StoreId, &HomeRecords),
    content: Content,
) -> Result<(), CellsError> {
    let (found, place) = match content {
        Content::Store { id, place } => (id, place),
        Content::Foreign => return Err(CellsError::Foreign { number, url }),
        Content::Nothing => return Err(CellsError::Empty { number, url }),
    };
    let expected = known.cells.get(&number).copied();
    match place {
        Some(place) if place.home != home => {
            Err(CellsError::OtherHome { number, url, home: place.home, expected: home })
        }
        Some(place) if place.number != number => {
            Err(CellsError::OtherNumber { number, url, found: place.number })
        }
        Some(_) => match expected {
            Some(expected) if expected != found => {
                Err(CellsError::Replaced { number, url, found, expected })
            }
            _ => Ok(()),
        },
        None if found == home => Err(CellsError::Home { number, url }),
        None => Err(CellsError::Store { number, url }),
    }
}

/// Refuses a database that is a store cell where a home is expected.
pub(in crate::postgres) async fn refuse_cell(
    client: &impl GenericClient,
) -> Result<(), StoreError> {
    match records::place(client).await? {
        Some(CellPlace { home, number }) => {
            Err(OpenError::from(CellsError::IsCell { number, home }).into())
        }
        None => Ok(()),
    }
}
