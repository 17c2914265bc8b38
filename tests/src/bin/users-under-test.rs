//! `simulated-users` as a program of this package, so that its tests can start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    bandana_examples::simulated_users::main()
}
