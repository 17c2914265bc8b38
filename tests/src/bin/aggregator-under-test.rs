//! The aggregator as a program of this package, so that its tests can start it.
//!
//! If `TEST_CLOCK` names a file, the time is read from it, in seconds since 1970-01-01 (UTC); a
//! test may rewrite it at any time. The monotonic time is real.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bandana_aggregator::clock::{Clock, SystemClock};

/// The same allocator as in the program itself.
#[global_allocator]
static ALLOCATOR: bandana_aggregator::Allocator = bandana_aggregator::Allocator;

#[derive(Debug)]
struct FileClock {
    file: PathBuf,
    system: SystemClock,
}

impl Clock for FileClock {
    fn unix_seconds(&self) -> u64 {
        // Without the file, the server's time is in 1970.
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }
}

fn main() -> ExitCode {
    let system = SystemClock::new();
    let clock: Arc<dyn Clock> = match std::env::var_os("TEST_CLOCK") {
        Some(file) => Arc::new(FileClock { file: file.into(), system }),
        None => Arc::new(system),
    };
    bandana_aggregator::cli::main_by(clock, std::env::args_os())
}
