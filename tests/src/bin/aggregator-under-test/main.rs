//! The programs that tests start: the aggregator, or what the name says by which it is called.
//!
//! They are one program, since each takes seconds to link. A name is the program's own (`arg0` of
//! a command, or a link), or else the first argument.
//!
//! If `TEST_CLOCK` names a file, the time is read from it, in seconds since 1970-01-01 (UTC); a
//! test may rewrite it at any time. The monotonic time is real.

mod app;
mod attack;
mod device_costs;
mod disclosing;
mod documented;
mod few_descriptors;
mod killed;
mod siege;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::clock::{Clock, SystemClock};

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

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args_os();
    let own = arguments.next().unwrap_or_default();
    let own = Path::new(&own).file_name().unwrap_or_default().to_owned();
    if let Some(ended) = called(&own, arguments.collect()) {
        return ended;
    }
    let mut rest: Vec<OsString> = std::env::args_os().skip(1).collect();
    let first = if rest.is_empty() { OsString::new() } else { rest.remove(0) };
    called(&first, rest).unwrap_or_else(|| Ok(aggregator()))
}

/// Runs the program of this name, if there is one, with arguments that follow its name.
fn called(name: &OsString, arguments: Vec<OsString>) -> Option<anyhow::Result<ExitCode>> {
    let text = || arguments.iter().map(|argument| argument.to_string_lossy().into_owned());
    let ended = match name.to_str()? {
        "app-under-test" => app::run(&text().collect::<Vec<_>>()),
        "bandana-relay" => return Some(Ok(relay(arguments))),
        "attack" => attack::run(&text().collect::<Vec<_>>()),
        "device-costs" => device_costs::run(&text().collect::<Vec<_>>()),
        "disclosing-app" => disclosing::run(&text().collect::<Vec<_>>()),
        "documented-app" => documented::run(),
        "killed-app" => killed::run(&text().collect::<Vec<_>>()),
        "regenerate" => bandana_tests::committed::write(),
        "siege" => return Some(siege::run(arguments)),
        "simulated-users" => return Some(Ok(bandana_examples::simulated_users::main())),
        "with-few-descriptors" => few_descriptors::run(&text().collect::<Vec<_>>()),
        _ => return None,
    };
    Some(ended.map(|()| ExitCode::SUCCESS))
}

fn aggregator() -> ExitCode {
    bandana_aggregator::cli::main_by(clock(), std::env::args_os())
}

/// The program `bandana-relay`, with arguments that follow its name.
fn relay(arguments: Vec<OsString>) -> ExitCode {
    let name = OsString::from("bandana-relay");
    bandana_relay::cli::main_by(&clock(), std::iter::once(name).chain(arguments))
}

fn clock() -> Arc<dyn Clock> {
    let system = SystemClock::new();
    match std::env::var_os("TEST_CLOCK") {
        Some(file) => Arc::new(FileClock { file: file.into(), system }),
        None => Arc::new(system),
    }
}
