//! Admission control of devices' calls: app keys, rates, and concurrency.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::AppKey;
use bandana_client::{Bandana, Choice, DefaultReason};
use bandana_examples::embedding::{self, EXPERIMENT, TurnedClock, UNTIL_RELEASED};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    self, GetExperimentRequest, SelectArmRequest, UploadRequest, UploadStatus,
};
use bandana_tests::attacked::create;
use bandana_tests::harness::{estimates_request, three_arms, upload};
use bandana_tests::raw_http2::claiming;
use bandana_tests::watched_server::WatchedServer;
use prost::Message as _;
use prost::bytes::Bytes;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// More calls than a rate of one per second can admit.
const MANY: u128 = 1000;

/// A server and a folder for its files.
struct Gated {
    folder: TempDir,
    server: WatchedServer,
}

impl Gated {
    async fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_in(tempfile::tempdir()?, arguments).await
    }

    async fn start_in(folder: TempDir, arguments: &[&str]) -> anyhow::Result<Self> {
        let data_dir = folder.path().join("data");
        let server = WatchedServer::start(PROGRAM, &data_dir, arguments).await?;
        Ok(Self { folder, server })
    }

    async fn experiment(&self) -> anyhow::Result<Specification> {
        create(&self.server.operator, three_arms("gated")).await
    }

    async fn channel(&self) -> anyhow::Result<Channel> {
        let endpoint = Channel::from_shared(format!("http://{}", self.server.device))?;
        Ok(endpoint.connect().await?)
    }

    async fn device(&self) -> anyhow::Result<DeviceClient<Channel>> {
        Ok(DeviceClient::new(self.channel().await?))
    }
}

fn keys_file(folder: &Path) -> PathBuf {
    folder.join("app-keys")
}

async fn app_key(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let file = keys_file(folder);
    let mut command = Command::new(PROGRAM);
    command.arg("app-key").args(arguments).arg("--file").arg(file).clean_environment();
    let output = command.kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn with_key<T>(message: T, key: &str) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("bandana-app-key", key.parse()?);
    Ok(request)
}

fn question() -> GetExperimentRequest {
    GetExperimentRequest { experiment_id: "gated".to_owned() }
}

fn code<T>(outcome: Result<T, Status>) -> Code {
    outcome.map_or_else(|status| status.code(), |_| Code::Ok)
}

/// The server's pushback: the time that a caller should wait.
fn pushback(status: &Status) -> anyhow::Result<Duration> {
    let value = status.metadata().get("grpc-retry-pushback-ms").context("no time to come back")?;
    Ok(Duration::from_millis(value.to_str()?.parse()?))
}

async fn day_of(device: &mut DeviceClient<Channel>) -> anyhow::Result<Day> {
    Ok(Day::new(device.get_experiment(question()).await?.into_inner().server_day))
}

#[tokio::test]
async fn every_call_of_devices_shows_a_key_and_health_does_not() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let key = app_key(folder.path(), &["new", "--name", "shop-1.0"]).await?;
    assert!(key.starts_with("bndk_") && key.len() == 48, "{key}");
    let file = keys_file(folder.path()).display().to_string();
    let gated = Gated::start_in(folder, &["--app-keys-file", &file]).await?;
    let experiment = gated.experiment().await?;
    let mut device = gated.device().await?;

    let name = || SelectArmRequest { experiment_id: "gated".to_owned(), ..Default::default() };
    let one = UploadRequest::default();
    let many = || tokio_stream::iter([UploadRequest::default()]);
    for (call, outcome) in [
        ("experiment", code(device.get_experiment(question()).await)),
        ("arm", code(device.select_arm(name()).await)),
        ("upload", code(device.submit_upload(one).await)),
        ("uploads", code(device.submit_uploads(many()).await)),
    ] {
        assert_eq!(outcome, Code::Unauthenticated, "{call}");
    }
    let missing = device.get_experiment(question()).await.unwrap_err();
    let hash = std::fs::read_to_string(&file)?;
    let hash = hash.split_whitespace().nth(1).context("a hash")?;
    for wrong in ["x", &key[..47], &format!("{key}x"), &key.to_uppercase(), hash] {
        let status = device.get_experiment(with_key(question(), wrong)?).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (missing.code(), missing.message()));
    }
    let mut twice = with_key(question(), &key)?;
    twice.metadata_mut().append("bandana-app-key", key.parse()?);
    assert_eq!(code(device.get_experiment(twice).await), Code::Unauthenticated);
    let health = HealthCheckRequest { service: String::new() };
    HealthClient::new(gated.channel().await?).check(health).await?;

    let answer = device.get_experiment(with_key(question(), &key)?).await?.into_inner();
    let request = upload(1, &experiment, Day::new(answer.server_day), &[(0, true)])?;
    let answer = device.submit_upload(with_key(request, &key)?).await?.into_inner();
    assert_eq!(answer.status(), UploadStatus::Accepted);
    drop(device);
    let log = gated.server.stop().await?;
    assert!(!log.contains(&key[5..]), "{log}");
    // The server's own addresses are not secret.
    let others = log.lines().filter(|line| !line.contains("listening; opening the store"));
    for line in others {
        assert!(!line.contains("127.0.0.1:"), "{line}");
    }
    Ok(())
}

