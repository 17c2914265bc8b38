//! Never reported: an experiment runs, and no report has come.
//!
//! Apps refuse what it asks for, ask for another name, or can't reach the server: devices show their
//! default and say nothing. The alarm rings an hour after the first report could have come, that is
//! after the attribution window and the longest release delay, and ends with the first report. It
//! is not for shuffled reports, of which none comes before a batch is full.
//!
//! # False alarms
//! It rings for every experiment that is started before its app is released, and where users come less
//! than once in an hour. A pause takes no time; a restart begins anew.

use std::time::Duration;

use super::traffic::Traffic;
use super::{Alarm, AlarmName, HOUR, hours};

/// The alarm, if it rings; `delay` is the longest time after which a device in use would report.
pub(super) fn alarm(traffic: &Traffic, delay: Duration, now: Duration) -> Option<Alarm> {
    let threshold = delay.saturating_add(HOUR);
    let silence = traffic.silence(now);
    let never = traffic.last().is_none() && traffic.earlier() == 0;
    (never && silence >= threshold).then(|| Alarm {
        name: AlarmName::NeverReported,
        message: format!(
            "no report has ever come, and the first could have come {:.1} hours ago. `bandana \
             doctor` tells whether devices would take part. Look whether the app asks for this \
             name, whether it accepts the epsilon, rewards and delays, and whether it asks users \
             for consent",
            hours(silence.saturating_sub(delay)),
        ),
        age: Some(silence.saturating_sub(delay)),
        threshold: hours(threshold),
        seen: hours(silence),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_an_hour_after_the_first_report_could_have_come_and_ends_with_it() {
        let mut traffic = Traffic::new(Duration::ZERO, 0);
        let late = |hours: u32, traffic: &Traffic| alarm(traffic, HOUR * 2, HOUR * hours).is_some();
        assert!(!late(2, &traffic) && late(3, &traffic));
        // Reports were not taken for a day.
        traffic.close(HOUR * 24);
        assert!(!late(26, &traffic) && late(27, &traffic));
        traffic.add(HOUR * 30, 1);
        assert!(!late(1000, &traffic));
        assert_eq!(alarm(&Traffic::new(Duration::ZERO, 1), HOUR, HOUR * 1000), None);
    }
}
