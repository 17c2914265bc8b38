//! The network of a client: a server that is away, comes back, or answers one kind of call only.

use std::time::Duration;

use bandana_client::{
    Budget, Client, ClientError, FetchTask, Fetched, Task, Unreported, UploadOutcome,
};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::identity::ExperimentId;
use bandana_shared::specification::Specification;

use super::schedule::timed;
use super::{Failure, acceptance, answer, at, client, id};

/// The answer about an experiment of this name, on day 10.
fn of_many(experiment_id: ExperimentId) -> Result<Fetched, Failure> {
    let mut parts = timed(0, 0, false)?.to_parts();
    parts.experiment_id = experiment_id;
    answer(Specification::new(parts)?, 10)
}

/// A client of eight experiments, each with forty reports that are due in an hour.
fn with_many_reports() -> Result<Client, Failure> {
    let mut client = Client::new(Budget::UNLIMITED);
    for number in 0..8 {
        let experiment_id = ExperimentId::new(format!("many-{number}"))?;
        let fetched = of_many(experiment_id.clone())?;
        client.enroll(experiment_id.clone(), acceptance(&fetched.specification));
        client.on_fetched(&FetchTask::new(experiment_id.clone()), fetched, at(0))?;
        for _ in 0..40 {
            client.draw(&experiment_id, at(0))?;
        }
    }
    Ok(client)
}

#[test]
fn one_wait_for_a_server_that_is_away_and_none_once_it_is_back() -> Result<(), Failure> {
    for pushback in [None, Some(Duration::from_secs(20))] {
        let mut client = with_many_reports()?;
        let hour = at(3600);
        let (mut now, mut calls) = (at(0), 0);
        while now < hour {
            match client.next_task(now)? {
                Task::Upload(task) => {
                    let outcome = UploadOutcome::Unanswered { retry_after: pushback };
                    client.on_upload_result(task.id(), &outcome, now)?;
                    calls += 1;
                }
                Task::Fetch(task) => {
                    client.on_fetch_failed(&task, pushback, now)?;
                    calls += 1;
                }
                Task::Wait(time) => {
                    // A pushback is kept to, whatever else is due.
                    assert!(calls == 0 || time.since(now) >= pushback.unwrap_or_default());
                    now = time;
                }
                Task::Shuffled(_) | Task::Done => return Err("nothing is left to do".into()),
            }
        }
        // The bounds are a second, two, four, ...; a wait is half its bound in the mean. 40 waits in an
        // hour have odds below 1e-9.
        assert!((5..40).contains(&calls), "{calls} calls in an hour");
        // The first answer ends the wait for all.
        let mut settled = 0;
        loop {
            match client.next_task(now)? {
                Task::Upload(task) => {
                    client.on_upload_result(task.id(), &UploadOutcome::Accepted, now)?;
                    settled += 1;
                }
                Task::Fetch(task) => {
                    let id = task.experiment_id;
                    client.on_fetched(&FetchTask::new(id.clone()), of_many(id.clone())?, now)?;
                }
                Task::Shuffled(_) | Task::Wait(_) | Task::Done => break,
            }
        }
        assert_eq!((settled, client.waiting_reports()), (320, 0));
    }
    Ok(())
}

#[test]
fn a_network_that_has_changed_ends_the_wait_and_does_not_end_it_again_and_again()
-> Result<(), Failure> {
    let mut client = with_many_reports()?;
    let mut now = at(0);
    for _ in 0..10 {
        match client.next_task(now)? {
            Task::Upload(task) => {
                let outcome =
                    UploadOutcome::Unanswered { retry_after: Some(Duration::from_mins(30)) };
                client.on_upload_result(task.id(), &outcome, now)?;
            }
            Task::Wait(time) => now = time,
            other => return Err(format!("an upload was expected, not {other:?}").into()),
        }
    }
    // The wait is one of half an hour at least.
    while !matches!(client.next_task(now)?, Task::Wait(_)) {
        let Task::Upload(task) = client.next_task(now)? else { continue };
        let outcome = UploadOutcome::Unanswered { retry_after: Some(Duration::from_mins(30)) };
        client.on_upload_result(task.id(), &outcome, now)?;
    }
    let end = |client: &mut Client, now| match client.next_task(now) {
        Ok(Task::Wait(time)) => Ok(time),
        other => Err(format!("a wait was expected, not {other:?}")),
    };
    let long = end(&mut client, now)?;
    assert!(long.since(now) >= Duration::from_mins(25), "{:?}", long.since(now));
    client.resume(now)?;
    let short = end(&mut client, now)?;
    assert!(short.since(now) <= Duration::from_secs(1));
    // Still no answer, and an app that calls it in a loop.
    let Task::Upload(task) = client.next_task(short)? else { return Err("not due".into()) };
    let outcome = UploadOutcome::Unanswered { retry_after: Some(Duration::from_mins(30)) };
    client.on_upload_result(task.id(), &outcome, short)?;
    for _ in 0..100 {
        client.resume(short)?;
    }
    assert!(end(&mut client, short)?.since(short) >= Duration::from_mins(30));
    client.resume(short.after(Duration::from_secs(11)))?;
    let later = short.after(Duration::from_secs(11));
    assert!(end(&mut client, later)?.since(later) <= Duration::from_secs(1));
    Ok(())
}

