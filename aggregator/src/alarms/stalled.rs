//! Stalled reporting: reports used to come, and have stopped.
//!
//! A release of the app no longer reports, a certificate has expired, or devices can't reach the
//! server. The alarm rings when the silence is as long as each of these:
//!
//! - [`SILENCE_MIN`], an hour;
//! - [`FACTOR`] times the longest silence of the week before it;
//! - the time in which [`EXPECTED`] arrivals would have come at the mean rate of that week. An
//!   arrival is a second in which reports were committed, however many: gateways send
//!   thousands at once.
//!
//! The alarm needs [`ARRIVALS_MIN`] arrivals in the week before the last arrival, and a day between
//! the first and the last of these, so that it has seen a night. It does not ring while an
//! experiment is paused, nor count the time of a pause.
//!
//! After a restart nothing is known of the week before. If there are no reports at all since then,
//! the alarm rings after [`SILENCE_UNKNOWN`], for experiments with [`REPORTS_EARLIER_MIN`] reports.
//!
//! # False alarms
//! If arrivals were a Poisson process, a silence in which 30 are expected would have a probability
//! of e^-30: below 1e-4 for a billion arrivals. Real traffic varies, for which the second condition
//! is there. A first weekend without users can ring the alarm if the nights before were shorter
//! than a quarter of it. After a restart, it can ring for an experiment whose reports have ended
//! and that was not stopped, or for one that took years to get its reports.

use std::time::Duration;

use super::traffic::Traffic;
use super::{Alarm, AlarmName, DAY, HOUR, hours};

/// The shortest silence.
const SILENCE_MIN: Duration = HOUR;

/// The least ratio to the longest silence before.
const FACTOR: u32 = 4;

/// The least number of missing arrivals.
const EXPECTED: f64 = 30.0;

/// The number of arrivals that the alarm needs.
const ARRIVALS_MIN: u64 = 100;

/// The least silence since the start of the server, when earlier silences are unknown.
const SILENCE_UNKNOWN: Duration = DAY.saturating_mul(7);

/// The least number of reports before the start for an alarm about a silence since the start.
const REPORTS_EARLIER_MIN: u64 = 1000;

/// The alarm, if it rings.
pub(super) fn alarm(traffic: &Traffic, now: Duration) -> Option<Alarm> {
    let Some(last) = traffic.last() else { return alarm_from_start(traffic, now) };
    let history = last.saturating_sub(traffic.known_from()?);
    let arrivals: u64 = traffic.hours().map(|hour| hour.arrivals).sum();
    if history < DAY || arrivals < ARRIVALS_MIN {
        return None;
    }
    let longest = traffic.hours().map(|hour| hour.silence).max()?;
    let expected = history.mul_f64(EXPECTED / arrivals as f64);
    let threshold = SILENCE_MIN.max(longest * FACTOR).max(expected);
    let silence = traffic.silence(now);
    (silence >= threshold).then(|| Alarm {
        name: AlarmName::StalledReporting,
        message: format!(
            "no reports have come for {:.1} hours, and the longest silence of the week before was \
             {:.1} hours. Look whether devices reach the server, and whether the app still reports",
            hours(silence),
            hours(longest),
        ),
        age: Some(silence),
        threshold: hours(threshold),
        seen: hours(silence),
    })
}

fn alarm_from_start(traffic: &Traffic, now: Duration) -> Option<Alarm> {
    let (earlier, silence) = (traffic.earlier(), traffic.silence(now));
    (earlier >= REPORTS_EARLIER_MIN && silence >= SILENCE_UNKNOWN).then(|| Alarm {
        name: AlarmName::StalledReporting,
        message: format!(
            "no reports have come since the server was started or the experiment resumed, {:.1} \
             hours ago. There were {earlier} before. Look whether devices reach the server, and \
             whether the app still reports, or stop the experiment",
            hours(silence),
        ),
        age: Some(silence),
        threshold: hours(SILENCE_UNKNOWN),
        seen: hours(silence),
    })
}

#[cfg(test)]
mod tests {
    use super::super::traffic::WEEK;
    use super::*;

    /// Reports in every minute from 8 to 20 o'clock, for this number of days.
    fn days(number: u32) -> Traffic {
        let mut traffic = Traffic::new(Duration::ZERO, 0);
        for minute in 0..number * 24 * 60 {
            if (8 * 60..20 * 60).contains(&(minute % (24 * 60))) {
                traffic.add(Duration::from_mins(minute.into()), 5);
            }
        }
        traffic
    }

    #[test]
    fn a_silence_that_nights_do_not_explain_rings() {
        let traffic = days(10);
        let evening = DAY * 9 + HOUR * 20;
        assert_eq!(alarm(&traffic, evening + HOUR * 47), None);
        let rung = alarm(&traffic, evening + HOUR * 49).unwrap();
        assert!(rung.seen >= rung.threshold && (rung.threshold - 48.0).abs() < 0.1, "{rung:?}");
        // The alarm still rings a week later: the traffic before the silence is not forgotten
        // meanwhile.
        assert!(alarm(&traffic, evening + WEEK).is_some());
        // The alarm ends with the next report.
        let mut traffic = traffic;
        traffic.add(evening + HOUR * 50, 1);
        assert_eq!(alarm(&traffic, evening + HOUR * 51), None);
    }

    #[test]
    fn a_pause_and_an_experiment_that_has_just_begun_do_not_ring() {
        let mut traffic = days(10);
        let resumed = DAY * 20;
        traffic.close(resumed);
        assert_eq!(alarm(&traffic, resumed + HOUR * 47), None);
        assert!(alarm(&traffic, resumed + HOUR * 49).is_some());
        assert_eq!(alarm(&days(1), DAY * 9), None);
    }

    #[test]
    fn the_first_night_after_a_late_release_does_not_ring() {
        let mut traffic = Traffic::new(Duration::ZERO, 0);
        for minute in 0..12 * 60 {
            traffic.add(DAY * 5 + Duration::from_mins(minute), 5);
        }
        assert_eq!(alarm(&traffic, DAY * 6), None);
    }

    #[test]
    fn a_restart_during_an_outage_hides_it_for_a_week_only() {
        let restarted = Traffic::new(DAY, 1000);
        assert_eq!(alarm(&restarted, DAY * 7), None);
        assert!(alarm(&restarted, DAY * 8).is_some());
        assert_eq!(alarm(&Traffic::new(DAY, 999), DAY * 30), None);
        let mut resumed = restarted;
        resumed.close(DAY * 5);
        assert_eq!(alarm(&resumed, DAY * 11), None);
        resumed.add(DAY * 11, 1);
        assert_eq!(alarm(&resumed, DAY * 30), None);
    }

    #[test]
    fn a_rare_report_is_not_missed() {
        // One report every five hours: 30 of them take more than six days.
        let mut traffic = Traffic::new(Duration::ZERO, 0);
        for report in 0..300 {
            traffic.add(HOUR * 5 * report, 1);
        }
        let last = HOUR * 5 * 299;
        assert_eq!(alarm(&traffic, last + DAY * 3), None);
    }
}
