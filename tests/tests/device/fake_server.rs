//! The fake server for tests of the client records requests and answers correctly.

use std::sync::Mutex;
use std::time::Duration;

use bandana_client::grpc::{Transport, run_until};
use bandana_client::{Acceptance, Client, Reward, Task, Timestamp, UploadOutcome, UploadTask};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use bandana_shared::upload::Upload;
use bandana_shared::wire::v1::{UploadRequest, UploadResponse, UploadStatus};
use bandana_tests::fake_server::{Answer, MessageBytes, Recorder, SUBMIT_UPLOAD};
use prost::Message as _;
use prost::bytes::Bytes;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request};

const TODAY: u32 = 20_000;

/// A constant time: everything due happens at once.
fn clock() -> Timestamp {
    Timestamp::from_unix_ms(1_728_000_000_000)
}

fn experiment(name: &str) -> anyhow::Result<(Specification, Policy)> {
    let arms = vec![Arm::new("red")?, Arm::new("green")?];
    let policy =
        Policy { version: 7, weights: Weights::uniform(&[true, true])?, time_to_live_seconds: 60 };
    let specification = Specification::first(
        ExperimentId::new(name)?,
        Epsilon::new(1.0)?,
        Rewards::binary(),
        Mechanism::RandomizedResponse,
        arms,
        ReleaseTiming::IMMEDIATE,
    )?;
    Ok((specification, policy))
}

/// A client that has fetched the recorder's experiment of this name.
async fn client(recorder: &Recorder, name: &str) -> anyhow::Result<(Client, Transport)> {
    let (specification, policy) = experiment(name)?;
    recorder.serve(&specification, &policy);
    let mut client = Client::new(bandana_client::Budget::UNLIMITED);
    let acceptance = Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
        .least_attribution_window(Duration::ZERO)
        .least_release_delay(Duration::ZERO);
    client.enroll(specification.experiment_id().clone(), acceptance);
    let mut transport = Transport::new(recorder.channel()?);
    let client = run(client, &mut transport).await?;
    Ok((client, transport))
}

/// Runs all tasks that are due.
async fn run(client: Client, transport: &mut Transport) -> anyhow::Result<Client> {
    let client = Mutex::new(client);
    run_until(&client, transport, &clock, clock().after(Duration::from_mins(1))).await?;
    Ok(client.into_inner()?)
}

/// Makes a report and returns its upload task.
fn upload_task(client: &mut Client, name: &str) -> anyhow::Result<UploadTask> {
    let assignment = client.draw(&ExperimentId::new(name)?, clock())?;
    client.reward(assignment.id(), Reward::new(1.0)?, clock())?;
    match client.next_task(clock())? {
        Task::Upload(task) => Ok(task),
        other => anyhow::bail!("{other:?} instead of an upload"),
    }
}

#[tokio::test]
async fn it_keeps_the_bytes_of_uploads_in_the_order_of_arrival() -> anyhow::Result<()> {
    let recorder = Recorder::start(Day::new(TODAY))?;
    let (mut client, mut transport) = client(&recorder, "order").await?;
    let mut sent = Vec::new();
    for _ in 0..5 {
        let task = upload_task(&mut client, "order")?;
        sent.push(task.bytes().to_vec());
        assert_eq!(transport.upload(&task).await, UploadOutcome::Accepted);
        client.on_upload_result(task.id(), &UploadOutcome::Accepted, clock())?;
    }
    let kept: Vec<_> = recorder.uploads().iter().map(|upload| upload.bytes.to_vec()).collect();
    assert_eq!(kept, sent);
    let upload = Upload::try_from(&UploadRequest::decode(&kept[0][..])?)?;
    assert_eq!(upload.day, Day::new(TODAY));
    assert_eq!(recorder.questions().len(), 1);
    Ok(())
}

#[tokio::test]
async fn it_keeps_even_what_decoding_would_lose() -> anyhow::Result<()> {
    let recorder = Recorder::start(Day::new(TODAY))?;
    // Field 3 twice, and field 99, which no message has.
    let message = Bytes::from_static(&[0x18, 1, 0x18, 2, 0x98, 0x06, 5]);
    assert_ne!(UploadRequest::decode(message.clone())?.encode_to_vec(), message);
    let mut raw = Grpc::new(recorder.channel()?);
    raw.ready().await?;
    let request = Request::new(message.clone());
    raw.unary(request, SUBMIT_UPLOAD.parse()?, MessageBytes).await?;
    assert_eq!(recorder.uploads()[0].bytes, message);

    // Bytes that can't be decoded.
    let message = Bytes::from_static(&[0xff]);
    raw.ready().await?;
    let request = Request::new(message.clone());
    let answer = raw.unary(request, SUBMIT_UPLOAD.parse()?, MessageBytes).await?.into_inner();
    assert_eq!(UploadResponse::decode(answer)?.status(), UploadStatus::Malformed);
    assert_eq!(recorder.uploads()[1].bytes, message);
    Ok(())
}

