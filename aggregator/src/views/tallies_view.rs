//! Daily tallies, for analysis.

use anyhow::{Context as _, ensure};
use bandana_shared::cells::Cell;
use bandana_shared::channel::Channel;
use bandana_shared::estimate::Estimand;
use bandana_shared::identity::{CellIndex, Day};
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1::DailyTally;

use super::columns::{Cells, Column};

/// The tallies of an experiment, with separate estimates for each day.
///
/// `specification` must be as new as the tallies, so that it has all their arms.
pub(crate) fn columns(
    specification: &Specification,
    tallies: &[DailyTally],
) -> anyhow::Result<Vec<Column>> {
    let estimand = specification.estimand();
    let channel = specification.channel();
    let (checked, cells): (Vec<Tally>, Vec<Cell>) =
        checked(specification, tallies)?.into_iter().map(|(_, cell, tally)| (tally, cell)).unzip();
    let label = |cell: &Cell| specification.arms()[cell.arm.get()].label().to_owned();
    // Categories have no mean.
    let of = |number: Option<f64>| number.filter(|_| estimand != Estimand::Frequencies);
    let estimate = |(tally, cell): (&Tally, &Cell)| {
        let estimand = specification.estimand_of(cell.metric);
        of(channel.debiased_mean(tally)).map(|mean| estimand.from_unit(mean))
    };
    let error = |(tally, cell): (&Tally, &Cell)| {
        let estimand = specification.estimand_of(cell.metric);
        of(channel.standard_error(tally)).map(|error| estimand.difference_from_unit(error))
    };
    let with_cells = || checked.iter().zip(&cells);
    let column = |name: &str, cells| Column { name: name.to_owned(), cells };
    let id = specification.experiment_id().to_string();
    let of = |row: fn(&DailyTally) -> u64| tallies.iter().map(row).collect();
    let mut columns = vec![
        column("experiment_id", Cells::Text(vec![id; tallies.len()])),
        column("day", Cells::Days(tallies.iter().map(|row| Day::new(row.day)).collect())),
        column("arm", Cells::Places(cells.iter().map(|cell| cell.arm.to_u32()).collect())),
        column("label", Cells::Text(cells.iter().map(label).collect())),
        column("reports", Cells::Counts(of(|row| row.reports))),
        column("ones", Cells::Counts(of(|row| row.ones))),
        column("estimate", Cells::Estimates(with_cells().map(estimate).collect())),
        column("standard_error", Cells::Estimates(with_cells().map(error).collect())),
    ];
    // Experiments that measure the rewards only have the columns that they always had.
    let segmentations = &specification.measurement().segmentations;
    if !segmentations.is_empty() {
        let label = |cell: &Cell| segmentations.label(cell.segment);
        columns.push(column("segment", Cells::Text(cells.iter().map(label).collect())));
    }
    if specification.cells().has_holdout() {
        let flags = cells.iter().map(|cell| cell.is_held_out).collect();
        columns.push(column("held_out", Cells::Flags(flags)));
    }
    if !specification.measurement().metrics.is_empty() {
        let name = |cell: &Cell| {
            specification.metric(cell.metric).map_or("rewards", |metric| metric.name()).to_owned()
        };
        columns.push(column("metric", Cells::Text(cells.iter().map(name).collect())));
    }
    if let Some(context) = specification.private_context() {
        let name = |cell: &Cell| match cell.coordinate.checked_sub(1) {
            None => "rewards".to_owned(),
            Some(feature) => context.features()[feature].name().to_owned(),
        };
        columns.push(column("feature", Cells::Text(cells.iter().map(name).collect())));
    }
    if let Channel::Kary(channel) = channel {
        for symbol in channel.alphabet().symbols() {
            let counts = checked.iter().map(|tally| tally.count(symbol)).collect();
            columns.push(column(&format!("symbol_{}", symbol.get()), Cells::Counts(counts)));
        }
    }
    Ok(columns)
}

/// Validated rows, each with its cell and tally.
pub(super) fn checked<'a>(
    specification: &Specification,
    tallies: &'a [DailyTally],
) -> anyhow::Result<Vec<(&'a DailyTally, Cell, Tally)>> {
    let (cells, channel) = (specification.cells(), specification.channel());
    let of_row = |row: &DailyTally| {
        let index = CellIndex::new(usize::try_from(row.arm).ok()?).ok()?;
        cells.cell(index)
    };
    let with_cell = |row: &'a DailyTally| {
        let cell = of_row(row).context(
            "the server sent a tally of a cell that the specification lacks; update the program",
        )?;
        Ok((row, cell, tally(row, channel)?))
    };
    tallies.iter().map(with_cell).collect()
}

/// A validated tally from a server's message.
fn tally(row: &DailyTally, channel: Channel) -> anyhow::Result<Tally> {
    let Channel::Kary(channel) = channel else { return Ok(Tally::new(row.reports, row.ones)?) };
    let symbols = channel.alphabet().symbols();
    ensure!(
        row.symbols.len() == symbols.len() && row.symbols.iter().sum::<u64>() == row.reports,
        "the server sent a tally that does not add up"
    );
    Ok(Tally::with_symbols(row.reports, symbols.zip(row.symbols.iter().copied()))?)
}
