//! The schedule of a client: fetches, reports and retries.

use std::time::Duration;

use bandana_client::{
    ClientError, FetchTask, Reward, SimulatedClient, Task, Unreported, UploadOutcome,
};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{ReleaseTiming, Specification, SpecificationParts};

use super::{
    Failure, acceptance, answer, at, client, day, id, parts, question, report, simulated, upload,
};

pub(super) fn timed(window: u32, delay: u32, simulation: bool) -> Result<Specification, Failure> {
    let timing =
        ReleaseTiming { attribution_window_seconds: window, release_delay_seconds_max: delay };
    Ok(Specification::new(SpecificationParts {
        timing,
        simulation,
        ..parts(1.0, Rewards::binary())?
    })?)
}

/// All that an observer of a client sees over ten minutes, without the bits: time, arm and length
/// of every upload.
fn observe(
    client: &mut SimulatedClient,
    specification: &Specification,
    rewards: &[(u64, f64)],
) -> Result<Vec<(u64, usize, usize)>, Failure> {
    let mut seen = Vec::new();
    let mut assignments = Vec::new();
    for second in 0..600 {
        if second % 20 == 0 && second < 400 {
            assignments.push(client.draw(&id()?, at(second))?);
        }
        for (_, value) in rewards.iter().filter(|(when, _)| *when == second) {
            for assignment in &assignments {
                // Assignments whose window has ended take no more rewards.
                client.reward(assignment.id(), Reward::new(*value)?, at(second)).ok();
            }
        }
        loop {
            match client.next_task(at(second))? {
                Task::Upload(task) => {
                    let sent = upload(Ok(Task::Upload(task.clone())))?;
                    seen.push((second, report(&sent)?.0, task.bytes().len()));
                    client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(second))?;
                }
                Task::Fetch(task) => {
                    let fetched = answer(specification.clone(), 10)?;
                    client.on_fetched(&task, fetched, at(second))?;
                }
                Task::Shuffled(_) | Task::Wait(_) | Task::Done => break,
            }
        }
    }
    // Uploads of the same second leave in an order that no seed fixes.
    seen.sort_unstable();
    Ok(seen)
}

#[test]
fn rewards_change_neither_times_nor_arms_nor_lengths() -> Result<(), Failure> {
    let specification = timed(50, 70, true)?;
    let none = observe(&mut simulated(&specification, 3)?, &specification, &[])?;
    assert_eq!(none.len(), 20, "one report for every assignment");
    for rewards in [
        &[(10, 1.0)][..],
        &[(5, 0.0), (30, 1.0), (31, 1.0), (200, 1.0), (399, 0.0)],
        &[(100, 1.0), (100, 1.0), (100, 1.0)],
    ] {
        let seen = observe(&mut simulated(&specification, 3)?, &specification, rewards)?;
        assert_eq!(seen, none, "{rewards:?}");
    }
    let other = observe(&mut simulated(&specification, 4)?, &specification, &[])?;
    assert_ne!(other, none, "another seed has other times");
    Ok(())
}

#[test]
fn a_report_waits_for_its_window_and_a_random_delay() -> Result<(), Failure> {
    let specification = timed(100, 50, true)?;
    let mut delays = Vec::new();
    for seed in 0..200 {
        let mut client = simulated(&specification, seed)?;
        client.draw(&id()?, at(0))?;
        let Task::Wait(end) = client.next_task(at(0))? else {
            return Err("nothing may be sent yet".into());
        };
        assert_eq!(end, at(100), "rewards count until then");
        let Task::Wait(release) = client.next_task(end)? else {
            return Err("nothing may be sent yet".into());
        };
        delays.push(release.since(at(100)).as_millis());
        assert!(release >= at(100) && release <= at(150));
    }
    // Uniform on 0..=50 s: 200 draws leave a fifth of it empty with a
    // probability of 5 * .8^200, below 1e-18.
    for fifth in 0..5 {
        let inside = |delay: &&u128| (fifth * 10_000..(fifth + 1) * 10_000).contains(*delay);
        assert!(delays.iter().any(|delay| inside(&delay)), "no delay in fifth {fifth}");
    }
    Ok(())
}

