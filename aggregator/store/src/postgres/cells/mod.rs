//! The store cells of a store in PostgreSQL, as a replica uses them.
//!
//! A store cell is a database with the tables of a store. It has the ids, the window and the
//! tallies of its share of the uploads, and a copy of the states of experiments. Everything else is
//! at home.

mod checking;
mod growing;
mod mirror;
mod opening;
mod records;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bandana_edge::explain::explain;
use bandana_shared::identity::{Day, StoreId};
use tokio::sync::watch;

pub use checking::{CellReport, check_cells};
pub(super) use checking::{verify_cells, verify_shares};
pub use growing::{CellChange, CellPlan, grow_cells};
use mirror::copy_states;
pub use opening::OpenedCells;
pub(super) use opening::refuse_cell;
pub(super) use records::{generations, route_until};

use super::connection::{PgConnection, Target, Waits};
use super::heartbeat::Connectivity;
use super::records::{Tallies, add, states};
use super::snapshot::{Settled, begin, counts};
use super::{PostgresSettings, PostgresStore};
use crate::cells::{Routing, StoreCell};
use crate::{DatabaseError, ExperimentKey, ExperimentState, Outcome, StoreError, postgres};

/// The store cells of an open store. Without cells, the list is empty.
#[derive(Debug)]
pub struct StoreCells {
    home: Arc<Target>,
    home_connectivity: Option<Connectivity>,
    cells: Vec<OpenCell>,
    routing: Arc<Routing>,
}

/// One store cell.
#[derive(Debug)]
pub struct OpenCell {
    number: StoreCell,
    id: StoreId,
    settings: PostgresSettings,
    target: Arc<Target>,
    connectivity: Connectivity,
    /// The tallies that were last read.
    counted: ArcSwap<Tallies>,
    /// The reason why the cell can't be used although it answers.
    problem: Mutex<Option<String>>,
    /// Whether uploads can be committed, as their writer knows.
    commits: OnceLock<watch::Receiver<bool>>,
}

/// What a poll of a store cell finds.
#[derive(Debug)]
pub struct CellNews {
    /// The tallies of the cell.
    pub tallies: Tallies,
    /// The cell's copy of the states of experiments; none for deleted ones.
    pub states: Vec<(ExperimentKey, Option<ExperimentState>)>,
}

/// The part of a store that is behind a [`PostgresStore`].
#[derive(Debug, Default)]
pub(super) enum Part {
    /// All of it.
    #[default]
    Whole,
    /// The home of store cells, and connections to tell them about changes.
    Home(Arc<StoreCells>, Vec<PgConnection>),
    /// A store cell, and the session since whose beginning it was told about the home's changes; 0
    /// for no session.
    Cell(Arc<StoreCells>, StoreCell, u64),
}

impl StoreCells {
    /// The routes of uploads.
    pub fn routing(&self) -> &Arc<Routing> {
        &self.routing
    }

    /// The store cells, in the order of their numbers.
    pub fn all(&self) -> &[OpenCell] {
        &self.cells
    }

    /// The store cells, each with what keeps uploads from being counted there, if anything does.
    pub fn problems(&self) -> Vec<(StoreCell, Option<String>)> {
        let routes = self.routing.get();
        let lost = routes.lost().map(|day| {
            format!("the home was set back to before the change of store cells on day {day}")
        });
        let of = |cell: &OpenCell| (cell.number, cell.problem().or_else(|| lost.clone()));
        let mut all: Vec<_> = self.cells.iter().map(of).collect();
        let last = routes.generations().iter().flat_map(|generation| &generation.cells).max();
        let unlisted =
            (self.cells.len()..last.map_or(0, |last| last.index() + 1)).map(StoreCell::at);
        let problem = "this server does not list it; add it to `cells` of [store], and restart";
        all.extend(unlisted.map(|number| (number, Some(problem.to_owned()))));
        all
    }

    /// The tallies of all store cells, as last read.
    pub fn counted(&self) -> Tallies {
        let mut sums = Tallies::new();
        for cell in &self.cells {
            add(&mut sums, &cell.counted.load());
        }
        sums
    }

    /// A connection to the home, for a short time.
    fn home(&self) -> Result<PgConnection, StoreError> {
        let link = PgConnection::new(Arc::clone(&self.home), Waits::FOLLOWING)?;
        Ok(link.with_connectivity(self.home_connectivity.clone()))
    }

    /// Copies the states of experiments from the home to a cell.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn tell(&self, cell: &OpenCell, link: &mut PgConnection) -> Result<(), StoreError> {
        copy_states(cell.number, &mut self.home()?, link)
    }
}

impl OpenCell {
    /// The cell's number.
    pub fn number(&self) -> StoreCell {
        self.number
    }

    /// The cell's database, without its password.
    pub(crate) fn url(&self) -> String {
        self.settings.url.to_string()
    }

    /// A connection to the cell.
    ///
    /// # Errors
    /// [`StoreError::Open`] when its runtime can't start.
    pub fn link(&self, waits: Waits) -> Result<PgConnection, StoreError> {
        let link = PgConnection::new(Arc::clone(&self.target), waits)?;
        Ok(link.with_connectivity(Some(self.connectivity.clone())))
    }

    /// Whether the cell answers, as far as is known.
    pub fn answers(&self) -> bool {
        !self.connectivity.is_lost()
    }

    /// The reason why no upload can be counted in the cell, if there is one.
    fn problem(&self) -> Option<String> {
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let commits = self.commits.get().is_none_or(|commits| *commits.borrow());
        let silence = (!self.answers()).then_some("its database does not answer");
        let refusal = (!commits).then_some("its database refuses to commit uploads");
        problem.or_else(|| silence.or(refusal).map(str::to_owned))
    }

