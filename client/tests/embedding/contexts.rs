//! Experiments with a private context, as an app has them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bandana_client::{
    Acceptance, Assignment, Bandana, Choice, DefaultReason, FetchTask, Fetched, Refusal, Tasks,
    Unreported,
};
use bandana_shared::cells::Measurement;
use bandana_shared::context::PrivateContext;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::participation::Millionths;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Specification, SpecificationParts, smallest_floor};

use super::{Failure, Hands, NAME, builder_accepting, fetched, send, specification};

/// Two features, and almost no noise: a bit says the product.
fn offered() -> Result<Specification, Failure> {
    let features = vec!["weekend".parse()?, "returning".parse()?];
    let context = PrivateContext::new(features, Millionths::from_share(0.2)?)?;
    let plain = specification()?;
    let epsilon = Epsilon::new(32.0)?;
    Ok(Specification::new(SpecificationParts {
        epsilon,
        floor: smallest_floor(plain.mechanism(), epsilon),
        measurement: Measurement { context: Some(context), ..Measurement::REWARDS_ONLY },
        ..plain.to_parts()
    })?)
}

fn acceptance() -> Result<Acceptance, Failure> {
    Ok(Acceptance::unsigned(Epsilon::new(32.0)?, Rewards::binary()))
}

fn agreed() -> Result<Acceptance, Failure> {
    Ok(acceptance()?.private_context(["weekend", "returning"]))
}

/// Has an app hear that the second arm is for weekends.
fn hear(tasks: &mut Tasks, clock: &Hands, offered: &Specification) -> Result<(), Failure> {
    let [even, weekend] = [[1.0, 1.0], [0.9, 1.1]].map(|shares| Weights::from_shares(&shares));
    let (even, weekend) = (even?, weekend?);
    let weights = even.clone().with_segments(&[even.clone(), weekend, even])?;
    let fetched = fetched(offered, clock.truth())?;
    let policy = Policy { weights, ..fetched.policy };
    let task = FetchTask::new(offered.experiment_id().clone());
    Ok(tasks.on_fetched(&task, Fetched { policy, ..fetched })?)
}

fn started(
    path: &Path,
    clock: &Arc<Hands>,
    terms: Acceptance,
    keeps: bool,
) -> Result<(Bandana, Tasks), Failure> {
    let builder = builder_accepting(path, clock, terms, 100_000)?;
    let builder = builder.keep_pending_rewards(keeps);
    let (bandana, tasks) = builder.build();
    bandana.experiment(NAME)?;
    Ok((bandana, tasks))
}

fn drawn(bandana: &Bandana, context: &[bool]) -> Result<Assignment, Failure> {
    match bandana.experiment(NAME)?.draw_in_context(context) {
        Choice::Arm(assignment) => Ok(assignment),
        Choice::Default(reason) => Err(reason.into()),
    }
}

#[test]
fn an_app_takes_part_only_with_the_features_that_it_has_agreed_to() -> Result<(), Failure> {
    let offered = offered()?;
    for terms in [
        acceptance()?,
        acceptance()?.private_context(["weekend"]),
        acceptance()?.private_context(["returning", "weekend"]),
        acceptance()?.private_context(["weekend", "returning", "mobile"]),
        acceptance()?.private_context(["weekend", "paying"]),
    ] {
        let (directory, clock) = (tempfile::tempdir()?, Hands::new());
        let (bandana, mut tasks) = started(directory.path(), &clock, terms, false)?;
        assert!(hear(&mut tasks, &clock, &offered).is_err());
        let choice = bandana.experiment(NAME)?.choose_in_context(&[true, false]);
        let Choice::Default(reason) = choice else { return Err("an arm".into()) };
        let features = vec!["weekend".to_owned(), "returning".to_owned()];
        assert_eq!(reason, DefaultReason::Refused(Refusal::PrivateContext { features }));
        assert!(reason.to_string().contains("this is research"), "{reason}");
    }
    // The names are agreed to, and not how often they are true.
    let (directory, clock) = (tempfile::tempdir()?, Hands::new());
    let (bandana, mut tasks) = started(directory.path(), &clock, agreed()?, false)?;
    hear(&mut tasks, &clock, &offered)?;
    let choice = bandana.experiment(NAME)?.choose();
    let Choice::Default(reason) = choice else { return Err("an arm".into()) };
    assert_eq!(reason, DefaultReason::Context { expected: 2, given: 0 });
    let choice = bandana.experiment(NAME)?.choose_in_context(&[true]);
    let Choice::Default(reason) = choice else { return Err("an arm".into()) };
    assert_eq!(reason, DefaultReason::Context { expected: 2, given: 1 });
    Ok(())
}

