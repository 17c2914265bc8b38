//! The aggregator as a program of this package, so that its tests can start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    bandana_aggregator::cli::main(std::env::args_os())
}
