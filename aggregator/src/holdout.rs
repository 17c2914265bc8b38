//! The holdout: the installations that get arms evenly, beside those that get them by the policy.

use bandana_shared::estimate::Estimand;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1;

use crate::estimates::tally_estimate;

/// What learning has earned, from the tallies of the cells; `None` if nobody is held out or rewards
/// have no order.
///
/// The mean of each group has an interval that holds at all times with a probability of `1 - alpha /
/// 2`, so their difference has one with `1 - alpha`. Arms change with time and with each other's
/// reports; the intervals are for the mean over the assignments that were made, which needs neither
/// to stand still.
pub(crate) fn earned(
    specification: &Specification,
    tallies: &[Tally],
    alpha: ErrorLevel,
) -> Option<v1::Holdout> {
    let (cells, estimand) = (specification.cells(), specification.estimand());
    if !cells.has_holdout() || estimand == Estimand::Frequencies {
        return None;
    }
    let level = ErrorLevel::new(alpha.get() / 2.0).ok()?;
    let [others, held_out] =
        [false, true].map(|group| cells.of_group(tallies, group).into_iter().sum::<Tally>());
    let [own, rest] =
        [&held_out, &others].map(|tally| tally_estimate(specification, 0, level, tally));
    Some(v1::Holdout {
        share: specification.measurement().holdout.share(),
        reports: held_out.reports(),
        reports_of_others: others.reports(),
        mean: own.mean,
        mean_of_others: rest.mean,
        earned: own.mean.zip(rest.mean).map(|(own, rest)| rest - own),
        low: rest.interval.low() - own.interval.high(),
        high: rest.interval.high() - own.interval.low(),
    })
}
