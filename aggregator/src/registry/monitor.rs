//! The monitor of an experiment: its baseline and its inputs.

use std::time::Duration;

use bandana_learners::harm::allowed;
use bandana_learners::{Learner, LearnerInput, TallySnapshot};
use bandana_shared::cells::{Limit, Metric};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::HarmPause;
use bandana_store::{ExperimentRecord, ExperimentState};

use super::{PublishedExperiment, lists};
use crate::alarms::{AlarmBaseline, Arrival, ExperimentMonitor};

/// A monitor that begins with the state served now.
pub(crate) fn monitor_of(
    record: &ExperimentRecord,
    serving: &PublishedExperiment,
) -> ExperimentMonitor {
    let ExperimentRecord { config, revisions, tallies, policy, .. } = record;
    let cells = serving.specification.cells();
    let counts = cells.reports_of_arms(tallies);
    let initial_arms = revisions.first().map_or(0, |first| first.arms().len());
    let timing = serving.specification.timing();
    let seconds = [timing.attribution_window_seconds, timing.release_delay_seconds_max];
    // All arms have had the same share until the first reports, and while no learner decides.
    let was_even = config.learner == Learner::Uniform
        || counts.iter().all(|reports| *reports == 0)
        || config
            .guardrails
            .burning_in(
                &cells.of_arms(tallies, 0, None),
                &serving.specification.active_arms(),
                initial_arms,
            )
            .contains(&true);
    let mut monitor = ExperimentMonitor::new(AlarmBaseline {
        now: serving.policy_since,
        delay: seconds.map(|seconds| Duration::from_secs(seconds.into())).iter().sum(),
        reports: &counts,
        initial_arms,
        is_history_known: revisions.len() == 1 && was_even,
        explores: config.learner == Learner::LdpUcb,
        // Where other replicas compute policies, they draw arms too.
        counts_selections: policy.is_none(),
        arrival: arrival(&serving.specification),
    });
    monitor.serve_lists(serving.policy_since, &lists(serving));
    if serving.state == ExperimentState::Running { monitor } else { monitor.waiting() }
}

fn arrival(specification: &Specification) -> Arrival {
    match (specification.batch(), specification.participation().sticky) {
        (Some(_), _) => Arrival::Batches,
        // An installation reports the arm that it keeps in one period after the other.
        (None, Some(sticky)) if sticky.report_days > 0 => Arrival::OfKeptArms,
        (None, _) => Arrival::Single,
    }
}

/// The probability that an arm is best by all reports, less what arms cost and with what was known of
/// them, as the learner has it. `None` if it is not defined.
pub(crate) fn probability_best(
    serving: &PublishedExperiment,
    (initial_arms, counted): (usize, &TallySnapshot),
    arm: usize,
) -> Option<f64> {
    let specification = &*serving.specification;
    // Arms that do harm have no traffic, however good their rewards are.
    let active = allowed(specification, initial_arms, counted);
    let tallies = specification.cells().of_arms(&counted.tallies, 0, None);
    let mut input = LearnerInput::new(&tallies, &active, specification.channel());
    let terms = serving.written.terms(specification).ok()?;
    let scale = (specification.channel(), specification.rewards().range());
    terms.apply(&mut input.arms, &active, scale, 1.0);
    Some(Learner::LdpTs.weights(&input).ok()?.share(arm))
}

/// What guardrails have paused a paused experiment for, in words, each with the time since then.
pub(crate) fn pauses_in_words(
    serving: &PublishedExperiment,
    now: Duration,
) -> Vec<(String, Duration)> {
    if serving.state != ExperimentState::Paused {
        return Vec::new();
    }
    let specification = &*serving.specification;
    let limits = &specification.measurement().metrics;
    let one = |pause: &HarmPause| {
        let label = specification.arms().get(pause.arm as usize).map_or("", |arm| arm.label());
        let metric = limits.iter().find(|metric| metric.name() == pause.metric);
        let limit = match metric.and_then(Metric::limit) {
            Some(Limit::AtMost(mean)) => format!(", at most {mean}"),
            Some(Limit::AtLeast(mean)) => format!(", at least {mean}"),
            None => String::new(),
        };
        let words = format!(
            "arm {} ({label}) is certainly beyond the limit of {}{limit}",
            pause.arm, pause.metric
        );
        (words, now.saturating_sub(Duration::from_secs(pause.unix_seconds)))
    };
    serving.written.pausing().map(one).collect()
}