/// What a server answers until it lets reports leave.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// Nothing, or that all are to wait.
    All(Option<Duration>),
    /// That reports of this experiment are to wait.
    Queue(Option<Duration>),
    /// A day that is not today.
    Day,
}

/// Ten reports that are due within nine hours, in which a server holds them. The times at which they leave
/// then, in seconds, and how long the client waited for the server.
fn times_after(held: Held) -> Result<(Vec<u64>, Vec<Duration>), Failure> {
    let specification = timed(1, 3600, false)?;
    let mut client = client(&specification)?;
    let (begin, end) = (at(40_000), at(40_000 + 9 * 3600));
    let (mut now, mut left, mut waits, mut drawn) = (begin, Vec::new(), Vec::new(), 0);
    while left.len() < 10 {
        if drawn < 10 && now.since(begin).as_secs() >= drawn * 3240 {
            client.draw(&id()?, now)?;
            drawn += 1;
        }
        let is_held = now < end;
        match client.next_task(now)? {
            Task::Upload(task) => {
                let outcome = match held {
                    Held::All(retry_after) if is_held => UploadOutcome::Unanswered { retry_after },
                    Held::Queue(retry_after) if is_held => UploadOutcome::Retry { retry_after },
                    _ => UploadOutcome::Accepted,
                };
                client.on_upload_result(task.id(), &outcome, now)?;
                if outcome == UploadOutcome::Accepted {
                    left.push(now.since(end).as_secs());
                } else if let Task::Wait(time) = client.next_task(now)? {
                    waits.push(time.since(now));
                }
            }
            Task::Fetch(task) => match held {
                Held::All(retry_after) if is_held => {
                    client.on_fetch_failed(&task, retry_after, now)?;
                    if let Task::Wait(time) = client.next_task(now)? {
                        waits.push(time.since(now));
                    }
                }
                _ => {
                    let is_lie = is_held && matches!(held, Held::Day) && now > begin;
                    let day = if is_lie { now.day().forward(7) } else { now.day() };
                    let fetched = Fetched { day, ..answer(specification.clone(), 10)? };
                    client.on_fetched(&task, fetched, now)?;
                }
            },
            Task::Wait(time) => {
                now = now
                    .after(Duration::from_secs(10))
                    .min(time.max(now.after(Duration::from_secs(1))));
            }
            Task::Done | Task::Shuffled(_) => now = now.after(Duration::from_secs(10)),
        }
    }
    Ok((left, waits))
}

#[test]
fn what_a_wait_has_gathered_leaves_at_times_of_its_own() -> Result<(), Failure> {
    let hours = Some(Duration::from_secs(u32::MAX.into()));
    for held in
        [Held::All(None), Held::All(hours), Held::Queue(None), Held::Queue(hours), Held::Day]
    {
        let (mut times, _) = times_after(held)?;
        times.sort_unstable();
        // They are spread over the hour of their delay, as if each had been released alone. Ten times of
        // 56 slots: more than five of them in one slot have odds of 210/56^5 = 4e-7, and all within ten
        // minutes less.
        let together = |length| {
            let of = |first: &u64| {
                times.iter().filter(|time| (*first..first + length).contains(time)).count()
            };
            times.iter().map(of).max().unwrap_or(0)
        };
        assert!(together(60) <= 5 && together(600) < 10, "{held:?}: {times:?}");
    }
    Ok(())
}

