//! Databases that hang, and replicas that are stopped inside a transaction.
//!
//! It fails when a replica reports readiness while its database does not answer, when calls wait
//! although the hang is known, when a stopped replica slows the uploads of others, and when a
//! caller gets a wrong answer about a change.

mod frozen;
mod hosts;
mod partners;
mod site;

use bandana_tests::postgres::{Postgres, Shared};
use bandana_tests::suite::Suite;

type Case = fn(&Postgres) -> anyhow::Result<()>;

/// Adds the tests.
pub(crate) fn add(suite: &mut Suite, postgres: &Shared) {
    for (name, case) in partners::ALL {
        let server = postgres.clone();
        suite.add(format!("hanging::{name}"), move || case(server.server()?));
    }
    // They stop the whole database.
    for (name, case) in frozen::ALL.iter().chain(hosts::ALL) {
        suite.add(format!("hanging::{name}"), move || case(&Postgres::start()?));
    }
}
