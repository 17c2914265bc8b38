//! Estimates of the arms from the committed reports, and all that is told beside them.
//!
//! Intervals of rewards and metrics hold at all times at once. Where nothing else is said, numbers are
//! in the units of the estimand, and arms are indices into those of the specification.

mod arms;
mod central;
mod features;
mod holdout;
mod lifts;
mod metrics;
mod segments;
mod verdict;

use std::sync::Arc;

use bandana_learners::TallySnapshot;
use bandana_learners::harm::allowed;
use bandana_shared::confidence::Difference;
use bandana_shared::estimate::manipulation_gain;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::tally::Tally;

use crate::alarms::Alarm;
use crate::registry::{Experiment, PublishedExperiment, shares};

pub(crate) use arms::arm_mean;
pub use arms::{ArmEstimate, ArmMean, SymbolEstimate};
pub use central::CentralLoss;
pub(crate) use central::central_loss;
pub use features::FeatureScore;
pub use holdout::Holdout;
pub use metrics::MetricEstimates;
pub use segments::SegmentEstimates;
pub use verdict::ArmVerdict;

/// Settings of estimates, beside those of the experiment.
#[derive(Clone, Copy, Debug)]
pub struct EstimatesSettings {
    /// The error level of the intervals.
    pub alpha: ErrorLevel,
    /// The assumed share of dishonest reports, 0 to 1.
    pub dishonest_share: f64,
    /// The arm that others are compared with; `None` for that of the record.
    pub control_arm: Option<u32>,
}

/// Estimates of every arm, with all that is told beside them.
#[derive(Clone, Debug)]
pub struct Estimates {
    /// What devices are served: the specification that these are estimates of, and the policy.
    pub serving: Arc<PublishedExperiment>,
    /// The error level of the intervals.
    pub alpha: ErrorLevel,
    /// The number of reports, those of metrics included.
    pub reports: u64,
    /// How far one dishonest report can move a debiased sum.
    pub manipulation_gain: f64,
    /// The rewards of each arm over all users.
    pub arms: Vec<ArmEstimate>,
    /// Which arm is best over all users.
    pub verdict: ArmVerdict,
    /// The arm that the others are compared with.
    pub control_arm: u32,
    /// The lift of each other arm in play that has reports, over the control arm.
    pub lifts: Vec<Difference>,
    /// What learning has earned; `None` if nobody is held out or rewards have no order.
    pub holdout: Option<Holdout>,
    /// The rewards by each value of each segmentation.
    pub segments: Vec<SegmentEstimates>,
    /// The metrics beside the rewards.
    pub metrics: Vec<MetricEstimates>,
    /// For each feature of a private context the score of each arm.
    pub features: Vec<Vec<FeatureScore>>,
    /// The central guarantee of one report; `None` if reports are not shuffled.
    pub central_loss: Option<CentralLoss>,
    /// The ringing alarms.
    pub alarms: Vec<Alarm>,
}

/// Estimates of every arm, with anytime-valid intervals. Of alarms, only a part is the experiment's,
/// so the caller gives them.
pub fn estimates(
    experiment: &Experiment,
    settings: EstimatesSettings,
    alarms: Vec<Alarm>,
) -> Estimates {
    let (serving, snapshot) = (experiment.serving(), experiment.snapshot());
    let specification = &*serving.specification;
    let cells = specification.cells();
    let counted = &snapshot.tallies;
    let (channel, estimand) = (specification.channel(), specification.estimand());
    let (initial, costs) = (experiment.initial_arms(), serving.costs());
    let (snapshot, costs) = (&snapshot, &costs[..]);
    // An arm that does harm is not to be chosen, however good its rewards are.
    let active = &allowed(specification, initial, snapshot)[..];
    let table = ArmTable { serving: &serving, snapshot, initial, active, costs, settings };
    let shares = shares(&serving.policy.weights);
    let strata = snapshot.strata(specification, 0, |_| true);
    let control_arm = settings.control_arm.unwrap_or_else(|| serving.written.control_arm());
    Estimates {
        alpha: settings.alpha,
        reports: counted.iter().copied().sum::<Tally>().reports(),
        manipulation_gain: estimand.difference_from_unit(manipulation_gain(channel)),
        arms: table.arms(0, &shares, (&cells.of_arms(counted, 0, None), &strata)),
        verdict: table.verdict(&strata, settings.alpha, &shares),
        control_arm,
        lifts: table.lifts(control_arm as usize, &strata),
        holdout: table.holdout(),
        segments: table.segments(cells),
        metrics: table.metrics(cells),
        features: table.features(cells),
        central_loss: central_loss(specification),
        alarms,
        serving,
    }
}

/// What is the same for all estimates of arms.
#[derive(Clone, Copy)]
struct ArmTable<'a> {
    serving: &'a PublishedExperiment,
    snapshot: &'a TallySnapshot,
    /// The number of arms that were there from the start, and the arms to compare.
    initial: usize,
    active: &'a [bool],
    /// What each arm costs, scaled as the reports are.
    costs: &'a [f64],
    settings: EstimatesSettings,
}
