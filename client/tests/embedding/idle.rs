//! The times at which an app that nobody uses is woken.

use bandana_client::Task;

use super::*;

/// Whether something is to be sent to the server now; if so, it answers.
fn sends(tasks: &mut Tasks, clock: &Hands) -> Result<bool, Failure> {
    match tasks.next_task()? {
        Task::Fetch(task) => {
            tasks.on_fetched(&task, fetched(&specification()?, clock.truth())?)?;
            Ok(true)
        }
        Task::Upload(task) => {
            tasks.on_upload_result(task.id(), &UploadOutcome::Accepted)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Wake-ups at which something was done, and at which nothing was, until nothing more is due.
fn wakes(bandana: &Bandana, tasks: &mut Tasks, clock: &Hands) -> Result<(u32, u32), Failure> {
    let (mut useful, mut useless) = (0, 0);
    loop {
        let due = match tasks.next_task()? {
            Task::Wait(due) => due,
            Task::Done => return Ok((useful, useless)),
            other => return Err(format!("{other:?} was left").into()),
        };
        let waiting = |bandana: &Bandana| {
            let status = bandana.status();
            (status.open_assignments, status.waiting_reports)
        };
        let before = waiting(bandana);
        clock.forward(due.since(clock.truth()).as_secs() + 1);
        let sent = sends(tasks, clock)?;
        serve(tasks, clock)?;
        tasks.write();
        if !sent && waiting(bandana) == before {
            useless += 1;
        } else {
            useful += 1;
        }
    }
}

#[test]
fn an_idle_app_is_woken_for_what_is_due_and_then_never_again() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock, 100)?;
    // A day without an assignment has no due time at all.
    assert_eq!(wakes(&bandana, &mut tasks, &clock)?, (0, 0));
    for day in 0..7 {
        choose(&bandana, &mut tasks, 2)?;
        let (useful, useless) = wakes(&bandana, &mut tasks, &clock)?;
        assert_eq!(useless, 0, "woken for nothing on day {day}");
        // Each of the two has an end of its window, a question and a release time at most.
        assert!((1..=6).contains(&useful), "{useful} on day {day}");
        clock.forward(86_400);
    }
    Ok(())
}
