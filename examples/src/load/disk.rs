//! The sync rate of a disk, without any server.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Duration of the measurement.
const TIME: Duration = Duration::from_millis(500);

/// The rate of 4 KiB appends to a file in this directory, each synced before the next.
///
/// # Errors
/// When the file can't be created.
#[expect(clippy::disallowed_methods, reason = "a measurement of time")]
pub fn syncs_per_second(directory: &Path) -> anyhow::Result<f64> {
    let mut file = tempfile::tempfile_in(directory)
        .with_context(|| format!("can't write in {}", directory.display()))?;
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < TIME {
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}
