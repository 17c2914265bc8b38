//! Processor time and memory of a process, from Linux's `/proc`.

use std::path::PathBuf;

use anyhow::Context as _;
pub use bandana_examples::process_usage::processor_time;

/// The peak memory of a process, in bytes.
///
/// # Errors
/// When the process has ended.
pub fn memory_high_water(process: u32) -> anyhow::Result<u64> {
    memory(process, "VmHWM:")
}

/// The peak memory of a process without the pages of files, such as its own program: the kernel takes those
/// back when they are needed. Once a page of the program was there it stays, as a rule, so its pages at the
/// end are those at the peak.
///
/// # Errors
/// When the process has ended.
pub fn own_memory_high_water(process: u32) -> anyhow::Result<u64> {
    Ok(memory_high_water(process)?.saturating_sub(memory(process, "RssFile:")?))
}

/// The current memory of a process, in bytes.
///
/// # Errors
/// When the process has ended.
pub fn memory_now(process: u32) -> anyhow::Result<u64> {
    memory(process, "VmRSS:")
}

fn memory(process: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{process}/status")))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .with_context(|| format!("no {name}"))?;
    Ok(kilobytes.trim().parse::<u64>()? * 1024)
}
