//! All alarms of one experiment.

use std::time::Duration;

use super::collapsed::Favourite;
use super::outgrown::Balance;
use super::sample_ratio::SampleRatio;
use super::served_shares::ServedShares;
use super::traffic::Traffic;
use super::{Alarm, stalled, surge};

/// Watches over an experiment. Times are those of one monotonic clock.
#[derive(Clone, Debug)]
pub struct ExperimentMonitor {
    asked: ServedShares,
    ratio: SampleRatio,
    traffic: Traffic,
    /// `None` where the learner gives all traffic to an arm to learn of it.
    favourite: Option<Favourite>,
    /// `None` where nobody knows all selections.
    balance: Option<Balance>,
    open: OpenTime,
    /// The reports of each arm that were looked at.
    known: Vec<u64>,
}

/// A clock that stands still while reports are refused: devices keep them meanwhile, and
/// what takes time before a pause takes the rest of it afterwards.
#[derive(Clone, Copy, Debug)]
struct OpenTime {
    seen: Duration,
    is_running: bool,
    passed: Duration,
}

impl OpenTime {
    fn at(&self, now: Duration) -> Duration {
        let more = if self.is_running { now.saturating_sub(self.seen) } else { Duration::ZERO };
        self.passed + more
    }

    fn pass(&mut self, now: Duration, is_running: bool) -> Duration {
        *self = Self { seen: now, is_running, passed: self.at(now) };
        self.passed
    }
}

/// An experiment when monitoring begins.
#[derive(Clone, Copy, Debug)]
pub struct AlarmBaseline<'a> {
    /// When that is.
    pub now: Duration,
    /// Longest time after which a device that is used would report.
    pub delay: Duration,
    /// The reports of each arm.
    pub reports: &'a [u64],
    /// How many arms there were from the start.
    pub initial_arms: usize,
    /// Whether no report can come from a policy with other shares than the one that is served.
    pub is_history_known: bool,
    /// Whether the learner gives all traffic to an arm because little is known of it.
    pub explores: bool,
    /// Whether the selections that this process counts are all there are.
    pub counts_selections: bool,
}

/// What whoever asks for alarms knows.
#[derive(Clone, Copy, Debug)]
pub struct AlarmQuery<B, L> {
    /// Now.
    pub now: Duration,
    /// Whether reports are taken.
    pub is_running: bool,
    /// How likely an arm is the best by all reports.
    pub best: B,
    /// The label of an arm.
    pub label: L,
}

impl ExperimentMonitor {
    /// From now on.
    pub fn new(beginning: AlarmBaseline<'_>) -> Self {
        let AlarmBaseline { now, delay, reports, initial_arms, .. } = beginning;
        let earlier: u64 = reports.iter().sum();
        let balance = || Balance::new(now, delay, earlier == 0);
        Self {
            asked: ServedShares::new(now, delay, beginning.is_history_known),
            ratio: SampleRatio::new(initial_arms),
            traffic: Traffic::new(now, earlier),
            favourite: (!beginning.explores).then(Favourite::default),
            balance: beginning.counts_selections.then(balance),
            open: OpenTime { seen: now, is_running: true, passed: now },
            known: reports.to_vec(),
        }
    }

    /// Takes note that from now on arms are drawn by these shares.
    pub fn serve(&mut self, now: Duration, shares: &[f64]) {
        self.asked.serve(self.open.at(now), shares);
        if let Some(favourite) = &mut self.favourite {
            favourite.serve(shares);
        }
    }

    /// Takes note of the number of reports of each arm, and of all selections that were counted
    /// since the begin.
    pub fn observe(&mut self, now: Duration, reports: &[u64], selections: u64, is_running: bool) {
        let open = self.open.pass(now, is_running);
        if !is_running {
            self.traffic.close(open);
        }
        let before = self.known.iter().copied().chain(std::iter::repeat(0));
        let more: Option<Vec<u64>> =
            reports.iter().zip(before).map(|(now, then)| now.checked_sub(then)).collect();
        reports.clone_into(&mut self.known);
        // A database has lost some: what has come since is not known.
        let Some(more) = more else { return };
        let sum = more.iter().sum();
        self.traffic.add(open, sum);
        if let Some(favourite) = &mut self.favourite {
            favourite.count(now, sum, reports.iter().sum());
        }
        if self.asked.is_known(open) {
            self.ratio.count(now, &more, |arm| self.asked.range(arm));
        }
        if let Some(balance) = &mut self.balance {
            balance.observe(now, open, sum, selections);
        }
        self.asked.pass(open);
    }

    /// The alarms that ring.
    pub fn alarms<B, L>(&self, question: AlarmQuery<B, L>) -> Vec<Alarm>
    where
        B: FnOnce(usize) -> Option<f64>,
        L: Fn(usize) -> String,
    {
        let AlarmQuery { now, is_running, best, label } = question;
        let open = self.open.at(now);
        let reports = self.known.iter().sum();
        let favourite = self.favourite.as_ref();
        let while_running = |alarm: Option<Alarm>| alarm.filter(|_| is_running);
        let balance = self.balance.as_ref();
        [
            self.ratio.alarm(now, &label),
            while_running(stalled::alarm(&self.traffic, open)),
            while_running(favourite.and_then(|one| one.alarm(now, reports, best, &label))),
            while_running(balance.and_then(|balance| balance.alarm(now))),
            while_running(surge::alarm(&self.traffic, open)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