/// A server accepts each upload after `length`. How many of 24 reports that fall due over ten minutes leave
/// the moment that another one is accepted.
fn chained(length: Duration) -> Result<usize, Failure> {
    let specification = timed(1, 600, false)?;
    let mut client = client(&specification)?;
    let (mut now, mut left, mut answered, mut chained) = (at(40_000), 0, None, 0);
    for _ in 0..24 {
        if let Task::Fetch(task) = client.next_task(now)? {
            client.on_fetched(&task, answer(specification.clone(), 10)?, now)?;
        }
        client.draw(&id()?, now)?;
        now = now.after(Duration::from_secs(3));
    }
    while left < 24 {
        match client.next_task(now)? {
            Task::Upload(task) => {
                chained += usize::from(answered == Some(now));
                now = now.after(length);
                client.on_upload_result(task.id(), &UploadOutcome::Accepted, now)?;
                (left, answered) = (left + 1, Some(now));
            }
            Task::Fetch(task) => {
                let fetched = Fetched { day: now.day(), ..answer(specification.clone(), 10)? };
                client.on_fetched(&task, fetched, now)?;
            }
            Task::Wait(_) | Task::Done | Task::Shuffled(_) => {
                now = now.after(Duration::from_millis(500));
            }
        }
    }
    Ok(chained)
}

#[test]
fn what_a_slow_answer_has_gathered_leaves_at_times_of_its_own() -> Result<(), Failure> {
    // Without that, about 18 leave right after the answer to the one before.
    let slow = chained(Duration::from_secs(28))?;
    assert!(slow <= 8, "{slow} of 24 leave the moment that another one is answered");
    Ok(())
}

#[test]
fn a_server_can_ask_for_few_different_waits() -> Result<(), Failure> {
    for asked in [1_u64, 59, 61, 599, 601, 3000, 3601, 1 << 40] {
        let (_, waits) = times_after(Held::All(Some(Duration::from_secs(asked))))?;
        let sizes = [1, 10, 60, 600, 3600];
        let size = sizes.into_iter().find(|size| *size >= asked).unwrap_or(3600);
        // The first wait has a random part of at most a second.
        let first = waits.first().ok_or("no wait")?;
        let asked = Duration::from_secs(size);
        assert!(*first >= asked && *first <= asked + Duration::from_millis(1001), "{first:?}");
    }
    Ok(())
}

/// Chooses once on each of `days`, with one report in a window of a day, and counts the reports.
/// Another fetch before them gets no result.
fn reported_with_a_lost_fetch(days: u32) -> Result<u32, Failure> {
    let nat = PrivacyLoss::new(1.0)?;
    let specification = timed(0, 0, false)?;
    let mut client = Client::new(Budget::new(nat, 1, PrivacyLoss::new(1000.0)?)?);
    client.enroll(id()?, acceptance(&specification));
    let Task::Fetch(lost) = client.next_task(at(0))? else { return Err("no fetch".into()) };
    let mut reported = 0;
    for day in 10..10 + days {
        // Twice a day, so that the day is heard after the report.
        for hour in [1, 13] {
            let now = at((u64::from(day - 10) * 24 + hour) * 3600);
            if let Ok(chosen) = client.draw(&id()?, now) {
                reported += u32::from(chosen.unreported().is_none());
            }
            let later = now.after(Duration::from_mins(10));
            while let task @ (Task::Fetch(_) | Task::Upload(_)) = client.next_task(later)? {
                match task {
                    Task::Fetch(task) => {
                        client.on_fetched(&task, answer(specification.clone(), day)?, later)?;
                    }
                    Task::Upload(task) => {
                        client.on_upload_result(task.id(), &UploadOutcome::Accepted, later)?;
                    }
                    Task::Shuffled(_) | Task::Wait(_) | Task::Done => {}
                }
            }
        }
    }
    // It comes after all, and tells of a day long past: nothing is dated by it.
    let spent = client.spent();
    let end = at(u64::from(days) * 86_400);
    client.on_fetched(&lost, answer(specification, 10)?, end)?;
    assert_eq!(client.spent(), spent);
    Ok(reported)
}

#[test]
fn a_fetch_whose_result_is_never_told_ends_no_reporting() -> Result<(), Failure> {
    let reported = reported_with_a_lost_fetch(30)?;
    assert!(reported >= 14, "{reported} reports in 30 days");
    Ok(())
}

#[test]
fn an_answer_that_nobody_asked_for_dates_no_report() -> Result<(), Failure> {
    let nat = PrivacyLoss::new(1.0)?;
    let specification = timed(0, 0, false)?;
    let mut client = Client::new(Budget::new(nat, 1, PrivacyLoss::new(1000.0)?)?);
    client.enroll(id()?, acceptance(&specification));
    client.on_fetched(&FetchTask::new(id()?), answer(specification.clone(), 10)?, at(0))?;
    client.draw(&id()?, at(0))?;
    let Task::Upload(task) = client.next_task(at(0))? else { return Err("no upload".into()) };
    client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(0))?;
    for day in 11..14 {
        let now = at(u64::from(day - 10) * 86_400);
        let told = answer(specification.clone(), day)?;
        client.on_fetched(&FetchTask::new(id()?), told, now)?;
        assert_eq!(client.draw(&id()?, now)?.unreported(), Some(Unreported::WindowSpent));
    }
    Ok(())
}

