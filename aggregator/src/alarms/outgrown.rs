//! Reports outgrow selections: there are more reports than selections of arms.
//!
//! Where apps have the server draw every arm (`SelectArm`), each selection makes at most one
//! report. Whether they do so is inferred at the end of each [`STEP`] from two conditions. First,
//! in [`SPAN`] there were at least [`REPORTS_MIN`] reports, and no more than selections in the same
//! time. Second, they were also no more than the selections in an equally long time one attribution
//! window and release delay earlier. Both are needed, since reports come later than selections:
//! while traffic grows, reports are few for the selections of their own time, and while it falls,
//! for earlier ones. Where only some apps ask the server, there are fewer selections.
//!
//! If the server draws, the alarm rings when the reports of the last [`SPAN`] exceed all selections
//! that they may come from by [`EXCESS_MIN`] and by a tenth. Those are the selections of that time,
//! and of a longest delay and [`LATENESS`] before it. Either reports are forged, which moves a
//! learner in proportion to their number, or a release of the app draws arms by itself. If the
//! excess lasts for [`LAPSE`], the latter is assumed: the server is no longer taken to draw every
//! arm, and the alarm ends.
//!
//! Selections are counted by the process that draws, and are not stored. So this alarm is for a
//! server with its own directory; replicas do not know each other's selections, and never ring.
//! After a restart, reports arrive whose selections were before it, so the alarm is off for a delay
//! and [`LATENESS`]. Times exclude pauses of the experiment.
//!
//! Where devices draw arms, there is no number to compare with: see
//! [surges](super::AlarmName::ReportSurge), and the sample ratio for reports of arms that no device
//! was asked for. A flood that was there from the start looks like devices that draw.
//!
//! # False alarms
//! There are none by chance where the server draws every arm, if no more than a tenth of the
//! reports come later than assumed. Where devices draw some of the arms, a false alarm takes two
//! mistakes at once. The share of the draws that lead to reports would have to seem below the share
//! that the server draws. Then reports would have to exceed the selections of a time that is more
//! than twice as long.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Alarm, AlarmName, DAY, HOUR, LATENESS};

/// The resolution in time of reports and selections.
const STEP: Duration = HOUR.saturating_mul(6);

/// The time over which reports are counted: a whole week, as weekends differ.
const SPAN: Duration = DAY.saturating_mul(7);

/// The number of reports after which the drawing side is inferred.
const REPORTS_MIN: u64 = 500;

/// The time after which the server is no longer taken to draw every arm, if the counts don't
/// confirm it.
const LAPSE: Duration = DAY.saturating_mul(28);

/// The least excess of reports over selections.
const EXCESS_MIN: u64 = 100;

/// The least excess of reports, as a part of the selections: one in this many.
const EXCESS_PART: u64 = 10;

/// The comparison of reports with selections.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    delay: Duration,
    begun: Duration,
    /// The time since when all selections are known from which reports may come.
    known_from: Duration,
    /// All selections so far.
    selections: u64,
    steps: VecDeque<Step>,
    /// The last time at which the counts indicated that the server draws every arm.
    drawn_here: Option<Duration>,
    excess: Option<Excess>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    from: Duration,
    reports: u64,
    selections: u64,
}

/// An excess of reports over selections.
#[derive(Clone, Copy, Debug)]
struct Excess {
    since: Duration,
    reports: u64,
    selections: u64,
}

impl Balance {
    /// A comparison that begins now. `is_new`: no report can come from an earlier selection.
    pub(super) fn new(now: Duration, delay: Duration, is_new: bool) -> Self {
        Self {
            delay,
            begun: now,
            known_from: if is_new { now } else { now + delay + LATENESS },
            selections: 0,
            steps: VecDeque::new(),
            drawn_here: None,
            excess: None,
        }
    }

    /// Records new reports, and the number of all selections. `now` is the clock's time; `open`
    /// excludes pauses.
    pub(super) fn observe(&mut self, now: Duration, open: Duration, reports: u64, selections: u64) {
        let steps = u32::try_from(open.as_secs() / STEP.as_secs()).unwrap_or(u32::MAX);
        let from = STEP * steps;
        if self.steps.back().is_none_or(|step| step.from < from) {
            self.infer(from);
            let oldest = from.saturating_sub(SPAN + self.delay + LATENESS + STEP * 2);
            while self.steps.front().is_some_and(|step| step.from < oldest) {
                self.steps.pop_front();
            }
            self.steps.push_back(Step { from, reports: 0, selections: 0 });
        }
        if let Some(step) = self.steps.back_mut() {
            step.reports += reports;
            step.selections += selections.saturating_sub(self.selections);
        }
        self.selections = selections;
        self.compare(now, open);
    }

    /// Infers, at the end of a step, whether the server draws every arm.
    fn infer(&mut self, end: Duration) {
        let shift = self.delay.as_secs().div_ceil(STEP.as_secs());
        let shift = STEP * u32::try_from(shift).unwrap_or(u32::MAX);
        let Some(earliest) = end.checked_sub(SPAN + shift) else { return };
        if earliest < self.begun {
            return;
        }
        let (reports, at_once) = self.sums(end.saturating_sub(SPAN), end);
        let (_, earlier) = self.sums(earliest, end.saturating_sub(shift));
        if reports >= REPORTS_MIN && reports <= at_once.min(earlier) {
            self.drawn_here = Some(end);
        }
    }

