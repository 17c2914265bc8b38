//! `bandana cells`.

use bandana_edge::explain::explain;
use bandana_shared::identity::Day;
use bandana_store::{
    CellChange, CellPlan, CellReport, Generation, PostgresSettings, StoreCell, StoreError,
    check_cells, grow_cells,
};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::failure::{UNREACHABLE, code_of_store};
use super::store_source::{Found, StoreSource};
use super::{say, say_json};
use crate::views::date::{date_of, day_of};
use crate::views::failure::Failure;

/// Show, check and change the store cells of a store.
///
/// Store cells are databases that share the uploads of a store. The store that `url` names, its home,
/// keeps everything else. An upload's id says which store cell it belongs to. Servers may run
/// meanwhile.
#[derive(Debug, Subcommand)]
pub(super) enum CellsCommand {
    /// Show the store cells, and from which day on which of them share uploads.
    ///
    /// With --json: {"store", "cells": [{"cell", "url", "id", "problem"}], "generations": [{"from",
    /// "cells"}]}, each day a date by UTC. "url" is null for a store cell that is not listed.
    Show(Cells),
    /// Check that each listed database is the store cell that it should be.
    ///
    /// It fails with exit code 6 if one is not, and with 5 if one does not answer. With --json, it prints what `show` prints.
    Check(Cells),
    /// Show what `grow` would do.
    ///
    /// With --json: {"new", "from", "cells"}; "from" is null if nothing changes.
    Plan(Change),
    /// Have the listed databases share the uploads, from a later day on.
    ///
    /// Databases that are not store cells yet must be empty. The change begins on a day that no server
    /// has taken uploads of: the day after tomorrow, or later. Ids of earlier days stay where they
    /// are, so nothing is moved, and nothing counts twice. Restart all servers with the same list
    /// before the change begins. With --json, it prints what `plan` prints.
    Grow(Change),
}