#[tokio::test]
async fn it_says_what_was_planned_and_then_what_a_server_would_say() -> anyhow::Result<()> {
    let recorder = Recorder::start(Day::new(TODAY))?;
    let (mut client, mut transport) = client(&recorder, "plan").await?;
    let task = upload_task(&mut client, "plan")?;
    let wait = Duration::from_millis(1234);
    recorder.plan([
        Answer::Status(UploadStatus::Expired, "too old"),
        Answer::Error(Code::ResourceExhausted, Some(wait)),
        Answer::Error(Code::Unavailable, None),
        Answer::Duplicate,
    ]);
    recorder.plan([Answer::Accept]);
    let expected = [
        UploadOutcome::Refused { message: "too old".to_owned() },
        UploadOutcome::Unanswered { retry_after: Some(wait) },
        UploadOutcome::Unanswered { retry_after: None },
        UploadOutcome::Duplicate,
        UploadOutcome::Accepted,
        // No script is left, and the id was accepted.
        UploadOutcome::Duplicate,
    ];
    for expected in expected {
        assert_eq!(transport.upload(&task).await, expected);
    }
    Ok(())
}

#[tokio::test]
async fn a_call_hangs_until_the_recorder_is_gone() -> anyhow::Result<()> {
    let recorder = Recorder::start(Day::new(TODAY))?;
    let (mut client, mut transport) = client(&recorder, "hang").await?;
    let task = upload_task(&mut client, "hang")?;
    recorder.plan([Answer::Hang]);
    let gone = async {
        recorder.arrived(1).await;
        drop(recorder);
    };
    let (outcome, ()) = tokio::join!(transport.upload(&task), gone);
    assert_eq!(outcome, UploadOutcome::Unanswered { retry_after: None });
    // The listener is closed too.
    assert_eq!(transport.upload(&task).await, UploadOutcome::Unanswered { retry_after: None });
    Ok(())
}

#[tokio::test]
async fn it_serves_several_experiments_and_what_changes_in_them() -> anyhow::Result<()> {
    let recorder = Recorder::start(Day::new(TODAY))?;
    let (first, mut transport) = client(&recorder, "first").await?;
    let (second, _) = client(&recorder, "second").await?;
    assert_eq!(first.statistics().fetches_failed + second.statistics().fetches_failed, 0);

    recorder.set_day(Day::new(TODAY + 1));
    let (specification, policy) = experiment("first")?;
    recorder.serve(&specification, &Policy { version: 8, ..policy });
    let experiment_id = specification.experiment_id().clone();
    let task = bandana_client::FetchTask::new(experiment_id);
    let fetched = transport.fetch(&task).await?;
    assert_eq!((fetched.specification, fetched.policy.version), (specification, 8));
    assert_eq!(fetched.day, Day::new(TODAY + 1));
    Ok(())
}

#[tokio::test]
async fn with_tls_it_serves_those_who_trust_it() -> anyhow::Result<()> {
    let recorder = Recorder::start_with_tls(Day::new(TODAY))?;
    let (mut client, mut transport) = client(&recorder, "tls").await?;
    upload_task(&mut client, "tls")?;
    let now = clock().after(Duration::from_mins(2));
    let Task::Upload(task) = client.next_task(now)? else {
        anyhow::bail!("a task whose result was never told is handed out again");
    };
    assert_eq!(transport.upload(&task).await, UploadOutcome::Accepted);

    let plain = recorder.url().replace("https", "http");
    let mut stranger = Transport::new(Channel::from_shared(plain)?.connect_lazy());
    assert_eq!(stranger.upload(&task).await, UploadOutcome::Unanswered { retry_after: None });
    let another = Recorder::start_with_tls(Day::new(TODAY))?;
    let trusted = another.certificate().map(tonic::transport::Certificate::from_pem);
    let trust = tonic::transport::ClientTlsConfig::new().ca_certificates(trusted);
    let deceived = Channel::from_shared(recorder.url())?.tls_config(trust)?.connect_lazy();
    let outcome = Transport::new(deceived).upload(&task).await;
    assert_eq!(outcome, UploadOutcome::Unanswered { retry_after: None });
    assert_eq!(recorder.uploads().len(), 1);
    Ok(())
}
