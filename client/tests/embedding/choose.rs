//! One assignment of an experiment at a time, until its window ends.

use std::collections::BTreeSet;

use bandana_client::{AssignmentId, Bandana, FetchTask, Task, Unreported, UploadOutcome};
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{ArmIndex, ExperimentId};

use super::{Failure, Hands, NAME, fetched, serve, specification, started};

/// Id and label of the assignment that is chosen.
fn chosen(bandana: &Bandana) -> Result<(u64, String), Failure> {
    let choice = bandana.experiment(NAME)?.choose();
    let assignment = choice.assignment().ok_or("no arm")?;
    Ok((assignment.id().get(), assignment.label().to_owned()))
}

#[test]
fn a_page_shown_a_hundred_times_costs_one_report_also_over_restarts() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let mut all = BTreeSet::new();
    for _start in 0..4 {
        let (bandana, mut tasks) = started(directory.path(), &clock, 100)?;
        for _ in 0..25 {
            all.insert(chosen(&bandana)?);
        }
        tasks.write();
        clock.forward(100);
    }
    assert_eq!(all.len(), 1, "{all:?}");
    clock.forward(200);
    let (bandana, mut tasks) = started(directory.path(), &clock, 100)?;
    let next = chosen(&bandana)?;
    assert!(!all.contains(&next), "the window has ended");
    assert_eq!(bandana.status().spent.lifetime.get(), 2_000_000_000);
    clock.forward(600 + 3600);
    assert_eq!(serve(&mut tasks, &clock)?.len(), 2);
    Ok(())
}

#[test]
fn the_id_of_an_assignment_is_found_in_its_own_installation_only() -> Result<(), Failure> {
    let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
    let clock = Hands::new();
    let mut ids = BTreeSet::new();
    for _start in 0..3 {
        let [(one, mut its_tasks), (other, mut other_tasks)] = [
            started(directories[0].path(), &clock, 100)?,
            started(directories[1].path(), &clock, 100)?,
        ];
        for (its, others) in [(&one, &other), (&other, &one)] {
            let (id, _) = chosen(its)?;
            let id = AssignmentId::new(id);
            assert!(its.assignment(id).is_some() && others.assignment(id).is_none());
            ids.insert(id);
        }
        its_tasks.write();
        other_tasks.write();
        clock.forward(1000);
    }
    assert_eq!(ids.len(), 6, "{ids:?}");
    Ok(())
}

#[test]
fn the_newest_of_several_assignments_is_shown() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, _tasks) = started(directory.path(), &clock, 100)?;
    let experiment = bandana.experiment(NAME)?;
    let first = experiment.draw();
    let second = experiment.draw();
    let id = |choice: &bandana_client::Choice| choice.assignment().map(|a| a.id().get());
    assert_ne!(id(&first), id(&second));
    assert_eq!(id(&experiment.choose()), id(&second));
    Ok(())
}

#[test]
fn an_experiment_that_the_whole_budget_can_not_pay_is_told_apart_from_a_spent_one()
-> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let (bandana, mut tasks) = started(directory.path(), &Hands::new(), 0)?;
    let choice = bandana.experiment(NAME)?.choose();
    let why = choice.assignment().and_then(bandana_client::Assignment::unreported);
    let (price, cap) = (NanoNats::new(NanoNats::PER_NAT), NanoNats::ZERO);
    assert_eq!(why, Some(Unreported::BeyondBudget { price, cap }));
    let status = bandana.status();
    let told = status.last_refusal.ok_or("no trouble is told")?.to_string();
    assert!(told.contains("costs 1 nats, and the app's budget never has more than 0"), "{told}");
    assert!(told.contains("raise the app's budget"), "{told}");
    assert_eq!(status.spent.lifetime, NanoNats::ZERO);
    assert!(matches!(tasks.next_task()?, Task::Wait(_) | Task::Done));
    Ok(())
}

#[test]
fn an_arm_that_never_reports_stays_too_until_there_is_room() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 1)?;
    let experiment = bandana.experiment(NAME)?;
    drop(experiment.draw());
    let unreported = experiment.draw();
    let why = |choice: &bandana_client::Choice| {
        choice.assignment().and_then(bandana_client::Assignment::unreported)
    };
    assert_eq!(why(&unreported), Some(Unreported::WindowSpent));
    for _ in 0..20 {
        assert_eq!(experiment.choose().label_or(""), unreported.label_or(""));
        assert_eq!(why(&experiment.choose()), Some(Unreported::WindowSpent));
    }
    // The report of the first arm arrives, and a week later there is room; the day is heard anew, but not
    // at once: that would tell whose report it was.
    clock.forward(600 + 3600);
    loop {
        match tasks.next_task()? {
            Task::Fetch(task) => {
                tasks.on_fetched(&task, fetched(&specification()?, clock.truth())?)?;
            }
            Task::Upload(task) => {
                tasks.on_upload_result(task.id(), &UploadOutcome::Accepted)?;
                break;
            }
            other => return Err(format!("{other:?}").into()),
        }
    }
    assert!(matches!(tasks.next_task()?, Task::Wait(_)), "a fetch follows the upload");
    clock.forward(300);
    serve(&mut tasks, &clock)?;
    drop(experiment.draw());
    clock.forward(8 * 86_400);
    let _unfetched = experiment.choose();
    clock.forward(300);
    serve(&mut tasks, &clock)?;
    assert_eq!(why(&experiment.choose()), None);
    Ok(())
}

#[test]
fn a_retired_arm_is_shown_to_nobody_any_more() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 100)?;
    let (_, shown) = chosen(&bandana)?;
    let specification = specification()?;
    let mut arms = specification.arms().iter();
    let arm = arms.position(|arm| arm.label() == shown).ok_or("no such arm")?;
    let revised = specification.without_arm(ArmIndex::new(arm)?)?;
    let task = FetchTask::new(ExperimentId::new(NAME)?);
    tasks.on_fetched(&task, fetched(&revised, clock.truth())?)?;
    let (_, next) = chosen(&bandana)?;
    assert_ne!(next, shown);
    Ok(())
}

#[test]
fn a_clock_that_was_set_back_makes_no_assignment_last() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, _tasks) = started(directory.path(), &clock, 100)?;
    let before = chosen(&bandana)?;
    // By a month: its window would last as long.
    clock.set_wrong(-30 * 86_400);
    assert_ne!(chosen(&bandana)?.0, before.0);
    Ok(())
}
