//! Traffic: how many reports came when, for a week of the time in which the experiment runs.

use std::collections::VecDeque;
use std::time::Duration;

use super::HOUR;

/// How long hours are remembered.
pub(super) const WEEK: Duration = HOUR.saturating_mul(7 * 24);

/// The traffic of an experiment, by the hour.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    begun: Duration,
    /// Reports from before that.
    earlier: u64,
    /// Those with reports, of the week before the last of them.
    hours: VecDeque<Hour>,
    /// When reports came last, and since when they could.
    last: Option<Duration>,
    open: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hour {
    pub(super) from: Duration,
    pub(super) reports: u64,
    /// Moments at which some came: many in one upload or commit are one.
    pub(super) arrivals: u64,
    /// The longest time without any that ended here.
    pub(super) silence: Duration,
}

impl Traffic {
    /// From now on. There were so many reports before.
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

    /// Takes note that reports are refused: their absence says nothing.
    pub(super) fn close(&mut self, now: Duration) {
        self.open = now;
    }

    /// When reports were taken again after a pause, or from the start.
    pub(super) fn open(&self) -> Duration {
        self.open
    }

    /// Reports that there were before the first hour.
    pub(super) fn earlier(&self) -> u64 {
        self.earlier
    }

    /// When reports came last.
    pub(super) fn last(&self) -> Option<Duration> {
        self.last
    }

    /// How long none have come that could have.
    pub(super) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last.unwrap_or(self.begun).max(self.open))
    }

    /// Since when there are reports, of the week before the last of them. The time before an
    /// app is released says nothing.
    pub(super) fn known_from(&self) -> Option<Duration> {
        self.hours.front().map(|hour| hour.from)
    }

    /// The hours with reports, of the week before the last of them.
    pub(super) fn hours(&self) -> impl Iterator<Item = &Hour> {
        self.hours.iter()
    }
}
