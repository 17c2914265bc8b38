//! Views of alarms, as text and as JSON.

use bandana_shared::wire::v1::Alarm;
use serde::Serialize;

use super::table::visible;

/// Stable JSON form of an alarm.
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

/// One line per alarm, under a heading; empty without alarms.
pub(crate) fn describe(alarms: &[AlarmView]) -> String {
    if alarms.is_empty() {
        return String::new();
    }
    let line =
        |alarm: &AlarmView| format!("  {}: {}\n", visible(&alarm.name), visible(&alarm.message));
    format!("\nalarms\n{}", alarms.iter().map(line).collect::<String>())
}

/// The alarms' names, for one table cell.
pub(crate) fn names(alarms: &[AlarmView]) -> String {
    let names: Vec<_> = alarms.iter().map(|alarm| visible(&alarm.name)).collect();
    names.join(", ")
}
