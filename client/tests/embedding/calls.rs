//! Calls of a host that has plain HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bandana_client::{Answer, Bandana, Call, NextCall, Tasks};
use bandana_shared::wire::v1::{
    Experiment, GetExperimentRequest, GetExperimentResponse, Policy, UploadResponse, UploadStatus,
};
use prost::Message as _;

use super::{Failure, Hands, NAME, builder, fetched, specification};

const PROTO: Option<&str> = Some("application/proto");
const JSON: Option<&str> = Some("application/json");
const HTML: Option<&str> = Some("text/html; charset=utf-8");

fn answer<'a>(status: u16, content_type: Option<&'a str>, body: &'a [u8]) -> Answer<'a> {
    Answer { status, content_type, retry_after: None, body }
}

fn call(tasks: &mut Tasks) -> Result<Call, Failure> {
    match tasks.next_call()? {
        NextCall::Call(call) => Ok(call),
        other => Err(format!("{other:?}").into()),
    }
}

/// The next upload, after fetches that are answered, and waits that are kept.
fn next_upload(tasks: &mut Tasks, clock: &Hands) -> Result<Call, Failure> {
    for _ in 0..100 {
        match tasks.next_call()? {
            NextCall::Call(call) if call.is_upload() => return Ok(call),
            NextCall::Call(fetch) => {
                tasks.answered(&fetch, &answer(200, PROTO, &experiment(clock)?))?;
            }
            _ => clock.forward(120),
        }
    }
    Err("no upload in three hours".into())
}

/// A server's answer to a fetch.
fn experiment(clock: &Hands) -> Result<Vec<u8>, Failure> {
    let fetched = fetched(&specification()?, clock.truth())?;
    let response = GetExperimentResponse {
        experiment: Some(Experiment::from(&fetched.specification)),
        policy: Some(Policy::from(&fetched.policy)),
        server_day: fetched.day.get(),
        ..GetExperimentResponse::default()
    };
    Ok(response.encode_to_vec())
}

fn uploaded(status: UploadStatus) -> Vec<u8> {
    UploadResponse { status: status.into(), ..UploadResponse::default() }.encode_to_vec()
}

/// An app with a report that is due, and the call that uploads it.
fn due(clock: &Arc<Hands>, directory: &std::path::Path) -> Result<(Bandana, Tasks, Call), Failure> {
    let (bandana, mut tasks) = builder(directory, clock, 100)?.build();
    bandana.experiment(NAME)?;
    let fetch = call(&mut tasks)?;
    tasks.answered(&fetch, &answer(200, PROTO, &experiment(clock)?))?;
    assert!(bandana.experiment(NAME)?.choose().assignment().is_some());
    clock.forward(600 + 3600);
    let fetch = call(&mut tasks)?;
    assert!(!fetch.is_upload(), "the day is asked for first");
    tasks.answered(&fetch, &answer(200, PROTO, &experiment(clock)?))?;
    let upload = call(&mut tasks)?;
    assert_eq!((upload.path(), upload.is_upload()), ("/bandana.v1.Device/SubmitUpload", true));
    Ok((bandana, tasks, upload))
}

#[test]
fn only_an_aggregators_answer_ends_an_upload() -> Result<(), Failure> {
    let kept: [(u16, Option<&str>, Vec<u8>); 10] = [
        // A hotel's page, and others that any proxy may give.
        (200, HTML, b"<html>Welcome!</html>".to_vec()),
        (200, None, uploaded(UploadStatus::Accepted)),
        (200, HTML, uploaded(UploadStatus::Accepted)),
        (204, PROTO, Vec::new()),
        (302, None, Vec::new()),
        (404, JSON, b"{\"code\":\"not_found\"}".to_vec()),
        (429, JSON, b"{\"code\":\"resource_exhausted\"}".to_vec()),
        (503, HTML, b"<html>".to_vec()),
        // What is cut off, and a status of the future.
        (200, PROTO, vec![0x0a, 0xff]),
        (200, PROTO, Vec::new()),
    ];
    for (status, content_type, body) in kept {
        let (clock, directory) = (Hands::new(), tempfile::tempdir()?);
        let (bandana, mut tasks, upload) = due(&clock, directory.path())?;
        tasks.answered(&upload, &answer(status, content_type, &body))?;
        let case = format!("{status} {content_type:?} {body:?}");
        assert_eq!(bandana.status().waiting_reports, 1, "{case}");
        // The same bytes again, and then it counts; a second answer is nothing.
        clock.forward(3600);
        let again = next_upload(&mut tasks, &clock)?;
        assert_eq!(again.body(), upload.body(), "{case}");
        for _ in 0..2 {
            let accepted = uploaded(UploadStatus::Accepted);
            tasks.answered(&again, &answer(200, Some("Application/Proto; v=1"), &accepted))?;
        }
        assert_eq!(bandana.status().waiting_reports, 0, "{case}");
        assert_eq!(bandana.status().statistics.uploads_accepted, 1, "{case}");
    }
    Ok(())
}