#[tokio::test]
async fn keys_come_and_go_while_the_server_runs() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    app_key(folder.path(), &["new", "--name", "old"]).await?;
    let file = keys_file(folder.path()).display().to_string();
    let mut gated = Gated::start_in(folder, &["--app-keys-file", &file]).await?;
    let folder = gated.folder.path().to_owned();
    let key = app_key(&folder, &["new", "--name", "new"]).await?;
    assert_eq!(app_key(&folder, &["list"]).await?, "old\nnew");
    gated.server.reload().await?;

    let experiment = gated.experiment().await?;
    let mut device = gated.device().await?;
    let answer = device.get_experiment(with_key(question(), &key)?).await?.into_inner();
    let day = Day::new(answer.server_day);
    let (uploads, outgoing) = mpsc::channel(1);
    let stream = with_key(ReceiverStream::new(outgoing), &key)?;
    uploads.send(upload(1, &experiment, day, &[(0, true)])?).await?;
    let mut answers = device.submit_uploads(stream).await?.into_inner();
    let answer = answers.message().await?.context("no answer")?;
    assert_eq!(answer.status(), UploadStatus::Accepted);

    // A broken file changes nothing: the previous keys remain.
    let whole = std::fs::read(&file)?;
    std::fs::write(&file, "new\n")?;
    gated.server.reload().await?;
    assert!(gated.server.logged.contains("app keys are left as they were"));
    device.get_experiment(with_key(question(), &key)?).await?;
    std::fs::write(&file, whole)?;

    app_key(&folder, &["revoke", "--name", "new"]).await?;
    gated.server.reload().await?;
    let outcome = device.get_experiment(with_key(question(), &key)?).await;
    assert_eq!(code(outcome), Code::Unauthenticated);
    // An open stream ends too.
    let end = tokio::time::timeout(PATIENCE, answers.message()).await?;
    assert_eq!(code(end), Code::Unauthenticated);
    Ok(())
}

