//! Starts and ends: directories that are in use, ids, and disks that fail and heal.

use std::fs;
use std::path::Path;

use bandana_client::{AssignmentId, Bandana, FetchTask, Reporting, StorageError, Task, Unreported};
use bandana_shared::specification::{Arm, Specification};

use super::{Failure, Hands, NAME, choose, serve, started};

/// Copies the files of a directory, as they are when a process is killed.
fn killed(directory: &Path) -> Result<tempfile::TempDir, Failure> {
    let copy = tempfile::tempdir()?;
    for file in fs::read_dir(directory)? {
        let file = file?;
        fs::copy(file.path(), copy.path().join(file.file_name()))?;
    }
    Ok(copy)
}

fn id(bandana: &Bandana) -> Result<AssignmentId, Failure> {
    Ok(bandana.experiment(NAME)?.draw().assignment().ok_or("no arm")?.id())
}

#[test]
fn a_directory_that_was_in_use_is_used_as_soon_as_it_is_free() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (first, mut tasks_of_first) = started(directory.path(), &clock, 10)?;
    choose(&first, &mut tasks_of_first, 2)?;
    let (second, mut tasks) = started(directory.path(), &clock, 10)?;
    let in_use = |bandana: &Bandana| match bandana.status().reporting {
        Reporting::StorageUnusable(error) => matches!(*error, StorageError::InUse { .. }),
        _ => false,
    };
    for _ in 0..20 {
        clock.forward(100);
        serve(&mut tasks, &clock)?;
        assert!(in_use(&second));
        let choice = second.experiment(NAME)?.draw();
        let unreported = choice.assignment().ok_or("no arm")?.unreported();
        assert_eq!(unreported, Some(Unreported::StorageUnusable));
    }
    drop((first, tasks_of_first));
    clock.forward(100);
    let sent = serve(&mut tasks, &clock)?.len();
    assert!(matches!(second.status().reporting, Reporting::On));
    assert_eq!(second.status().spent.lifetime.get(), 2_000_000_000, "what the first has spent");
    choose(&second, &mut tasks, 3)?;
    clock.forward(7200);
    assert_eq!(sent + serve(&mut tasks, &clock)?.len(), 5, "of both");
    Ok(())
}

#[test]
fn a_directory_that_can_not_be_made_at_the_start_is_used_once_it_can() -> Result<(), Failure> {
    let parent = tempfile::tempdir()?;
    let (in_the_way, directory) = (parent.path().join("app"), parent.path().join("app/bandana"));
    fs::write(&in_the_way, "a file where a folder is to be")?;
    let clock = Hands::new();
    let (bandana, mut tasks) = super::builder(&directory, &clock, 10)?.build();
    bandana.experiment(NAME)?;
    serve(&mut tasks, &clock)?;
    let unusable = |bandana: &Bandana| match bandana.status().reporting {
        Reporting::StorageUnusable(error) => matches!(*error, StorageError::Directory { .. }),
        _ => false,
    };
    assert!(unusable(&bandana));
    let unreported = bandana.experiment(NAME)?.draw();
    let unreported = unreported.assignment().ok_or("no arm")?.unreported();
    assert_eq!(unreported, Some(Unreported::StorageUnusable));
    fs::remove_file(&in_the_way)?;
    clock.forward(100);
    serve(&mut tasks, &clock)?;
    assert!(matches!(bandana.status().reporting, Reporting::On));
    assert_eq!(bandana.status().spent.lifetime.get(), 0, "nothing was reported before");
    choose(&bandana, &mut tasks, 2)?;
    clock.forward(7200);
    assert_eq!(serve(&mut tasks, &clock)?.len(), 2);
    Ok(())
}

#[test]
fn an_opt_out_in_between_stands() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (first, tasks_of_first) = started(directory.path(), &clock, 10)?;
    let (second, mut tasks) = started(directory.path(), &clock, 10)?;
    assert!(second.opt_out().is_err(), "it can't be kept yet");
    drop((first, tasks_of_first));
    clock.forward(100);
    serve(&mut tasks, &clock)?;
    assert!(matches!(second.status().reporting, Reporting::OptedOut));
    drop((second, tasks));
    let (third, _tasks) = started(directory.path(), &clock, 10)?;
    assert!(matches!(third.status().reporting, Reporting::OptedOut), "after a restart too");
    Ok(())
}

#[test]
fn no_id_comes_again_whenever_the_process_is_killed_and_whether_or_not_it_was_stored()
-> Result<(), Failure> {
    let clock = Hands::new();
    let mut ids = std::collections::BTreeSet::new();
    let mut directory = tempfile::tempdir()?;
    for start in 0..20 {
        let (bandana, mut tasks) = started(directory.path(), &clock, 1000)?;
        for choice in 0..5 {
            assert!(ids.insert(id(&bandana)?), "start {start}, choice {choice}");
            if start % 3 == 1 {
                tasks.write();
            }
        }
        let copy = killed(directory.path())?;
        drop((bandana, tasks));
        directory = copy;
    }
    // Neither do those of a start without storage, or in memory.
    let (bandana, _tasks) = started(directory.path(), &clock, 1000)?;
    let (other, _its_tasks) = started(directory.path(), &clock, 1000)?;
    assert!(ids.insert(id(&bandana)?) && ids.insert(id(&other)?));
    Ok(())
}

