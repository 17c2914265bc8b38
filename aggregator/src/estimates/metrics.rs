//! Estimates of the metrics beside the rewards, and the arms that do harm by them.

use bandana_learners::harm::harmful;
use bandana_shared::cells::{Cells, Metric};

use super::{ArmEstimate, ArmTable};
use crate::registry::shares;

/// A metric beside the rewards, in all segments.
#[derive(Clone, Debug)]
pub struct MetricEstimates {
    /// The metric as it is specified.
    pub metric: Metric,
    /// Its estimate for each arm.
    pub arms: Vec<ArmEstimate>,
    /// The arms that get no traffic since their mean is certainly beyond the limit.
    pub harmful_arms: Vec<usize>,
}

impl ArmTable<'_> {
    /// The metrics beside the rewards, in the order of the specification.
    pub(super) fn metrics(self, cells: Cells) -> Vec<MetricEstimates> {
        let specification = &*self.serving.specification;
        let shares = shares(&self.serving.policy.weights);
        let estimates = |(number, metric): (usize, &Metric)| {
            let harms = harmful(specification, self.initial, self.snapshot, number);
            let strata = self.snapshot.strata(specification, number, |_| true);
            let tallies = cells.of_arms(&self.snapshot.tallies, number, None);
            MetricEstimates {
                metric: metric.clone(),
                arms: self.arms(number, &shares, (&tallies, &strata)),
                harmful_arms: (0..harms.len()).filter(|arm| harms[*arm]).collect(),
            }
        };
        (1..).zip(&specification.measurement().metrics).map(estimates).collect()
    }
}