    fn compare(&mut self, now: Duration, open: Duration) {
        let is_drawn_here = self.drawn_here.is_some_and(|seen| open < seen + LAPSE);
        let from = open.saturating_sub(SPAN).max(self.known_from);
        let (reports, _) = self.sums(from, Duration::MAX);
        let drawn_from = from.saturating_sub(self.delay + LATENESS + STEP);
        let (_, selections) = self.sums(drawn_from, Duration::MAX);
        if is_drawn_here && reports >= threshold(selections) {
            let since = self.excess.map_or(now, |excess| excess.since);
            self.excess = Some(Excess { since, reports, selections });
        } else {
            self.excess = None;
        }
    }

    /// The reports and selections of the steps that begin in this time.
    fn sums(&self, from: Duration, until: Duration) -> (u64, u64) {
        let steps = self.steps.iter().filter(|step| (from..until).contains(&step.from));
        steps.fold((0, 0), |(reports, selections), step| {
            (reports + step.reports, selections + step.selections)
        })
    }

    /// The alarm, if it rings.
    pub(super) fn alarm(&self, now: Duration) -> Option<Alarm> {
        let Excess { since, reports, selections } = self.excess?;
        Some(Alarm {
            name: AlarmName::ReportsOutgrowSelections,
            message: format!(
                "{reports} reports came in 7 days, but the server drew only {selections} arms for \
                 them. Somebody forges reports, or an app now draws arms by itself. Look at the \
                 calls of each app key"
            ),
            age: Some(now.saturating_sub(since)),
            threshold: threshold(selections) as f64,
            seen: reports as f64,
        })
    }
}

fn threshold(selections: u64) -> u64 {
    selections + EXCESS_MIN.max(selections / EXCESS_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated fleet of devices. Each draw makes a report `lag` hours later.
    struct Fleet {
        balance: Balance,
        hour: u32,
        drawn: Vec<u64>,
        selections: u64,
        lag: usize,
    }

    impl Fleet {
        fn new(is_new: bool, lag: u32) -> Self {
            let balance = Balance::new(Duration::ZERO, HOUR * lag, is_new);
            Self { balance, hour: 0, drawn: Vec::new(), selections: 0, lag: lag as usize }
        }

        /// Whether the alarm rang at all in these hours, and in the last one.
        fn rung(&mut self, hours: u32, draws: u64, selected: u64, forged: u64) -> (bool, bool) {
            let (mut ever, mut last) = (false, false);
            for _ in 0..hours {
                self.drawn.push(draws);
                self.selections += selected;
                let due = self.drawn.len().checked_sub(1 + self.lag);
                let reports = due.map_or(0, |due| self.drawn[due]) + forged;
                let now = HOUR * self.hour;
                self.balance.observe(now, now, reports, self.selections);
                last = self.balance.alarm(now).is_some();
                ever |= last;
                self.hour += 1;
            }
            (ever, last)
        }
    }

    const WEEK: u32 = 7 * 24;

    #[test]
    fn reports_that_nobody_was_asked_for_ring_where_the_server_draws() {
        let mut fleet = Fleet::new(true, 30);
        assert_eq!(fleet.rung(4 * WEEK, 10, 10, 0), (false, false));
        // The alarm rings soon, however much was drawn before.
        assert!(fleet.rung(4 * 24, 10, 10, 40).1);
        // The alarm ends with the excess.
        assert!(!fleet.rung(2 * WEEK, 10, 10, 0).1);
        // Varying traffic alone does not ring it.
        for draws in [100, 0, 1, 1000, 3] {
            assert_eq!(fleet.rung(WEEK + 50, draws, draws, 0), (false, false), "{draws}");
        }
    }

    #[test]
    fn a_restart_forgets_selections_and_does_not_ring_for_it() {
        let mut fleet = Fleet::new(false, 30);
        // Reports of earlier selections.
        assert_eq!(fleet.rung(30, 10, 10, 10), (false, false));
        assert_eq!(fleet.rung(4 * WEEK, 10, 10, 0), (false, false));
        assert!(fleet.rung(WEEK, 10, 10, 40).1);
    }

    #[test]
    fn devices_that_draw_do_not_ring() {
        for is_new in [true, false] {
            // Probes, and apps of which some have the server draw, while traffic begins and grows.
            for selected in [1, 30, 70, 90] {
                let mut fleet = Fleet::new(is_new, 200);
                for draws in [1, 1, 2, 4, 8, 8, 8, 2, 1] {
                    let rung = fleet.rung(WEEK, draws * 100, draws * selected, 0);
                    assert_eq!(rung, (false, false), "{selected}% of {draws}, {is_new}");
                }
            }
        }
    }

    #[test]
    fn an_app_that_draws_by_itself_from_now_on_rings_for_a_while_only() {
        let mut fleet = Fleet::new(true, 5);
        assert_eq!(fleet.rung(4 * WEEK, 10, 10, 0), (false, false));
        assert!(fleet.rung(3 * WEEK, 10, 1, 0).1);
        assert!(!fleet.rung(2 * WEEK, 10, 1, 0).1);
    }
}
