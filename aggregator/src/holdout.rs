//! The holdout: the installations that get arms evenly, beside those that get them by the policy.

use bandana_learners::TallySnapshot;
use bandana_shared::confidence::{Comparison, Difference};
use bandana_shared::estimate::Estimand;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1;

use crate::lifts::difference_in_units;

/// What learning has earned, from the tallies of the cells; `None` if nobody is held out or rewards
/// have no order.
///
/// The two groups are compared as two arms are: over the strata of the users. Arms change with time and
/// with each other's reports; the interval is for the means over the assignments that were made, which
/// needs neither to stand still.
///
/// What arms cost, scaled as the reports are, is known of each group, and taken from what is earned: who is
/// held out does not depend on the stratum.
pub(crate) fn earned(
    specification: &Specification,
    (snapshot, costs): (&TallySnapshot, &[f64]),
    alpha: ErrorLevel,
) -> Option<v1::Holdout> {
    let (cells, estimand) = (specification.cells(), specification.estimand());
    if !cells.has_holdout() || estimand == Estimand::Frequencies {
        return None;
    }
    let channel = specification.channel();
    let of_group = |group: bool| {
        let tally: Tally = cells.of_group(&snapshot.tallies, group).into_iter().sum();
        let mean = channel.debiased_mean(&tally).map(|mean| estimand.from_unit(mean));
        (tally.reports(), mean)
    };
    let ((reports, own), (reports_of_others, rest)) = (of_group(true), of_group(false));
    // Group 0 are the others. One pair has the whole level.
    let strata = snapshot.strata_of_groups(specification);
    let comparison =
        Comparison { strata: &strata, active: &[true; 2], initial: 2, alpha, costs: &[] };
    let found: Option<Difference> = comparison.differences_from(1, None).pop();
    let widest = estimand.range().high() - estimand.range().low();
    let cost = |group: bool| {
        let tallies = cells.of_group(&snapshot.tallies, group);
        let reports: f64 = tallies.iter().map(|tally| tally.reports() as f64).sum();
        let spent = tallies.iter().zip(costs).map(|(tally, cost)| tally.reports() as f64 * cost);
        spent.sum::<f64>() / reports.max(1.0)
    };
    let dearer = cost(false) - cost(true);
    let in_units = |scaled: f64| difference_in_units((channel, estimand), scaled - dearer, dearer);
    Some(v1::Holdout {
        share: specification.measurement().holdout.share(),
        reports,
        reports_of_others,
        mean: own,
        mean_of_others: rest,
        earned: found.map(|found| in_units(found.difference)),
        low: found.map_or(-widest, |found| in_units(found.interval.low())),
        high: found.map_or(widest, |found| in_units(found.interval.high())),
    })
}
