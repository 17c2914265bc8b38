//! Choosing, rewarding, restarting.

use std::time::Duration;

use bandana_client::{
    Acceptance, Assignment, Bandana, Choice, Consent, DefaultReason, ExperimentError, Refusal,
    Task, Unreported,
};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::rewards::Rewards;

use super::{
    Failure, Hands, NAME, acceptance, budget, builder, choose, fetched, serve, specification,
    started,
};

fn assert_shared<T: Clone + Send + Sync + 'static>() {}

#[test]
fn a_default_comes_with_its_reason_until_a_server_has_answered() -> Result<(), Failure> {
    assert_shared::<Bandana>();
    assert_shared::<Choice>();
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = builder(directory.path(), &clock, 10)?.build();
    let experiment = bandana.experiment(NAME)?;
    let choice = experiment.draw();
    assert!(matches!(choice, Choice::Default(DefaultReason::NoPolicyYet)));
    assert_eq!(choice.label_or("blue"), "blue");
    choice.reward(1.0);
    assert_eq!(serve(&mut tasks, &clock)?, []);
    let choice = experiment.draw();
    assert!(["red", "green"].contains(&choice.label_or("blue")));
    assert!(matches!(bandana.experiment("No!"), Err(ExperimentError::Name(_))));
    Ok(())
}

#[test]
fn whoever_waits_for_an_experiment_is_told_when_it_is_there() -> Result<(), Failure> {
    const LONG: Duration = Duration::from_mins(1);
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = builder(directory.path(), &clock, 10)?.build();
    let experiment = bandana.experiment(NAME)?;
    let early = experiment.wait_until_ready(Duration::ZERO).unwrap_err();
    assert_eq!(early.reason(), &DefaultReason::NoPolicyYet);
    std::thread::scope(|scope| -> Result<(), Failure> {
        let waiting = scope.spawn(|| experiment.wait_until_ready(LONG));
        serve(&mut tasks, &clock)?;
        assert_eq!(waiting.join().map_err(|_| "it panicked")?, Ok(()));
        Ok(())
    })?;
    // A wait of zero returns at once.
    let unknown = bandana.experiment("unknown")?;
    std::thread::scope(|scope| -> Result<(), Failure> {
        let waiting = scope.spawn(|| unknown.wait_until_ready(LONG));
        drop(tasks);
        let told = waiting.join().map_err(|_| "it panicked")?;
        assert_eq!(told.unwrap_err().reason(), &DefaultReason::NoPolicyYet);
        Ok(())
    })?;
    let (bandana, _tasks) = Bandana::builder()
        .host_transport()
        .in_memory()
        .accept(acceptance()?)
        .budget(budget(10)?)
        .consent(Consent::Withheld)
        .build();
    let told = bandana.experiment(NAME)?.wait_until_ready(LONG).unwrap_err();
    assert_eq!(told.reason(), &DefaultReason::OptedOut);
    Ok(())
}

#[test]
fn only_what_the_app_accepts_is_asked_for() -> Result<(), Failure> {
    let clock = Hands::new();
    let strict = Acceptance::unsigned(Epsilon::new(0.5)?, Rewards::binary());
    let (bandana, mut tasks) = Bandana::builder()
        .host_transport()
        .in_memory()
        .accept_only([(ExperimentId::new(NAME)?, strict)])
        .budget(budget(10)?)
        .consent(Consent::Given)
        .clock(std::sync::Arc::<Hands>::clone(&clock))
        .build();
    assert!(matches!(bandana.experiment("other"), Err(ExperimentError::NotAccepted(_))));
    let Task::Fetch(task) = tasks.next_task()? else { return Err("no question".into()) };
    let offer = fetched(&specification()?, bandana_client::Clock::now(&*clock))?;
    assert!(tasks.on_fetched(&task, offer).is_err());
    let Choice::Default(reason) = bandana.experiment(NAME)?.draw() else {
        return Err("an arm of a refused experiment".into());
    };
    let refusal = Refusal::Epsilon { offered: 1.0, accepted: 0.5 };
    assert_eq!(reason, DefaultReason::Refused(refusal));
    // A waiting thread is woken at once.
    let told = bandana.experiment(NAME)?.wait_until_ready(Duration::from_mins(1)).unwrap_err();
    assert_eq!(told.reason(), &reason);
    assert!(
        told.to_string().contains("asks for an epsilon of 1; the app accepts at most 0.5"),
        "{told}"
    );
    assert_eq!(bandana.status().statistics.answers_refused, 1);
    Ok(())
}

