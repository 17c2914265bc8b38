//! Simulated users against a real aggregator.

use std::process::ExitCode;

fn main() -> ExitCode {
    bandana_examples::simulated_users::main()
}
