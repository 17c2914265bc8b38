//! Durations as text, in whole seconds.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Parses a number of seconds, or a duration with units such as `1h`, `90 min` or `2days 12h`.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        return text.parse().map_err(|_| "that is too long".to_owned());
    }
    let duration = humantime::parse_duration(text).map_err(|error| {
        format!("{error}; a time is a number of seconds, or has units: 3600, 1h, 90m, 2d 12h")
    })?;
    if duration != Duration::from_secs(duration.as_secs()) {
        return Err("a time has whole seconds".to_owned());
    }
    let seconds = u32::try_from(duration.as_secs());
    seconds.map_err(|_| "that is too long".to_owned())
}

/// Deserializes a duration from a file: a number, or text with units.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Time {
        Seconds(u32),
        Text(String),
    }
    match Option::deserialize(input)? {
        None => Ok(None),
        Some(Time::Seconds(number)) => Ok(Some(number)),
        Some(Time::Text(text)) => seconds(&text).map(Some).map_err(D::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_seconds_and_units_are_taken() {
        for (text, expected) in [
            ("0", 0),
            ("3600", 3600),
            ("1h", 3600),
            ("90m", 5400),
            ("90 min", 5400),
            ("2d 12h", 216_000),
            ("1h30m", 5400),
            ("1day", 86_400),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for wrong in ["", "h", "1 hour ago", "-1", "1.5", "500ms", "1e3", "4294967296", "200y"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