    /// Learns from the writer of the cell's uploads whether they can be committed.
    pub fn commits_by(&self, commits: watch::Receiver<bool>) {
        self.commits.get_or_init(|| commits);
    }

    /// Records the outcome of work in the cell, and wraps an error so that it names the cell.
    ///
    /// # Errors
    /// That of `outcome`, with the name of the cell.
    pub fn note<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let problem = match &outcome {
            Ok(_) => None,
            Err(error) if is_lasting(error) => Some(explain(error)),
            Err(_) => return outcome.map_err(|error| self.named(error)),
        };
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
        outcome.map_err(|error| self.named(error))
    }

    fn named(&self, error: StoreError) -> StoreError {
        let (number, url) = (self.number, self.url());
        DatabaseError::Cell { number, url, source: Box::new(error) }.into()
    }

    /// Keeps tallies that were read, until the next ones.
    pub fn keep(&self, tallies: Tallies) {
        self.counted.store(Arc::new(tallies));
    }

    /// A store for uploads of this cell.
    ///
    /// # Errors
    /// [`StoreError::Open`] when its runtime can't start.
    pub fn store(&self, cells: &Arc<StoreCells>) -> Result<PostgresStore, StoreError> {
        let (settings, target) = (&self.settings, Arc::clone(&self.target));
        let connectivity = Some(self.connectivity.clone());
        let mut store =
            PostgresStore::beside(self.id, settings, target, Waits::UPLOADS, connectivity)?;
        store.part = Part::Cell(Arc::clone(cells), self.number, 0);
        Ok(store)
    }
}

/// Whether an error lasts until somebody sees to it.
fn is_lasting(error: &StoreError) -> bool {
    let is_other = matches!(error, StoreError::Database(DatabaseError::OtherStore { .. }));
    is_other || error.outcome() == Outcome::Fatal
}

impl PgConnection {
    /// The tallies of a store cell, and its copy of the states of experiments, as of one moment.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn cell_news(&mut self, settled: &mut Settled) -> Result<CellNews, StoreError> {
        let (fresh, expected) = (!self.is_open(), self.expected());
        self.run("reading", async |session| {
            if fresh {
                super::schema::check(session).await?;
            }
            let transaction = begin(session).await?;
            let tallies = counts(&transaction, expected, settled).await?;
            let states = states(&transaction).await?;
            transaction.commit().await.map_err(postgres("reading"))?;
            Ok(CellNews { tallies, states })
        })
    }
}

/// What differs for the home of store cells, and for a store cell.
impl PostgresStore {
    /// This store as the home of store cells.
    #[must_use]
    pub fn into_home(mut self, cells: &Arc<StoreCells>) -> Self {
        self.part = Part::Home(Arc::clone(cells), Vec::new());
        self
    }

    /// The day by which uploads are judged: no day whose routes may still change.
    pub(super) fn routed(&self, today: Day) -> Day {
        let (Part::Home(cells, _) | Part::Cell(cells, ..)) = &self.part else { return today };
        cells.routing.get().until().map_or(today, |until| until.min(today))
    }

    /// The tallies that are not in this database.
    pub(super) fn elsewhere(&self) -> Tallies {
        match &self.part {
            Part::Home(cells, _) => cells.counted(),
            Part::Whole | Part::Cell(..) => Tallies::new(),
        }
    }

    /// The session since whose beginning a cell was told about the home's changes, 0 for no session;
    /// none for a store that is no cell.
    pub(super) fn told(&self) -> Option<u64> {
        match &self.part {
            Part::Cell(_, _, told) => Some(*told),
            Part::Whole | Part::Home(..) => None,
        }
    }

    /// Tells a cell about the home's changes. The session is open from before they are read, so no
    /// change that was answered earlier is missing.
    pub(super) fn be_told(&mut self) -> Result<(), StoreError> {
        let Part::Cell(cells, number, told) = &mut self.part else { return Ok(()) };
        let Some(cell) = cells.cells.get(number.index()) else { return Ok(()) };
        let session = self.link.run("connecting", async |session| Ok(session.number))?;
        cells.tell(cell, &mut self.link)?;
        *told = session;
        Ok(())
    }

    /// Tells the cells about a change at home. One that can't be reached is told before anything is
    /// counted there over another connection.
    pub(super) fn tell_cells(&mut self) {
        let Part::Home(cells, links) = &mut self.part else { return };
        for (index, cell) in cells.cells.iter().enumerate() {
            if links.len() <= index {
                match cell.link(Waits::CHANGES) {
                    Ok(link) => links.push(link),
                    Err(error) => {
                        tracing::error!(error = explain(&error), "a store cell was not told");
                        return;
                    }
                }
            }
            let told = copy_states(cell.number, &mut self.link, &mut links[index]);
            if let Err(error) = told {
                let error = explain(&error);
                tracing::error!(
                    cell = %cell.number, error,
                    "a store cell was not told about a change; it is told when it answers"
                );
            }
        }
    }

    /// Moves the replay window of a cell, which may get no uploads. A failure leaves it for later.
    pub(super) fn look(&mut self, today: Day) {
        if !matches!(self.part, Part::Cell(..)) {
            return;
        }
        let moved = self.prepare(self.routed(today));
        if let Err(error) = self.noted(moved) {
            let error = explain(&error);
            tracing::warn!(error, "the replay window of a store cell was not moved");
        }
    }

    /// Notes the outcome of a commit in a cell.
    pub(super) fn noted<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        match &self.part {
            Part::Cell(cells, number, _) => match cells.cells.get(number.index()) {
                Some(cell) => cell.note(outcome),
                None => outcome,
            },
            Part::Whole | Part::Home(..) => outcome,
        }
    }
}
