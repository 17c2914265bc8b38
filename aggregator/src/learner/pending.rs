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

/// Looks back at the reports of an experiment, to tell their rate.
#[derive(Clone, Debug)]
pub struct ReportRate {
    /// Times and the number of all reports at them, the oldest first.
    marks: VecDeque<(Duration, u64)>,
    horizon: Duration,
}

/// Marks that are kept at most; between two of them lies at least the horizon over
/// this number.
const MARKS: u32 = 32;

impl ReportRate {
    /// The rate over about the last `horizon`, and at least a second.
    pub fn over(horizon: Duration) -> Self {
        Self { marks: VecDeque::new(), horizon: horizon.max(Duration::from_secs(1)) }
    }

    /// Takes note of the number of all reports so far, and returns their rate per
    /// second: 0 until it is known. Times are those of one monotonic clock.
    pub fn observe(&mut self, now: Duration, reports: u64) -> f64 {
        while self.marks.get(1).is_some_and(|(time, _)| now.saturating_sub(*time) >= self.horizon) {
            self.marks.pop_front();
        }
        let rate = self.marks.front().map_or(0.0, |(time, before)| {
            let seconds = now.saturating_sub(*time).as_secs_f64();
            if seconds > 0.0 { reports.saturating_sub(*before) as f64 / seconds } else { 0.0 }
        });
        let spacing = self.horizon / MARKS;
        if self.marks.back().is_none_or(|(time, _)| now.saturating_sub(*time) >= spacing) {
            self.marks.push_back((now, reports));
        }
        rate
    }
}

/// Estimates, for each arm, how many selections have not been reported yet.
///
/// `rate` is that of reports per second, `lag` the mean time from a selection to its
/// report, `shares` those of the policy, and `selected` the selections that are known
/// and younger than the lag. The two overlap, so the larger counts.
///
/// ```
/// use std::time::Duration;
/// use bandana_aggregator::learner::pending::pending;
/// // 2 reports a second that take 30 s, and an arm that was drawn 40 times.
/// let pending = pending(2.0, Duration::from_secs(30), &[0.5, 0.5], &[40.0, 10.0]);
/// assert_eq!(pending, [40.0, 30.0]);
/// ```
pub fn pending(rate: f64, lag: Duration, shares: &[f64], selected: &[f64]) -> Vec<f64> {
    let flowing = rate * lag.as_secs_f64();
    let known = selected.iter().copied().chain(std::iter::repeat(0.0));
    shares.iter().zip(known).map(|(share, known)| (share * flowing).max(known)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_last_horizon() {
        let seconds = Duration::from_secs;
        let mut rate = ReportRate::over(seconds(100));
        assert_eq!(rate.observe(seconds(0), 0), 0.0);
        // 5 a second for 1,000 seconds, then 1 a second.
        for time in 1..=1000 {
            rate.observe(seconds(time), 5 * time);
        }
        let steady = rate.observe(seconds(1001), 5 * 1001);
        assert!((steady - 5.0).abs() < 1e-9, "{steady}");
        let mut last = 0.0;
        for time in 1..=200 {
            last = rate.observe(seconds(1001 + time), 5 * 1001 + time);
        }
        assert!((last - 1.0).abs() < 1e-9, "{last}");
        // A long silence leaves one old mark, and the rate falls.
        assert!(rate.observe(seconds(100_000), 5 * 1001 + 200) < 0.01);
        assert!(rate.marks.len() <= MARKS as usize + 2);
    }
}
