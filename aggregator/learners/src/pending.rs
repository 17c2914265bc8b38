//! The estimate of pending reports.
//!
//! A device reports an assignment only after the attribution window and a random delay. So a policy
//! is made while the reports of earlier choices are pending. Selections drawn by a server are
//! counted. Those drawn by devices are unobserved, and their number follows from Little's law:
//! pending reports equal the arrival rate times the mean delay. The policies give their
//! distribution over the arms. Policies change within the delay, so those in force when the
//! selections were made count, not the newest one.
//!
//! The estimate assumes that traffic is constant within the delay, and that devices receive a
//! policy at once. Both hold approximately. The learner explores less while selections are pending,
//! so an arm with too low an estimate gets more traffic than it needs, for the length of the delay.

use std::collections::VecDeque;
use std::time::Duration;

/// Number of marks kept per lag: consecutive marks are at least the lag divided by this number
/// apart.
const MARKS: u32 = 32;

/// Estimator of the pending selections of an experiment.
#[derive(Clone, Debug)]
pub struct PendingEstimator {
    /// Mean delay from a selection to its report.
    lag: Duration,
    /// The counters at past times, oldest first: all marks younger than the lag, and one older.
    marks: VecDeque<Mark>,
    reports_per_second: f64,
    selected: Vec<u64>,
    /// The policy in force, and its start.
    serving: Option<(Duration, Vec<f64>)>,
    /// For each arm, its shares times the seconds for which they were served.
    served: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Mark {
    at: Duration,
    reports: u64,
    selections: Vec<u64>,
    served: Vec<f64>,
}

impl PendingEstimator {
    /// An estimator for an experiment whose reports have this mean delay.
    pub fn new(lag: Duration) -> Self {
        let (marks, selected, served) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { lag, marks, reports_per_second: 0.0, selected, serving: None, served }
    }

    /// Whether the delay is zero, so that nothing is ever pending.
    pub fn is_immediate(&self) -> bool {
        self.lag.is_zero()
    }

    /// Records that arms are drawn with these shares from now on.
    pub fn serve(&mut self, now: Duration, shares: Vec<f64>) {
        self.serve_until(now);
        self.serving = Some((now, shares));
    }

    /// Accounts for the current policy until now.
    fn serve_until(&mut self, now: Duration) {
        let Some((since, shares)) = &mut self.serving else { return };
        let seconds = now.saturating_sub(*since).as_secs_f64();
        self.served.resize(self.served.len().max(shares.len()), 0.0);
        for (served, share) in self.served.iter_mut().zip(shares) {
            *served += seconds * *share;
        }
        *since = now.max(*since);
    }

    /// Records the total number of reports so far, and the known selections of each arm. Times are
    /// those of one monotonic clock.
    pub fn observe(&mut self, now: Duration, reports: u64, selections: Vec<u64>) {
        self.serve_until(now);
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
            let served = self.served.clone();
            self.marks.push_back(Mark { at: now, reports, selections, served });
        }
    }

