//! Orderly shutdown, and refusals to start in a wrong state.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::UploadStatus;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_tests::harness::{
    Aggregator, UPLOADERS, estimates_request, keep_uploading, submit_one, three_arms, upload,
};
use bandana_tests::raw_http2::{Kind, RawConnection, frame, headers};
use bandana_tests::watched_server::WatchedServer;
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// The server's message at the end of a stream that it cuts off.
const GOING_DOWN: &str = "the aggregator is going down; call again";

/// A stream of uploads that continues until the server ends it.
struct Streamed {
    acknowledgements: UnboundedReceiver<(u128, UploadStatus)>,
    /// The number of uploads accepted by the stream, from [`FIRST_STREAMED`] on.
    sent: Arc<AtomicU64>,
    /// The end of the stream.
    ended: JoinHandle<anyhow::Result<Option<Status>>>,
}

/// The number of the first upload in a stream; no worker's numbers reach it.
const FIRST_STREAMED: u128 = 1 << 100;

/// As [`keep_uploading`], over a single stream.
fn keep_streaming(
    device: &DeviceClient<Channel>,
    specification: &Specification,
    day: Day,
) -> Streamed {
    let (acknowledged, acknowledgements) = unbounded_channel();
    let (mut device, specification) = (device.clone(), specification.clone());
    let sent = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&sent);
    let uploads = (FIRST_STREAMED..).map_while(move |number| {
        counter.fetch_add(1, Ordering::SeqCst);
        upload(number, &specification, day, &[(0, true)]).ok()
    });
    let ended = tokio::spawn(async move {
        let mut answers = device.submit_uploads(tokio_stream::iter(uploads)).await?.into_inner();
        loop {
            match answers.message().await {
                Ok(Some(answer)) => {
                    let number = u128::from_be_bytes(answer.upload_id[..].try_into()?);
                    acknowledged.send((number, answer.status()))?;
                }
                Ok(None) => return Ok(None),
                Err(status) => return Ok(Some(status)),
            }
        }
    });
    Streamed { acknowledgements, sent, ended }
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
    let mut numbers = BTreeSet::new();
    while numbers.len() < 200 {
        for source in [&mut acknowledgements, &mut streamed.acknowledgements] {
            let (number, status) = source.recv().await.context("all workers failed")?;
            assert_eq!(status, UploadStatus::Accepted);
            numbers.insert(number);
        }
    }
    // The watch stays open, and uploads keep coming, until the server ends both.
    let nothing_is_left_in_the_log = |data_dir: &Path| {
        let log = data_dir.join("bandana.sqlite3-wal");
        ensure!(log.metadata().map_or(0, |log| log.len()) == 0, "the log is left");
        Ok(())
    };
    let mut aggregator = aggregator.stop_look_and_restart(nothing_is_left_in_the_log).await?;
    for source in [&mut acknowledgements, &mut streamed.acknowledgements] {
        while let Some((number, status)) = source.recv().await {
            assert_eq!(status, UploadStatus::Accepted);
            assert!(numbers.insert(number), "{number} was counted twice");
        }
    }
    let mut last = watched.next().await;
    while matches!(last, Some(Ok(_))) {
        last = watched.next().await;
    }
    let end = last.and_then(Result::err).context("the watch ended as if that was all")?;
    assert_eq!(end.code(), Code::Unavailable);

    // Every acknowledged upload counts, exactly once.
    let counted = aggregator.tallies(&experiment).await?[0].0;
    assert!(counted >= numbers.len() as u64, "{counted} of {}", numbers.len());
    for number in &numbers {
        let status = submit_one(&mut aggregator.device, &experiment, day, *number).await?;
        assert_eq!(status, UploadStatus::Duplicate);
    }
    assert_eq!(aggregator.tallies(&experiment).await?[0].0, counted);
    // Unanswered uploads may have been counted, if the response was lost; sending them again makes
    // that certain.
    let end = streamed.ended.await??.context("the stream ended as if that was all")?;
    let is_answered = end.message() == GOING_DOWN;
    let sent = u128::from(streamed.sent.load(Ordering::SeqCst));
    let mut unanswered: Vec<u128> = (FIRST_STREAMED..FIRST_STREAMED + sent).collect();
    unanswered.retain(|number| !numbers.contains(number));
    let of_stream = unanswered.len();
    for worker in 0..UPLOADERS {
        let of_worker = numbers.range(worker << 64..(worker + 1) << 64);
        unanswered.push(of_worker.last().map_or(worker << 64, |last| last + 1));
    }
    for (place, number) in unanswered.iter().enumerate() {
        let status = submit_one(&mut aggregator.device, &experiment, day, *number).await?;
        let is_known = status == UploadStatus::Duplicate;
        assert!(is_known || status == UploadStatus::Accepted, "{status:?}");
        // A stream that ended with the server's message was answered for all uploads that it had
        // counted.
        assert!(!(is_known && is_answered && place < of_stream), "no answer to {number}");
    }
    let all = (numbers.len() + unanswered.len()) as u64;
    assert_eq!(aggregator.tallies(&experiment).await?[0], (all, all));
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

#[tokio::test]
async fn connections_without_calls_do_not_hold_up_the_end() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    // Half of it would be as long as the test may take.
    let arguments = ["--drain-deadline", "120"];
    let server = WatchedServer::start(PROGRAM, folder.path(), &arguments).await?;
    let mut idle = Vec::new();
    for address in [&server.device, &server.operator] {
        // None of these connections ever responds to the server.
        idle.push(RawConnection::silent(address).await?);
        idle.push(RawConnection::open(address).await?);
        let mut asked = RawConnection::open(address).await?;
        let question = frame(Kind::Headers, 5, 1, &headers("/x", &[]));
        asked.write(&question).await?;
        while asked.next_frame().await?.0 != Kind::Headers as u8 {}
        idle.push(asked);
    }
    let mut page = RawConnection::silent(&server.operator).await?;
    page.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    idle.push(page);
    let log = server.stop().await?;
    assert!(!log.contains("calls are still under way"), "{log}");
    drop(idle);
    Ok(())
}

/// Runs the program, and returns its exit code and output.
async fn run(arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .clean_environment()
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
