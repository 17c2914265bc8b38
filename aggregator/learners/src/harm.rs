//! Harm: an arm does harm if its guardrail metric is certainly beyond the limit.
//!
//! Whether an arm does harm follows from the tallies alone, so replicas and restarts agree. An arm
//! that does harm gets no traffic, unless all arms in play do harm. Then there is nothing better,
//! and the weights are as without limits.

use bandana_shared::cells::{Limit, Metric};
use bandana_shared::confidence::{arm_share, estimate_over_all, mean_over_all};
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;

use super::snapshot::TallySnapshot;

/// Largest probability that an experiment ever finds harm where there is none.
pub const HARM_ALPHA: f64 = 0.05;

/// Returns one flag for each arm: whether it does harm by the metric with this number, from 1 up.
/// The first `initial_arms` were there from the start.
///
/// The mean of a guardrail metric is its mean over all users, whatever traffic the arm got. It has
/// an interval that holds at all times with a probability of `1 - share * HARM_ALPHA / limits`. The
/// shares of all arms that are ever added sum to at most 1, and an arm keeps its share. So all
/// intervals hold together with a probability of `1 - HARM_ALPHA`, however often you look and
/// whichever arms are added. An arm does harm if its interval lies beyond the limit.
pub fn harmful(
    specification: &Specification,
    initial_arms: usize,
    snapshot: &TallySnapshot,
    metric: usize,
) -> Vec<bool> {
    let arms = specification.arms().len();
    let metrics = &specification.measurement().metrics;
    let limits = metrics.iter().filter(|metric| metric.limit().is_some()).count();
    let Some(limit) = specification.metric(metric).and_then(Metric::limit) else {
        return vec![false; arms];
    };
    let (estimand, channel) = (specification.estimand_of(metric), specification.channel());
    let strata = snapshot.strata(specification, metric, |_| true);
    let harms = |arm: usize| {
        let is_beyond = |low: f64, high: f64| {
            let of = |end: f64| estimand.from_unit(channel.debiased(end));
            match limit {
                Limit::AtMost(most) => of(low) > most,
                Limit::AtLeast(least) => of(high) < least,
            }
        };
        // An interval has the estimate in it, which costs less.
        let estimate = estimate_over_all(&strata, arm);
        if !estimate.is_some_and(|(mean, _)| is_beyond(mean, mean)) {
            return false;
        }
        let share = arm_share(initial_arms.clamp(1, arms), arm);
        let alpha = ErrorLevel::new(HARM_ALPHA * share / limits as f64).ok();
        let mean = alpha.and_then(|alpha| mean_over_all(&strata, arm, alpha));
        mean.is_some_and(|mean| is_beyond(mean.interval.low(), mean.interval.high()))
    };
    (0..arms).map(harms).collect()
}

/// The arms in play that do harm: pairs of an arm and the number of the metric that is beyond its
/// limit, sorted by metric and then by arm.
pub fn beyond_limits(
    specification: &Specification,
    initial_arms: usize,
    snapshot: &TallySnapshot,
) -> Vec<(usize, usize)> {
    let active = specification.active_arms();
    let of_metric = |metric| {
        let flags = harmful(specification, initial_arms, snapshot, metric).into_iter();
        let flags = flags.zip(&active).enumerate();
        let harms = flags.filter_map(|(arm, (harms, active))| (harms && *active).then_some(arm));
        harms.map(move |arm| (arm, metric)).collect::<Vec<_>>()
    };
    let limited = |metric: &usize| specification.metric(*metric).and_then(Metric::limit).is_some();
    (1..specification.cells().metrics()).filter(limited).flat_map(of_metric).collect()
}

/// Returns one flag for each arm: whether the learner may give it traffic. It may for the arms in
/// play that do no harm. If all arms in play do harm, it may for all of them.
pub fn allowed(
    specification: &Specification,
    initial_arms: usize,
    snapshot: &TallySnapshot,
) -> Vec<bool> {
    let active = specification.active_arms();
    let mut allowed = active.clone();
    for metric in 1..specification.cells().metrics() {
        let harmful = harmful(specification, initial_arms, snapshot, metric);
        allowed.iter_mut().zip(harmful).for_each(|(on, harms)| *on &= !harms);
    }
    if allowed.contains(&true) { allowed } else { active }
}
