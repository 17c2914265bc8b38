//! Databases that hang, and replicas that are stopped inside a transaction.
//!
//! It fails when a replica reports readiness while its database does not answer, when calls wait
//! although the hang is known, when a stopped replica slows the uploads of others, and when a
//! caller gets a wrong answer about a change.

#![expect(clippy::print_stderr, reason = "it says what it measures")]

mod frozen;
mod partners;
mod site;

use std::process::ExitCode;

use bandana_tests::postgres::Postgres;
use bandana_tests::suite::Suite;

type Case = fn(&Postgres) -> anyhow::Result<()>;

fn main() -> anyhow::Result<ExitCode> {
    let mut suite = Suite::from_args();
    let postgres = Postgres::for_all(&suite)?;
    // Some tests stop the whole database.
    suite.one_at_a_time();
    for (name, case) in [frozen::ALL, partners::ALL].concat() {
        let server = postgres.clone();
        suite.add(name, move || case(server.server()?));
    }
    let conclusion = suite.run();
    // The database server must end before the process does.
    drop(postgres);
    Ok(conclusion.exit_code())
}
