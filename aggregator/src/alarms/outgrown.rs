//! Reports outgrow selections: there are more reports than arms were drawn.
//!
//! Where apps have the server draw every arm (`SelectArm`), each selection makes one report at
//! most. That they do is inferred: once there were [`REPORTS_MIN`] reports, and no more of them
//! than selections, they are taken to. From then on there is an alarm when reports exceed
//! selections by [`EXCESS_MIN`], and by a tenth of the selections. Either somebody sends
//! reports on their own, which moves a learner in proportion to their number, or a release of the app
//! draws arms by itself.
//!
//! Selections are counted by the process that draws and are not stored. So this is for a server
//! with its own directory; replicas do not know each other's selections and never ring. After a
//! restart reports come whose selections were before it: they are not counted until
//! all but the latest have come.
//!
//! Where devices draw arms, there is no number to compare with: see
//! [surges](super::AlarmName::ReportSurge), and the sample ratio for reports of arms that nobody
//! was asked for.
//!
//! # When it rings for nothing
//! Never by chance: nothing is drawn. Devices that report later than is assumed have the margin.

use std::time::Duration;

use super::{Alarm, AlarmName};

/// Reports after which it is clear who draws.
const REPORTS_MIN: u64 = 100;

/// Reports beyond the selections.
const EXCESS_MIN: u64 = 100;

/// The same as one in so many selections.
const EXCESS_PART: u64 = 10;

/// Reports against selections.
#[derive(Clone, Debug, Default)]
pub(super) struct Balance {
    reports: u64,
    selections: u64,
    /// Whether all arms are drawn by the server.
    is_drawn_here: bool,
    /// Since when there are too many reports.
    crossed: Option<Duration>,
}

impl Balance {
    /// Takes note of new reports, and of the number of all selections.
    pub(super) fn observe(&mut self, now: Duration, reports: u64, selections: u64) {
        self.reports += reports;
        self.selections = selections;
        self.is_drawn_here |= self.reports >= REPORTS_MIN && self.reports <= selections;
        if self.is_drawn_here && self.reports >= self.threshold() {
            self.crossed.get_or_insert(now);
        } else {
            self.crossed = None;
        }
    }

    fn threshold(&self) -> u64 {
        self.selections + EXCESS_MIN.max(self.selections / EXCESS_PART)
    }

    /// Whether there is an alarm.
    pub(super) fn alarm(&self, now: Duration) -> Option<Alarm> {
        let since = self.crossed?;
        let Self { reports, selections, .. } = self;
        Some(Alarm {
            name: AlarmName::ReportsOutgrowSelections,
            message: format!(
                "{reports} reports since the server was started, but only {selections} arms were \
                 drawn: somebody sends reports on their own, or an app draws arms by itself now; \
                 look at the calls of each app key"
            ),
            age: Some(now.saturating_sub(since)),
            threshold: self.threshold() as f64,
            seen: *reports as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_nobody_was_asked_for_ring_where_the_server_draws() {
        let second = Duration::from_secs;
        let mut balance = Balance::default();
        for round in 1..=50 {
            balance.observe(second(round), 9, 10 * round);
            assert_eq!(balance.alarm(second(round)), None);
        }
        balance.observe(second(51), 149, 500);
        assert_eq!(balance.alarm(second(51)), None);
        balance.observe(second(52), 1, 500);
        let rung = balance.alarm(second(60)).unwrap();
        assert_eq!((rung.seen, rung.threshold, rung.age), (600.0, 600.0, Some(second(8))));
        balance.observe(second(61), 0, 700);
        assert_eq!(balance.alarm(second(61)), None);
    }

    #[test]
    fn devices_that_draw_do_not_ring() {
        let mut balance = Balance::default();
        for round in 0..1000 {
            // Some apps ask the server, most do not.
            balance.observe(Duration::from_secs(round), 10, round);
            assert_eq!(balance.alarm(Duration::from_secs(round)), None);
        }
    }
}
