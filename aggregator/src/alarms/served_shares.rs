//! Served shares: the part of the reports that the policies asked for, by arm.
//!
//! A report comes long after the arm was drawn: after the attribution window, a random delay, and
//! the time until the app is used again. The policy may have been on the device for longer. The
//! total delay is unknown. So the share of an arm among the reports of a moment is only known as a
//! range: from the least to the greatest share served within the last attribution window, release
//! delay and [`LATENESS`]. The assumption is: whatever came before, each report is drawn by an
//! earlier policy with a probability of at most [`LATE_SHARE`], and then by any policy that was
//! ever served. Devices without a network keep reports for longer, as the replay window allows.
//! They are among these few as long as they return one by one. When an outage of more than a week
//! ends for many devices at once, the assumption fails.
//!
//! It is also assumed that reports are made regardless of the arm that was drawn. An early version of
//! the client's `Acceptance::report_once` violates this: it reports an arm only when that is first
//! drawn in a period, so arms with little traffic have a larger share of the reports than of the
//! draws.
//!
//! Times exclude pauses of the experiment. During a pause devices keep their reports, so the
//! policies before it count for as much longer.
//!
//! After a restart, earlier policies are unknown. Then the shares are unknown until that time has
//! passed, and reports from before allow any share. An exception are arms that have had equal
//! shares until now, as with the learner `uniform` and in the burn-in.

use std::collections::VecDeque;
use std::time::Duration;

use super::DAY;

/// The longest additional delay of reports, which each report exceeds with a probability of at most
/// [`LATE_SHARE`].
pub const LATENESS: Duration = DAY.saturating_mul(7);

/// The probability, given all reports before, that a report exceeds this delay.
pub const LATE_SHARE: f64 = 0.05;

/// The number of slots of the horizon; policies are forgotten slot by slot.
const SLOTS: u32 = 32;

/// The shares that policies gave to the arms over time.
#[derive(Clone, Debug)]
pub struct ServedShares {
    horizon: Duration,
    begun: Duration,
    /// Whether all policies are known from which reports can come.
    is_complete: bool,
    slots: VecDeque<(Duration, Ranges)>,
    ever: Ranges,
    serving: Vec<Vec<f64>>,
}

/// The least and the greatest share of each arm; both are 0 for an arm that is not listed.
#[derive(Clone, Debug, Default)]
struct Ranges(Vec<(f64, f64)>);

impl Ranges {
    fn of(lists: &[Vec<f64>]) -> Self {
        let first = lists.first().map_or(&[][..], |shares| shares);
        let mut ranges = Self(first.iter().map(|share| (*share, *share)).collect());
        for shares in lists {
            ranges.widen(shares);
        }
        ranges
    }

    fn get(&self, arm: usize) -> (f64, f64) {
        self.0.get(arm).copied().unwrap_or_default()
    }

    fn widen(&mut self, shares: &[f64]) {
        self.0.resize(self.0.len().max(shares.len()), (0.0, 0.0));
        for (arm, (low, high)) in self.0.iter_mut().enumerate() {
            let share = shares.get(arm).copied().unwrap_or(0.0);
            (*low, *high) = (low.min(share), high.max(share));
        }
    }
}

impl ServedShares {
    /// The shares from now on, by a clock that stands still in pauses. `delay` is the longest time
    /// after which a device in use would report. `is_complete`: no report can come from a policy
    /// with other shares than the first one served from now on.
    pub fn new(now: Duration, delay: Duration, is_complete: bool) -> Self {
        Self {
            horizon: delay.saturating_add(LATENESS),
            begun: now,
            is_complete,
            slots: VecDeque::new(),
            ever: Ranges::default(),
            serving: Vec::new(),
        }
    }

    /// Records the shares by which arms are drawn from now on.
    pub fn serve(&mut self, now: Duration, shares: &[f64]) {
        self.serve_lists(now, &[shares.to_vec()]);
    }

    /// Records lists of shares. From now on an arm is drawn by one of them, and which one is unknown.
    pub fn serve_lists(&mut self, now: Duration, lists: &[Vec<f64>]) {
        self.pass(now);
        if self.slots.is_empty() {
            (self.ever, self.slots) = (Ranges::of(lists), [(now, Ranges::of(lists))].into());
        }
        for shares in lists {
            self.ever.widen(shares);
            if let Some((_, newest)) = self.slots.back_mut() {
                newest.widen(shares);
            }
        }
        lists.clone_into(&mut self.serving);
    }

    /// Forgets shares that were served too long ago.
    pub fn pass(&mut self, now: Duration) {
        if self.slots.back().is_some_and(|(from, _)| now >= *from + self.horizon / SLOTS) {
            self.slots.push_back((now, Ranges::of(&self.serving)));
        }
        // The shares of a slot were served until the next slot begins.
        let oldest = now.saturating_sub(self.horizon);
        while self.slots.get(1).is_some_and(|(from, _)| *from <= oldest) {
            self.slots.pop_front();
        }
    }

    /// Whether the range is known for the reports that come now.
    pub fn is_known(&self, now: Duration) -> bool {
        self.is_complete || now >= self.begun + self.horizon
    }

    /// The least and the greatest probability that a report that comes now is of this arm.
    pub fn range(&self, arm: usize) -> (f64, f64) {
        let slots = self.slots.iter().map(|(_, ranges)| ranges.get(arm));
        let hull = |(low, high): (f64, f64), (l, h): (f64, f64)| (low.min(l), high.max(h));
        let (low, high) = slots.reduce(hull).unwrap_or((0.0, 1.0));
        let (least, most) = if self.is_complete { self.ever.get(arm) } else { (0.0, 1.0) };
        (low - LATE_SHARE * (low - least), high + LATE_SHARE * (most - high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: (f64, f64), expected: (f64, f64)) {
        let distance = (found.0 - expected.0).abs().max((found.1 - expected.1).abs());
        assert!(distance < 1e-12, "{found:?} instead of {expected:?}");
    }

    #[test]
    fn policies_count_until_their_reports_have_come_and_a_little_for_ever() {
        let mut asked = ServedShares::new(Duration::ZERO, DAY, true);
        asked.serve(Duration::ZERO, &[0.5, 0.5]);
        near(asked.range(0), (0.5, 0.5));
        asked.serve(DAY, &[0.9, 0.1]);
        near(asked.range(0), (0.5, 0.9));
        near(asked.range(1), (0.1, 0.5));
        for day in 2..=12 {
            asked.pass(DAY * day);
            assert!(asked.slots.len() <= SLOTS as usize + 2);
        }
        // Late reports may still be of the first policy.
        near(asked.range(0), (0.88, 0.9));
        near(asked.range(1), (0.1, 0.12));
        // A new arm.
        asked.serve(DAY * 12, &[0.8, 0.1, 0.1]);
        near(asked.range(2), (0.0, 0.1));
    }

    #[test]
    fn after_a_restart_nothing_is_known_for_a_while_and_late_reports_may_be_of_any_arm() {
        let mut asked = ServedShares::new(DAY, DAY, false);
        asked.serve(DAY, &[0.5, 0.5]);
        assert!(!asked.is_known(DAY * 8));
        assert!(asked.is_known(DAY * 9));
        near(asked.range(0), (0.475, 0.525));
    }
}