#[tokio::test]
async fn a_revoked_key_ends_a_stream_that_is_all_the_traffic() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let key = app_key(folder.path(), &["new", "--name", "gateway"]).await?;
    let file = keys_file(folder.path()).display().to_string();
    let gated = Gated::start_in(folder, &["--app-keys-file", &file]).await?;
    let experiment = gated.experiment().await?;
    let (uploads, outgoing) = mpsc::channel(1);
    let stream = with_key(ReceiverStream::new(outgoing), &key)?;
    // Any day will do: a refusal is an answer too.
    uploads.send(upload(1, &experiment, Day::new(1), &[(0, true)])?).await?;
    let mut answers = gated.device().await?.submit_uploads(stream).await?.into_inner();
    answers.message().await?.context("no answer")?;

    // No call is made, and no signal is sent.
    app_key(gated.folder.path(), &["revoke", "--name", "gateway"]).await?;
    let end = tokio::time::timeout(PATIENCE, answers.message()).await?;
    assert_eq!(code(end), Code::Unauthenticated);
    drop(uploads);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_whose_key_is_revoked_by_mistake_loses_nothing() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let key = app_key(folder.path(), &["new", "--name", "shop"]).await?;
    let key = AppKey::new(&key)?;
    let file = keys_file(folder.path());
    let whole = std::fs::read(&file)?;
    std::fs::write(&file, "")?;
    let arguments = ["--app-keys-file", &file.display().to_string()];
    let mut gated = Gated::start_in(folder, &arguments).await?;
    let specification =
        v1::Specification { release_delay_seconds_max: 3600, ..three_arms(EXPERIMENT) };
    create(&gated.server.operator, specification).await?;
    let (clock, directory) = (TurnedClock::new(), gated.folder.path().join("app"));
    let url = format!("http://{}", gated.server.device);
    let start = || -> anyhow::Result<Bandana> {
        Ok(embedding::app(&url, &directory, &clock, Some(&key))?.start()?)
    };
    // Runs the tasks that are due, and ends.
    let run = |bandana: Bandana| {
        ensure!(bandana.shutdown(PATIENCE), "the app does not end");
        anyhow::Ok(bandana.status())
    };

    let bandana = start()?;
    bandana.experiment(EXPERIMENT)?;
    assert!(run(bandana.clone())?.statistics.fetches_failed > 0);
    let choice = bandana.experiment(EXPERIMENT)?.choose();
    assert!(matches!(choice, Choice::Default(DefaultReason::NoPolicyYet)), "{choice:?}");
    drop((bandana, choice));

    std::fs::write(&file, &whole)?;
    gated.server.reload().await?;
    let bandana = start()?;
    bandana.experiment(EXPERIMENT)?;
    run(bandana)?;
    let bandana = start()?;
    bandana.experiment(EXPERIMENT)?.choose().reward(1.0);
    std::fs::write(&file, "")?;
    gated.server.reload().await?;
    clock.forward(UNTIL_RELEASED);
    assert_eq!(run(bandana)?.waiting_reports, 1);

    std::fs::write(&file, &whole)?;
    gated.server.reload().await?;
    clock.forward(UNTIL_RELEASED);
    let status = run(start()?)?;
    assert_eq!((status.waiting_reports, status.statistics.uploads_accepted), (0, 1));
    gated.server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn uploads_over_the_rate_are_told_when_to_come_back() -> anyhow::Result<()> {
    let rate = ["--limit-uploads-per-second-per-connection", "1"];
    let gated = Gated::start(&[&rate[..], &["--limit-burst-seconds", "30"]].concat()).await?;
    let experiment = gated.experiment().await?;
    let (mut busy, mut other) = (gated.device().await?, gated.device().await?);
    let day = day_of(&mut busy).await?;
    let mut accepted = 0;
    let refusal = loop {
        let request = upload(accepted, &experiment, day, &[(0, true)])?;
        match busy.submit_upload(request).await {
            Ok(answer) => assert_eq!(answer.into_inner().status(), UploadStatus::Accepted),
            Err(refusal) => break refusal,
        }
        accepted += 1;
        ensure!(accepted < MANY, "no rate");
    };
    // The burst, plus the calls that the rate admits in the elapsed time.
    assert!(accepted >= 30, "{accepted}");
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    let wait = pushback(&refusal)?;
    assert!(!wait.is_zero() && wait <= Duration::from_secs(1), "{wait:?}");
    // Other methods and other callers are unaffected.
    day_of(&mut busy).await?;
    let request = upload(1 << 100, &experiment, day, &[(0, true)])?;
    assert_eq!(other.submit_upload(request).await?.into_inner().status(), UploadStatus::Accepted);
    // After that wait the call is admitted, because of the time only.
    tokio::time::sleep(wait).await;
    let request = upload(accepted, &experiment, day, &[(0, true)])?;
    assert_eq!(busy.submit_upload(request).await?.into_inner().status(), UploadStatus::Accepted);
    Ok(())
}

