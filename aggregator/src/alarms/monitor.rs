//! All alarms of one experiment.

use std::time::Duration;

use super::collapsed::Favourite;
use super::outgrown::Balance;
use super::sample_ratio::SampleRatio;
use super::served_shares::ServedShares;
use super::traffic::Traffic;
use super::{Alarm, never, stalled, surge};

/// Monitors an experiment. All times are those of one monotonic clock.
#[derive(Clone, Debug)]
pub struct ExperimentMonitor {
    asked: ServedShares,
    /// `None` if reports come in batches: their number says little about that of the draws.
    ratio: Option<SampleRatio>,
    traffic: Traffic,
    /// `None` if the learner gives all traffic to an arm in order to learn about it.
    favourite: Option<Favourite>,
    /// `None` if not all selections are known to this process.
    balance: Option<Balance>,
    open: OpenTime,
    /// The reports of each arm that were already observed.
    known: Vec<u64>,
    /// The longest time after which a device in use would report; `None` if reports come in batches.
    due: Option<Duration>,
}

/// A clock that stands still while reports are refused. Devices keep them meanwhile, so a duration
/// that began before a pause continues after it.
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

/// How reports come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Each by itself.
    Single,
    /// In batches, each of one arm.
    Batches,
    /// Each by itself, of arms that may have been drawn long before.
    OfKeptArms,
}

/// The state of an experiment when monitoring begins.
#[derive(Clone, Copy, Debug)]
pub struct AlarmBaseline<'a> {
    /// The time at which monitoring begins.
    pub now: Duration,
    /// The longest time after which a device in use would report.
    pub delay: Duration,
    /// The reports of each arm.
    pub reports: &'a [u64],
    /// The number of arms at the start of the experiment.
    pub initial_arms: usize,
    /// Whether no report can come from a policy with other shares than the served one.
    pub is_history_known: bool,
    /// Whether the learner gives all traffic to an arm because little is known about it.
    pub explores: bool,
    /// Whether this process counts all selections.
    pub counts_selections: bool,
    /// How reports come.
    pub arrival: Arrival,
}

/// The facts that a query for alarms needs.
#[derive(Clone, Copy, Debug)]
pub struct AlarmQuery<B, L> {
    /// The present time.
    pub now: Duration,
    /// Whether reports are taken.
    pub is_running: bool,
    /// The probability that an arm is best by all reports.
    pub best: B,
    /// The label of an arm.
    pub label: L,
}

impl ExperimentMonitor {
    /// A monitor that begins now.
    pub fn new(beginning: AlarmBaseline<'_>) -> Self {
        let AlarmBaseline { now, delay, reports, initial_arms, .. } = beginning;
        let earlier: u64 = reports.iter().sum();
        let in_batches = beginning.arrival == Arrival::Batches;
        let balance = || Balance::new(now, delay, earlier == 0);
        Self {
            asked: ServedShares::new(now, delay, beginning.is_history_known),
            ratio: (beginning.arrival == Arrival::Single).then(|| SampleRatio::new(initial_arms)),
            traffic: Traffic::new(now, earlier),
            favourite: (!beginning.explores).then(Favourite::default),
            balance: (beginning.counts_selections && !in_batches).then(balance),
            open: OpenTime { seen: now, is_running: true, passed: now },
            known: reports.to_vec(),
            due: (!in_batches).then_some(delay),
        }
    }

    /// The same monitor of an experiment that takes no reports yet, such as a draft: its time stands
    /// still.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.open.is_running = false;
        self
    }

    /// Records the shares by which arms are drawn from now on.
    pub fn serve(&mut self, now: Duration, shares: &[f64]) {
        self.serve_lists(now, &[shares.to_vec()]);
    }

    /// Records the shares by which arms are drawn from now on: for all installations first, then for
    /// those of each segment.
    pub fn serve_lists(&mut self, now: Duration, lists: &[Vec<f64>]) {
        self.asked.serve_lists(self.open.at(now), lists);
        if let (Some(favourite), [shares, ..]) = (&mut self.favourite, lists) {
            favourite.serve(shares);
        }
    }

    /// Records the number of reports of each arm, and the number of all selections counted since
    /// monitoring began.
    pub fn observe(&mut self, now: Duration, reports: &[u64], selections: u64, is_running: bool) {
        let open = self.open.pass(now, is_running);
        if !is_running {
            self.traffic.close(open);
        }
        let before = self.known.iter().copied().chain(std::iter::repeat(0));
        let more: Option<Vec<u64>> =
            reports.iter().zip(before).map(|(now, then)| now.checked_sub(then)).collect();
        reports.clone_into(&mut self.known);
        // The database has lost reports, so the number of new ones is unknown.
        let Some(more) = more else { return };
        let sum = more.iter().sum();
        self.traffic.add(open, sum);
        if let Some(favourite) = &mut self.favourite {
            favourite.count(now, sum, reports.iter().sum());
        }
        if let Some(ratio) = &mut self.ratio
            && self.asked.is_known(open)
        {
            ratio.count(now, &more, |arm| self.asked.range(arm));
        }
        if let Some(balance) = &mut self.balance {
            balance.observe(now, open, sum, selections);
        }
        self.asked.pass(open);
    }

    /// The ringing alarms.
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
            self.ratio.as_ref().and_then(|ratio| ratio.alarm(now, &label)),
            while_running(stalled::alarm(&self.traffic, open)),
            while_running(self.due.and_then(|delay| never::alarm(&self.traffic, delay, open))),
            while_running(favourite.and_then(|one| one.alarm(now, reports, best, &label))),
            while_running(balance.and_then(|balance| balance.alarm(now))),
            // A batch that fills slowly looks like one.
            while_running(self.due.and_then(|_| surge::alarm(&self.traffic, open))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
