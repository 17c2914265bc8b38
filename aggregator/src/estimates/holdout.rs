//! The holdout: the installations that get arms evenly, beside those that get them by the policy.

use bandana_shared::confidence::{Comparison, Difference};
use bandana_shared::estimate::Estimand;
use bandana_shared::interval::Interval;
use bandana_shared::tally::Tally;

use super::ArmTable;
use super::lifts::difference_in_units;

/// What learning has earned: the mean reward of the installations that get arms by the policy, less that
/// of those that are held out.
#[derive(Clone, Copy, Debug)]
pub struct Holdout {
    /// The share of the installations that are held out, 0 to 1.
    pub share: f64,
    /// The reports of those that are held out.
    pub reports: u64,
    /// The reports of the others.
    pub reports_of_others: u64,
    /// The mean of those that are held out; `None` without reports.
    pub mean: Option<f64>,
    /// The mean of the others; `None` without reports.
    pub mean_of_others: Option<f64>,
    /// The difference of the means, less what the arms of each cost; `None` if one has no reports.
    pub earned: Option<f64>,
    /// An interval for the difference.
    pub interval: Interval,
}

impl ArmTable<'_> {
    /// What learning has earned, from the tallies of the cells; `None` if nobody is held out or rewards
    /// have no order.
    ///
    /// The two groups are compared as two arms are: over the strata of the users. Arms change with time
    /// and with each other's reports; the interval is for the means over the assignments that were made,
    /// which needs neither to stand still.
    ///
    /// What arms cost, scaled as the reports are, is known of each group, and taken from what is earned:
    /// who is held out does not depend on the stratum.
    pub(super) fn holdout(self) -> Option<Holdout> {
        let Self { snapshot, costs, .. } = self;
        let (specification, alpha) = (&*self.serving.specification, self.settings.alpha);
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
        let ((reports, mean), (reports_of_others, mean_of_others)) =
            (of_group(true), of_group(false));
        // Group 0 are the others. One pair has the whole level.
        let strata = &snapshot.strata_of_groups(specification);
        let comparison = Comparison { strata, active: &[true; 2], initial: 2, alpha, costs: &[] };
        let found: Option<Difference> = comparison.differences_from(1, None).pop();
        let widest = estimand.range().high() - estimand.range().low();
        let cost = |group: bool| {
            let tallies = cells.of_group(&snapshot.tallies, group);
            let reports: f64 = tallies.iter().map(|tally| tally.reports() as f64).sum();
            let spent =
                tallies.iter().zip(costs).map(|(tally, cost)| tally.reports() as f64 * cost);
            spent.sum::<f64>() / reports.max(1.0)
        };
        let dearer = cost(false) - cost(true);
        let in_units =
            |scaled: f64| difference_in_units((channel, estimand), scaled - dearer, dearer);
        let range = Interval::between(-widest, widest);
        Some(Holdout {
            share: specification.measurement().holdout.share(),
            reports,
            reports_of_others,
            mean,
            mean_of_others,
            earned: found.map(|found| in_units(found.difference)),
            interval: found.map_or(range, |found| found.interval.map(in_units)),
        })
    }
}
