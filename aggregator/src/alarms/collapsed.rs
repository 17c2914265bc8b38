//! Collapsed entropy: one arm gets nearly all traffic, and the reports do not say why.
//!
//! A learner that has learnt gives nearly everything to one arm, and that is no alarm. It is
//! one when the policy is surer than all reports together: since [`REPORTS_MIN`] reports, and
//! since a tenth of all there are, the same arm has at least [`WEIGHT`] of the traffic (the
//! effective number of arms, `exp(entropy)`, is below 1.06 with two of them), while by the
//! reports of all days the posterior probability that it is best, with uniform priors, is below
//! [`PROBABILITY`]. Then what users like has changed, the memory of the learner is too short for
//! its traffic, or the reports of the last days are not what they seem; and the arms that could
//! tell get no more traffic.
//!
//! The verdict of `bandana estimate` is not asked: it is made for every moment at once, comes later
//! than a good learner's choice, and may never come without a floor weight or a holdout.
//!
//! # When it rings for nothing
//! Never with `ldp-ts` and `truncated-ts` that forget nothing: their weight is that probability.
//! With others it does not err either, in that it says only what is so; how often a learner with a short
//! memory is surer than it should be is for its window and its traffic. With a floor weight or a
//! holdout that keeps 1% from the favourite it can't ring, and need not: no arm starves.

use std::time::Duration;

use super::{Alarm, AlarmName, percent};

/// The share of the traffic of one arm.
const WEIGHT: f64 = 0.99;

/// Reports for which it has had it.
const REPORTS_MIN: u64 = 1000;

/// The same as one in so many of all.
const REPORTS_PART: u64 = 10;

/// What all reports together must say at least.
const PROBABILITY: f64 = 0.9;

/// The arm that gets nearly all traffic.
#[derive(Clone, Debug, Default)]
pub(super) struct Favourite(Option<Since>);

#[derive(Clone, Copy, Debug)]
struct Since {
    arm: usize,
    at: Duration,
    reports: u64,
}

impl Favourite {
    /// Takes note of a policy that is served from now on, after so many reports.
    pub(super) fn serve(&mut self, now: Duration, shares: &[f64], reports: u64) {
        let favourite = shares.iter().position(|share| *share >= WEIGHT);
        let before = self.0;
        self.0 = favourite.map(|arm| match before {
            Some(since) if since.arm == arm => since,
            _ => Since { arm, at: now, reports },
        });
    }

    /// Whether there is an alarm. `best` tells how likely an arm is the best by all reports,
    /// if that can be told.
    pub(super) fn alarm(
        &self,
        now: Duration,
        reports: u64,
        best: impl FnOnce(usize) -> Option<f64>,
        label: impl FnOnce(usize) -> String,
    ) -> Option<Alarm> {
        let Since { arm, at, reports: before } = self.0?;
        let since = reports.saturating_sub(before);
        if since < REPORTS_MIN.max(reports / REPORTS_PART) {
            return None;
        }
        let seen = best(arm)?;
        (seen < PROBABILITY).then(|| Alarm {
            name: AlarmName::CollapsedEntropy,
            message: format!(
                "arm {arm} ({}) has nearly all traffic since {since} reports, and by the reports of \
                 all days it is the best with a probability of {} only: what users like may have \
                 changed, or the learner's memory is too short for its traffic; a holdout share or \
                 a floor weight keeps the other arms measured",
                label(arm),
                percent(seen),
            ),
            age: Some(now.saturating_sub(at)),
            threshold: PROBABILITY,
            seen,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(favourite: &Favourite, reports: u64, best: f64) -> Option<Alarm> {
        favourite.alarm(Duration::from_secs(9), reports, |_| Some(best), |_| String::new())
    }

    #[test]
    fn a_favourite_that_the_reports_do_not_bear_out_rings_after_a_while() {
        let mut favourite = Favourite::default();
        favourite.serve(Duration::from_secs(1), &[0.7, 0.3], 100);
        assert_eq!(alarm(&favourite, 50_000, 0.1), None);
        favourite.serve(Duration::from_secs(2), &[0.005, 0.995], 50_000);
        favourite.serve(Duration::from_secs(5), &[0.001, 0.999], 53_000);
        assert_eq!(alarm(&favourite, 55_000, 0.1), None);
        let rung = alarm(&favourite, 56_000, 0.1).unwrap();
        assert!(rung.message.starts_with("arm 1 ") && rung.message.contains(" 6000 reports"));
        assert_eq!(rung.age, Some(Duration::from_secs(7)));
        assert_eq!(alarm(&favourite, 56_000, 0.95), None);
        // Another favourite begins anew.
        favourite.serve(Duration::from_secs(6), &[0.999, 0.001], 56_000);
        assert_eq!(alarm(&favourite, 57_000, 0.1), None);
    }
}