#[test]
fn every_assignment_reports_once_whatever_the_app_does_with_it() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 100)?;
    let experiment = bandana.experiment(NAME)?;
    drop(experiment.draw());
    experiment.draw().reward(1.0);
    let twice = experiment.draw();
    twice.reward(1.0);
    twice.reward(0.0);
    let wrong = experiment.draw();
    wrong.reward(0.5);
    wrong.reward(f64::NAN);
    let kept = experiment.draw();
    assert_eq!(serve(&mut tasks, &clock)?, [], "nothing leaves before its time");
    clock.forward(601);
    assert_eq!(bandana.status().open_assignments, 5);
    assert_eq!(serve(&mut tasks, &clock)?.len() + bandana.status().waiting_reports, 5);
    kept.reward(1.0);
    let status = bandana.status();
    assert_eq!(status.open_assignments, 0);
    assert_eq!(status.statistics.rewards_refused, 3, "two that are none, one too late");
    clock.forward(3600);
    serve(&mut tasks, &clock)?;
    let status = bandana.status();
    assert_eq!((status.statistics.uploads_accepted, status.waiting_reports), (5, 0));
    assert_eq!(status.spent.lifetime.get(), 5_000_000_000);
    Ok(())
}

#[test]
fn a_restart_goes_on_offline_with_what_was_there() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 100)?;
    choose(&bandana, &mut tasks, 3)?;
    let kept = bandana.experiment(NAME)?.draw();
    let id = kept.assignment().ok_or("no arm")?.id();
    tasks.write();
    let label = kept.label_or("none").to_owned();
    drop((bandana, tasks, kept));

    let (bandana, mut tasks) = builder(directory.path(), &clock, 100)?.build();
    let status = bandana.status();
    assert_eq!((status.open_assignments, status.spent.lifetime.get()), (4, 4_000_000_000));
    assert!(matches!(bandana.experiment(NAME)?.draw(), Choice::Arm(_)), "without a network");
    let resumed = bandana.assignment(id).ok_or("the assignment is gone")?;
    assert_eq!(resumed.label(), label);
    resumed.reward(1.0);
    assert_eq!(bandana.status().statistics.rewards_refused, 0);
    clock.forward(5000);
    assert!(bandana.assignment(id).is_none(), "its window has ended");
    assert_eq!(serve(&mut tasks, &clock)?.len(), 5);
    Ok(())
}

#[test]
fn the_budget_holds_over_threads_and_restarts() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let mut reporting = 0;
    for _ in 0..3 {
        let (bandana, mut tasks) = started(directory.path(), &clock, 10)?;
        let experiment = bandana.experiment(NAME)?;
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let experiment = experiment.clone();
                std::thread::spawn(move || {
                    let choices: Vec<Choice> = (0..10).map(|_| experiment.draw()).collect();
                    let assignments = choices.iter().filter_map(Choice::assignment);
                    assignments.map(Assignment::unreported).collect()
                })
            })
            .collect();
        for thread in threads {
            let outcomes: Vec<Option<Unreported>> = thread.join().map_err(|_| "a panic")?;
            assert_eq!(outcomes.len(), 10, "an arm is given all the same");
            let spent = |outcome: &&Option<Unreported>| **outcome == Some(Unreported::WindowSpent);
            reporting += outcomes.iter().filter(|outcome| outcome.is_none()).count();
            let without = outcomes.iter().filter(spent).count();
            assert_eq!(without + outcomes.iter().filter(|o| o.is_none()).count(), 10);
        }
        tasks.write();
    }
    assert_eq!(reporting, 10);
    Ok(())
}

#[test]
fn a_stricter_app_does_not_go_on_with_what_it_no_longer_accepts() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 100)?;
    choose(&bandana, &mut tasks, 1)?;
    drop((bandana, tasks));
    let strict = Acceptance::unsigned(Epsilon::new(0.5)?, Rewards::binary());
    let experiment = ExperimentId::new(NAME)?;
    let ready = builder(directory.path(), &clock, 100)?;
    let (bandana, _tasks) = ready.accept_experiment(experiment, strict).build();
    assert!(matches!(bandana.experiment(NAME)?.draw(), Choice::Default(_)));
    assert_eq!(bandana.status().open_assignments, 1, "what was agreed to before is reported");
    Ok(())
}

#[test]
fn after_the_end_arms_come_without_a_report() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 100)?;
    choose(&bandana, &mut tasks, 1)?;
    let experiment = bandana.experiment(NAME)?;
    assert!(experiment.is_ready());
    drop(tasks);
    let choice = experiment.draw();
    let unreported = choice.assignment().and_then(Assignment::unreported);
    assert_eq!(unreported, Some(Unreported::ShutDown));
    assert!(bandana.opt_out().is_err(), "it could not be written");
    assert!(!experiment.is_ready());
    Ok(())
}
