//! What every store promises, asked of each of them; and what replicas that share one
//! promise beyond that.

#![expect(clippy::print_stderr, reason = "a harness of its own says what it skips")]

mod cases;
mod crashes;
mod curator;
mod cut_connection;
mod following;
mod model;
mod places;
mod proxy;
mod replicas;
mod streams;
mod transport;
mod trusted;
mod verification;

use std::sync::Arc;

use anyhow::Context as _;
use bandana_tests::postgres::Postgres;
use libtest_mimic::{Arguments, Trial};

use places::Place;

type Case = fn(&Place) -> anyhow::Result<()>;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::from_args();
    let postgres = if arguments.list { None } else { Postgres::start()?.map(Arc::new) };
    let is_missing = postgres.is_none() && !arguments.list;
    if is_missing {
        eprintln!("no PostgreSQL is installed: what concerns it is skipped");
    }
    let cases = [
        cases::ALL,
        crashes::ALL,
        curator::ALL,
        model::ALL,
        streams::ALL,
        trusted::ALL,
        verification::ALL,
    ];
    let cases = cases.concat();
    let mut trials = Vec::new();
    for (name, case) in cases {
        trials.push(Trial::test(format!("embedded::{name}"), move || run(Place::embedded(), case)));
        let server = postgres.clone();
        let place = move || Place::postgres(server.as_deref().context("no server")?);
        let trial = Trial::test(format!("postgres::{name}"), move || run(place(), case));
        trials.push(trial.with_ignored_flag(is_missing));
    }
    let of_replicas = [
        replicas::ALL,
        cut_connection::ALL,
        following::ALL,
        curator::OF_REPLICAS,
        trusted::OF_REPLICAS,
        verification::OF_DATABASES,
    ];
    for (name, case) in of_replicas.concat() {
        let server = postgres.clone();
        let trial = Trial::test(format!("replicas::{name}"), move || {
            Ok(case(server.as_deref().ok_or("no server")?).map_err(|error| format!("{error:?}"))?)
        });
        trials.push(trial.with_ignored_flag(is_missing));
    }
    for (name, case) in transport::ALL {
        let trial = Trial::test(format!("transport::{name}"), move || {
            Ok(case().map_err(|error| format!("{error:?}"))?)
        });
        trials.push(trial.with_ignored_flag(is_missing));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // The server ends before the process does.
    drop(postgres);
    conclusion.exit()
}

fn run(place: anyhow::Result<Place>, case: Case) -> Result<(), libtest_mimic::Failed> {
    let outcome = place.and_then(|place| {
        case(&place)?;
        // Whatever was done to it, a store is in order.
        let findings = place.verify()?.findings;
        anyhow::ensure!(findings.is_empty(), "{findings:?}");
        Ok(())
    });
    outcome.map_err(|error| format!("{error:?}").into())
}