#[test]
fn a_retry_resends_the_same_bytes_after_a_growing_wait() -> Result<(), Failure> {
    let mut client = client(&timed(0, 0, false)?)?;
    client.draw(&id()?, at(1))?;
    let Task::Upload(first) = client.next_task(at(1))? else { return Err("no upload".into()) };
    let Task::Wait(until) = client.next_task(at(1))? else { return Err("it is under way".into()) };
    assert_eq!(until, at(121));

    let mut now = at(1);
    let mut longest = Duration::ZERO;
    for attempt in 0..30 {
        let retry = UploadOutcome::Retry { retry_after: Some(Duration::from_secs(9)) };
        client.on_upload_result(first.id(), &retry, now)?;
        let Task::Wait(next) = client.next_task(now)? else { return Err("no wait".into()) };
        let wait = next.since(now);
        let bound = Duration::from_secs(10 + (1 << attempt.min(12)).min(3600));
        assert!(wait >= Duration::from_secs(10) && wait <= bound, "{attempt}: {wait:?}");
        longest = longest.max(wait);
        now = next;
        // Meanwhile the policy has become stale; the upload is sent all the same.
        let Task::Upload(again) = client.next_task(now)? else { return Err("no retry".into()) };
        assert_eq!(again, first);
    }
    assert!(longest > Duration::from_mins(5), "the waits do not grow: {longest:?}");
    client.on_upload_result(first.id(), &UploadOutcome::Duplicate, now)?;
    assert!(matches!(client.next_task(now)?, Task::Done));
    let statistics = client.statistics();
    assert_eq!((statistics.uploads_duplicate, statistics.uploads_postponed), (1, 30));
    Ok(())
}

#[test]
fn a_refused_upload_is_dropped_and_counted() -> Result<(), Failure> {
    let mut client = client(&timed(0, 0, false)?)?;
    client.draw(&id()?, at(1))?;
    let Task::Upload(task) = client.next_task(at(1))? else { return Err("no upload".into()) };
    let refused = UploadOutcome::Refused { message: "stopped".to_owned() };
    client.on_upload_result(task.id(), &refused, at(1))?;
    // A repeated result counts once.
    client.on_upload_result(task.id(), &refused, at(1))?;
    assert!(matches!(client.next_task(at(100_000))?, Task::Done));
    assert_eq!(client.statistics().uploads_refused, 1);
    Ok(())
}

#[test]
fn a_full_outbox_still_gives_arms_that_never_report() -> Result<(), Failure> {
    let mut client = client(&timed(0, 0, false)?)?;
    let mut reporting = 0_u64;
    for _ in 0..1600 {
        let assignment = client.draw(&id()?, at(1))?;
        reporting += u64::from(assignment.unreported().is_none());
        if assignment.unreported().is_some() {
            let reward = client.reward(assignment.id(), Reward::new(1.0)?, at(1));
            assert!(matches!(reward, Err(ClientError::NotOpen)));
        }
    }
    assert_eq!(reporting, 1500);
    assert_eq!(client.statistics().assignments_without_report, 100);
    let mut sent = 0;
    while let Task::Upload(task) = client.next_task(at(1))? {
        client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(1))?;
        sent += 1;
    }
    assert_eq!(sent, 1500);
    assert!(client.draw(&id()?, at(1))?.unreported().is_none(), "there is room again");
    Ok(())
}

#[test]
fn uploads_leave_in_random_order() -> Result<(), Failure> {
    // Thirty reports over three arms keep their order with a probability far below
    // 1e-12, whatever the arms.
    let specification = timed(0, 0, true)?;
    let mut client = simulated(&specification, 1)?;
    let arms: Vec<usize> = (0..30)
        .map(|_| Ok(client.draw(&id()?, at(1))?.arm().get()))
        .collect::<Result<_, Failure>>()?;
    let mut sent = Vec::new();
    while let Task::Upload(task) = client.next_task(at(1))? {
        sent.push(report(&upload(Ok(Task::Upload(task.clone())))?)?.0);
        client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(1))?;
    }
    assert_ne!(sent, arms);
    let sorted = |mut arms: Vec<usize>| {
        arms.sort_unstable();
        arms
    };
    assert_eq!(sorted(sent), sorted(arms));
    Ok(())
}

