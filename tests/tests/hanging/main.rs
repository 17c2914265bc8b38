//! Databases that hang, and replicas that are stopped in the middle of something.
//!
//! It fails when a replica says that it serves while its database does not answer, when callers
//! wait although it is known that they wait for nothing, when a stopped replica slows the uploads
//! of others, and when somebody hears of a change something that is not so.

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
    // Some stop the whole database.
    suite.one_at_a_time();
    for (name, case) in [frozen::ALL, partners::ALL].concat() {
        let server = postgres.clone();
        suite.add(name, move || case(server.server()?));
    }
    let conclusion = suite.run();
    // The server ends before the process does.
    drop(postgres);
    Ok(conclusion.exit_code())
}
