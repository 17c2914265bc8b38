//! The resource usage of a process, from Linux's `/proc`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

/// The processor time that a process has used.
///
/// # Errors
/// When the process has ended, or this is not Linux.
pub fn processor_time(process: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{process}/stat")))?;
    // The process name, in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(") ").context("no name")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |place: usize| -> anyhow::Result<u64> {
        Ok(fields.get(place).context("too few fields")?.parse()?)
    };
    // User and system time are fields 14 and 15 of proc(5); the first field after the name is the
    // third. A tick is a hundredth of a second for all programs.
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}
