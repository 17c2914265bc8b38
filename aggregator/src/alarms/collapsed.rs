//! Collapsed entropy: one arm gets nearly all traffic, and the reports do not say why.
//!
//! A learner that has learnt gives nearly everything to one arm, and that is no alarm. It is
//! one when the policy is surer than all reports together: for [`REPORTS_MIN`] reports, and
//! for a tenth of all there are, the same arm has at least [`WEIGHT`] of the traffic (the
//! effective number of arms, `exp(entropy)`, is below 1.06 with two of them), but for one report
//! in ten, since a learner that forgets tries the others now and then; while by the
//! reports of all days the posterior probability that it is best, with uniform priors, is below
//! [`PROBABILITY`]. Then what users like has changed, the memory of the learner is too short for
//! its traffic, or the reports of the last days are not what they seem; and the arms that could
//! tell get no more traffic.
//!
//! It is not for `ldp-ucb`, which gives all traffic to one arm at a time, and to an arm just
//! because little is known of it.
//!
//! The verdict of `bandana estimate` is not asked: it is made for every moment at once, comes later
//! than a good learner's choice, and may never come without a floor weight or a holdout.
//!
//! # When it rings for nothing
//! Never with `ldp-ts` and `truncated-ts` that forget nothing: their weight is that probability,
//! but for the reports since the policy was made.
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

/// What all reports together must say at least: below, other arms are likelier to be the best.
const PROBABILITY: f64 = 0.5;

/// A report under another policy costs the favourite so many of its own.
const BREAK: u64 = 9;

/// The arm that gets nearly all traffic.
#[derive(Clone, Debug, Default)]
pub(super) struct Favourite {
    serving: Option<usize>,
    credited: Option<Credited>,
}

#[derive(Clone, Copy, Debug)]
struct Credited {
    arm: usize,
    since: Duration,
    reports: u64,
}

impl Favourite {
    /// Takes note of a policy that is served from now on.
    pub(super) fn serve(&mut self, shares: &[f64]) {
        self.serving = shares.iter().position(|share| *share >= WEIGHT);
    }

    /// Counts reports that came under this policy; with them there are so many in `all`.
    pub(super) fn count(&mut self, now: Duration, reports: u64, all: u64) {
        if reports == 0 {
            return;
        }
        let serving = self.serving;
        if let Some(credited) = &mut self.credited {
            if serving == Some(credited.arm) {
                // Long certainty must not outlast its end.
                let enough = needed(all);
                credited.reports = (credited.reports + reports).min(enough + enough / 10);
                return;
            }
            credited.reports = credited.reports.saturating_sub(reports.saturating_mul(BREAK));
            if credited.reports > 0 {
                return;
            }
        }
        self.credited = serving.map(|arm| Credited { arm, since: now, reports });
    }

    /// Whether there is an alarm, with so many reports in all. `best` tells how likely an arm is the best by all reports,
    /// if that can be told.
    pub(super) fn alarm(
        &self,
        now: Duration,
        all: u64,
        best: impl FnOnce(usize) -> Option<f64>,
        label: impl FnOnce(usize) -> String,
    ) -> Option<Alarm> {
        let Credited { arm, since, reports } = self.credited?;
        if self.serving != Some(arm) || reports < needed(all) {
            return None;
        }
        let seen = best(arm)?;
        (seen < PROBABILITY).then(|| Alarm {
            name: AlarmName::CollapsedEntropy,
            message: format!(
                "arm {arm} ({}) has had nearly all traffic for {reports} reports and more, and by \
                 the reports of all days it is the best with a probability of {} only: the learner \
                 goes by less than all of them, or by another rule; what users like may have \
                 changed, or its memory may be too short for its traffic; a holdout share or a \
                 floor weight keeps the other arms measured",
                label(arm),
                percent(seen),
            ),
            age: Some(now.saturating_sub(since)),
            threshold: PROBABILITY,
            seen,
        })
    }
}

/// Reports for which an arm must have been the favourite.
fn needed(all: u64) -> u64 {
    REPORTS_MIN.max(all / REPORTS_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(favourite: &Favourite, all: u64, best: f64) -> Option<Alarm> {
        favourite.alarm(Duration::from_secs(9), all, |_| Some(best), |_| String::new())
    }

    fn alarm(favourite: &Favourite, all: u64, best: f64) -> Option<()> {
        all_of(favourite, all, best).map(drop)
    }

    #[test]
    fn a_favourite_that_the_reports_do_not_bear_out_rings_after_a_while() {
        let mut favourite = Favourite::default();
        let second = Duration::from_secs;
        favourite.serve(&[0.7, 0.3]);
        favourite.count(second(1), 50_000, 50_000);
        assert_eq!(alarm(&favourite, 50_000, 0.1), None);
        favourite.serve(&[0.005, 0.995]);
        favourite.count(second(2), 5000, 55_000);
        // It tries the other one, and comes back.
        favourite.serve(&[0.1, 0.9]);
        favourite.count(second(3), 100, 55_100);
        favourite.serve(&[0.001, 0.999]);
        favourite.count(second(4), 1500, 56_600);
        assert_eq!(alarm(&favourite, 56_600, 0.1), None);
        favourite.count(second(5), 300, 56_900);
        assert_eq!(alarm(&favourite, 56_900, 0.1), Some(()));
        favourite.count(second(5), 20_000, 76_600);
        let rung = all_of(&favourite, 76_600, 0.1).unwrap();
        assert!(rung.message.starts_with("arm 1 "), "{rung:?}");
        assert_eq!(rung.age, Some(second(7)));
        assert_eq!(alarm(&favourite, 76_600, 0.6), None);
        // However long it was certain, it must be so again.
        favourite.serve(&[0.1, 0.9]);
        favourite.count(second(6), 500, 77_100);
        favourite.serve(&[0.001, 0.999]);
        favourite.count(second(6), 100, 77_200);
        assert_eq!(alarm(&favourite, 77_200, 0.1), None);
        favourite.count(second(6), 10_000, 87_200);
        assert_eq!(alarm(&favourite, 87_200, 0.1), Some(()));
        // An arm was added, and nobody is sure any more.
        favourite.serve(&[0.4, 0.3, 0.3]);
        assert_eq!(alarm(&favourite, 87_200, 0.1), None);
        // Another favourite begins anew, when this one is used up.
        favourite.serve(&[0.999, 0.001]);
        favourite.count(second(6), 2000, 89_200);
        assert_eq!(alarm(&favourite, 89_200, 0.1), None);
    }
}