#[test]
fn a_refused_upload_is_dropped_and_a_paused_one_kept() -> Result<(), Failure> {
    for (status, waiting) in [
        (UploadStatus::Duplicate, 0),
        (UploadStatus::Malformed, 0),
        (UploadStatus::Expired, 0),
        (UploadStatus::Stopped, 0),
        (UploadStatus::Paused, 1),
        (UploadStatus::FutureDay, 1),
    ] {
        let (clock, directory) = (Hands::new(), tempfile::tempdir()?);
        let (bandana, mut tasks, upload) = due(&clock, directory.path())?;
        tasks.answered(&upload, &answer(200, PROTO, &uploaded(status)))?;
        assert_eq!(bandana.status().waiting_reports, waiting, "{status:?}");
    }
    Ok(())
}

#[test]
fn a_server_that_asks_for_time_gets_it() -> Result<(), Failure> {
    for status in [429, 503] {
        let (clock, directory) = (Hands::new(), tempfile::tempdir()?);
        let (bandana, mut tasks, upload) = due(&clock, directory.path())?;
        let answer = Answer { retry_after: Some("120"), ..answer(status, JSON, b"{}") };
        tasks.answered(&upload, &answer)?;
        let next = bandana.status().next_attempt.ok_or("no wait")?;
        assert!(next >= clock.truth().after(std::time::Duration::from_mins(2)));
    }
    Ok(())
}

#[test]
fn calls_are_under_way_together_and_end_in_any_order() -> Result<(), Failure> {
    let (clock, directory) = (Hands::new(), tempfile::tempdir()?);
    let (bandana, mut tasks) = builder(directory.path(), &clock, 100)?.build();
    for name in ["one", NAME, "three"] {
        bandana.experiment(name)?;
    }
    let mut calls = vec![call(&mut tasks)?, call(&mut tasks)?, call(&mut tasks)?];
    assert!(matches!(tasks.next_call()?, NextCall::Wait(_)), "each is asked once");
    calls.reverse();
    for one in &calls {
        let asked = GetExperimentRequest::decode(one.body())?.experiment_id;
        if asked == NAME {
            tasks.answered(one, &answer(200, PROTO, &experiment(&clock)?))?;
        } else {
            tasks.answered(one, &answer(404, JSON, b"{\"code\":\"not_found\"}"))?;
        }
    }
    assert!(bandana.experiment(NAME)?.is_ready());
    clock.forward(3600);
    let again = call(&mut tasks)?;
    tasks.answered(&again, &answer(404, JSON, b"{\"code\":\"not_found\"}"))?;
    let why = bandana.experiment("one")?.wait_until_ready(std::time::Duration::ZERO);
    let why = why.err().ok_or("it is ready")?.to_string();
    assert!(why.contains("not_found"), "{why}");
    Ok(())
}

#[test]
fn an_answer_that_breaks_the_protocol_is_refused_and_asked_for_again() -> Result<(), Failure> {
    let (clock, directory) = (Hands::new(), tempfile::tempdir()?);
    let (bandana, mut tasks) = builder(directory.path(), &clock, 100)?.build();
    bandana.experiment(NAME)?;
    for body in [vec![0xff, 0xff], Vec::new()] {
        let fetch = call(&mut tasks)?;
        tasks.answered(&fetch, &answer(200, PROTO, &body))?;
        clock.forward(3600);
    }
    assert_eq!(bandana.status().statistics.answers_refused, 2);
    let fetch = call(&mut tasks)?;
    tasks.answered(&fetch, &answer(200, PROTO, &experiment(&clock)?))?;
    assert!(bandana.experiment(NAME)?.is_ready());
    Ok(())
}

#[test]
fn a_host_is_told_of_work_once_and_never_of_a_reward() -> Result<(), Failure> {
    let (clock, directory) = (Hands::new(), tempfile::tempdir()?);
    let told = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&told);
    let (bandana, mut tasks) = builder(directory.path(), &clock, 100)?
        .on_work(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        })
        .build();
    let since = |tasks: &mut Tasks| -> Result<u32, Failure> {
        tasks.next_task()?;
        Ok(told.swap(0, Ordering::SeqCst))
    };
    assert_eq!(since(&mut tasks)?, 0);
    let shown = bandana.experiment(NAME)?;
    bandana.experiment(NAME)?;
    let fetch = call(&mut tasks)?;
    assert_eq!(told.swap(0, Ordering::SeqCst), 1, "one new experiment");
    tasks.answered(&fetch, &answer(200, PROTO, &experiment(&clock)?))?;
    assert_eq!(since(&mut tasks)?, 0, "the host was there");
    let choice = shown.draw();
    drop(shown.draw());
    assert_eq!(since(&mut tasks)?, 1, "once for all arms since it came");
    for _ in 0..10 {
        choice.reward(1.0);
    }
    assert_eq!(since(&mut tasks)?, 0, "nothing is due because of a reward");
    bandana.wake();
    assert_eq!(since(&mut tasks)?, 1);
    bandana.opt_out()?;
    assert_eq!(since(&mut tasks)?, 1);
    drop(tasks);
    bandana.wake();
    drop(shown);
    drop((bandana, choice));
    assert_eq!(told.load(Ordering::SeqCst), 0, "nobody is there any more");
    Ok(())
}
