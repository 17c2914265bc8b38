//! Ending in order, and refusing to start where that would be wrong.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::UploadStatus;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_tests::harness::{
    Aggregator, estimates_request, keep_uploading, submit_one, three_arms, upload,
};
use bandana_tests::watched_server::WatchedServer;
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// As [`keep_uploading`], over a single stream, and with other numbers.
fn keep_streaming(
    device: &DeviceClient<Channel>,
    specification: &Specification,
    day: Day,
) -> UnboundedReceiver<(u128, UploadStatus)> {
    let (acknowledged, acknowledgements) = unbounded_channel();
    let (mut device, specification) = (device.clone(), specification.clone());
    let uploads = (1_u128 << 100..)
        .map_while(move |number| upload(number, &specification, day, &[(0, true)]).ok());
    tokio::spawn(async move {
        let mut answers = device.submit_uploads(tokio_stream::iter(uploads)).await?.into_inner();
        while let Some(answer) = answers.message().await? {
            let number = u128::from_be_bytes(answer.upload_id[..].try_into()?);
            acknowledged.send((number, answer.status()))?;
        }
        anyhow::Ok(())
    });
    acknowledgements
}

#[tokio::test]
async fn sigterm_answers_what_is_under_way_and_exits_0() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("shutdown")).await?;
    let day = aggregator.day(&experiment).await?;
    let watch = estimates_request(&experiment);
    let mut watched = aggregator.operator.watch_estimates(watch).await?.into_inner();
    watched.next().await.transpose()?;
    let mut acknowledgements = keep_uploading(&aggregator.device, &experiment, day);
    let mut streamed = keep_streaming(&aggregator.device, &experiment, day);
    let mut numbers = Vec::new();
    while numbers.len() < 200 {
        for source in [&mut acknowledgements, &mut streamed] {
            let (number, status) = source.recv().await.context("all workers failed")?;
            assert_eq!(status, UploadStatus::Accepted);
            numbers.push(number);
        }
    }
    // The watch stays open, and uploads keep coming, until the server ends both.
    let nothing_is_left_in_the_log = |data_dir: &Path| {
        let log = data_dir.join("bandana.sqlite3-wal");
        ensure!(log.metadata().map_or(0, |log| log.len()) == 0, "the log is left");
        Ok(())
    };
    let mut aggregator = aggregator.stop_look_and_restart(nothing_is_left_in_the_log).await?;
    for mut source in [acknowledgements, streamed] {
        while let Some((number, status)) = source.recv().await {
            assert_eq!(status, UploadStatus::Accepted);
            numbers.push(number);
        }
    }
    let mut last = watched.next().await;
    while matches!(last, Some(Ok(_))) {
        last = watched.next().await;
    }
    let end = last.and_then(Result::err).context("the watch ended as if that was all")?;
    assert_eq!(end.code(), Code::Unavailable);
    let accepted = numbers.len() as u64;
    assert_eq!(aggregator.tallies(&experiment).await?[0], (accepted, accepted));
    for number in numbers {
        let status = submit_one(&mut aggregator.device, &experiment, day, number).await?;
        assert_eq!(status, UploadStatus::Duplicate);
    }
    assert_eq!(aggregator.tallies(&experiment).await?[0], (accepted, accepted));
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_health_watch_is_told_and_holds_nothing_up() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let mut watches = Vec::new();
    for service in ["", "bandana.v1.Device", "bandana.v1.Operator"] {
        let channel = Channel::from_shared(aggregator.process.device_url.clone())?;
        let mut health = HealthClient::new(channel.connect().await?);
        let request = HealthCheckRequest { service: service.to_owned() };
        let mut watch = health.watch(request).await?.into_inner();
        let first = watch.next().await.transpose()?.unwrap_or_default();
        assert_eq!(first.status(), ServingStatus::Serving, "{service:?}");
        watches.push(watch);
    }
    let stopped = tokio::spawn(aggregator.process.stop());
    for mut watch in watches {
        let next = watch.next().await;
        assert!(matches!(next, Some(Ok(told)) if told.status() == ServingStatus::NotServing));
        while let Some(Ok(_)) = watch.next().await {}
    }
    stopped.await?
}

#[tokio::test]
async fn a_stream_that_is_cut_off_says_so() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("cut")).await?;
    let day = aggregator.day(&experiment).await?;
    let (uploads, outgoing) = tokio::sync::mpsc::channel(64);
    let sending = tokio::spawn(async move {
        for number in 0.. {
            uploads.send(upload(number, &experiment, day, &[(0, true)])?).await?;
        }
        anyhow::Ok(())
    });
    let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
    let mut answers = aggregator.device.submit_uploads(outgoing).await?.into_inner();
    for _ in 0..100 {
        let answer = answers.next().await.context("the stream ended")??;
        assert_eq!(answer.status(), UploadStatus::Accepted);
    }
    let stopped = tokio::spawn(aggregator.process.stop());
    let end = loop {
        match answers.next().await.context("the stream ended as if that was all")? {
            Ok(answer) => assert_eq!(answer.status(), UploadStatus::Accepted),
            Err(end) => break end,
        }
    };
    assert_eq!(end.code(), Code::Unavailable, "{end}");
    sending.abort();
    stopped.await?
}

/// Runs the program and returns its exit code and what it says.
async fn run(arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    Ok((output.status.code(), String::from_utf8(output.stderr)?))
}

#[tokio::test]
async fn one_process_has_a_data_directory() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let directory = aggregator.data_dir().to_string_lossy().into_owned();
    let addresses = ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    let (code, message) =
        run(&[&["serve", "--data-dir", &directory], &addresses[..]].concat()).await?;
    assert_eq!(code, Some(1), "{message}");
    let named = format!("the data directory {directory} is in use by another process");
    assert!(message.contains(&named), "{message}");
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_left_alone() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let directory = folder.path().to_string_lossy().into_owned();
    WatchedServer::start(PROGRAM, folder.path(), &[]).await?.stop().await?;
    let file = folder.path().join("bandana.sqlite3");
    rusqlite::Connection::open(&file)?.execute_batch("PRAGMA user_version = 1000")?;
    let before = std::fs::read(&file)?;
    let addresses = ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    let (code, message) =
        run(&[&["serve", "--data-dir", &directory], &addresses[..]].concat()).await?;
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("schema version 1000"), "{message}");
    assert!(message.contains("use a newer program"), "{message}");
    assert_eq!(std::fs::read(&file)?, before);
    Ok(())
}

#[tokio::test]
async fn wrong_command_lines_are_explained() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let directory = directory.path().to_string_lossy().into_owned();
    let serve = ["serve", "--data-dir", &directory, "--listen", "127.0.0.1:0"];
    let public = [&serve[..], &["--operator-listen", "0.0.0.0:0"]].concat();
    let no_directory = ["serve", "--data-dir", "/dev/null/nowhere", "--listen", "127.0.0.1:0"];
    let no_directory = [&no_directory[..], &["--operator-listen", "127.0.0.1:0"]].concat();
    let cases: [(&[&str], i32, &str); 5] = [
        (&public, 1, "not on loopback"),
        (&no_directory, 1, "/dev/null/nowhere can't be used"),
        (&["serve"], 1, "--data-dir"),
        (&["serve", "--data-dir", "x", "--replay-window-days", "0"], 2, "1..=365"),
        (&["sevre"], 2, "'serve'"),
    ];
    for (arguments, code, part) in cases {
        let (actual, message) = run(arguments).await?;
        assert_eq!(actual, Some(code), "{message}");
        assert!(message.contains(part), "{message}");
    }
    Ok(())
}
