//! Served shares: the part of the reports that the policies asked for, by arm.
//!
//! A report comes long after the arm was drawn: after the attribution window, a random delay,
//! and the time until the app is used again, by a policy that the device may have had for
//! longer. Nobody knows how much later. So what is known of the share of an arm among the
//! reports of a moment is a range: from the least to the greatest that was served within the
//! last attribution window, release delay and [`LATENESS`]. That is the assumption: whatever came
//! before, each report that comes is drawn by an earlier policy with a probability of at most
//! [`LATE_SHARE`], and then by any that ever was. Devices that keep reports for longer while they
//! have no network, as the replay window lets them, are among these few as long as they come one by
//! one; where an outage of more than a week ends for many at once, the assumption fails.
//!
//! And that reports are made regardless of which arm was drawn. With the client's
//! `Acceptance::report_once` they are not: an arm reports the first time only that it is drawn
//! in a period, so arms with little traffic have a larger share of the reports than of the draws.
//!
//! Times are of an experiment that runs. While it is paused, devices keep their reports, and so
//! the policies before a pause count for as much longer.
//!
//! After a restart earlier policies are not known. Then nothing is said before that time has
//! passed, and what came before it counts as any share at all; unless the arms had equal
//! shares until now, as with the learner `uniform` and in the burn-in.

use std::collections::VecDeque;
use std::time::Duration;

use super::DAY;

/// How much later than they could reports come, each but with a probability of [`LATE_SHARE`].
pub const LATENESS: Duration = DAY.saturating_mul(7);

/// The probability, given all reports before it, with which a report may be later than that.
pub const LATE_SHARE: f64 = 0.05;

/// Steps in which policies are forgotten.
const SLOTS: u32 = 32;

/// The shares that policies gave to the arms.
#[derive(Clone, Debug)]
pub struct ServedShares {
    horizon: Duration,
    begun: Duration,
    /// Whether all policies are known from which reports can come.
    is_complete: bool,
    slots: VecDeque<(Duration, Ranges)>,
    ever: Ranges,
    serving: Vec<f64>,
}

/// Of each arm the least and the greatest share; of one that is not listed both are 0.
#[derive(Clone, Debug, Default)]
struct Ranges(Vec<(f64, f64)>);

impl Ranges {
    fn of(shares: &[f64]) -> Self {
        Self(shares.iter().map(|share| (*share, *share)).collect())
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
    /// From now on, by a clock that stands still in pauses. `delay` is the longest time after which a device that is used would
    /// report; `is_complete`: no report can come from a policy with other shares than the
    /// first that is served from now on.
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

    /// Takes note that from now on arms are drawn by these shares.
    pub fn serve(&mut self, now: Duration, shares: &[f64]) {
        self.pass(now);
        if self.slots.is_empty() {
            (self.ever, self.slots) = (Ranges::of(shares), [(now, Ranges::of(shares))].into());
        }
        self.ever.widen(shares);
        if let Some((_, newest)) = self.slots.back_mut() {
            newest.widen(shares);
        }
        shares.clone_into(&mut self.serving);
    }

    /// Forgets what was served too long ago.
    pub fn pass(&mut self, now: Duration) {
        if self.slots.back().is_some_and(|(from, _)| now >= *from + self.horizon / SLOTS) {
            self.slots.push_back((now, Ranges::of(&self.serving)));
        }
        // What is in a slot was served until the next one begins.
        let oldest = now.saturating_sub(self.horizon);
        while self.slots.get(1).is_some_and(|(from, _)| *from <= oldest) {
            self.slots.pop_front();
        }
    }

    /// Whether enough is known to say something of the reports that come now.
    pub fn is_known(&self, now: Duration) -> bool {
        self.is_complete || now >= self.begun + self.horizon
    }

    /// The least and the greatest probability that a report which comes now is of this arm.
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
        // An arm that there was not before.
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
