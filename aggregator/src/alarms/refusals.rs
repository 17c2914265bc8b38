//! A jump in refusals: far more uploads are refused than before.
//!
//! A release of the app sends what can't be read or names a specification that this server does not
//! have, clocks are wrong, or somebody tries things out. Of each status the uploads of the last
//! hour are compared with those of the day before it, both by whole [`STEP`]s that have ended. `paused` and `stopped` are left out:
//! they are what operators wanted.
//!
//! It rings for a status when in the last hour at least [`REFUSED_MIN`] uploads were refused
//! with it, and these are at least [`SHARE_MIN`] of all of that hour, at least [`FACTOR`]
//! times as great a share as the day before, and more than chance explains: see below. Before
//! there are [`EARLIER_MIN`] uploads in the day before, nothing is expected.
//!
//! # When it rings for nothing
//! If uploads were refused independently of each other, at a rate p that does not change: with m
//! refused of N earlier ones, p is at most `(m + 7 sqrt(m) + 25)/N` but for a probability below 3e-11
//! (by Chernoff's bound for a Poisson variable), and with it k or more of n uploads are
//! refused with a probability of at most `exp(-(k ln(k/np) - k + np))`, which must be below [`LEVEL`].
//! However often one asks, a step is looked at once. Six statuses in every one make 316,000 looks
//! a year, each with a probability of 1.3e-10 at most: 5e-5 a year. A single device that sends the same thing again and again is no chance; the
//! factor and the least share are for that.
//!
//! # When it ends
//! With a fault that goes on, too: after some nine hours a third of the day before is of the fault,
//! and what was a jump has become what is usual.

use std::collections::VecDeque;
use std::time::Duration;

use bandana_shared::wire::v1::UploadStatus;

use super::{Alarm, AlarmName, HOUR, percent};

/// What is looked at, and what it is compared with.
const RECENT: Duration = HOUR;
const EARLIER: Duration = HOUR.saturating_mul(24);

/// Time by which uploads are told apart.
const STEP: Duration = Duration::from_mins(10);

/// Refused uploads of the last hour, at least.
const REFUSED_MIN: u64 = 20;

/// Their share of all.
const SHARE_MIN: f64 = 0.01;

/// How many times the share of the day before.
const FACTOR: f64 = 3.0;

/// Uploads of the day before, at least.
const EARLIER_MIN: u64 = 1000;

/// Probability of a jump by chance, in one look at one status.
const LEVEL: f64 = 1e-10;

/// The statuses that are looked at.
const WATCHED: [UploadStatus; 6] = [
    UploadStatus::Malformed,
    UploadStatus::UnknownSpecification,
    UploadStatus::UnknownArm,
    UploadStatus::TooManyReports,
    UploadStatus::Expired,
    UploadStatus::FutureDay,
];

/// What became of the uploads of a day, of all experiments together.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    steps: VecDeque<Step>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    from: Duration,
    uploads: u64,
    /// By the place of the status in [`WATCHED`].
    refused: [u64; WATCHED.len()],
}

impl Refusals {
    /// Counts uploads that were answered with this status.
    pub fn add(&mut self, now: Duration, status: UploadStatus, uploads: u64) {
        let from = begin_of_step(now);
        if self.steps.back().is_none_or(|step| step.from < from) {
            let begin = from.saturating_sub(RECENT + EARLIER + STEP);
            while self.steps.front().is_some_and(|step| step.from < begin) {
                self.steps.pop_front();
            }
            self.steps.push_back(Step { from, ..Step::default() });
        }
        let Some(step) = self.steps.back_mut() else { return };
        step.uploads += uploads;
        if let Some(place) = WATCHED.iter().position(|watched| *watched == status) {
            step.refused[place] += uploads;
        }
    }

