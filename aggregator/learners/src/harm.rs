//! Harm: the arms whose guardrail metrics are certainly beyond their limits.
//!
//! Whether an arm does harm follows from the tallies alone, so replicas and restarts agree. An arm
//! that does gets no traffic, unless all arms in play do: then there is nothing better, and the
//! weights are as without limits.

use bandana_shared::cells::Limit;
use bandana_shared::confidence::NormalMixture;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

/// The probability, at most, that an experiment ever finds harm where there is none.
pub const HARM_ALPHA: f64 = 0.05;

/// Which arms do harm, as one flag for each, by the tallies of the cells.
///
/// The mean of a guardrail metric has an interval that holds at all times with a probability of `1 -
/// HARM_ALPHA / (arms * limits)`, so none of them ever misses with one of `1 - HARM_ALPHA`, however
/// often they are looked at. An arm does harm if one of its intervals lies beyond the limit.
pub fn harmful(specification: &Specification, tallies: &[Tally]) -> Vec<bool> {
    let cells = specification.cells();
    let metrics = &specification.measurement().metrics;
    let limits = metrics.iter().filter(|metric| metric.limit().is_some()).count();
    let mut harmful = vec![false; cells.arms()];
    let Ok(alpha) = ErrorLevel::new(HARM_ALPHA / (cells.arms() * limits.max(1)) as f64) else {
        return harmful;
    };
    let sequence = NormalMixture::new(alpha);
    for (metric, limit) in (1..).zip(metrics.iter().map(|metric| metric.limit())) {
        let Some(limit) = limit else { continue };
        let estimand = specification.estimand_of(metric);
        for (flag, tally) in harmful.iter_mut().zip(cells.of_arms(tallies, metric, None)) {
            let unit = sequence.mean_through(specification.channel(), &tally);
            let interval = estimand.interval_from_unit(unit);
            *flag |= match limit {
                Limit::AtMost(mean) => interval.low() > mean,
                Limit::AtLeast(mean) => interval.high() < mean,
            };
        }
    }
    harmful
}

/// Which arms the learner may give traffic, as one flag for each: those in play that do no harm; all
/// in play, if each of them does.
pub(crate) fn allowed(specification: &Specification, tallies: &[Tally]) -> Vec<bool> {
    let active = specification.active_arms();
    if specification.measurement().metrics.is_empty() {
        return active;
    }
    let harmful = harmful(specification, tallies);
    let allowed: Vec<bool> = active.iter().zip(harmful).map(|(on, harms)| *on && !harms).collect();
    if allowed.contains(&true) { allowed } else { active }
}