#[test]
fn the_server_is_asked_when_needed_and_not_otherwise() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    let mut client = bandana_client::Client::new(bandana_client::Budget::UNLIMITED);
    client.enroll(id()?, acceptance(&specification));
    let Task::Fetch(first) = client.next_task(at(0))? else { return Err("no question".into()) };
    assert!(matches!(client.next_task(at(0))?, Task::Wait(_)), "it is under way");
    client.on_fetch_failed(&FetchTask::new(id()?), None, at(0))?;
    let Task::Wait(again) = client.next_task(at(0))? else { return Err("no wait".into()) };
    assert!(again <= at(2));
    assert!(matches!(client.next_task(again)?, Task::Fetch(_)));
    client.on_fetched(&FetchTask::new(id()?), answer(specification.clone(), 10)?, at(10))?;
    assert!(matches!(client.next_task(at(10_000))?, Task::Done), "nobody needs a policy");

    // A choice by a stale policy works at once, and schedules a fetch.
    client.draw(&id()?, at(10_000))?;
    let (task, now) = question(&mut client, at(10_000))?;
    assert_eq!(task.experiment_id, first.experiment_id);
    client.on_fetched(&FetchTask::new(id()?), answer(specification, 11)?, now)?;
    assert_eq!(upload(client.next_task(now))?.day, now.day(), "the device's own");
    Ok(())
}

#[test]
fn reports_wait_until_the_day_is_known() -> Result<(), Failure> {
    // Sent with the day of weeks ago, the reports would be refused for good.
    let specification = timed(0, 0, false)?;
    let mut client = client(&specification)?;
    client.draw(&id()?, at(1_000_000))?;
    let (_, mut now) = question(&mut client, at(1_000_000))?;
    for attempt in 0..5 {
        assert!(attempt == 0 || matches!(client.next_task(now)?, Task::Fetch(_)));
        client.on_fetch_failed(&FetchTask::new(id()?), None, now)?;
        let Task::Wait(again) = client.next_task(now)? else { return Err("no wait".into()) };
        now = again;
    }
    client.on_fetched(&FetchTask::new(id()?), answer(specification, 22)?, now)?;
    assert_eq!(upload(client.next_task(now))?.day, now.day());
    assert_eq!(client.statistics().fetches_failed, 5);
    Ok(())
}

#[test]
fn a_question_for_the_day_is_also_the_one_for_a_policy() -> Result<(), Failure> {
    for seed in 0..20 {
        let specification = timed(0, 0, true)?;
        let mut client = simulated(&specification, seed)?;
        // The policy is stale, and the report needs a day.
        client.draw(&id()?, at(1_000_000))?;
        let (_, asked) = question(&mut client, at(1_000_000))?;
        client.on_fetched(&FetchTask::new(id()?), answer(specification, 22)?, asked)?;
        let sent = upload(client.next_task(asked))?;
        assert_eq!(sent.day, asked.day(), "{seed}");
        // A refresh that was still scheduled would come within five minutes.
        for minute in 0..=5 {
            let now = asked.after(Duration::from_mins(minute));
            let next = client.next_task(now)?;
            assert!(!matches!(next, Task::Fetch(_)), "{seed}, minute {minute}");
        }
    }
    Ok(())
}

#[test]
fn a_refused_revision_stops_no_report() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    let pinned = acceptance(&specification).pinned(vec![specification.digest()]);
    let mut client = client(&specification)?;
    client.enroll(id()?, pinned);
    let revised = specification.with_arm(bandana_shared::specification::Arm::new("black")?)?;
    client.draw(&id()?, at(1_000_000))?;
    let (_, now) = question(&mut client, at(1_000_000))?;
    let refused = client.on_fetched(&FetchTask::new(id()?), answer(revised, 22)?, now);
    assert!(matches!(refused, Err(ClientError::Refused(_))), "{refused:?}");
    let sent = upload(client.next_task(now))?;
    assert_eq!((sent.day, sent.digest), (now.day(), specification.digest()));
    Ok(())
}

#[test]
fn a_silent_experiment_does_not_silence_others() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    let mut client = client(&specification)?;
    for _ in 0..1501 {
        client.draw(&id()?, at(1))?;
    }
    let other = bandana_shared::identity::ExperimentId::new("other")?;
    let mut parts = specification.to_parts();
    parts.experiment_id = other.clone();
    client.enroll(other.clone(), acceptance(&specification));
    client.on_fetched(
        &FetchTask::new(other.clone()),
        answer(Specification::new(parts)?, 10)?,
        at(1),
    )?;
    assert!(client.draw(&id()?, at(1))?.unreported().is_some());
    assert!(client.draw(&other, at(1))?.unreported().is_none());
    Ok(())
}