    /// Whether there is an alarm: the one of the status that has the largest share.
    pub fn alarm(&self, now: Duration) -> Option<Alarm> {
        let end = begin_of_step(now);
        let begin = end.saturating_sub(RECENT);
        let recent = self.sum(begin, end);
        let earlier = self.sum(begin.saturating_sub(EARLIER), begin);
        if earlier.uploads < EARLIER_MIN {
            return None;
        }
        let jumped = (0..WATCHED.len()).filter(|place| has_jumped(&recent, &earlier, *place));
        let place = jumped.max_by_key(|place| recent.refused[*place])?;
        let share = |step: &Step| step.refused[place] as f64 / step.uploads as f64;
        let (seen, before) = (share(&recent), share(&earlier));
        let status = WATCHED[place].as_str_name().trim_start_matches("UPLOAD_STATUS_");
        Some(Alarm {
            name: AlarmName::RefusalsJump,
            message: format!(
                "of the {} uploads to this server in the last hour, of all experiments, {} were \
                 refused as {}, and of those of the day before {}: look at new releases of apps, \
                 at the clocks, and at who calls",
                recent.uploads,
                percent(seen),
                status.to_lowercase(),
                percent(before),
            ),
            age: None,
            threshold: SHARE_MIN.max(FACTOR * before),
            seen,
        })
    }

    fn sum(&self, from: Duration, until: Duration) -> Step {
        let mut sum = Step::default();
        for step in self.steps.iter().filter(|step| (from..until).contains(&step.from)) {
            sum.uploads += step.uploads;
            for (refused, more) in sum.refused.iter_mut().zip(step.refused) {
                *refused += more;
            }
        }
        sum
    }
}

fn begin_of_step(now: Duration) -> Duration {
    STEP * u32::try_from(now.as_secs() / STEP.as_secs()).unwrap_or(u32::MAX)
}

fn has_jumped(recent: &Step, earlier: &Step, place: usize) -> bool {
    let (refused, of) = (recent.refused[place] as f64, recent.uploads as f64);
    let before = earlier.refused[place] as f64;
    let share = refused / of;
    if recent.refused[place] < REFUSED_MIN
        || share < SHARE_MIN
        || share < FACTOR * before / earlier.uploads as f64
    {
        return false;
    }
    let rate = (before + 7.0 * before.sqrt() + 25.0) / earlier.uploads as f64;
    let expected = of * rate;
    let exponent = refused * libm::log(refused / expected) - refused + expected;
    refused > expected && exponent > -libm::log(LEVEL)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Two days in which a share of 2,000 uploads an hour is refused, at random, and an hour
    /// with another share. Tells at which minutes it rang.
    fn rung(share: f64, last: f64, status: UploadStatus, seed: u64) -> (usize, Option<Alarm>) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut refusals = Refusals::default();
        let mut rung = 0;
        for minute in 0..49 * 60 {
            let now = Duration::from_mins(minute);
            let share = if minute < 48 * 60 { share } else { last };
            let refused = (0..33).filter(|_| rng.random::<f64>() < share).count() as u64;
            refusals.add(now, status, refused);
            refusals.add(now, UploadStatus::Accepted, 33 - refused);
            rung += usize::from(minute < 48 * 60 && refusals.alarm(now).is_some());
        }
        assert!(refusals.steps.len() <= 6 * 25 + 2);
        (rung, refusals.alarm(Duration::from_mins(49 * 60 - 1)))
    }

    #[test]
    fn a_jump_rings_and_what_was_always_refused_does_not() {
        for seed in 0..10 {
            for share in [0.0, 0.001, 0.03, 0.3] {
                let (rung, last) = rung(share, share, UploadStatus::Malformed, seed);
                assert_eq!((rung, last), (0, None), "share {share}, seed {seed}");
            }
            let (_, alarm) = rung(0.001, 0.05, UploadStatus::Malformed, seed);
            let alarm = alarm.unwrap();
            assert!(alarm.message.contains("as malformed"), "{alarm:?}");
            assert!(alarm.seen >= alarm.threshold && alarm.seen < 0.08, "{alarm:?}");
        }
    }

    #[test]
    fn what_operators_wanted_and_what_is_new_do_not_ring() {
        let (rung, last) = rung(0.0, 0.9, UploadStatus::Paused, 1);
        assert_eq!((rung, last), (0, None));
        let mut young = Refusals::default();
        young.add(Duration::ZERO, UploadStatus::Malformed, 1_000_000);
        assert_eq!(young.alarm(Duration::from_secs(1)), None);
    }
}
