//! Guarantees of every store, tested on each; of a store that replicas share; of disks that fail; and
//! of a store's identity.

mod cases;
mod crashes;
mod cut_connection;
mod deletion;
mod disclosing;
mod disk;
mod flipped_values;
mod flips;
mod following;
mod identity;
mod layers;
mod layouts;
mod model;
mod places;
mod proxy;
mod queries;
mod records;
mod replicas;
mod streams;
mod transport;
mod trusted;
mod verification;

use std::process::ExitCode;

use bandana_tests::postgres::Shared;
use bandana_tests::suite::Suite;

use places::Place;

type Case = fn(&Place) -> anyhow::Result<()>;

fn main() -> ExitCode {
    let mut suite = Suite::from_args();
    let postgres = Shared::default();
    let cases = [
        cases::ALL,
        crashes::ALL,
        queries::ALL,
        records::ALL,
        deletion::ALL,
        layers::ALL,
        model::ALL,
        streams::ALL,
        trusted::ALL,
        disclosing::ALL,
        verification::ALL,
    ];
    for (name, case) in cases.concat() {
        suite.add(format!("embedded::{name}"), move || run(&Place::embedded()?, case));
        let server = postgres.clone();
        suite.add(format!("postgres::{name}"), move || {
            run(&Place::postgres(server.server()?)?, case)
        });
        let server = postgres.clone();
        suite.add(format!("split::{name}"), move || run(&Place::split(server.server()?)?, case));
    }
    for (name, case) in flips::OF_FILES {
        suite.add(format!("embedded::{name}"), || run(&Place::embedded()?, *case));
    }
    let of_replicas = [
        layers::OF_DATABASES,
        layouts::ALL,
        replicas::ALL,
        cut_connection::ALL,
        flipped_values::ALL,
        following::ALL,
        queries::OF_REPLICAS,
        deletion::OF_REPLICAS,
        disclosing::OF_REPLICAS,
        verification::OF_DATABASES,
    ];
    for (name, case) in of_replicas.concat() {
        let server = postgres.clone();
        suite.add(format!("replicas::{name}"), move || case(server.server()?));
    }
    for (name, case) in transport::ALL {
        suite.add(format!("transport::{name}"), case);
    }
    disk::add(&mut suite);
    identity::add(&mut suite);
    let conclusion = suite.run();
    // The database server must end before the process does.
    drop(postgres);
    conclusion.exit_code()
}

fn run(place: &Place, case: Case) -> anyhow::Result<()> {
    case(place)?;
    // Every store is intact after the test.
    let findings = place.verify()?.findings;
    anyhow::ensure!(findings.is_empty(), "{findings:?}");
    Ok(())
}
