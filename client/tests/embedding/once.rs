//! Experiments that an installation reports once, whichever arm.

use std::path::Path;
use std::sync::Arc;

use bandana_client::{Bandana, Tasks, Unreported};

use super::{Failure, Hands, NAME, acceptance, builder, serve};

fn started(path: &Path, clock: &Arc<Hands>, days: u32) -> Result<(Bandana, Tasks), Failure> {
    let once = acceptance()?.report_once(days);
    let id = bandana_shared::identity::ExperimentId::new(NAME)?;
    let (bandana, mut tasks) = builder(path, clock, 1000)?.accept_experiment(id, once).build();
    serve(&mut tasks, clock)?;
    Ok((bandana, tasks))
}

/// Number of reports among 60 draws, which are all of one arm with a probability of 2^-59.
fn reports(bandana: &Bandana) -> Result<u32, Failure> {
    let experiment = bandana.experiment(NAME)?;
    let mut reports = 0;
    for _ in 0..60 {
        let choice = experiment.draw();
        let assignment = choice.assignment().ok_or("no arm")?;
        match assignment.unreported() {
            None => reports += 1,
            Some(why) => assert_eq!(why, Unreported::ReportedOnce),
        }
    }
    Ok(reports)
}

#[test]
fn one_report_in_a_period_whichever_arm_also_after_a_restart() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 30)?;
    assert_eq!(reports(&bandana)?, 1);
    assert_eq!(bandana.status().spent.lifetime.get(), 1_000_000_000);
    tasks.write();
    drop((bandana, tasks));

    let (bandana, mut tasks) = started(directory.path(), &clock, 30)?;
    assert_eq!(reports(&bandana)?, 0);
    clock.forward(5000);
    assert_eq!(serve(&mut tasks, &clock)?.len(), 1);
    assert_eq!(reports(&bandana)?, 0, "sent is not forgotten");
    // A clock that is set back or ahead begins no other period.
    for days in [-90, 90] {
        clock.set_wrong(days * 86_400);
        assert_eq!(reports(&bandana)?, 0);
    }
    clock.set_wrong(0);
    clock.forward(31 * 86_400);
    assert_eq!(reports(&bandana)?, 0, "no server has told so yet");
    clock.forward(300);
    serve(&mut tasks, &clock)?;
    assert_eq!(reports(&bandana)?, 1, "another period");
    tasks.write();
    Ok(())
}

#[test]
fn once_ever_is_once_ever() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, _tasks) = started(directory.path(), &clock, 0)?;
    assert_eq!(reports(&bandana)?, 1);
    clock.forward(3000 * 86_400);
    assert_eq!(reports(&bandana)?, 0);
    Ok(())
}

#[test]
fn a_period_that_no_server_has_told_yet_counts_as_the_later_one() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 30)?;
    // The next period has begun.
    clock.forward(6 * 86_400);
    assert_eq!(reports(&bandana)?, 1);
    clock.forward(300);
    serve(&mut tasks, &clock)?;
    assert_eq!(reports(&bandana)?, 0, "they count in the period of the server's day");
    Ok(())
}
