//! The server's day, as far as the device accepts it.

use std::time::Duration;

use bandana_shared::identity::Day;

use crate::time::Timestamp;

/// Longest time for which a received day is used in uploads.
const DAY_AGE_MAX: Duration = Duration::from_hours(1);

/// Largest difference between the server's day and the device's, in days. Uploads contain the day,
/// so a server that chose it freely could tag a device with it. Within a day of the truth it can't.
const DAY_DIFFERENCE_MAX: u32 = 1;

/// The server's day as last received and accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeardDay(Option<(Day, Timestamp)>);

impl HeardDay {
    /// Receives a day, and returns whether it is accepted.
    pub(crate) fn hear(&mut self, day: Day, now: Timestamp) -> bool {
        let fits = day.get().abs_diff(now.day().get()) <= DAY_DIFFERENCE_MAX;
        if fits {
            self.0 = Some((day, now));
        }
        fits
    }

    /// The day, if it was received less than [`DAY_AGE_MAX`] ago.
    pub(crate) fn get(self, now: Timestamp) -> Option<Day> {
        let (day, heard_at) = self.0?;
        (!is_older(heard_at, DAY_AGE_MAX, now)).then_some(day)
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

    #[test]
    fn only_a_day_near_the_devices_own_is_believed_and_not_for_long() {
        let noon = Timestamp::from_unix_ms(20_000 * 86_400_000 + 43_200_000);
        let mut heard = HeardDay::default();
        assert!(!heard.hear(Day::new(20_002), noon) && !heard.hear(Day::new(19_998), noon));
        assert_eq!(heard.get(noon), None);
        for day in [19_999, 20_000, 20_001] {
            assert!(heard.hear(Day::new(day), noon));
            assert_eq!(heard.get(noon), Some(Day::new(day)));
        }
        assert!(!heard.hear(Day::new(30_000), noon));
        let minute = Duration::from_mins(1);
        assert_eq!(heard.get(noon.after(59 * minute)), Some(Day::new(20_001)));
        assert_eq!(heard.get(noon.after(60 * minute)), None);
        assert_eq!(heard.get(Timestamp::from_unix_ms(0)), None, "the clock was set back");
    }
}
