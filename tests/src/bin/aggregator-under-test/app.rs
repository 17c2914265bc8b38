//! An app in a separate process, for tests on its directory.
//!
//! `app-under-test DIRECTORY CHOICES` opens the directory, receives an experiment, makes this
//! number of choices, prints one line once these are durable, and holds the directory until its
//! standard input ends.

#![allow(clippy::print_stdout, reason = "its output is what the tests read")]

use std::io::Read as _;

use anyhow::Context as _;
use bandana_client::{
    Acceptance, Bandana, Budget, Clock as _, Consent, Fetched, Reporting, StorageError,
    SystemClock, Task, Tasks,
};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1;
use bandana_tests::harness::three_arms;

const NAME: &str = "one-process";

pub(super) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let mut arguments = arguments.iter();
    let directory = arguments.next().context("the first argument is the directory")?;
    let choices: u32 = arguments.next().context("the second is a number of choices")?.parse()?;
    let nats = PrivacyLoss::new;
    let (bandana, mut tasks) = Bandana::builder()
        .host_transport()
        .directory(directory)
        .accept(
            Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
                .least_release_delay(std::time::Duration::ZERO),
        )
        .budget(Budget::new(nats(5.0)?, 7, nats(100.0)?)?)
        .consent(Consent::Given)
        .build();
    let experiment = bandana.experiment(NAME)?;
    if choices > 0 {
        hear(&mut tasks)?;
    }
    for _ in 0..choices {
        drop(experiment.draw());
    }
    tasks.write();
    let status = bandana.status();
    let reporting = match status.reporting {
        Reporting::On => "on".to_owned(),
        Reporting::StorageUnusable(error) if matches!(*error, StorageError::InUse { .. }) => {
            "in use".to_owned()
        }
        other => format!("{other:?}"),
    };
    println!(
        "{reporting}, spent {}, open {}",
        status.spent.lifetime.get(),
        status.open_assignments
    );
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Answers the client's request as a server would, if there is one.
fn hear(tasks: &mut Tasks) -> anyhow::Result<()> {
    let Task::Fetch(task) = tasks.next_task()? else { return Ok(()) };
    let floor = Floor::for_epsilon(Epsilon::new(1.0)?).get();
    let message = v1::Specification { floor, revision: 1, ..three_arms(NAME) };
    let specification = Specification::try_from(&message)?;
    let weights = Weights::uniform(&specification.active_arms())?;
    let policy = Policy { version: 1, weights, time_to_live_seconds: 3600 };
    let (signatures, day) = (Vec::new(), SystemClock.now().day());
    let fetched = Fetched { specification, signatures, policy, day, store: None, view: None };
    Ok(tasks.on_fetched(&task, fetched)?)
}
