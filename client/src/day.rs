//! The server's day, as far as the device accepts it.

use std::ops::RangeInclusive;
use std::time::Duration;

use bandana_shared::identity::Day;

use crate::time::{ClockReading, Timestamp};

/// Longest time for which a received day is used in uploads.
const DAY_AGE_MAX: Duration = Duration::from_hours(1);

/// Largest difference between the server's day and the device's, in days. Uploads of private reports
/// carry the earlier of the two.
pub(crate) const DAY_DIFFERENCE_MAX: u32 = 1;

/// Time after which a day is accepted that agrees with the device's clock only.
const HALTED_AGE_MIN: Duration = Duration::from_hours(24);

/// The server's day as last received and accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeardDay(Option<Heard>);

#[derive(Clone, Copy, Debug)]
struct Heard {
    day: Day,
    at: ClockReading,
}

impl HeardDay {
    /// Receives a day, and returns whether it is accepted: if it agrees with the device's clock and,
    /// once one was accepted, with the time that has passed since. A machine that was halted as a
    /// whole knows of less time than has passed: what agrees with the device's clock only is accepted
    /// once in [`HALTED_AGE_MIN`].
    pub(crate) fn hear(&mut self, day: Day, at: ClockReading) -> bool {
        let passed = self.0.and_then(|heard| at.passed_since(heard.at));
        let fits = day.get().abs_diff(at.now.day().get()) <= DAY_DIFFERENCE_MAX
            && (self.days_at(at).is_none_or(|days| days.contains(&day.get()))
                || passed.is_some_and(|passed| passed >= HALTED_AGE_MIN));
        if fits {
            self.0 = Some(Heard { day, at });
        }
        fits
    }

    /// The day, if it was received less than [`DAY_AGE_MAX`] ago.
    pub(crate) fn get(self, at: ClockReading) -> Option<Day> {
        let Heard { day, at: heard_at } = self.0?;
        let is_old = match at.passed_since(heard_at) {
            Some(passed) => passed >= DAY_AGE_MAX,
            None => is_older(heard_at.now, DAY_AGE_MAX, at.now),
        };
        (!is_old).then_some(day)
    }

    /// Whether the device's clock is on one of the days that it can be by the last accepted day and
    /// the time that has passed since; `None`: that is not known.
    pub(crate) fn agrees(self, at: ClockReading) -> Option<bool> {
        Some(self.days_at(at)?.contains(&at.now.day().get()))
    }

    /// The days that it can be, with room for servers and devices that differ.
    fn days_at(self, at: ClockReading) -> Option<RangeInclusive<u32>> {
        let Heard { day, at: heard_at } = self.0?;
        let passed = at.passed_since(heard_at)?.as_secs() / 86_400;
        let day = day.get().saturating_add(u32::try_from(passed).unwrap_or(u32::MAX));
        // Midnight may have passed once more than whole days have.
        let last = day.saturating_add(1 + DAY_DIFFERENCE_MAX);
        Some(day.saturating_sub(DAY_DIFFERENCE_MAX)..=last)
    }
}

/// Whether a value received at `heard_at` is older than `lifetime`, or of unknown age because the
/// clock has been set back since.
pub(crate) fn is_older(heard_at: Timestamp, lifetime: Duration, now: Timestamp) -> bool {
    now < heard_at || now.since(heard_at) >= lifetime
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 20_000 * 86_400_000 + 43_200_000;

    fn wall(milliseconds: u64) -> ClockReading {
        ClockReading { now: Timestamp::from_unix_ms(milliseconds), boot_time: None }
    }

    #[test]
    fn only_a_day_near_the_devices_own_is_believed_and_not_for_long() {
        let noon = wall(NOON);
        let mut heard = HeardDay::default();
        assert!(!heard.hear(Day::new(20_002), noon) && !heard.hear(Day::new(19_998), noon));
        assert_eq!(heard.get(noon), None);
        for day in [19_999, 20_000, 20_001] {
            assert!(heard.hear(Day::new(day), noon));
            assert_eq!(heard.get(noon), Some(Day::new(day)));
        }
        assert!(!heard.hear(Day::new(30_000), noon));
        let minutes = |minutes: u64| wall(NOON + minutes * 60_000);
        assert_eq!(heard.get(minutes(59)), Some(Day::new(20_001)));
        assert_eq!(heard.get(minutes(60)), None);
        assert_eq!(heard.get(wall(0)), None, "the clock was set back");
    }

    #[test]
    fn neither_clock_nor_server_can_outrun_the_time_that_has_passed() {
        let at = |day: u64, boot_hours: u64| ClockReading {
            now: Timestamp::from_unix_ms(day * 86_400_000 + 43_200_000),
            boot_time: Some(Duration::from_hours(boot_hours)),
        };
        let mut heard = HeardDay::default();
        assert_eq!(heard.agrees(at(20_000, 5)), None, "nothing was heard");
        assert!(heard.hear(Day::new(20_000), at(20_000, 5)));
        for (day, boot_hours, agrees) in [
            (20_000, 5, true),
            (20_002, 5, true),
            (20_003, 5, false),
            (19_998, 5, false),
            (49_710, 6, false),
            (20_030, 5 + 30 * 24, true),
            (20_033, 5 + 30 * 24, false),
        ] {
            assert_eq!(heard.agrees(at(day, boot_hours)), Some(agrees), "{day}, {boot_hours}");
        }
        // The clock is a month ahead, and the server says the same.
        assert!(!heard.hear(Day::new(20_030), at(20_030, 6)));
        assert!(!heard.hear(Day::new(20_030), at(20_030, 5 + 23)));
        let mut halted = heard;
        assert!(halted.hear(Day::new(20_030), at(20_030, 5 + 24)), "the machine stood still");
        assert!(heard.hear(Day::new(20_030), at(20_030, 30 * 24)));
        // However often the clock is set back, an hour is an hour.
        assert_eq!(heard.get(at(20_030, 30 * 24)), Some(Day::new(20_030)));
        assert_eq!(heard.get(at(20_030, 30 * 24 + 1)), None);
        // The device was started again: what passed is not known.
        assert_eq!(heard.agrees(at(20_030, 1)), None);
    }
}
