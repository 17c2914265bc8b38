//! Clients whose randomness runs out, and calls that are given up.

use bandana_shared::cells::Measurement;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{Day, Revision};
use bandana_shared::participation::Participation;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};

use super::*;
use crate::acceptance::Acceptance;
use crate::noise::double::Words;
use crate::outbox::UploadOutcome;

type Failure = Box<dyn std::error::Error>;

fn fetched(id: &ExperimentId) -> Result<Fetched, Failure> {
    let epsilon = Epsilon::new(1.0)?;
    let specification = Specification::new(SpecificationParts {
        experiment_id: id.clone(),
        revision: Revision::FIRST,
        simulation: true,
        epsilon,
        floor: bandana_shared::channel::Floor::for_epsilon(epsilon).get(),
        rewards: Rewards::binary(),
        mechanism: Mechanism::Linear,
        arms: vec![Arm::new("a")?, Arm::new("b")?],
        timing: ReleaseTiming { release_delay_seconds_max: 5, ..ReleaseTiming::IMMEDIATE },
        batch: None,
        participation: Participation::EVERYONE,
        measurement: Measurement::REWARDS_ONLY,
    })?;
    let weights = Weights::uniform(&[true, true])?;
    let policy = Policy { version: 1, weights, time_to_live_seconds: 1000 };
    Ok(Fetched {
        specification,
        signatures: Vec::new(),
        policy,
        day: Day::new(1),
        store: None,
        view: None,
    })
}

/// Runs `step`, and runs it again with more words if they ran out. Counts how often they did.
fn patiently<T>(
    core: &mut Core<Words>,
    failures: &mut u32,
    mut step: impl FnMut(&mut Core<Words>) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    match step(core) {
        Err(ClientError::Entropy(_)) => {
            *failures += 1;
            core.noise.0.extend(1000..1100);
            step(core)
        }
        other => other,
    }
}

#[test]
fn wherever_the_randomness_fails_there_is_one_report_in_the_end() -> Result<(), Failure> {
    let id = ExperimentId::new("entropy")?;
    let mut total = 0;
    for words in 0..12 {
        let mut failures = 0;
        let noise = Words((0..words).collect());
        let journal = Journal::volatile();
        let mut core = Core::with(noise, Budget::UNLIMITED, State::default(), journal);
        let acceptance = Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
            .least_attribution_window(Duration::ZERO)
            .least_release_delay(Duration::ZERO);
        core.enroll(id.clone(), acceptance);
        let now = Timestamp::from_unix_ms(0);
        patiently(&mut core, &mut failures, |core| {
            core.on_fetch_failed(&FetchTask::new(id.clone()), None, now)
        })?;
        core.on_fetched(&FetchTask::new(id.clone()), fetched(&id)?, now)?;
        patiently(&mut core, &mut failures, |core| core.draw(&id, now))?;
        let later = Timestamp::from_unix_ms(6000);
        let mut sent = Vec::new();
        for attempt in 0..3 {
            let mut now = later.after(Duration::from_secs(200 * attempt));
            let task = loop {
                match patiently(&mut core, &mut failures, |core| core.next_task(now))? {
                    Task::Upload(task) => break task,
                    // After a wait, at a time of its own.
                    Task::Wait(time) if time.since(now) <= Duration::from_secs(6) => now = time,
                    other => return Err(format!("{other:?}").into()),
                }
            };
            let outcome = match attempt {
                2 => UploadOutcome::Accepted,
                _ => UploadOutcome::Retry { retry_after: None },
            };
            let told = core.on_upload_result(task.id(), &outcome, now);
            failures += u32::from(told.is_err());
            core.noise.0.extend(told.is_err().then_some(0..100).into_iter().flatten());
            sent.push(task);
        }
        assert!(sent.iter().all(|task| *task == sent[0]), "the same bytes every time");
        assert_eq!(core.statistics.reports_made, 1, "with {words} words");
        assert_eq!((core.open_assignments(), core.waiting_reports()), (0, 0), "with {words} words");
        total += failures;
    }
    assert!(total > 8, "the randomness failed {total} times");
    Ok(())
}

/// A client with a report that is due, and randomness for a while.
fn with_a_report() -> Result<(Core<Words>, Timestamp), Failure> {
    let id = ExperimentId::new("calls")?;
    let noise = Words((0..1000).map(|word| word << 54).collect());
    let mut core = Core::with(noise, Budget::UNLIMITED, State::default(), Journal::volatile());
    core.enroll(
        id.clone(),
        Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
            .least_attribution_window(Duration::ZERO)
            .least_release_delay(Duration::ZERO),
    );
    core.on_fetched(&FetchTask::new(id.clone()), fetched(&id)?, Timestamp::from_unix_ms(0))?;
    core.draw(&id, Timestamp::from_unix_ms(0))?;
    Ok((core, Timestamp::from_unix_ms(6000)))
}

#[test]
fn a_call_without_an_answer_is_followed_by_a_wait_also_without_randomness() -> Result<(), Failure> {
    let (mut core, now) = with_a_report()?;
    let Task::Upload(task) = core.next_task(now)? else { return Err("no upload".into()) };
    core.noise.0.clear();
    let unanswered = UploadOutcome::Unanswered { retry_after: None };
    let told = core.on_upload_result(task.id(), &unanswered, now);
    assert!(matches!(told, Err(ClientError::Entropy(_))));
    let Task::Wait(time) = core.next_task(now)? else { return Err("a host would spin".into()) };
    assert!(time > now);
    Ok(())
}

#[cfg(feature = "grpc")]
#[test]
fn a_call_that_was_given_up_says_nothing_about_the_server() -> Result<(), Failure> {
    let (mut core, mut now) = with_a_report()?;
    for _ in 0..20 {
        match core.next_task(now)? {
            Task::Wait(time) => now = time,
            Task::Upload(task) => {
                let unanswered = UploadOutcome::Unanswered { retry_after: None };
                core.on_upload_result(task.id(), &unanswered, now)?;
            }
            other => return Err(format!("{other:?}").into()),
        }
    }
    let time = match core.next_task(now)? {
        Task::Wait(time) => time,
        task => {
            core.interrupt(&task);
            now
        }
    };
    for _ in 0..5 {
        let task = core.next_task(time)?;
        assert!(matches!(task, Task::Upload(_)), "{task:?}");
        core.interrupt(&task);
    }
    Ok(())
}
