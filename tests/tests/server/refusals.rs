//! Every kind of bad upload gets a distinct status and changes nothing.

use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{ExperimentName, UploadRequest, UploadStatus, UploadStatus as S};
use bandana_tests::harness::{Aggregator, three_arms, upload};
use tonic::Code;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// A bad upload, the status that it gets, and a part of the message.
type Case = (&'static str, UploadRequest, UploadStatus, &'static str);

fn cases(experiment: &Specification, today: Day) -> anyhow::Result<Vec<Case>> {
    let good = upload(1, experiment, today, &[(0, true), (1, true)])?;
    let changed = |change: fn(&mut UploadRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    Ok(vec![
        ("unknown arm", changed(|u| u.runs = vec![0, 1, 3, 1]), S::UnknownArm, "no arm 3"),
        ("absurd arm", changed(|u| u.runs = vec![0, 1, 70_000, 1]), S::UnknownArm, "arm 70000"),
        (
            "unknown digest",
            changed(|u| u.digest = vec![9; 16].into()),
            S::UnknownSpecification,
            "09090909",
        ),
        ("short digest", changed(|u| u.digest = vec![9; 15].into()), S::Malformed, "16 bytes"),
        ("long id", changed(|u| u.upload_id = vec![9; 17].into()), S::Malformed, "16 bytes"),
        ("no id", changed(|u| u.upload_id = vec![].into()), S::Malformed, "16 bytes"),
        ("missing bits", changed(|u| u.bits = vec![].into()), S::Malformed, "need 1 bytes"),
        ("too many bits", changed(|u| u.bits = vec![0, 0].into()), S::Malformed, "need 1 bytes"),
        ("unused bits", changed(|u| u.bits = vec![0b111].into()), S::Malformed, "unused bits"),
        ("no reports", changed(|u| u.runs.clear()), S::Malformed, "1 to 16384 reports"),
        ("odd runs", changed(|u| u.runs = vec![0, 1, 1]), S::Malformed, "pairs"),
        ("empty run", changed(|u| u.runs = vec![0, 0, 1, 2]), S::Malformed, "arm 0 has no"),
        ("unsorted runs", changed(|u| u.runs = vec![1, 1, 0, 1]), S::Malformed, "ascending"),
        ("repeated run", changed(|u| u.runs = vec![1, 1, 1, 1]), S::Malformed, "ascending"),
        (
            "too many reports",
            changed(|u| (u.runs, u.bits) = (vec![0, 16_385], vec![0; 2049].into())),
            S::TooManyReports,
            "16385",
        ),
        (
            "counts that overflow",
            changed(|u| u.runs = vec![0, u32::MAX, 1, u32::MAX]),
            S::TooManyReports,
            "8589934590",
        ),
        ("expired day", upload(2, experiment, today.back(8), &[(0, true)])?, S::Expired, "oldest"),
        ("day zero", changed(|u| u.day = 0), S::Expired, "oldest"),
        (
            "future day",
            upload(3, experiment, Day::new(today.get() + 2), &[(0, true)])?,
            S::FutureDay,
            "server's day",
        ),
        ("last day", changed(|u| u.day = u32::MAX), S::FutureDay, "server's day"),
    ])
}

#[tokio::test]
async fn every_bad_upload_is_refused_in_its_own_way() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("refusals")).await?;
    let today = aggregator.day(&experiment).await?;
    for (name, request, status, part) in cases(&experiment, today)? {
        let answer = aggregator.device.submit_upload(request.clone()).await?.into_inner();
        assert_eq!(answer.status(), status, "{name}: {}", answer.message);
        assert!(answer.message.contains(part), "{name}: {}", answer.message);
        assert_eq!(answer.upload_id, request.upload_id, "{name}");
        assert_eq!(aggregator.tallies(&experiment).await?, [(0, 0); 3], "{name}");
    }
    // Days in the window are accepted. The edge of the window is not tested, because it moves at
    // midnight.
    for (number, day) in [(4, today.back(5)), (5, today)] {
        let request = upload(number, &experiment, day, &[(0, true)])?;
        let answer = aggregator.device.submit_upload(request).await?.into_inner();
        assert_eq!(answer.status(), UploadStatus::Accepted, "{}", answer.message);
    }
    assert_eq!(aggregator.tallies(&experiment).await?[0], (2, 2));
    aggregator.process.stop().await
}

#[tokio::test]
async fn paused_is_for_now_and_stopped_for_good() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("states")).await?;
    let today = aggregator.day(&experiment).await?;
    let name = || ExperimentName { experiment_id: "states".to_owned() };
    let first = upload(1, &experiment, today, &[(0, true)])?;
    let second = upload(2, &experiment, today, &[(0, true)])?;
    let submit = async |aggregator: &mut Aggregator, request: &UploadRequest| {
        let answer = aggregator.device.submit_upload(request.clone()).await?;
        anyhow::Ok(answer.into_inner().status())
    };
    assert_eq!(submit(&mut aggregator, &first).await?, UploadStatus::Accepted);

    aggregator.operator.pause_experiment(name()).await?;
    assert_eq!(submit(&mut aggregator, &second).await?, UploadStatus::Paused);
    // A repeated upload was counted, so the current state does not matter.
    assert_eq!(submit(&mut aggregator, &first).await?, UploadStatus::Duplicate);
    let again = aggregator.operator.pause_experiment(name()).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    assert!(again.message().contains("the experiment is paused"), "{}", again.message());

    let mut aggregator = aggregator.stop_and_restart().await?;
    assert_eq!(submit(&mut aggregator, &second).await?, UploadStatus::Paused);
    aggregator.operator.resume_experiment(name()).await?;
    assert_eq!(submit(&mut aggregator, &second).await?, UploadStatus::Accepted);

    aggregator.operator.stop_experiment(name()).await?;
    let third = upload(3, &experiment, today, &[(0, true)])?;
    assert_eq!(submit(&mut aggregator, &third).await?, UploadStatus::Stopped);
    let again = aggregator.operator.resume_experiment(name()).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    assert_eq!(aggregator.tallies(&experiment).await?[0], (2, 2));
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_message_beyond_all_limits_is_not_read() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("huge")).await?;
    let today = aggregator.day(&experiment).await?;
    let mut request = upload(1, &experiment, today, &[(0, true)])?;
    request.bits = vec![0; 1 << 20].into();
    let error = aggregator.device.submit_upload(request).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
    assert_eq!(aggregator.tallies(&experiment).await?, [(0, 0); 3]);
    aggregator.process.stop().await
}
