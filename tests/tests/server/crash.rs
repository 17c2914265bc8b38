//! Acknowledged uploads survive a crash, and a retry after an unknown outcome counts once.

use anyhow::Context as _;
use bandana_shared::identity::Day;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{GetExperimentRequest, UploadStatus};
use bandana_tests::harness::{
    Aggregator, create, estimates_request, keep_uploading, submit_one, tallies, three_arms, upload,
};
use bandana_tests::watched_server::WatchedServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tonic::Code;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// A proxy on loopback that forwards one connection to `upstream`. While `withhold` is true, no
/// responses pass.
async fn proxy(upstream: String, withhold: watch::Receiver<bool>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let (downstream, _) = listener.accept().await?;
        let (mut from_client, mut to_client) = downstream.into_split();
        let (mut from_server, mut to_server) = TcpStream::connect(upstream).await?.into_split();
        let forward =
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = from_server.read(&mut buffer).await.unwrap_or(0);
            if length == 0 {
                break;
            }
            if !*withhold.borrow() {
                to_client.write_all(&buffer[..length]).await?;
            }
        }
        forward.abort();
        anyhow::Ok(())
    });
    Ok(format!("http://{address}"))
}

#[tokio::test]
async fn a_withheld_answer_and_a_kill_lose_and_double_nothing() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("crash")).await?;
    let day = aggregator.day(&experiment).await?;
    for number in 0..50 {
        let request = upload(number, &experiment, day, &[(0, true)])?;
        let answer = aggregator.device.submit_upload(request).await?.into_inner();
        assert_eq!(answer.status(), UploadStatus::Accepted);
    }

    let (withhold, withheld) = watch::channel(false);
    let upstream = aggregator.process.device_url.trim_start_matches("http://").to_owned();
    let mut behind_proxy = DeviceClient::connect(proxy(upstream, withheld).await?).await?;
    let experiment_id = experiment.experiment_id().to_string();
    let hello = GetExperimentRequest { experiment_id };
    behind_proxy.get_experiment(hello).await?;

    // From here on requests arrive, but responses are lost.
    withhold.send_replace(true);
    let request = upload(77, &experiment, day, &[(2, true), (2, false), (1, true)])?;
    let unanswered = tokio::spawn({
        let request = request.clone();
        async move { behind_proxy.submit_upload(request).await }
    });
    let watch = estimates_request(&experiment);
    let mut estimates = aggregator.operator.watch_estimates(watch).await?.into_inner();
    while let Some(now) = estimates.next().await {
        if now?.reports == 53 {
            break;
        }
    }
    assert!(!unanswered.is_finished());

    let mut aggregator = aggregator.kill_and_restart().await?;
    assert!(unanswered.await?.is_err(), "the answer was withheld");
    assert_eq!(aggregator.tallies(&experiment).await?, [(50, 50), (1, 1), (2, 1)]);
    let answer = aggregator.device.submit_upload(request).await?.into_inner();
    assert_eq!(answer.status(), UploadStatus::Duplicate);
    assert_eq!(aggregator.tallies(&experiment).await?, [(50, 50), (1, 1), (2, 1)]);
    aggregator.process.stop().await
}

#[tokio::test]
async fn every_acknowledged_upload_survives_a_kill_under_load() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("load")).await?;
    let day = aggregator.day(&experiment).await?;
    let mut acknowledgements = keep_uploading(&aggregator.device, &experiment, day);
    let mut numbers = Vec::new();
    while numbers.len() < 500 {
        let (number, status) = acknowledgements.recv().await.context("all workers failed")?;
        assert_eq!(status, UploadStatus::Accepted);
        numbers.push(number);
    }
    let mut aggregator = aggregator.kill_and_restart().await?;
    while let Some((number, status)) = acknowledgements.recv().await {
        assert_eq!(status, UploadStatus::Accepted);
        numbers.push(number);
    }
    // Every acknowledged upload is counted; at most one more per worker was committed without an
    // answer.
    let (reports, _) = aggregator.tallies(&experiment).await?[0];
    assert!((numbers.len() as u64..=numbers.len() as u64 + 16).contains(&reports));
    for number in numbers {
        let request = upload(number, &experiment, day, &[(0, true)])?;
        let answer = aggregator.device.submit_upload(request).await?.into_inner();
        assert_eq!(answer.status(), UploadStatus::Duplicate);
    }
    assert_eq!(aggregator.tallies(&experiment).await?[0].0, reports);
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_failed_commit_ends_the_process_and_acknowledges_nobody() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("failing")).await?;
    let day = aggregator.day(&experiment).await?;
    // Another program violates the rule that only the server writes.
    let file = aggregator.data_dir().join("bandana.sqlite3");
    rusqlite::Connection::open(file)?.execute_batch("DROP TABLE tally")?;
    let request = upload(1, &experiment, day, &[(0, true)])?;
    let error = aggregator.device.submit_upload(request).await.unwrap_err();
    assert!(matches!(error.code(), Code::Unavailable | Code::Unknown), "{error}");
    assert_eq!(aggregator.process.wait().await?.code(), Some(1));
    Ok(())
}

#[tokio::test]
async fn who_locks_the_database_ends_the_server_and_nothing_is_lost() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    let (mut device, mut operator) = server.clients().await?;
    let experiment = create(&mut operator, three_arms("locked")).await?;
    let experiment_id = experiment.experiment_id().to_string();
    let question = GetExperimentRequest { experiment_id };
    let day = Day::new(device.get_experiment(question).await?.into_inner().server_day);
    let submitted = submit_one(&mut device, &experiment, day, 1).await?;
    assert_eq!(submitted, UploadStatus::Accepted);
    // Another program violates the rule that only the server writes, and keeps running.
    let file = folder.path().join("bandana.sqlite3");
    let other = rusqlite::Connection::open(&file)?;
    other.execute_batch("BEGIN IMMEDIATE")?;
    let unanswered = submit_one(&mut device, &experiment, day, 2).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    let (code, log) = server.ended().await?;
    assert_eq!(code, Some(1), "{log}");
    let named = format!("another program has locked the database file {}", file.display());
    assert!(log.contains(&named), "{log}");
    let said = WatchedServer::start(PROGRAM, folder.path(), &[]).await.err();
    let said = format!("{:#}", said.context("it starts all the same")?);
    assert!(said.contains(&named), "{said}");

    other.execute_batch("ROLLBACK")?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    let (mut device, mut operator) = server.clients().await?;
    for (number, expected) in [(1, UploadStatus::Duplicate), (2, UploadStatus::Accepted)] {
        assert_eq!(submit_one(&mut device, &experiment, day, number).await?, expected);
    }
    assert_eq!(tallies(&mut operator, &experiment).await?[0], (2, 2));
    drop((device, operator));
    server.stop().await?;
    Ok(())
}