#[tokio::test]
async fn questions_over_the_rate_are_told_when_to_come_back() -> anyhow::Result<()> {
    let rate = ["--limit-questions-per-second-per-connection", "1"];
    let gated = Gated::start(&[&rate[..], &["--limit-burst-seconds", "30"]].concat()).await?;
    let experiment = gated.experiment().await?;
    let (mut busy, mut other) = (gated.device().await?, gated.device().await?);
    let day = day_of(&mut other).await?;
    let arm = || SelectArmRequest { experiment_id: "gated".to_owned(), ..Default::default() };
    // Either kind of call counts.
    let mut answered = 0;
    let refusal = loop {
        let outcome = match answered % 2 {
            0 => busy.get_experiment(question()).await.map(drop),
            _ => busy.select_arm(arm()).await.map(drop),
        };
        match outcome {
            Ok(()) => answered += 1,
            Err(refusal) => break refusal,
        }
        ensure!(answered < MANY, "no rate");
    };
    assert!(answered >= 30, "{answered}");
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    let wait = pushback(&refusal)?;
    assert!(!wait.is_zero() && wait <= Duration::from_secs(1), "{wait:?}");
    // Uploads have a separate rate, and other callers are unaffected.
    let request = upload(1, &experiment, day, &[(0, true)])?;
    assert_eq!(busy.submit_upload(request).await?.into_inner().status(), UploadStatus::Accepted);
    other.select_arm(arm()).await?;
    Ok(())
}

#[tokio::test]
async fn streams_over_the_rate_are_slowed_down_and_lose_nothing() -> anyhow::Result<()> {
    let rate = ["--limit-uploads-per-second-per-connection", "20"];
    let gated = Gated::start(&[&rate[..], &["--limit-burst-seconds", "1"]].concat()).await?;
    let experiment = gated.experiment().await?;
    let mut device = gated.device().await?;
    let day = day_of(&mut device).await?;
    let uploads: Vec<UploadRequest> = (0..60)
        .map(|number| upload(number, &experiment, day, &[(0, true)]))
        .collect::<anyhow::Result<_>>()?;
    let start = tokio::time::Instant::now();
    let mut answers = device.submit_uploads(tokio_stream::iter(uploads)).await?.into_inner();
    let mut accepted = 0;
    while let Some(answer) = answers.message().await? {
        assert_eq!(answer.status(), UploadStatus::Accepted);
        accepted += 1;
    }
    assert_eq!(accepted, 60);
    // 20 at once, and then 40 in two seconds. No clock can make it faster.
    assert!(start.elapsed() >= Duration::from_millis(1900), "{:?}", start.elapsed());
    Ok(())
}

