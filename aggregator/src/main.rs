//! The aggregator's command line. All of it is in the library, so that other
//! programs can be the server too.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: bandana_aggregator::Allocator = bandana_aggregator::Allocator;

fn main() -> ExitCode {
    bandana_aggregator::cli::main(std::env::args_os())
}
