//! Alarms, for people and for programs.

use bandana_shared::wire::v1::Alarm;
use serde::Serialize;

use super::table::visible;

/// The stable form of an alarm.
#[derive(Debug, Serialize)]
pub(crate) struct AlarmView {
    pub(crate) name: String,
    message: String,
    since_unix_seconds: Option<u64>,
    threshold: f64,
    seen: f64,
}

impl From<Alarm> for AlarmView {
    fn from(alarm: Alarm) -> Self {
        let Alarm { name, message, since_unix_seconds, threshold, seen } = alarm;
        Self { name, message, since_unix_seconds, threshold, seen }
    }
}

/// A line for each, under a heading; nothing without any.
pub(crate) fn describe(alarms: &[AlarmView]) -> String {
    if alarms.is_empty() {
        return String::new();
    }
    let line =
        |alarm: &AlarmView| format!("  {}: {}\n", visible(&alarm.name), visible(&alarm.message));
    format!("\nalarms\n{}", alarms.iter().map(line).collect::<String>())
}

/// Their names in one cell.
pub(crate) fn names(alarms: &[AlarmView]) -> String {
    let names: Vec<_> = alarms.iter().map(|alarm| visible(&alarm.name)).collect();
    names.join(", ")
}
