//! The README, the paths, the runbook and the packaging files, each followed as written.

mod packaging;
mod paths;
mod readme;
mod runbook;

use std::process::ExitCode;

use bandana_tests::postgres::Shared;
use bandana_tests::suite::Suite;

fn main() -> anyhow::Result<ExitCode> {
    let mut suite = Suite::from_args();
    let postgres = Shared::default();
    readme::add(&mut suite);
    paths::add(&mut suite);
    runbook::add(&mut suite, &postgres)?;
    packaging::add(&mut suite);
    let conclusion = suite.run();
    // The database server must end before the process does.
    drop(postgres);
    Ok(conclusion.exit_code())
}
