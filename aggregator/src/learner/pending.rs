//! How many reports are on their way.
//!
//! A device reports an assignment only after the attribution window and a random
//! delay, so a policy is made while earlier choices are still unheard of. Arms that a
//! server draws are counted; arms that devices draw by themselves are not seen at
//! all. What is known of those is Little's law: what is on its way at one time is the
//! rate at which it arrives times the time that it takes, and the policy says how it
//! is spread over the arms.
//!
//! The estimate assumes that traffic neither grows nor shrinks within that time, and
//! that the policy of now is that of then. Both are wrong by a little: it decides how
//! much exploring waits for what was sent out already, and nothing else.

use std::collections::VecDeque;
use std::time::Duration;

/// Marks of the past that are kept: between two of them lies at least the lag over this
/// number.
const MARKS: u32 = 32;

/// The last selections and reports of an experiment.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Mean time from a selection to its report.
    lag: Duration,
    /// The state of the counters at past times, the oldest first: all that are younger
    /// than the lag, and one before.
    marks: VecDeque<Mark>,
    reports_per_second: f64,
    selected: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Mark {
    at: Duration,
    reports: u64,
    selections: Vec<u64>,
}

impl Flow {
    /// The flow of an experiment whose reports take this time on average.
    pub fn new(lag: Duration) -> Self {
        let (marks, selected) = (VecDeque::new(), Vec::new());
        Self { lag, marks, reports_per_second: 0.0, selected }
    }

    /// Whether reports come at once, so that nothing is ever pending.
    pub fn is_immediate(&self) -> bool {
        self.lag.is_zero()
    }

    /// Takes note of the number of all reports so far, and of the selections of each arm
    /// that are known. Times are those of one monotonic clock.
    pub fn observe(&mut self, now: Duration, reports: u64, selections: Vec<u64>) {
        let age = |mark: &Mark| now.saturating_sub(mark.at);
        while self.marks.get(1).is_some_and(|mark| age(mark) >= self.lag) {
            self.marks.pop_front();
        }
        if let Some(mark) = self.marks.front() {
            let seconds = age(mark).as_secs_f64();
            let more = reports.saturating_sub(mark.reports) as f64;
            self.reports_per_second = if seconds > 0.0 { more / seconds } else { 0.0 };
            let before = mark.selections.iter().copied().chain(std::iter::repeat(0));
            let since = selections.iter().zip(before).map(|(now, then)| now.saturating_sub(then));
            self.selected = since.collect();
        }
        if self.marks.back().is_none_or(|mark| age(mark) >= self.lag / MARKS) {
            self.marks.push_back(Mark { at: now, reports, selections });
        }
    }

    /// Estimates, for each arm, how many selections have not been reported yet: the flow
    /// of reports, spread by the `shares` of the policy, or the selections that are known
    /// if these are more, since every one of them is part of the flow.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bandana_aggregator::learner::pending::Flow;
    /// let seconds = Duration::from_secs;
    /// let mut flow = Flow::new(seconds(30));
    /// flow.observe(seconds(0), 0, vec![0, 0]);
    /// flow.observe(seconds(30), 60, vec![40, 10]);
    /// // 2 reports a second that take 30 s, and an arm that was drawn 40 times.
    /// assert_eq!(flow.pending(&[0.5, 0.5]), [40.0, 30.0]);
    /// ```
    pub fn pending(&self, shares: &[f64]) -> Vec<f64> {
        let flowing = self.reports_per_second * self.lag.as_secs_f64();
        let known = self.selected.iter().copied().chain(std::iter::repeat(0));
        shares.iter().zip(known).map(|(share, known)| (share * flowing).max(known as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pending_follows_the_last_lag() {
        let seconds = Duration::from_secs;
        let mut flow = Flow::new(seconds(100));
        flow.observe(seconds(0), 0, vec![]);
        assert_eq!(flow.pending(&[1.0]), [0.0]);
        // 5 reports a second for 1,000 seconds, then 1 a second.
        for time in 1..=1000 {
            flow.observe(seconds(time), 5 * time, vec![]);
        }
        assert!((flow.pending(&[0.25, 0.75])[1] - 375.0).abs() < 1e-6);
        for time in 1..=200 {
            flow.observe(seconds(1000 + time), 5000 + time, vec![]);
        }
        assert!((flow.pending(&[1.0])[0] - 100.0).abs() < 1e-6);
        // After a silence nothing is on its way, but for a selection just now.
        flow.observe(seconds(100_000), 5200, vec![0, 0]);
        flow.observe(seconds(100_100), 5200, vec![0, 1]);
        assert_eq!(flow.pending(&[0.5, 0.5]), [0.0, 1.0]);
        assert!(flow.marks.len() <= MARKS as usize + 2);
    }
}