#[test]
fn a_retry_changes_nothing_that_comes_later() -> Result<(), Failure> {
    let specification = timed(0, 0, true)?;
    let mut later = Vec::new();
    for retries in [0, 1, 5] {
        let mut client = simulated(&specification, 9)?;
        client.draw(&id()?, at(1))?;
        let mut now = at(1);
        for _ in 0..retries {
            let Task::Upload(task) = client.next_task(now)? else { return Err("none".into()) };
            let retry = UploadOutcome::Retry { retry_after: None };
            client.on_upload_result(task.id(), &retry, now)?;
            now = now.after(Duration::from_mins(2));
            client.on_fetched(&FetchTask::new(id()?), answer(specification.clone(), 10)?, now)?;
        }
        let Task::Upload(task) = client.next_task(now)? else { return Err("none".into()) };
        client.on_upload_result(task.id(), &UploadOutcome::Accepted, now)?;
        let reports: Vec<(usize, bool)> = (0..20)
            .map(|_| {
                client.draw(&id()?, now)?;
                let Task::Upload(task) = client.next_task(now)? else { return Err("none".into()) };
                client.on_upload_result(task.id(), &UploadOutcome::Accepted, now)?;
                report(&upload(Ok(Task::Upload(task)))?)
            })
            .collect::<Result<_, Failure>>()?;
        later.push(reports);
    }
    assert!(later[0] == later[1] && later[0] == later[2], "{later:?}");
    Ok(())
}

#[test]
fn a_task_without_a_result_is_handed_out_again() -> Result<(), Failure> {
    // A call that hung, or a host that gave it up.
    let mut client = client(&timed(0, 0, false)?)?;
    client.draw(&id()?, at(1))?;
    let Task::Upload(first) = client.next_task(at(1))? else { return Err("no upload".into()) };
    assert!(matches!(client.next_task(at(120))?, Task::Wait(_)));
    let Task::Upload(again) = client.next_task(at(121))? else { return Err("it is lost".into()) };
    assert_eq!(again, first);
    // Both calls end in the end; the report counts once.
    for outcome in [UploadOutcome::Accepted, UploadOutcome::Duplicate] {
        client.on_upload_result(first.id(), &outcome, at(122))?;
    }
    let statistics = client.statistics();
    assert_eq!((statistics.uploads_accepted, statistics.uploads_duplicate), (1, 0));

    let specification = timed(0, 0, false)?;
    let mut client = bandana_client::Client::new(bandana_client::Budget::UNLIMITED);
    client.enroll(id()?, acceptance(&specification));
    assert!(matches!(client.next_task(at(0))?, Task::Fetch(_)));
    assert!(matches!(client.next_task(at(120))?, Task::Fetch(_)));
    Ok(())
}

#[test]
fn enrolling_again_keeps_what_still_fits() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    let mut client = client(&specification)?;
    client.draw(&id()?, at(1))?;
    client.enroll(id()?, acceptance(&specification));
    client.draw(&id()?, at(1))?;
    assert_eq!(upload(client.next_task(at(1)))?.day, day(10));
    // After a stricter acceptance the client draws no more arms.
    let stricter = bandana_client::Acceptance::unsigned(
        bandana_shared::epsilon::Epsilon::new(0.5)?,
        specification.rewards(),
    )
    .least_attribution_window(Duration::ZERO)
    .least_release_delay(Duration::ZERO);
    client.enroll(id()?, stricter);
    assert!(matches!(client.draw(&id()?, at(1)), Err(ClientError::NoPolicy { .. })));
    Ok(())
}

#[test]
fn a_clock_that_steps_back_a_little_loses_no_report() -> Result<(), Failure> {
    for step in [1, 60, 7000] {
        let specification = timed(0, 0, false)?;
        let mut client = client(&specification)?;
        client.draw(&id()?, at(1_000_000))?;
        let now = at(1_000_000 - step);
        client.on_fetched(&FetchTask::new(id()?), answer(specification, 22)?, now)?;
        // A time within an hour is waited for; a time further ahead counts as passed.
        let due = if step < 3600 { at(1_000_000) } else { now };
        assert_eq!(upload(client.next_task(due))?.day, due.day(), "{step} s back");
    }
    Ok(())
}

