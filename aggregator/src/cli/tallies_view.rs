//! Daily tallies, for analysis.

use bandana_shared::estimate::{debiased_mean, standard_error};
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1::DailyTally;

use super::columns::{Cells, Column};

/// The tallies of an experiment, and what they say of each day on its own.
///
/// `specification` must be as new as the tallies, so that it has all their arms.
pub(super) fn columns(
    specification: &Specification,
    tallies: &[DailyTally],
) -> anyhow::Result<Vec<Column>> {
    let estimand = specification.estimand();
    let floor = specification.floor();
    let checked = tallies.iter().map(|row| Tally::new(row.reports, row.ones));
    let checked: Vec<Tally> = checked.collect::<Result<_, _>>()?;
    let label = |row: &DailyTally| {
        let arm = specification.arms().get(usize::try_from(row.arm).ok()?)?;
        Some(arm.label().to_owned())
    };
    let estimate =
        |tally: &Tally| debiased_mean(floor, *tally).map(|mean| estimand.from_unit(mean));
    let error = |tally: &Tally| {
        standard_error(floor, *tally).map(|error| estimand.difference_from_unit(error))
    };
    let column = |name, cells| Column { name, cells };
    let id = specification.experiment_id().to_string();
    let of = |row: fn(&DailyTally) -> u64| tallies.iter().map(row).collect();
    Ok(vec![
        column("experiment_id", Cells::Text(vec![id; tallies.len()])),
        column("day", Cells::Days(tallies.iter().map(|row| Day::new(row.day)).collect())),
        column("arm", Cells::Places(tallies.iter().map(|row| row.arm).collect())),
        column(
            "label",
            Cells::Text(tallies.iter().map(|r| label(r).unwrap_or_default()).collect()),
        ),
        column("reports", Cells::Counts(of(|row| row.reports))),
        column("ones", Cells::Counts(of(|row| row.ones))),
        column("estimate", Cells::Estimates(checked.iter().map(estimate).collect())),
        column("standard_error", Cells::Estimates(checked.iter().map(error).collect())),
    ])
}
