//! The holdout: the installations that get arms evenly, beside those that get them by the policy.

use bandana_shared::confidence::NormalMixture;
use bandana_shared::estimate::Estimand;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1;

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
    let channel = specification.channel();
    let sequence = NormalMixture::new(ErrorLevel::new(alpha.get() / 2.0).ok()?);
    let range = estimand.range();
    let of_group = |group: bool| {
        let tally: Tally = cells.of_group(tallies, group).into_iter().sum();
        let interval = estimand.interval_from_unit(sequence.mean_through(channel, &tally));
        let mean = channel.debiased_mean(&tally).map(|mean| estimand.from_unit(mean));
        (tally.reports(), mean, interval.clamped(range.low(), range.high()))
    };
    let (reports, own, interval) = of_group(true);
    let (reports_of_others, rest, of_others) = of_group(false);
    Some(v1::Holdout {
        share: specification.measurement().holdout.share(),
        reports,
        reports_of_others,
        mean: own,
        mean_of_others: rest,
        earned: own.zip(rest).map(|(own, rest)| rest - own),
        low: of_others.low() - interval.high(),
        high: of_others.high() - interval.low(),
    })
}
