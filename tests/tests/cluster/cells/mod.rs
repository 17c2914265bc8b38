//! Stores whose uploads are in store cells.
//!
//! It fails when an upload counts twice or not at all, when a store cell that is down holds up the
//! uploads of others, when a replica takes a database for a store cell that it is not, or when a
//! pause that was answered does not hold in every store cell.

mod counting;
mod failing;
mod growing;
mod measuring;
mod refusing;
mod site;

use bandana_tests::postgres::{Postgres, Shared};
use bandana_tests::suite::Suite;

type Case = fn(&Postgres) -> anyhow::Result<()>;

/// Adds the tests.
pub(crate) fn add(suite: &mut Suite, postgres: &Shared) {
    for (name, case) in counting::ALL.iter().chain(refusing::ALL).chain(growing::ALL) {
        let server = postgres.clone();
        suite.add(format!("cells::{name}"), move || case(server.server()?));
    }
    // They stop database servers of their own.
    for (name, case) in failing::ALL {
        suite.add(format!("cells::{name}"), *case);
    }
    suite.add("cells::measured_costs_of_an_upload", measuring::costs);
    suite.add("cells::measured_waits_while_a_store_cell_hangs", measuring::hang);
    suite.add("cells::measured_ages_of_policies", measuring::policies);
}