/// Which store.
#[derive(Debug, Args)]
pub(super) struct Cells {
    #[command(flatten)]
    store: StoreSource,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

/// A change of the store cells that share uploads.
#[derive(Debug, Args)]
pub(super) struct Change {
    #[command(flatten)]
    cells: Cells,
    /// A store cell that gets no new uploads any more, by its number. Its database stays in the list,
    /// since it has the counts so far. Can be repeated.
    #[arg(long, value_name = "NUMBER", value_parser = cell)]
    without: Vec<StoreCell>,
    /// The first day of the change, by UTC, such as 2026-03-01. Without it, the earliest.
    #[arg(long, value_name = "DATE", value_parser = day_of)]
    from: Option<Day>,
}

#[derive(Debug, Serialize)]
struct CellsView {
    store: String,
    cells: Vec<CellView>,
    generations: Vec<GenerationView>,
}

#[derive(Debug, Serialize)]
struct CellView {
    cell: u32,
    url: Option<String>,
    id: Option<String>,
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct GenerationView {
    from: String,
    cells: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct PlanView {
    new: Vec<u32>,
    from: Option<String>,
    cells: Vec<u32>,
}

pub(super) fn run(command: &CellsCommand) -> anyhow::Result<()> {
    match command {
        CellsCommand::Show(cells) => show(cells).map(drop),
        CellsCommand::Check(cells) => {
            let (wrong, errors): (Vec<u32>, Vec<StoreError>) = show(cells)?.into_iter().unzip();
            let said = format!("{} can't be used", cells_named(&wrong));
            let is_down = |error: &StoreError| code_of_store(error) == UNREACHABLE;
            match errors
                .into_iter()
                .reduce(|first, next| if is_down(&first) { next } else { first })
            {
                None => Ok(()),
                Some(error) if is_down(&error) => Err(anyhow::Error::from(error).context(said)),
                Some(_) => Err(Failure::Damaged(said).into()),
            }
        }
        CellsCommand::Plan(change) => grow(change, true),
        CellsCommand::Grow(change) => grow(change, false),
    }
}

fn cell(text: &str) -> Result<StoreCell, String> {
    let cell = text.parse().ok().and_then(StoreCell::new);
    cell.ok_or_else(|| "the number of a store cell is 1 or more".to_owned())
}

fn database(cells: &Cells) -> anyhow::Result<PostgresSettings> {
    match cells.store.find()? {
        Found::Database(settings) => Ok(settings),
        Found::Directory(directory) => Err(Failure::Refused(format!(
            "{} is a directory, and only a store in PostgreSQL has store cells; name its home with \
             --store, and its store cells with --store-cells",
            directory.display()
        ))
        .into()),
    }
}

/// Shows the store cells, and returns those that can't be used.
fn show(cells: &Cells) -> anyhow::Result<Vec<(u32, StoreError)>> {
    let CellReport { store, generations, cells: found } = check_cells(&database(cells)?)?;
    let view = CellsView {
        store: store.to_string(),
        cells: found
            .iter()
            .map(|(cell, url, checked)| CellView {
                cell: cell.get(),
                url: url.clone(),
                id: checked.as_ref().ok().map(ToString::to_string),
                problem: checked.as_ref().err().map(|error| explain(error)),
            })
            .collect(),
        generations: generations.iter().map(generation).collect(),
    };
    if cells.json {
        say_json(&view)?;
    } else {
        say(&view.describe())?;
    }
    Ok(found
        .into_iter()
        .filter_map(|(cell, _, checked)| Some((cell.get(), checked.err()?)))
        .collect())
}

fn grow(change: &Change, is_plan: bool) -> anyhow::Result<()> {
    let settings = database(&change.cells)?;
    let wanted = CellChange { without: change.without.clone(), from: change.from, is_plan };
    let CellPlan { added, next, before } = grow_cells(&settings, &wanted)?;
    let view = PlanView {
        new: numbers(&added),
        from: next.as_ref().map(|next| date_of(next.from)),
        cells: next.as_ref().or(before.last()).map(|one| numbers(&one.cells)).unwrap_or_default(),
    };
    if change.cells.json {
        return say_json(&view);
    }
    say(&format!("store {}\n{}", settings.url, view.describe(is_plan)))
}

fn generation(generation: &Generation) -> GenerationView {
    GenerationView { from: date_of(generation.from), cells: numbers(&generation.cells) }
}

fn numbers(cells: &[StoreCell]) -> Vec<u32> {
    cells.iter().map(|cell| cell.get()).collect()
}

/// Such as "store cells 1, 2".
fn cells_named(numbers: &[u32]) -> String {
    let list: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("store cell{} {}", if numbers.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// What store cells do with uploads, or would do.
fn get_uploads(cells: &[u32], is_plan: bool) -> &'static str {
    match (cells, is_plan) {
        ([_], false) => "takes all uploads",
        ([_], true) => "would take all uploads",
        (_, false) => "share the uploads",
        (_, true) => "would share the uploads",
    }
}

impl CellsView {
    fn describe(&self) -> String {
        let mut lines = vec![format!("store {}", self.store)];
        for CellView { cell, url, problem, .. } in &self.cells {
            let state = problem.as_deref().unwrap_or("in order");
            let url = url.as_deref().unwrap_or("not listed");
            lines.push(format!("store cell {cell}, {url}: {state}"));
        }
        for GenerationView { from, cells } in &self.generations {
            lines.push(format!("uploads from {from} on: {}", cells_named(cells)));
        }
        if self.generations.is_empty() {
            lines.push("all uploads are at home".to_owned());
        }
        lines.join("\n") + "\n"
    }
}

impl PlanView {
    fn describe(&self, is_plan: bool) -> String {
        let Some(from) = &self.from else {
            let cells = cells_named(&self.cells);
            return format!("nothing changes: {cells} {}\n", get_uploads(&self.cells, false));
        };
        let are = match &self.new[..] {
            _ if is_plan => "would be",
            [_] => "is",
            _ => "are",
        };
        let new = match &self.new[..] {
            [] => String::new(),
            new => format!("{} {are} new\n", cells_named(new)),
        };
        let restart = if is_plan || from == "1970-01-01" {
            ""
        } else {
            "restart all servers with this list before that day\n"
        };
        let cells = cells_named(&self.cells);
        let get = get_uploads(&self.cells, is_plan);
        format!("{new}{cells} {get} from {from} on\n{restart}")
    }
}
