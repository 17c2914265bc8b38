//! Answers of stores about specifications that they do not know.

use std::collections::BTreeSet;

use bandana_client::{FetchTask, Fetched, Signers, Task, Unreported, UploadOutcome, UploadTask};
use bandana_shared::identity::UnixSeconds;
use bandana_shared::signing::SigningKey;

use super::*;

const OTHER: StoreId = StoreId::new([2; 16]);

fn unknown(store: Option<StoreId>) -> UploadOutcome {
    UploadOutcome::UnknownSpecification { store, message: "unknown".to_owned() }
}

/// A client with a report to be sent, whose specification came from this store.
fn reporting(store: Option<StoreId>) -> Result<(Client, UploadTask), Failure> {
    let specification = Specification::new(parts(1.0, Rewards::binary())?)?;
    let mut client = Client::new(Budget::UNLIMITED);
    client.enroll(id()?, acceptance(&specification));
    let fetched = Fetched { store, ..answer(specification, 10)? };
    client.on_fetched(&FetchTask::new(id()?), fetched, at(0))?;
    client.draw(&id()?, at(1))?;
    let Task::Upload(task) = client.next_task(at(1))? else { return Err("no upload".into()) };
    Ok((client, task))
}

#[test]
fn the_store_that_a_specification_came_from_drops_its_reports() -> Result<(), Failure> {
    let (mut client, task) = reporting(Some(STORE))?;
    client.on_upload_result(task.id(), &unknown(Some(STORE)), at(2))?;
    assert_eq!((client.waiting_reports(), client.statistics().uploads_refused), (0, 1));
    Ok(())
}

#[test]
fn no_other_store_does_and_the_same_bytes_are_sent_again() -> Result<(), Failure> {
    // In the last two cases the server names no store now, or named none with the specification.
    let cases =
        [(Some(STORE), Some(OTHER)), (Some(STORE), None), (None, Some(STORE)), (None, None)];
    for (origin, answers) in cases {
        let (mut client, task) = reporting(origin)?;
        client.on_upload_result(task.id(), &unknown(answers), at(2))?;
        let statistics = client.statistics();
        assert_eq!((client.waiting_reports(), statistics.uploads_postponed), (1, 1));
        // One wait in a thousand is zero.
        let (next, time) = match client.next_task(at(2))? {
            Task::Wait(time) => (client.next_task(time)?, time),
            at_once => (at_once, at(2)),
        };
        let Task::Upload(again) = next else { return Err("no retry".into()) };
        assert_eq!(again, task, "{origin:?} {answers:?}");
        client.on_upload_result(again.id(), &UploadOutcome::Accepted, time)?;
        assert_eq!(client.waiting_reports(), 0);
    }
    Ok(())
}

#[test]
fn a_report_belongs_to_the_store_that_was_heard_when_its_arm_was_drawn() -> Result<(), Failure> {
    let (mut client, task) = reporting(Some(STORE))?;
    let specification = Specification::new(parts(1.0, Rewards::binary())?)?;
    // Another store has the same experiment, and later does not know it.
    let fetched = Fetched { store: Some(OTHER), ..answer(specification.clone(), 10)? };
    client.on_fetched(&FetchTask::new(id()?), fetched, at(2))?;
    client.draw(&id()?, at(3))?;
    let Task::Upload(second) = client.next_task(at(3))? else { return Err("no upload".into()) };
    // A server that names no store changes nothing.
    let same = Fetched { store: None, ..answer(specification.clone(), 10)? };
    client.on_fetched(&FetchTask::new(id()?), same, at(5))?;
    client.draw(&id()?, at(6))?;
    let Task::Upload(third) = client.next_task(at(6))? else { return Err("no upload".into()) };
    client.on_upload_result(task.id(), &unknown(Some(OTHER)), at(6))?;
    for (upload, left, refused) in [(second, 2, 1), (third, 1, 2)] {
        client.on_upload_result(upload.id(), &unknown(Some(OTHER)), at(6))?;
        let statistics = client.statistics();
        assert_eq!((client.waiting_reports(), statistics.uploads_refused), (left, refused));
    }
    Ok(())
}

/// Specifications of an impostor within the app's acceptance, of which the true one is no revision.
fn lies() -> Result<[Specification; 2], Failure> {
    let (mut later, weaker) = (parts(1.0, Rewards::binary())?, parts(0.5, Rewards::binary())?);
    later.revision = Revision::new(u32::MAX)?;
    Ok([Specification::new(later)?, Specification::new(weaker)?])
}

