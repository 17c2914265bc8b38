//! Room for the ids of uploads: operators are warned when it is scarce, callers learn when to
//! retry, one app key can't use all of it, and a new day makes room without any call.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{GetExperimentRequest, UploadStatus};
use bandana_tests::harness::{create, estimates_request, submit_one, three_arms, upload};
use bandana_tests::page;
use bandana_tests::test_clock::TestClock;
use bandana_tests::watched_server::WatchedServer;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const TODAY: Day = Day::new(20_000);

/// Room for ten ids, of one day.
const SMALL: [&str; 2] = ["--ids-max=10", "--replay-window-days=1"];

async fn ready(server: &WatchedServer) -> anyhow::Result<u16> {
    Ok(page::get(&server.operator, "/readyz", &[]).await?.status)
}

async fn until_ready_is(server: &WatchedServer, status: u16) -> anyhow::Result<()> {
    let waiting = async {
        while ready(server).await? != status {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_mins(1), waiting).await?
}

/// Whether the server's alarm is active, according to its metrics.
async fn rings(server: &WatchedServer) -> anyhow::Result<bool> {
    let metrics = page::get(&server.operator, "/metrics", &[]).await?.body;
    let name = "bandana_alarm{experiment=\"\",name=\"ids-full\"} ";
    let value = metrics.lines().find_map(|line| line.strip_prefix(name));
    Ok(value.context("there is no such alarm")? == "1")
}

/// The pushback of a refused call: the time that the caller should wait.
fn pushback(status: &Status) -> anyhow::Result<Duration> {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let value = status.metadata().get("grpc-retry-pushback-ms").context("no wait")?;
    Ok(Duration::from_millis(value.to_str()?.parse()?))
}

#[tokio::test]
async fn a_server_without_room_says_so_until_a_new_day_makes_room() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let clock = TestClock::at(TODAY, folder.path())?;
    let start = async || WatchedServer::launch(clock.command(PROGRAM), &data, &SMALL, "info").await;
    let mut server = start().await?;
    let (mut device, mut operator) = server.clients().await?;
    let experiment = create(&mut operator, three_arms("room")).await?;
    for number in 0..8 {
        let status = submit_one(&mut device, &experiment, TODAY, number).await?;
        assert_eq!(status, UploadStatus::Accepted);
    }
    server.log_until("the server remembers 80% of the upload ids that it can").await?;
    assert!(!rings(&server).await?);
    for number in 8..10 {
        submit_one(&mut device, &experiment, TODAY, number).await?;
    }
    server.log_until("no more upload ids can be remembered").await?;
    let refused = device.submit_upload(upload(10, &experiment, TODAY, &[(0, true)])?).await;
    let wait = pushback(&refused.err().context("it was taken")?)?;
    // It is noon: clients wait an hour at most.
    ensure!((Duration::from_mins(50)..=Duration::from_hours(1)).contains(&wait), "{wait:?}");
    // Counted uploads are recognised.
    assert_eq!(submit_one(&mut device, &experiment, TODAY, 3).await?, UploadStatus::Duplicate);
    until_ready_is(&server, 503).await?;
    assert!(rings(&server).await?);
    let estimates = operator.get_estimates(estimates_request(&experiment)).await?.into_inner();
    ensure!(estimates.alarms.iter().any(|alarm| alarm.name == "ids-full"), "{estimates:?}");
    server.stop().await?;

    let server = start().await?;
    until_ready_is(&server, 503).await?;
    // No call is made; the day ends.
    clock.set(TODAY.forward(1))?;
    until_ready_is(&server, 200).await?;
    assert!(!rings(&server).await?);
    let (mut device, _) = server.clients().await?;
    let status = submit_one(&mut device, &experiment, TODAY.forward(1), 10).await?;
    assert_eq!(status, UploadStatus::Accepted);
    server.stop().await.map(drop)
}

fn new_key(name: &str, file: &Path) -> anyhow::Result<String> {
    let output = Command::new(PROGRAM)
        .args(["app-key", "new", "--name", name, "--file"])
        .arg(file)
        .clean_environment()
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Uploads with a key until one upload is refused, and returns the number of accepted ones.
async fn fill(
    device: &mut DeviceClient<Channel>,
    key: &str,
    (experiment, day): (&Specification, Day),
    first: u128,
) -> anyhow::Result<(u128, Status)> {
    for number in first.. {
        let mut request = Request::new(upload(number, experiment, day, &[(0, true)])?);
        request.metadata_mut().insert("bandana-app-key", key.parse()?);
        match device.submit_upload(request).await {
            Ok(answer) => assert_eq!(answer.into_inner().status(), UploadStatus::Accepted),
            Err(status) => return Ok((number - first, status)),
        }
    }
    anyhow::bail!("it is never full")
}

#[tokio::test]
async fn one_app_key_leaves_room_for_the_other() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("app-keys");
    let (greedy, other) = (new_key("greedy", &file)?, new_key("other", &file)?);
    let keys = ["--app-keys-file", file.to_str().context("UTF-8")?];
    let arguments = [&SMALL[..], &keys].concat();
    let server = WatchedServer::start(PROGRAM, &folder.path().join("data"), &arguments).await?;
    let (mut device, mut operator) = server.clients().await?;
    let experiment = create(&mut operator, three_arms("shared")).await?;
    let mut question = Request::new(GetExperimentRequest {
        experiment_id: experiment.experiment_id().to_string(),
    });
    question.metadata_mut().insert("bandana-app-key", other.parse()?);
    let day = Day::new(device.get_experiment(question).await?.into_inner().server_day);
    // Half of the room is for any key, and a quarter for each of the two keys.
    let (taken, status) = fill(&mut device, &greedy, (&experiment, day), 0).await?;
    ensure!(taken == 8 && status.message().contains("of this app"), "{taken}: {status}");
    pushback(&status)?;
    assert_eq!(ready(&server).await?, 200);
    let (taken, status) = fill(&mut device, &other, (&experiment, day), 100).await?;
    ensure!(taken == 2 && !status.message().contains("of this app"), "{taken}: {status}");
    until_ready_is(&server, 503).await?;
    let metrics = page::get(&server.operator, "/metrics", &[]).await?.body;
    let reason = "bandana_uploads_turned_away_total{reason=\"ids_of_app_full\"} 1";
    ensure!(metrics.lines().any(|line| line == reason), "{metrics}");
    server.stop().await.map(drop)
}
