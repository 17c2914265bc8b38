//! A surge: many times as many reports as before.
//!
//! Forged reports move a learner in proportion to their number, and where devices draw arms by
//! themselves, the number of draws is unknown. Then only an increase in reports reveals forgery. A
//! launch looks the same, so this alarm is a hint.
//!
//! The alarm rings when the reports of the last [`RECENT`] are at least [`REPORTS_MIN`], and at
//! least [`FACTOR`] times those of a mean day of the week before. That week counts from the first
//! report in it, and must have at least two known days and [`EARLIER_MIN`] reports. Times exclude
//! pauses of the experiment. On the day after a pause, devices send the reports that they have
//! kept, and the alarm is off.
//!
//! # False alarms
//! If reports came independently of each other at the earlier rate, the probability would be below
//! `exp(-1000)`. In practice the alarm rings when traffic grows tenfold within a day, as with a
//! launch after a trial, or at the end of an outage of days.

use std::time::Duration;

use super::traffic::{Traffic, WEEK};
use super::{Alarm, AlarmName, DAY, HOUR};

/// The recent time that is compared with the time before.
const RECENT: Duration = DAY;

/// The least ratio to the reports of a mean day.
const FACTOR: f64 = 10.0;

/// The least number of reports of the last day.
const REPORTS_MIN: u64 = 1000;

/// The least number of known days before the last one, and of reports on them.
const HISTORY_MIN: Duration = DAY.saturating_mul(2);
const EARLIER_MIN: u64 = 100;

/// The alarm, if it rings.
pub(super) fn alarm(traffic: &Traffic, now: Duration) -> Option<Alarm> {
    let recent_from = now.saturating_sub(RECENT);
    if now < traffic.open() + RECENT * 2 {
        return None;
    }
    let earlier_from = traffic.known_from()?.max(now.saturating_sub(WEEK));
    let history = recent_from.saturating_sub(earlier_from);
    if history < HISTORY_MIN {
        return None;
    }
    let of = |from: Duration, until: Duration| -> u64 {
        let hours = traffic.hours().filter(|hour| (from..until).contains(&hour.from));
        hours.map(|hour| hour.reports).sum()
    };
    let recent = of(recent_from, Duration::MAX);
    let earlier = of(earlier_from.saturating_sub(HOUR), recent_from);
    let per_day = earlier as f64 / (history.as_secs_f64() / DAY.as_secs_f64());
    let times = recent as f64 / per_day;
    let rings = earlier >= EARLIER_MIN && recent >= REPORTS_MIN && times >= FACTOR;
    rings.then(|| Alarm {
        name: AlarmName::ReportSurge,
        message: format!(
            "{recent} reports came in 24 hours, {times:.1} times as many as on a day of the week \
             before ({per_day:.0}). If you do not have so many more users, somebody forges \
             reports. Look at the calls of each app key"
        ),
        age: None,
        threshold: FACTOR,
        seen: times,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(days: u32, per_hour: u64) -> Traffic {
        let mut traffic = Traffic::new(Duration::ZERO, 0);
        for hour in 0..days * 24 {
            traffic.add(HOUR * hour, per_hour);
        }
        traffic
    }

    #[test]
    fn ten_times_the_reports_ring_and_nine_do_not() {
        for (times, rings) in [(9, false), (11, true)] {
            let mut traffic = steady(6, 10);
            for hour in 6 * 24..7 * 24 {
                traffic.add(HOUR * hour, 10 * times);
            }
            let alarm = alarm(&traffic, DAY * 6 + HOUR * 23);
            assert_eq!(alarm.is_some(), rings, "{alarm:?}");
        }
    }

    #[test]
    fn it_is_over_when_the_flood_is() {
        let mut traffic = steady(6, 10);
        traffic.add(DAY * 6, 100_000);
        assert!(alarm(&traffic, DAY * 6 + HOUR).is_some());
        for hour in 6 * 24..8 * 24 {
            traffic.add(HOUR * hour, 10);
        }
        assert_eq!(alarm(&traffic, DAY * 8), None);
    }

    #[test]
    fn a_launch_after_no_traffic_does_not_ring() {
        let mut traffic = steady(6, 0);
        traffic.add(DAY * 6, 1_000_000);
        assert_eq!(alarm(&traffic, DAY * 6 + HOUR), None);
        let mut late = Traffic::new(Duration::ZERO, 0);
        for hour in 5 * 24..7 * 24 {
            late.add(HOUR * hour, 1000);
            assert_eq!(alarm(&late, HOUR * hour), None);
        }
        let mut young = steady(2, 10);
        young.add(DAY * 2, 1_000_000);
        assert_eq!(alarm(&young, DAY * 2 + HOUR), None);
    }
}
