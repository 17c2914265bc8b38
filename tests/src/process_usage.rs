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