    /// Estimates the pending selections of each arm. It takes the arrivals in one lag, distributed
    /// by the policies of the last lag, or the number of known selections if that is larger.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bandana_learners::pending::PendingEstimator;
    /// let seconds = Duration::from_secs;
    /// let mut flow = PendingEstimator::new(seconds(30));
    /// flow.serve(seconds(0), vec![1.0, 0.0]);
    /// flow.observe(seconds(0), 0, vec![0, 0]);
    /// flow.serve(seconds(15), vec![0.2, 0.8]);
    /// flow.observe(seconds(30), 60, vec![40, 10]);
    /// // 2 reports a second that take 30 s: of 60, 36 and 24, and an arm was drawn 40 times.
    /// assert_eq!(flow.pending(2), [40.0, 24.0]);
    /// ```
    pub fn pending(&self, arms: usize) -> Vec<f64> {
        let before = self.marks.front().map_or(&[][..], |mark| &mark.served);
        let before = before.iter().copied().chain(std::iter::repeat(0.0));
        let mut served: Vec<f64> = self.served.iter().zip(before).map(|(s, b)| s - b).collect();
        served.resize(arms.max(served.len()), 0.0);
        let seconds: f64 = served.iter().sum();
        let flowing = self.reports_per_second * self.lag.as_secs_f64();
        let each = if seconds > 0.0 { flowing / seconds } else { 0.0 };
        let known = self.selected.iter().copied().chain(std::iter::repeat(0));
        served.iter().zip(known).take(arms).map(|(s, known)| (s * each).max(known as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::tally::Tally;

    use super::*;
    use crate::{Learner, LearnerInput};

    #[test]
    fn what_is_pending_follows_the_last_lag() {
        let seconds = Duration::from_secs;
        let mut flow = PendingEstimator::new(seconds(100));
        flow.serve(seconds(0), vec![0.25, 0.75]);
        flow.observe(seconds(0), 0, vec![]);
        assert_eq!(flow.pending(2), [0.0, 0.0]);
        // 5 reports per second for 1,000 seconds, then 1 per second.
        for time in 1..=1000 {
            flow.observe(seconds(time), 5 * time, vec![]);
        }
        assert!((flow.pending(2)[1] - 375.0).abs() < 1e-6);
        for time in 1..=200 {
            flow.observe(seconds(1000 + time), 5000 + time, vec![]);
        }
        assert!((flow.pending(2)[0] - 25.0).abs() < 1e-6);
        // After a silence nothing is pending, except a selection just made.
        flow.observe(seconds(100_000), 5200, vec![0, 0]);
        flow.observe(seconds(100_100), 5200, vec![0, 1]);
        assert_eq!(flow.pending(2), [0.0, 1.0]);
        assert!(flow.marks.len() <= MARKS as usize + 2);
    }

    #[test]
    fn selections_are_pending_by_the_policy_that_they_were_made_by() {
        let seconds = Duration::from_secs;
        let mut flow = PendingEstimator::new(seconds(100));
        flow.serve(seconds(0), vec![1.0]);
        for time in 0..=200 {
            flow.observe(seconds(time), 10 * time, vec![]);
        }
        // A second arm, to which a policy gives traffic for ten seconds.
        flow.serve(seconds(200), vec![0.5, 0.5]);
        assert_eq!(flow.pending(2), [1000.0, 0.0]);
        flow.serve(seconds(210), vec![1.0, 0.0]);
        // Its selections stay pending for one lag, however many policies follow.
        for time in 201..=400 {
            flow.observe(seconds(time), 10 * time, vec![]);
            let expected = match time {
                ..=209 => continue,
                210..=299 => 48.0..=51.0,
                300..=314 => 0.0..=51.0,
                _ => 0.0..=0.0,
            };
            let pending = flow.pending(2);
            assert!(expected.contains(&pending[1]), "{time}: {pending:?}");
            assert!((pending[0] + pending[1] - 1000.0).abs() < 1e-6, "{time}: {pending:?}");
        }
    }

    /// Simulates 100 users per second, whose devices draw arms, and reports with a delay of 200
    /// seconds. An arm is added, and every second a learner makes a policy, with known or estimated
    /// pending counts. Returns the selections of the new arm within two lags.
    fn sent_to_a_new_arm(is_known: bool) -> f64 {
        const LAG: usize = 200;
        const USERS: f64 = 100.0;
        let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
        let means = [0.5 + 0.25 * floor.contrast(), 0.5 + 0.2 * floor.contrast(), 0.5];
        let mut reports = [100_000.0, 2000.0, 0.0];
        let mut on_the_way: VecDeque<[f64; 3]> = vec![[USERS, 0.0, 0.0]; LAG].into();
        let mut flow = PendingEstimator::new(Duration::from_secs(LAG as u64));
        flow.serve(Duration::ZERO, vec![1.0, 0.0]);
        let mut sent = 0.0;
        for second in 0..3 * LAG {
            let now = Duration::from_secs(second as u64);
            for (reports, arrived) in reports.iter_mut().zip(on_the_way.pop_front().unwrap()) {
                *reports += arrived;
            }
            let total: f64 = reports.iter().sum();
            flow.observe(now, whole(total), vec![]);
            if second < LAG {
                on_the_way.push_back([USERS, 0.0, 0.0]);
                continue;
            }
            let tally = |(reports, mean): (&f64, f64)| {
                Tally::new(whole(*reports), whole(reports.floor() * mean)).unwrap()
            };
            let tallies: Vec<Tally> = reports.iter().zip(means).map(tally).collect();
            let on_the_way_to = |arm: usize| on_the_way.iter().map(|sent| sent[arm]).sum();
            let pending: Vec<f64> =
                if is_known { (0..3).map(on_the_way_to).collect() } else { flow.pending(3) };
            let input = LearnerInput::new(&tallies, &[true; 3], floor)
                .with_pending(&pending)
                .with_ahead(total / 100.0);
            let weights = Learner::RandAdaKl.weights(&input).unwrap();
            let shares = [0, 1, 2].map(|arm| weights.share(arm));
            on_the_way.push_back(shares.map(|share| USERS * share));
            sent += USERS * shares[2];
            flow.serve(now, shares.to_vec());
        }
        sent
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    fn whole(count: f64) -> u64 {
        count as u64
    }

    #[test]
    fn a_new_arm_is_explored_as_if_what_is_pending_were_known() {
        let (known, estimated) = (sent_to_a_new_arm(true), sent_to_a_new_arm(false));
        assert!((0.8..1.25).contains(&(estimated / known)), "{estimated} instead of {known}");
    }
}
