//! The harm that an arm does: a guardrail metric certainly beyond its limit.
//!
//! Whether an arm does harm follows from the tallies alone, so replicas and restarts agree. An arm
//! that does gets no traffic, unless all arms in play do: then there is nothing better, and the
//! weights are as without limits.

use bandana_shared::cells::{Limit, Metric};
use bandana_shared::confidence::NormalMixture;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

/// The probability, at most, that an experiment ever finds harm where there is none.
pub const HARM_ALPHA: f64 = 0.05;

/// Which arms do harm by the metric with this number, from 1 up, as one flag for each, by the tallies
/// of the cells.
///
/// The mean of a guardrail metric has an interval that holds at all times with a probability of `1 -
/// HARM_ALPHA / (arms * limits)`, so none of them ever misses with one of `1 - HARM_ALPHA`, however
/// often they are looked at. An arm does harm if its interval lies beyond the limit.
pub fn harmful(specification: &Specification, tallies: &[Tally], metric: usize) -> Vec<bool> {
    let cells = specification.cells();
    let metrics = &specification.measurement().metrics;
    let limits = metrics.iter().filter(|metric| metric.limit().is_some()).count();
    let limit = specification.metric(metric).and_then(Metric::limit);
    let alpha = ErrorLevel::new(HARM_ALPHA / (cells.arms() * limits.max(1)) as f64);
    let (Some(limit), Ok(alpha)) = (limit, alpha) else { return vec![false; cells.arms()] };
    let sequence = NormalMixture::new(alpha);
    let estimand = specification.estimand_of(metric);
    let harms = |tally: &Tally| {
        let unit = sequence.mean_through(specification.channel(), tally);
        let interval = estimand.interval_from_unit(unit);
        match limit {
            Limit::AtMost(mean) => interval.low() > mean,
            Limit::AtLeast(mean) => interval.high() < mean,
        }
    };
    cells.of_arms(tallies, metric, None).iter().map(harms).collect()
}

/// The arms in play that do harm, each with the number of a metric beyond whose limit it is, by metrics
/// and then by arms.
pub fn beyond_limits(specification: &Specification, tallies: &[Tally]) -> Vec<(usize, usize)> {
    let active = specification.active_arms();
    let of_metric = |metric| {
        let flags = harmful(specification, tallies, metric).into_iter().zip(&active).enumerate();
        let harms = flags.filter_map(|(arm, (harms, active))| (harms && *active).then_some(arm));
        harms.map(move |arm| (arm, metric)).collect::<Vec<_>>()
    };
    let limited = |metric: &usize| specification.metric(*metric).and_then(Metric::limit).is_some();
    (1..specification.cells().metrics()).filter(limited).flat_map(of_metric).collect()
}

/// Which arms the learner may give traffic, as one flag for each: those in play that do no harm; all
/// in play, if each of them does.
pub fn allowed(specification: &Specification, tallies: &[Tally]) -> Vec<bool> {
    let active = specification.active_arms();
    let mut allowed = active.clone();
    for metric in 1..specification.cells().metrics() {
        let harmful = harmful(specification, tallies, metric);
        allowed.iter_mut().zip(harmful).for_each(|(on, harms)| *on &= !harms);
    }
    if allowed.contains(&true) { allowed } else { active }
}
