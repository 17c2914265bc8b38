//! The relay's command line. It is implemented in the library, so that other programs can run the relay
//! too.

use std::process::ExitCode;

#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    bandana_relay::cli::main(std::env::args_os())
}
