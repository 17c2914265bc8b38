//! Databases that hang, and replicas that are stopped in the middle of something.
//!
//! It fails when a replica says that it serves while its database does not answer, when callers
//! wait although it is known that they wait for nothing, when a stopped replica slows the uploads
//! of others, and when somebody hears of a change something that is not so.

#![expect(clippy::print_stderr, reason = "a harness of its own says what it skips and measures")]

mod frozen;
mod partners;
mod site;

use std::sync::Arc;

use bandana_tests::postgres::Postgres;
use libtest_mimic::{Arguments, Trial};

type Case = fn(&Postgres) -> anyhow::Result<()>;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::from_args();
    let server = if arguments.list { None } else { Postgres::start()?.map(Arc::new) };
    let is_missing = server.is_none() && !arguments.list;
    if is_missing {
        eprintln!("no PostgreSQL is installed: what concerns it is skipped");
    }
    let trial = |(name, case): &(&str, Case)| {
        let (server, case) = (server.clone(), *case);
        let run = move || -> Result<(), libtest_mimic::Failed> {
            let server = server.as_deref().ok_or("no server")?;
            Ok(case(server).map_err(|error| format!("{error:?}"))?)
        };
        Trial::test(*name, run).with_ignored_flag(is_missing)
    };
    // One after the other: some stop the whole database.
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    let cases = [frozen::ALL, partners::ALL].concat();
    let conclusion = libtest_mimic::run(&arguments, cases.iter().map(trial).collect());
    drop(server);
    conclusion.exit()
}