/// Names and contents of all files of an app.
fn files(path: &Path) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_file() {
            found.insert(name, std::fs::read(entry.path())?);
        }
    }
    Ok(found)
}

#[test]
fn an_arm_chosen_by_the_context_leaves_no_trace_on_the_disk_and_costs_nothing()
-> Result<(), Failure> {
    let offered = offered()?;
    let (directory, clock) = (tempfile::tempdir()?, Hands::new());
    let (bandana, mut tasks) = started(directory.path(), &clock, agreed()?, true)?;
    hear(&mut tasks, &clock, &offered)?;
    tasks.write();
    let mut silent = 0;
    while silent < 50 {
        let (before, spent) = (files(directory.path())?, bandana.status().spent.lifetime);
        let assignment = drawn(&bandana, &[true, silent % 2 == 0])?;
        assignment.reward(1.0);
        tasks.write();
        if assignment.unreported() == Some(Unreported::NotExploring) {
            assert_eq!(assignment.label(), "green");
            assert!(files(directory.path())? == before, "a file was changed");
            assert_eq!(bandana.status().spent.lifetime, spent);
            silent += 1;
        }
    }
    let explored = bandana.status().open_assignments;
    clock.forward(2 * 86_400);
    let mut sent = send(&mut tasks)?;
    hear(&mut tasks, &clock, &offered)?;
    sent.extend(send(&mut tasks)?);
    // The first question had no answer: what waited for the day leaves at a time of its own.
    clock.forward(3600);
    sent.extend(send(&mut tasks)?);
    assert_eq!(sent.len(), explored, "nothing leaves but what explored");
    assert_eq!(bandana.status().spent.lifetime.get(), explored as u64 * 32_000_000_000);
    Ok(())
}

/// An app that is ended while an exploring assignment is open, and started again: the bit of its
/// report, and whether the coordinate was one of a feature.
fn restarted(keeps: bool) -> Result<(bool, bool), Failure> {
    let offered = offered()?;
    let (directory, clock) = (tempfile::tempdir()?, Hands::new());
    let (bandana, mut tasks) = started(directory.path(), &clock, agreed()?, keeps)?;
    hear(&mut tasks, &clock, &offered)?;
    let id = loop {
        let assignment = drawn(&bandana, &[false, false])?;
        if assignment.unreported().is_none() {
            break assignment.id();
        }
    };
    tasks.write();
    drop((bandana, tasks));
    let (bandana, mut tasks) = started(directory.path(), &clock, agreed()?, keeps)?;
    let found = bandana.assignment(id).ok_or("no assignment")?;
    // The user reacts after the restart, and both features are false.
    found.reward(1.0);
    tasks.write();
    drop(found);
    clock.forward(2 * 86_400);
    let mut sent = send(&mut tasks)?;
    hear(&mut tasks, &clock, &offered)?;
    sent.extend(send(&mut tasks)?);
    // The first question had no answer: what waited for the day leaves at a time of its own.
    clock.forward(3600);
    sent.extend(send(&mut tasks)?);
    let [upload] = &sent[..] else { return Err(format!("{sent:?}").into()) };
    let (cell, tally) = upload.reports.tallies().next().ok_or("no report")?;
    let cell = offered.cells().cell(cell).ok_or("no such cell")?;
    Ok((tally.ones() == 1, cell.coordinate > 0))
}

#[test]
fn a_context_is_lost_with_the_process_unless_the_app_keeps_raw_values() -> Result<(), Failure> {
    let (mut lost, mut constant) = (Vec::new(), 0);
    for _ in 0..60 {
        let (bit, is_feature) = restarted(true)?;
        assert_eq!(bit, !is_feature, "a product of -1 for a feature, of 1 for the constant");
        match restarted(false)? {
            (bit, true) => lost.push(bit),
            (bit, false) => {
                assert!(bit, "the constant is not lost");
                constant += 1;
            }
        }
    }
    // Two of three are about a feature, and those are fair coins: about forty, of which twenty.
    assert!(constant > 3 && lost.len() > 20, "{constant} {lost:?}");
    let ones = lost.iter().filter(|bit| **bit).count();
    assert!((4..=lost.len() - 4).contains(&ones), "{lost:?}");
    Ok(())
}