/// A directory in the place of a file that is to be written fails every whole write.
#[cfg(feature = "grpc")]
#[test]
fn a_shutdown_writes_what_a_disk_that_heals_in_time_takes() -> Result<(), Failure> {
    use std::time::Duration;

    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, tasks) = started(directory.path(), &clock, 100)?;
    drop((bandana, tasks));
    let in_the_way = directory.path().join("state.new");
    for _ in 0..8 {
        fs::create_dir(&in_the_way)?;
        let bandana = Bandana::builder()
            .endpoint("http://127.0.0.1:1")?
            .directory(directory.path())
            .accept(super::acceptance()?)
            .budget(super::budget(100)?)
            .consent(bandana_client::Consent::Given)
            .start()?;
        let experiment = bandana.experiment(NAME)?;
        let choices: Vec<_> = (0..3).map(|_| experiment.draw()).collect();
        while bandana.status().statistics.writes_failed == 0 {
            std::thread::yield_now();
        }
        let (ending, before) = (bandana.clone(), bandana.status().statistics.writes_failed);
        let shutdown = std::thread::spawn(move || ending.shutdown(Duration::from_mins(1)));
        while bandana.status().statistics.writes_failed < before + 2 {
            std::thread::yield_now();
        }
        fs::remove_dir(&in_the_way)?;
        assert!(shutdown.join().map_err(|_| "a panic")?, "it could be written");
        let ids = choices.iter().filter_map(|choice| choice.assignment());
        let reporting = ids.filter(|assignment| assignment.unreported().is_none()).count();
        drop((experiment, bandana));
        let (again, _tasks) = started(directory.path(), &clock, 100)?;
        let status = again.status();
        let sent = usize::try_from(status.statistics.uploads_accepted)?;
        let kept = status.open_assignments + status.waiting_reports + sent;
        assert!(reporting > 0 && kept >= reporting, "{kept} are left of {reporting}");
    }
    Ok(())
}

#[test]
fn rewards_reach_only_the_assignment_whose_id_was_kept() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, tasks) = started(directory.path(), &clock, 10)?;
    // Nothing of it is stored before the process is killed.
    let lost = id(&bandana)?;
    let copy = killed(directory.path())?;
    drop((bandana, tasks));
    let (bandana, _tasks) = started(copy.path(), &clock, 10)?;
    id(&bandana)?;
    assert!(bandana.assignment(lost).is_none(), "it is another one's");
    Ok(())
}

#[test]
fn a_directory_that_was_in_use_is_tried_again_though_the_clock_was_set_back() -> Result<(), Failure>
{
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let first = started(directory.path(), &clock, 10)?;
    let (second, mut tasks) = started(directory.path(), &clock, 10)?;
    drop(first);
    clock.set_wrong(-365 * 86_400);
    serve(&mut tasks, &clock)?;
    assert!(!matches!(second.status().reporting, Reporting::StorageUnusable(_)));
    Ok(())
}

#[test]
fn what_was_heard_while_a_directory_was_in_use_replaces_nothing_in_it() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let first = started(directory.path(), &clock, 10)?;
    let (second, mut tasks) = super::builder(directory.path(), &clock, 10)?.build();
    let experiment = second.experiment(NAME)?;
    // An impostor calls the arms by other names.
    let mut parts = super::specification()?.to_parts();
    parts.arms = vec![Arm::new("blue")?, Arm::new("yellow")?];
    let Task::Fetch(_) = tasks.next_task()? else { return Err("no fetch".into()) };
    let told = super::fetched(&Specification::new(parts)?, clock.truth())?;
    tasks.on_fetched(&FetchTask::new(experiment.id().clone()), told)?;
    assert!(["blue", "yellow"].contains(&experiment.draw().label_or("none")));
    drop(first);
    clock.forward(100);
    tasks.next_task()?;
    let label = experiment.draw().label_or("none").to_owned();
    assert!(["red", "green"].contains(&&*label), "{label}");
    Ok(())
}

#[test]
fn a_write_that_failed_while_the_clock_was_ahead_is_tried_again_once_it_is_right()
-> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    drop(started(directory.path(), &clock, 10)?);
    let in_the_way = directory.path().join("state.new");
    fs::create_dir(&in_the_way)?;
    clock.set_wrong(365 * 86_400);
    let (bandana, mut tasks) = super::builder(directory.path(), &clock, 10)?.build();
    tasks.write();
    assert!(matches!(bandana.status().reporting, Reporting::StorageFailing(_)));
    fs::remove_dir(&in_the_way)?;
    clock.set_wrong(0);
    tasks.write();
    let reporting = bandana.status().reporting;
    assert!(!matches!(reporting, Reporting::StorageFailing(_)), "{reporting:?}");
    Ok(())
}
