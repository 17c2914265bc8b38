//! The resource usage of a process, from Linux's `/proc`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

/// The processor time that a process has used.
///
/// # Errors
/// When the process has ended, or this is not Linux.
pub fn processor_time(process: u32) -> anyhow::Result<Duration> {
    Ok(stat(process)?.own)
}

/// The processor time that a process and its children have used, those that have ended included.
///
/// # Errors
/// As [`processor_time`].
pub fn family_time(process: u32) -> anyhow::Result<Duration> {
    let mut sum = Duration::ZERO;
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(child) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // Processes come and go.
        if let Ok(child) = stat(child)
            && child.parent == process
        {
            sum += child.own;
        }
    }
    // A child that ends in between is counted twice rather than not at all.
    let first = stat(process)?;
    Ok(sum + first.own + first.ended)
}

/// The memory of a process that is in RAM, in bytes.
///
/// # Errors
/// As [`processor_time`].
pub fn resident_bytes(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// The process that started another one.
///
/// # Errors
/// As [`processor_time`].
pub fn parent(process: u32) -> anyhow::Result<u32> {
    Ok(stat(process)?.parent)
}

/// What `/proc` says of a process.
struct Stat {
    parent: u32,
    own: Duration,
    /// The processor time of its children that have ended.
    ended: Duration,
}

fn stat(process: u32) -> anyhow::Result<Stat> {
    let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{process}/stat")))?;
    // The process name, in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(") ").context("no name")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |place: usize| -> anyhow::Result<u64> {
        Ok(fields.get(place).context("too few fields")?.parse()?)
    };
    // User and system time are fields 14 and 15 of proc(5), and 16 and 17 those of ended children;
    // the first field after the name is the third. A tick is a hundredth of a second for all
    // programs.
    let ticks = |place: usize| anyhow::Ok(Duration::from_millis(number(place)? * 10));
    Ok(Stat {
        parent: number(1)?.try_into()?,
        own: ticks(11)? + ticks(12)?,
        ended: ticks(13)? + ticks(14)?,
    })
}
