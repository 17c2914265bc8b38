//! A server with a low limit on file descriptors.

use std::time::Duration;

use anyhow::Context as _;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{GetExperimentRequest, UploadStatus};
use bandana_tests::attacked::create;
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::process_usage::processor_time;
use bandana_tests::watched_server::WatchedServer;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");
const LIMITED: &str = "with-few-descriptors";

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// Time for which a server without descriptors is observed.
const WATCH: Duration = Duration::from_secs(3);

/// Starts a server with these limits of descriptors.
async fn start(
    folder: &TempDir,
    (soft, hard): (u64, u64),
    arguments: &[&str],
) -> anyhow::Result<WatchedServer> {
    let mut command = Command::new(PROGRAM);
    command.arg0(LIMITED);
    command.clean_environment();
    command.args([soft.to_string(), hard.to_string()]).arg(PROGRAM);
    WatchedServer::launch(command, folder.path(), arguments, "info").await
}

/// The current soft limit of a process.
fn soft_limit(process: u32) -> anyhow::Result<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits"))?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()).context("no such limit")?;
    Ok(soft.parse()?)
}

#[tokio::test]
async fn the_limit_is_raised_as_far_as_it_goes() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let connections = ["--limit-connections", "100"];
    let server = start(&folder, (64, 1024), &connections).await?;
    // Two services, and some descriptors for the server itself.
    let soft = soft_limit(server.id()?)?;
    assert!((200..1024).contains(&soft), "{soft}");
    let log = server.stop().await?;
    assert!(!log.contains("not enough descriptors"), "{log}");

    let server = start(&folder, (64, 128), &connections).await?;
    assert_eq!(soft_limit(server.id()?)?, 128);
    let log = server.stop().await?;
    assert!(log.contains("not enough descriptors") && log.contains("possible=128"), "{log}");
    Ok(())
}

#[tokio::test]
async fn without_descriptors_it_waits_for_some_and_serves_who_is_in() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut server = start(&folder, (64, 64), &["--limit-connections", "1000"]).await?;
    let experiment = create(&server.operator, three_arms("few")).await?;
    let url = format!("http://{}", server.device);
    let mut inside = DeviceClient::connect(url.clone()).await?;
    let question = || GetExperimentRequest { experiment_id: "few".to_owned() };
    let day = Day::new(inside.get_experiment(question()).await?.into_inner().server_day);

    let mut crowd = Vec::new();
    for _ in 0..100 {
        // Excess connections wait in the socket's backlog.
        crowd.push(TcpStream::connect(&server.device).await?);
    }
    server.log_until("can't accept connections").await?;

    // A server that retries without a pause uses a whole processor.
    let before = processor_time(server.id()?)?;
    tokio::time::sleep(WATCH).await;
    let used = processor_time(server.id()?)?.saturating_sub(before);
    assert!(used < WATCH / 4, "{used:?} of {WATCH:?}");
    for number in 0..20 {
        let request = upload(number, &experiment, day, &[(0, true)])?;
        let answer = inside.submit_upload(request).await?.into_inner();
        assert_eq!(answer.status(), UploadStatus::Accepted);
    }

    drop(crowd);
    server.log_until("connections are accepted again").await?;
    let again = async {
        loop {
            let Ok(mut client) = DeviceClient::connect(url.clone()).await else { continue };
            if let Ok(answer) = client.get_experiment(question()).await {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, again).await?;
    drop(inside);
    let log = server.stop().await?;
    // One line at the beginning, not one for every attempt.
    assert!(log.matches("can't accept connections").count() < 10, "{log}");
    Ok(())
}
