//! Consenting, opting out, opting in again.

use std::fs;

use bandana_client::{Bandana, Choice, Consent, DefaultReason, Reporting, Task, danger};

use super::{Failure, Hands, NAME, acceptance, budget, builder, choose, serve, started};

/// Whether any file of the directory holds these bytes.
fn mentions(directory: &std::path::Path, word: &str) -> Result<bool, Failure> {
    for entry in fs::read_dir(directory)? {
        let bytes = fs::read(entry?.path())?;
        if bytes.windows(word.len()).any(|window| window == word.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn opting_out_stops_everything_and_leaves_what_was_spent() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 10)?;
    choose(&bandana, &mut tasks, 4)?;
    bandana.experiment(NAME)?.draw().reward(1.0);
    tasks.write();
    assert!(mentions(directory.path(), NAME)?);

    bandana.opt_out()?;
    assert!(!mentions(directory.path(), NAME)?, "something is left of the experiment");
    assert!(matches!(bandana.status().reporting, Reporting::OptedOut));
    let choice = bandana.experiment(NAME)?.draw();
    assert!(matches!(choice, Choice::Default(DefaultReason::OptedOut)));
    clock.forward(10_000);
    assert!(matches!(tasks.next_task()?, Task::Done), "nothing is asked for or sent");
    drop((bandana, tasks, choice));

    // The opt-out survives a restart, whatever the app then sets.
    let (bandana, mut tasks) = builder(directory.path(), &clock, 10)?.build();
    assert!(matches!(bandana.status().reporting, Reporting::OptedOut));
    assert!(matches!(tasks.next_task()?, Task::Done));
    assert_eq!(bandana.status().spent.lifetime.get(), 5_000_000_000);
    bandana.opt_in()?;
    bandana.experiment(NAME)?;
    serve(&mut tasks, &clock)?;
    assert!(bandana.experiment(NAME)?.draw().assignment().is_some());
    assert_eq!(bandana.status().spent.window.get(), 6_000_000_000, "nothing was refilled");
    drop((bandana, tasks));
    let (bandana, _tasks) = builder(directory.path(), &clock, 10)?.build();
    assert!(matches!(bandana.status().reporting, Reporting::On));
    Ok(())
}

#[test]
fn without_consent_nothing_is_asked_for_or_kept() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 10)?;
    choose(&bandana, &mut tasks, 2)?;
    drop((bandana, tasks));
    let (bandana, mut tasks) = Bandana::builder()
        .host_transport()
        .directory(directory.path())
        .accept(acceptance()?)
        .budget(budget(10)?)
        .consent(Consent::Withheld)
        .build();
    bandana.experiment(NAME)?;
    assert!(matches!(tasks.next_task()?, Task::Done));
    assert!(!mentions(directory.path(), NAME)?);
    assert_eq!(bandana.status().spent.lifetime.get(), 2_000_000_000);
    Ok(())
}

#[test]
fn an_opt_out_outlives_damage_and_a_reset() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, tasks) = started(directory.path(), &clock, 10)?;
    bandana.opt_out()?;
    drop((bandana, tasks));
    fs::remove_file(directory.path().join("ledger"))?;
    for reset in [false, true] {
        if reset {
            danger::reset(directory.path())?;
        }
        let (bandana, mut tasks) = builder(directory.path(), &clock, 10)?.build();
        let choice = bandana.experiment(NAME)?.draw();
        assert!(matches!(choice, Choice::Default(DefaultReason::OptedOut)), "reset: {reset}");
        assert!(matches!(tasks.next_task()?, Task::Done), "nobody is asked");
    }
    let (bandana, mut tasks) = builder(directory.path(), &clock, 10)?.build();
    bandana.opt_in()?;
    bandana.experiment(NAME)?;
    serve(&mut tasks, &clock)?;
    drop((bandana, tasks));
    let (bandana, _tasks) = builder(directory.path(), &clock, 10)?.build();
    assert!(bandana.experiment(NAME)?.draw().assignment().is_some());
    Ok(())
}