#[test]
fn what_a_liar_told_is_forgotten_once_the_store_that_it_named_disowns_it() -> Result<(), Failure> {
    let truth = Specification::new(parts(1.0, Rewards::binary())?)?;
    let truly = Fetched { store: Some(STORE), ..answer(truth.clone(), 10)? };
    for lie in lies()? {
        let mut client = Client::new(Budget::UNLIMITED);
        client.enroll(id()?, acceptance(&truth));
        client.on_fetched(
            &FetchTask::new(id()?),
            Fetched { store: Some(STORE), ..answer(lie, 10)? },
            at(0),
        )?;
        client.draw(&id()?, at(1))?;
        let Task::Upload(task) = client.next_task(at(1))? else { return Err("no upload".into()) };
        let refused = client.on_fetched(&FetchTask::new(id()?), truly.clone(), at(1));
        assert!(matches!(refused, Err(ClientError::Refused(_))), "{refused:?}");
        let spent = client.spent();
        client.on_upload_result(task.id(), &unknown(Some(STORE)), at(2))?;

        // Nothing more is debited until the true specification is received; earlier debits stay.
        assert!(matches!(client.draw(&id()?, at(3)), Err(ClientError::NoPolicy { .. })));
        assert_eq!((client.spent(), client.waiting_reports()), (spent, 0));
        assert!(matches!(client.next_task(at(60))?, Task::Fetch(_)));
        client.on_fetched(&FetchTask::new(id()?), truly.clone(), at(60))?;
        assert_eq!(client.specification(&id()?), Some(&truth));
        client.draw(&id()?, at(61))?;
        let Task::Upload(_) = client.next_task(at(61))? else { return Err("no upload".into()) };
    }
    Ok(())
}

#[test]
fn signers_outlast_a_stores_word_and_so_does_that_something_was_reported() -> Result<(), Failure> {
    let operator = SigningKey::from_secret(&[1; 32]);
    for lie in lies()? {
        let signed = acceptance(&lie).signed_by(Signers::key(operator.public_key()));
        for (acceptance, stays) in [(signed, true), (acceptance(&lie).report_once(0), false)] {
            let mut client = Client::new(Budget::UNLIMITED);
            client.enroll(id()?, acceptance);
            let expires = UnixSeconds::new(at(0).unix_ms() / 1000).after_days(30);
            let signatures = vec![operator.sign(&lie, expires)];
            let told = Fetched { store: Some(STORE), signatures, ..answer(lie.clone(), 10)? };
            client.on_fetched(&FetchTask::new(id()?), told, at(0))?;
            client.draw(&id()?, at(1))?;
            let Task::Upload(task) = client.next_task(at(1))? else {
                return Err("no upload".into());
            };
            client.on_upload_result(task.id(), &unknown(Some(STORE)), at(2))?;
            assert_eq!(client.waiting_reports(), 0);
            assert_eq!(client.specification(&id()?), stays.then_some(&lie));
            if !stays {
                let honest = Fetched { store: Some(STORE), ..answer(lie.clone(), 10)? };
                client.on_fetched(&FetchTask::new(id()?), honest, at(3))?;
                let why = client.draw(&id()?, at(4))?.unreported();
                assert_eq!(why, Some(Unreported::ReportedOnce));
            }
        }
    }
    Ok(())
}

#[test]
fn what_waits_for_a_store_that_is_gone_does_not_hold_up_the_others() -> Result<(), Failure> {
    let (mut client, _) = reporting(Some(STORE))?;
    // More reports than are sealed at a time.
    for _ in 0..40 {
        client.draw(&id()?, at(1))?;
    }
    // All of them wait after the first answer. The wait is random, and can be zero.
    let mut first = BTreeSet::new();
    while let Task::Upload(task) = client.next_task(at(1))? {
        client.on_upload_result(task.id(), &unknown(Some(OTHER)), at(1))?;
        first.insert(task.id());
    }
    assert!(first.len() < 5, "{} were sent", first.len());
    let specification = Specification::new(parts(1.0, Rewards::binary())?)?;
    let fetched = Fetched { store: Some(OTHER), ..answer(specification, 10)? };
    client.on_fetched(&FetchTask::new(id()?), fetched, at(1))?;
    client.draw(&id()?, at(1))?;
    let Task::Upload(task) = client.next_task(at(1))? else { return Err("it waits too".into()) };
    assert!(!first.contains(&task.id()));
    client.on_upload_result(task.id(), &UploadOutcome::Accepted, at(1))?;
    assert_eq!(client.waiting_reports(), 41);
    Ok(())
}
