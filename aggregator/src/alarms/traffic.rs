//! Traffic: the numbers of reports by hour, for a week of the experiment's running time.

use std::collections::VecDeque;
use std::time::Duration;

use super::HOUR;

/// The time for which hours are remembered.
pub(super) const WEEK: Duration = HOUR.saturating_mul(7 * 24);

/// The traffic of an experiment by hour.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    begun: Duration,
    /// The number of reports before monitoring began.
    earlier: u64,
    /// The hours with reports, of the week before the last of them.
    hours: VecDeque<Hour>,
    /// The time of the last report, and the time since when reports could come.
    last: Option<Duration>,
    open: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hour {
    pub(super) from: Duration,
    pub(super) reports: u64,
    /// The moments at which reports came: many reports in one upload or commit are one arrival.
    pub(super) arrivals: u64,
    /// The longest time without reports that ended in this hour.
    pub(super) silence: Duration,
}

impl Traffic {
    /// The traffic from now on, after this number of earlier reports.
    pub(super) fn new(now: Duration, earlier: u64) -> Self {
        Self { begun: now, earlier, hours: VecDeque::new(), last: None, open: now }
    }

    /// Counts reports that came at one moment.
    pub(super) fn add(&mut self, now: Duration, reports: u64) {
        if reports == 0 {
            return;
        }
        let silence = self.last.map_or(Duration::ZERO, |_| self.silence(now));
        self.last = Some(now);
        while self.hours.front().is_some_and(|hour| hour.from + WEEK <= now) {
            self.hours.pop_front();
        }
        let from = HOUR * u32::try_from(now.as_secs() / HOUR.as_secs()).unwrap_or(u32::MAX);
        if self.hours.back().is_none_or(|hour| hour.from != from) {
            self.hours.push_back(Hour { from, reports: 0, arrivals: 0, silence });
        }
        if let Some(hour) = self.hours.back_mut() {
            hour.reports += reports;
            hour.arrivals += 1;
            hour.silence = hour.silence.max(silence);
        }
    }

    /// Records that reports are refused now, so that their absence is not silence.
    pub(super) fn close(&mut self, now: Duration) {
        self.open = now;
    }

    /// The time at which reports were taken again after a pause, or the start.
    pub(super) fn open(&self) -> Duration {
        self.open
    }

    /// The number of reports before the first hour.
    pub(super) fn earlier(&self) -> u64 {
        self.earlier
    }

    /// The time of the last report.
    pub(super) fn last(&self) -> Option<Duration> {
        self.last
    }

    /// The time without reports during which reports could have come.
    pub(super) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last.unwrap_or(self.begun).max(self.open))
    }

    /// The time of the first report in the week before the last one. The time before an app is
    /// released is not silence.
    pub(super) fn known_from(&self) -> Option<Duration> {
        self.hours.front().map(|hour| hour.from)
    }

    /// The hours with reports, in the week before the last report.
    pub(super) fn hours(&self) -> impl Iterator<Item = &Hour> {
        self.hours.iter()
    }
}