#[tokio::test]
async fn slow_streams_of_single_uploads_live_on() -> anyhow::Result<()> {
    let rate = ["--limit-uploads-per-second-per-connection", "500"];
    let gated = Gated::start(&[&rate[..], &["--limit-burst-seconds", "1"]].concat()).await?;
    let experiment = gated.experiment().await?;
    let day = day_of(&mut gated.device().await?).await?;
    let stream = TcpStream::connect(&gated.server.device).await?;
    let (mut send, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    // The server's settings arrive with the first answer.
    let first = http::Request::post("http://x/grpc.health.v1.Health/Check").body(())?;
    send.send_request(first, true)?.0.await?;
    let mut streams = Vec::new();
    for stream in 0..2_u128 {
        let request = http::Request::post("http://x/bandana.v1.Device/SubmitUploads")
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let send = send.clone().ready().await?;
        let (answer, body) = { send }.send_request(request.body(())?, false)?;
        let experiment = experiment.clone();
        streams.push(tokio::spawn(take_answers(answer)));
        streams.push(tokio::spawn(async move {
            send_singly(body, stream << 64, &experiment, day).await
        }));
    }
    for stream in streams {
        stream.await??;
    }
    let mut operator = OperatorClient::connect(format!("http://{}", gated.server.operator)).await?;
    let estimates = operator.get_estimates(estimates_request(&experiment)).await?.into_inner();
    assert_eq!(estimates.reports, 2 * SINGLES);
    Ok(())
}

/// More than a stream may leave unread, and than the rate admits at once.
const SINGLES: u64 = 1000;

/// Reads answers to the end, which must be a success.
async fn take_answers(answer: h2::client::ResponseFuture) -> anyhow::Result<()> {
    let mut body = answer.await?.into_body();
    while let Some(data) = body.data().await {
        let read = data?.len();
        body.flow_control().release_capacity(read)?;
    }
    let trailers = body.trailers().await?.context("no trailers")?;
    let status = trailers.get("grpc-status").context("no status")?;
    ensure!(status == "0", "{trailers:?}");
    Ok(())
}

/// Streams uploads of one report, one per frame.
async fn send_singly(
    mut body: h2::SendStream<Bytes>,
    first: u128,
    experiment: &Specification,
    day: Day,
) -> anyhow::Result<()> {
    for number in 0..SINGLES {
        let request = upload(first + u128::from(number), experiment, day, &[(0, true)])?;
        let request = request.encode_to_vec();
        let message = claiming(u32::try_from(request.len())?, 0, &request);
        body.reserve_capacity(message.len());
        while body.capacity() < message.len() {
            let capacity = std::future::poll_fn(|context| body.poll_capacity(context)).await;
            capacity.context("the stream has ended")??;
        }
        body.send_data(message.into(), number + 1 == SINGLES)?;
    }
    Ok(())
}

#[tokio::test]
async fn apps_share_a_rate_over_all_connections_and_the_log_names_them() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let greedy = app_key(folder.path(), &["new", "--name", "greedy"]).await?;
    let modest = app_key(folder.path(), &["new", "--name", "modest"]).await?;
    let file = keys_file(folder.path()).display().to_string();
    let rate = ["--limit-uploads-per-second-per-app-key", "1", "--app-keys-file", &file];
    let gated = Gated::start_in(folder, &rate).await?;
    let experiment = gated.experiment().await?;
    let mut device = gated.device().await?;
    let answer = device.get_experiment(with_key(question(), &modest)?).await?.into_inner();
    let day = Day::new(answer.server_day);
    let mut number = 0;
    let refusal = loop {
        // Separate connections for each upload do not help.
        let request = upload(number, &experiment, day, &[(0, true)])?;
        match gated.device().await?.submit_upload(with_key(request, &greedy)?).await {
            Ok(_) => number += 1,
            Err(refusal) => break refusal,
        }
        ensure!(number < MANY, "no rate");
    };
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert!(pushback(&refusal)? <= Duration::from_secs(1));
    let request = upload(1 << 100, &experiment, day, &[(0, true)])?;
    device.submit_upload(with_key(request, &modest)?).await?;
    drop(device);
    let log = gated.server.stop().await?;
    assert_eq!(log.matches("app_key=greedy").count(), 1, "{log}");
    assert!(!log.contains("modest"), "{log}");
    Ok(())
}

#[tokio::test]
async fn calls_beyond_the_limit_come_back_and_a_stalled_stream_gives_up_its_place()
-> anyhow::Result<()> {
    let limits = ["--limit-calls", "1", "--limit-stream-idle-seconds", "5"];
    let gated = Gated::start(&limits).await?;
    gated.experiment().await?;
    let mut device = gated.device().await?;
    let mut other = gated.device().await?;
    let (uploads, outgoing) = mpsc::channel(1);
    let mut answers = device.submit_uploads(ReceiverStream::new(outgoing)).await?.into_inner();
    let refusal = other.get_experiment(question()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert_eq!(pushback(&refusal)?, Duration::from_secs(1));
    let health = HealthCheckRequest { service: String::new() };
    HealthClient::new(gated.channel().await?).check(health).await?;

    // The stream is silent, and the server ends it.
    let end = tokio::time::timeout(PATIENCE, answers.message()).await?;
    assert_eq!(code(end), Code::DeadlineExceeded);
    other.get_experiment(question()).await?;
    drop(uploads);
    Ok(())
}
