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
    let [others, held_out] =
        [false, true].map(|group| cells.of_group(tallies, group).into_iter().sum::<Tally>());
    let mean = |tally: &Tally| channel.debiased_mean(tally).map(|mean| estimand.from_unit(mean));
    let interval = |tally: &Tally| {
        let range = estimand.range();
        let unit = sequence.mean_through(channel, tally);
        estimand.interval_from_unit(unit).clamped(range.low(), range.high())
    };
    let [(own, of_own), (rest, of_rest)] =
        [&held_out, &others].map(|tally| (mean(tally), interval(tally)));
    Some(v1::Holdout {
        share: specification.measurement().holdout.share(),
        reports: held_out.reports(),
        reports_of_others: others.reports(),
        mean: own,
        mean_of_others: rest,
        earned: own.zip(rest).map(|(own, rest)| rest - own),
        low: of_rest.low() - of_own.high(),
        high: of_rest.high() - of_own.low(),
    })
}