/// The first day on which a user reports again who has opted out on day 10, and in again at once, with
/// one report in a window of a day. `is_answered`: whether the upload of day 10 had its answer.
fn reports_again(is_answered: bool) -> Result<u32, Failure> {
    let nat = PrivacyLoss::new(1.0)?;
    let specification = timed(0, 0, false)?;
    let mut client = Client::new(Budget::new(nat, 1, PrivacyLoss::new(1000.0)?)?);
    client.enroll(id()?, acceptance(&specification));
    let Task::Fetch(first) = client.next_task(at(0))? else { return Err("no fetch".into()) };
    client.on_fetched(&first, answer(specification.clone(), 10)?, at(0))?;
    client.draw(&id()?, at(0))?;
    let Task::Upload(task) = client.next_task(at(0))? else { return Err("no upload".into()) };
    if is_answered {
        client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(0))?;
    }
    client.opt_out();
    client.opt_in();
    for day in 10..20 {
        for hour in [1, 13] {
            let now = at((u64::from(day - 10) * 24 + hour) * 3600);
            while let Task::Fetch(task) = client.next_task(now)? {
                client.on_fetched(&task, answer(specification.clone(), day)?, now)?;
            }
            if client.draw(&id()?, now)?.unreported().is_none() {
                return Ok(day);
            }
        }
    }
    Err("never".into())
}

#[test]
fn a_report_forgotten_on_its_way_counts_until_it_must_have_arrived() -> Result<(), Failure> {
    assert_eq!(reports_again(true)?, 11);
    // It may arrive on day 11. The fetch of day 11 shows that it must have, and that of day 12 dates it.
    assert_eq!(reports_again(false)?, 13);
    Ok(())
}

#[test]
fn a_wake_with_nothing_to_do_is_not_held_against_the_next() -> Result<(), Failure> {
    let mut client = with_many_reports()?;
    // The app came to the foreground, and something is due.
    assert!(client.resume(at(3600))?);
    let Task::Fetch(task) = client.next_task(at(3600))? else { return Err("no fetch".into()) };
    // The network changes during the call, twice.
    assert!(client.resume(at(3601))?, "the call hangs on a dead connection");
    assert!(!client.resume(at(3602))?);
    // A call whose result comes after an opt-out is over, too.
    client.opt_out();
    let fetched = of_many(task.experiment_id.clone())?;
    assert!(matches!(client.on_fetched(&task, fetched, at(3603)), Err(ClientError::OptedOut)));
    client.opt_in();
    assert!(client.resume(at(3613))?);
    assert!(client.resume(at(3614))?, "nothing was under way");
    Ok(())
}

#[test]
fn uploads_that_are_never_answered_hold_up_no_fetch() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    let mut client = client(&specification)?;
    client.draw(&id()?, at(0))?;
    let other = ExperimentId::new("new")?;
    client.enroll(other.clone(), acceptance(&specification));
    let (mut now, mut fetched) = (at(0), 0);
    while fetched == 0 {
        match client.next_task(now)? {
            Task::Upload(task) => {
                let outcome = UploadOutcome::Unanswered { retry_after: None };
                client.on_upload_result(task.id(), &outcome, now)?;
            }
            Task::Fetch(task) => fetched += u32::from(task.experiment_id == other),
            Task::Wait(time) => now = time,
            Task::Shuffled(_) | Task::Done => return Err("nothing is left to do".into()),
        }
        assert!(now < at(10), "uploads only");
    }
    Ok(())
}

#[test]
fn a_report_that_needs_the_day_is_not_forgotten_while_a_server_is_away() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    let mut client = client(&specification)?;
    client.draw(&id()?, at(0))?;
    let later = at(2 * 3600);
    let Task::Fetch(task) = client.next_task(later)? else { return Err("no fetch".into()) };
    client.on_fetch_failed(&task, Some(Duration::from_mins(1)), later)?;
    // The app starts to take part anew, and has no other reason to fetch.
    client.enroll(id()?, acceptance(&specification));
    let Task::Wait(time) = client.next_task(later)? else {
        return Err("it sleeps for ever".into());
    };
    assert!(time > later);
    assert!(matches!(client.next_task(time)?, Task::Fetch(_)));
    Ok(())
}
