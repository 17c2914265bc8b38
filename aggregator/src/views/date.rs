//! Dates in UTC, written as 2026-03-01.

use bandana_shared::identity::Day;
use chrono::NaiveDate;

/// The date of a day, or its number if the day is beyond the calendar.
pub(crate) fn date_of(day: Day) -> String {
    let date = i32::try_from(day.get()).ok().and_then(NaiveDate::from_epoch_days);
    date.map_or_else(|| day.to_string(), |date| date.to_string())
}

/// Parses a date from the command line.
pub(crate) fn day_of(text: &str) -> Result<Day, String> {
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    let days = date.and_then(|date| u32::try_from(date.to_epoch_days()).ok());
    days.map(Day::new).ok_or_else(|| "a date from 1970 on looks like 2026-03-01".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_name_each_other() {
        for (number, date) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_513, "2026-03-01")] {
            assert_eq!(date_of(Day::new(number)), date);
            assert_eq!(day_of(date), Ok(Day::new(number)));
        }
        for wrong in ["2026-02-29", "1969-12-31", "20513", "2026-3", "", "2026-03-01T00:00"] {
            assert!(day_of(wrong).is_err(), "{wrong}");
        }
        assert_eq!(date_of(Day::new(u32::MAX)), u32::MAX.to_string());
    }
}
