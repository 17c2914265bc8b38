//! Collapsed entropy: one arm gets nearly all traffic, and the reports do not justify that.
//!
//! A learner that has learnt gives nearly all traffic to one arm, which is no alarm. The alarm
//! rings when the policy is more certain than all reports together, that is, under two conditions.
//! First, the same arm had at least [`WEIGHT`] of the traffic for [`REPORTS_MIN`] reports and for a
//! tenth of all reports. (The effective number of arms, `exp(entropy)`, is below 1.06 with two
//! arms.) One report in ten may be under another policy, since a learner with limited memory tries
//! other arms now and then. Second, the posterior probability that this arm is best, by the reports
//! of all days and with uniform priors, is below [`PROBABILITY`]. Possible causes are that users'
//! preferences have changed, that the learner's memory is too short for its traffic, or that recent
//! reports are not genuine. The arms that could tell get no more traffic.
//!
//! The alarm is off for `ldp-ucb`, which gives all traffic to one arm at a time, even just because
//! little is known of it.
//!
//! The verdict of `bandana estimate` is not used. It holds for all moments at once, so it comes
//! later than a good learner's choice. Without a floor weight or a holdout it may never come.
//!
//! # False alarms
//! `ldp-ts` and `truncated-ts` with unlimited memory never cause one: their weight is that
//! probability, except for the reports since the policy was computed. With other learners the alarm
//! is not false either, in that its statement is true. How often a learner with a short memory is
//! more certain than it should be depends on its window and its traffic. With a floor weight or a
//! holdout that keeps 1% from the favourite the alarm can't ring, and need not: no arm starves.

use std::time::Duration;

use super::{Alarm, AlarmName, percent};

/// The traffic share from which on an arm is a favourite.
const WEIGHT: f64 = 0.99;

/// The least number of reports under a favourite.
const REPORTS_MIN: u64 = 1000;

/// The least number of reports under a favourite, as a part of all reports: one in this many.
const REPORTS_PART: u64 = 10;

/// The least posterior probability that the favourite is best. Below it, other arms are likelier to
/// be the best.
const PROBABILITY: f64 = 0.5;

/// The number of credited reports that one report under another policy cancels.
const BREAK: u64 = 9;

/// The arm that gets nearly all traffic, with the reports credited to it.
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
    /// Records the policy that is served from now on.
    pub(super) fn serve(&mut self, shares: &[f64]) {
        self.serving = shares.iter().position(|share| *share >= WEIGHT);
    }

    /// Counts reports that came under this policy; `all` includes them.
    pub(super) fn count(&mut self, now: Duration, reports: u64, all: u64) {
        if reports == 0 {
            return;
        }
        let serving = self.serving;
        if let Some(credited) = &mut self.credited {
            if serving == Some(credited.arm) {
                // The credit is limited, so that long certainty ends in time.
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

    /// The alarm, if it rings, for this number of reports in all. `best` gives the probability that
    /// an arm is best by all reports, if it can be computed.
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
                "arm {arm} ({}) has had nearly all traffic for {reports} reports and more. By the \
                 reports of all days, it is the best arm with a probability of {} only. So the \
                 learner goes by fewer reports, or by another rule: what users like may have \
                 changed, or its memory may be too short for its traffic. A holdout share or a \
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

/// The number of reports for which an arm must have been the favourite.
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
        // The learner tries the other arm, and returns.
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
        // Despite the long certainty before, the favourite must be certain again.
        favourite.serve(&[0.1, 0.9]);
        favourite.count(second(6), 500, 77_100);
        favourite.serve(&[0.001, 0.999]);
        favourite.count(second(6), 100, 77_200);
        assert_eq!(alarm(&favourite, 77_200, 0.1), None);
        favourite.count(second(6), 10_000, 87_200);
        assert_eq!(alarm(&favourite, 87_200, 0.1), Some(()));
        // An arm was added, and the learner is no longer certain.
        favourite.serve(&[0.4, 0.3, 0.3]);
        assert_eq!(alarm(&favourite, 87_200, 0.1), None);
        // Another favourite begins anew, once this one's credit is used up.
        favourite.serve(&[0.999, 0.001]);
        favourite.count(second(6), 2000, 89_200);
        assert_eq!(alarm(&favourite, 89_200, 0.1), None);
    }
}
