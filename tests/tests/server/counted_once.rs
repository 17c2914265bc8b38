//! An upload counts once, for any number of repeated or concurrent submissions.

use bandana_shared::wire::v1::UploadStatus;
use bandana_tests::harness::{Aggregator, three_arms, upload};
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

#[tokio::test]
async fn the_same_upload_100_times_at_once_counts_once() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("once")).await?;
    let day = aggregator.day(&experiment).await?;
    let reports = [(0, true), (0, false), (2, true)];
    let request = upload(1, &experiment, day, &reports)?;

    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (mut device, request) = (aggregator.device.clone(), request.clone());
        calls.spawn(async move { device.submit_upload(request).await });
    }
    let mut statuses = Vec::new();
    while let Some(answer) = calls.join_next().await {
        statuses.push(answer??.into_inner().status());
    }
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!(count(UploadStatus::Accepted), 1);
    assert_eq!(count(UploadStatus::Duplicate), 99);
    assert_eq!(aggregator.tallies(&experiment).await?, [(2, 1), (0, 0), (1, 1)]);

    // Also after a restart, and with different content under the same name.
    let mut aggregator = aggregator.stop_and_restart().await?;
    let other = upload(1, &experiment, day, &[(1, true)])?;
    for request in [request, other] {
        let answer = aggregator.device.submit_upload(request).await?.into_inner();
        assert_eq!(answer.status(), UploadStatus::Duplicate);
    }
    assert_eq!(aggregator.tallies(&experiment).await?, [(2, 1), (0, 0), (1, 1)]);
    aggregator.process.stop().await
}

#[tokio::test]
async fn distinct_uploads_all_count() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("distinct")).await?;
    let day = aggregator.day(&experiment).await?;
    let mut calls = JoinSet::new();
    for number in 0..300_u128 {
        let arm = usize::try_from(number % 3)?;
        let request = upload(number, &experiment, day, &[(arm, number % 2 == 0)])?;
        let mut device = aggregator.device.clone();
        calls.spawn(async move { device.submit_upload(request).await });
    }
    while let Some(answer) = calls.join_next().await {
        assert_eq!(answer??.into_inner().status(), UploadStatus::Accepted);
    }
    assert_eq!(aggregator.tallies(&experiment).await?, [(100, 50); 3]);
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_stream_answers_every_upload_in_order() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("stream")).await?;
    let day = aggregator.day(&experiment).await?;
    // Every third upload repeats the one before it.
    let numbers: Vec<u128> = (0..300).map(|i| if i % 3 == 2 { i - 1 } else { i }).collect();
    let uploads: Vec<_> = numbers
        .iter()
        .map(|number| upload(*number, &experiment, day, &[(1, true)]))
        .collect::<Result<_, _>>()?;
    let mut answers =
        aggregator.device.submit_uploads(tokio_stream::iter(uploads)).await?.into_inner();
    let mut answered = Vec::new();
    while let Some(answer) = answers.next().await {
        let answer = answer?;
        let number = u128::from_be_bytes(answer.upload_id[..].try_into()?);
        answered.push((number, answer.status()));
    }
    let status = |i: usize| match i % 3 {
        2 => UploadStatus::Duplicate,
        _ => UploadStatus::Accepted,
    };
    let expected: Vec<_> = numbers.into_iter().enumerate().map(|(i, n)| (n, status(i))).collect();
    assert_eq!(answered, expected);
    assert_eq!(aggregator.tallies(&experiment).await?[1], (200, 200));
    aggregator.process.stop().await
}
