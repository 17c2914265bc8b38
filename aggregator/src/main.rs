//! The aggregator's command line. It is implemented in the library, so that other programs can run
//! the server too.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: bandana_aggregator::Allocator = bandana_aggregator::Allocator;

fn main() -> ExitCode {
    bandana_aggregator::cli::main(std::env::args_os())
}