#[test]
fn assignments_of_a_clock_that_ran_ahead_are_released() -> Result<(), Failure> {
    let specification = timed(3600, 600, false)?;
    let mut client = client(&specification)?;
    let year = 365 * 86_400;
    client.draw(&id()?, at(year))?;
    client.on_fetched(&FetchTask::new(id()?), answer(specification, 10)?, at(50))?;
    assert_eq!(upload(client.next_task(at(50)))?.day, day(10));
    Ok(())
}

#[test]
fn a_clock_that_is_set_back_holds_nothing_up() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    let mut client = client(&specification)?;
    let year = 365 * 86_400;
    client.on_fetched(&FetchTask::new(id()?), answer(specification.clone(), 375)?, at(year))?;
    client.draw(&id()?, at(year))?;
    let Task::Upload(task) = client.next_task(at(year))? else { return Err("no upload".into()) };
    let retry = UploadOutcome::Retry { retry_after: Some(Duration::MAX) };
    client.on_upload_result(task.id(), &retry, at(year))?;
    // The clock is right again: held data is of unknown age, and waits that end in a year are over.
    let chosen = client.draw(&id()?, at(5))?;
    assert_eq!(chosen.unreported(), Some(Unreported::ClockDisagrees), "with the server's day");
    let Task::Upload(again) = client.next_task(at(5))? else { return Err("not due".into()) };
    assert_eq!(again, task, "the retry is due");
    client.on_upload_result(again.id(), &UploadOutcome::Accepted, at(5))?;
    let (_, now) = question(&mut client, at(5))?;
    client.on_fetched(&FetchTask::new(id()?), answer(specification, 10)?, now)?;
    client.draw(&id()?, now)?;
    assert_eq!(upload(client.next_task(now))?.day, day(10));
    Ok(())
}

#[test]
fn nothing_works_before_a_server_has_answered() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    let mut client = bandana_client::Client::new(bandana_client::Budget::UNLIMITED);
    let unknown = client.draw(&id()?, at(0));
    assert!(matches!(unknown, Err(ClientError::NotEnrolled { .. })));
    client.enroll(id()?, acceptance(&specification));
    assert!(matches!(client.draw(&id()?, at(0)), Err(ClientError::NoPolicy { .. })));
    Ok(())
}

#[test]
fn a_server_can_put_the_day_of_an_upload_back_by_one_and_no_more() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    for (told, believed) in [(8, false), (9, true), (11, true), (12, false), (4_000_000, false)] {
        let mut client = bandana_client::Client::new(bandana_client::Budget::UNLIMITED);
        client.enroll(id()?, acceptance(&specification));
        client.on_fetched(&FetchTask::new(id()?), answer(specification.clone(), told)?, at(0))?;
        client.draw(&id()?, at(0))?;
        match (client.next_task(at(0))?, believed) {
            (Task::Upload(task), true) => {
                // Its own, unless the server refuses that.
                assert_eq!(upload(Ok(Task::Upload(task)))?.day, day(told.min(10)));
            }
            (Task::Wait(again), false) => {
                assert_eq!(client.statistics().days_refused, 1);
                assert!(again <= at(2), "it is asked again");
            }
            other => return Err(format!("day {told}: {other:?}").into()),
        }
    }
    Ok(())
}

#[test]
fn the_question_for_a_policy_does_not_tell_when_an_arm_was_shown() -> Result<(), Failure> {
    let specification = timed(3600, 0, false)?;
    let mut latest = Duration::ZERO;
    for _ in 0..200 {
        let mut client = client(&specification)?;
        client.draw(&id()?, at(10_000))?;
        let (_, asked) = question(&mut client, at(10_000))?;
        latest = latest.max(asked.since(at(10_000)));
    }
    // Uniform on five minutes: 200 draws are all in the first four with a probability
    // of .8^200, below 1e-19.
    assert!(latest > Duration::from_mins(4), "{latest:?}");
    Ok(())
}

#[test]
fn a_clock_that_jumps_for_a_moment_drops_no_report() -> Result<(), Failure> {
    let specification = timed(0, 0, false)?;
    let mut client = client(&specification)?;
    client.set_boot_time(Some(Duration::from_secs(1000)));
    client.on_fetched(&FetchTask::new(id()?), answer(specification, 10)?, at(0))?;
    for _ in 0..3 {
        client.draw(&id()?, at(0))?;
    }
    client.next_task(at(100 * 86_400))?;
    assert_eq!(client.statistics().reports_expired, 0);
    assert_eq!(client.waiting_reports(), 3);
    Ok(())
}
