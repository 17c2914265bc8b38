//! A jump in refusals: far more uploads are refused than before.
//!
//! A release of the app sends unreadable uploads or names a specification that this server does not
//! have, clocks are wrong, or an attacker probes the server. For each status, the uploads of the
//! last hour are compared with those of the day before it, both by whole [`STEP`]s that have ended.
//! `paused` and `stopped` are excluded, since operators cause them on purpose.
//!
//! The alarm rings for a status under four conditions on the last hour: at least [`REFUSED_MIN`]
//! uploads were refused with the status; their share of all uploads is at least [`SHARE_MIN`]; the
//! share is at least [`FACTOR`] times that of the day before; and chance does not explain it (see
//! below). It does not ring before there are [`EARLIER_MIN`] uploads in the day before.
//!
//! # False alarms
//! Suppose that uploads are refused independently of each other, at a constant rate p. With m
//! refused of N earlier ones, p is at most `(m + 7 sqrt(m) + 25)/N`, except with a probability
//! below 3e-11 (by Chernoff's bound for a Poisson variable). With that p, k or more of n uploads
//! are refused with a probability of at most `exp(-(k ln(k/np) - k + np))`, which must be below
//! [`LEVEL`]. Each step is evaluated once, however often the alarm is queried. Six statuses in
//! every step make 316,000 evaluations a year, each with a probability of at most 1.3e-10: 5e-5 a
//! year. A single device that sends the same upload again and again is not chance; the factor and
//! the least share are for that case.
//!
//! # End of the alarm
//! The alarm ends even if the fault goes on: after some nine hours, a third of the day before has
//! the fault, and the jump has become the usual rate.

use std::collections::VecDeque;
use std::time::Duration;

use bandana_shared::wire::v1::UploadStatus;

use super::{Alarm, AlarmName, HOUR, percent};

/// The time that is evaluated, and the time before it that it is compared with.
const RECENT: Duration = HOUR;
const EARLIER: Duration = HOUR.saturating_mul(24);

/// The resolution in time.
const STEP: Duration = Duration::from_mins(10);

/// The least number of refused uploads in the last hour.
const REFUSED_MIN: u64 = 20;

/// The least share of refused uploads in the last hour.
const SHARE_MIN: f64 = 0.01;

/// The least ratio of this share to that of the day before.
const FACTOR: f64 = 3.0;

/// The least number of uploads in the day before.
const EARLIER_MIN: u64 = 1000;

/// The probability of a jump by chance, in one evaluation of one status.
const LEVEL: f64 = 1e-10;

/// The statuses that are evaluated.
const WATCHED: [UploadStatus; 6] = [
    UploadStatus::Malformed,
    UploadStatus::UnknownSpecification,
    UploadStatus::UnknownArm,
    UploadStatus::TooManyReports,
    UploadStatus::Expired,
    UploadStatus::FutureDay,
];

/// The outcomes of the uploads of a day, of all experiments together.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    steps: VecDeque<Step>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    from: Duration,
    uploads: u64,
    /// By the index of the status in [`WATCHED`].
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

    /// The alarm, if it rings, for the status with the largest share.
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
                "of the {} uploads to this server in the last hour, for all experiments, {} were \
                 refused as {}. Of those of the day before, it was {}. Look at new releases of \
                 apps, at the clocks, and at who calls",
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

    /// Simulates two days in which a share of 2,000 uploads an hour is refused at random, and an
    /// hour with another share. Returns the number of minutes at which the alarm rang, and the last
    /// alarm.
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
