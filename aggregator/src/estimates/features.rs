//! Scores of the arms for each feature of a private context.

use bandana_learners::contexts;
use bandana_shared::cells::Cells;
use bandana_shared::confidence::LogOddsMixture;
use bandana_shared::interval::Interval;
use bandana_shared::tally::Tally;

use super::ArmTable;

/// By how much a reward goes with a feature: the mean of `(2 r - 1) x`, with r the level of the reward, 0
/// to 1, and x = 1 where the feature is true, otherwise -1.
#[derive(Clone, Copy, Debug)]
pub struct FeatureScore {
    /// The number of reports.
    pub reports: u64,
    /// The debiased mean; `None` without reports.
    pub estimate: Option<f64>,
    /// An interval for it, within -1 to 1.
    pub interval: Interval,
    /// The score that devices choose by.
    pub score: f64,
}

impl ArmTable<'_> {
    /// For each feature of the private context the score of each arm.
    pub(super) fn features(self, cells: Cells) -> Vec<Vec<FeatureScore>> {
        let Self { serving, settings, snapshot, .. } = self;
        let counted = &snapshot.tallies;
        let channel = serving.specification.channel();
        let sequence = LogOddsMixture::new(settings.alpha);
        // The level of a product is 0 for -1 and 1 for 1.
        let product = |level: f64| 2.0 * level - 1.0;
        let context = serving.specification.private_context();
        let features = context.map_or(0, |one| one.features().len());
        let feature = |coordinate| {
            let score = |(arm, tally): (usize, &Tally)| FeatureScore {
                reports: tally.reports(),
                estimate: channel.debiased_mean(tally).map(product),
                interval: sequence.mean_through(channel, tally).clamped(0.0, 1.0).map(product),
                score: contexts::score(&serving.policy.weights, coordinate, arm),
            };
            let tallies = cells.of_coordinate(counted, coordinate);
            tallies.iter().enumerate().map(score).collect()
        };
        (1..=features).map(feature).collect()
    }
}
