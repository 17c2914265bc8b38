//! A reward on a device leads to a better choice for the next user.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use bandana_client::grpc::{Transport, TransportError, run_until};
use bandana_client::{
    Acceptance, Budget, Client, ClientError, Clock as _, Refusal, Reward, SimulatedClient,
    SystemClock, Timestamp,
};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::rewards::Rewards;
use bandana_shared::wire::v1::{
    ExperimentName, GetExperimentRequest, GetExperimentResponse, SelectArmRequest, Specification,
};
use bandana_tests::fake_server::MessageBytes;
use bandana_tests::harness::{Aggregator, three_arms};
use prost::Message as _;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// A constant time on the server's day: everything due happens at once.
fn clock() -> Timestamp {
    static STOPPED: OnceLock<Timestamp> = OnceLock::new();
    *STOPPED.get_or_init(|| SystemClock.now())
}

fn soon() -> Timestamp {
    clock().after(Duration::from_mins(1))
}

async fn channel(aggregator: &Aggregator) -> anyhow::Result<Channel> {
    Ok(Channel::from_shared(aggregator.process.device_url.clone())?.connect().await?)
}

async fn connect(aggregator: &Aggregator) -> anyhow::Result<Transport> {
    Ok(Transport::new(channel(aggregator).await?))
}

fn acceptance(epsilon: f64) -> anyhow::Result<Acceptance> {
    Ok(Acceptance::unsigned(Epsilon::new(epsilon)?, Rewards::binary())
        .least_release_delay(Duration::ZERO))
}

#[tokio::test]
async fn the_server_learns_the_arm_that_users_like() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let message = Specification {
        simulation: true,
        epsilon: 4.0,
        attribution_window_seconds: 0,
        ..three_arms("learns")
    };
    let experiment = aggregator.create(message).await?;
    let id = experiment.experiment_id().clone();
    let mut transport = connect(&aggregator).await?;
    let mut given_green_at_the_end = 0;
    for user in 0..400 {
        let mut client = SimulatedClient::seeded(5, user);
        client.enroll(id.clone(), acceptance(4.0)?);
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon()).await?;
        let mut client = client.into_inner()?;
        let assignment = client.draw(&id, clock())?;
        let likes = assignment.label() == "green";
        let reward = Reward::new(f64::from(u8::from(likes)))?;
        client.reward(assignment.id(), reward, clock())?;
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon()).await?;
        let statistics = client.into_inner()?.statistics();
        assert_eq!((statistics.uploads_accepted, statistics.uploads_refused), (1, 0));
        given_green_at_the_end += u64::from(likes && user >= 300);
        if user % 50 == 49 {
            let name = ExperimentName { experiment_id: id.to_string() };
            let refreshed = aggregator.operator.refresh_policy(name).await?.into_inner();
            assert_eq!(refreshed.reports, user + 1);
        }
    }
    assert!(given_green_at_the_end > 90, "{given_green_at_the_end} of the last 100");
    let estimates = aggregator.estimates(&experiment).await?;
    assert_eq!(estimates.reports, 400);
    // The bounds use the variance, which is small at this epsilon.
    assert_eq!(estimates.best_arm, Some(1));
    let green = &estimates.arms[1];
    assert!(green.low <= 1.0 && green.high >= 1.0 && green.weight > 0.9, "{green:?}");
    aggregator.process.stop().await
}

#[tokio::test]
async fn every_device_is_told_the_same() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("news")).await?;
    let request = || GetExperimentRequest { experiment_id: "news".to_owned() };
    let all = aggregator.device.get_experiment(request()).await?.into_inner();
    let (sent, policy) = (all.experiment.clone(), all.policy.clone().unwrap_or_default());
    assert_eq!(sent.unwrap_or_default().digest, experiment.digest().as_bytes()[..]);
    assert_eq!(policy.weights.iter().sum::<u64>(), 1 << 32);

    // An older device says what it holds, in fields 2 and 3, and hears the same.
    let mut older = request().encode_to_vec();
    older.extend([0x12, 16]);
    older.extend_from_slice(experiment.digest().as_bytes());
    older.push(0x18);
    prost::encoding::encode_varint(policy.version, &mut older);
    let mut raw = Grpc::new(channel(&aggregator).await?);
    raw.ready().await?;
    let method = PathAndQuery::from_static("/bandana.v1.Device/GetExperiment");
    let answer = raw.unary(Request::new(older.into()), method, MessageBytes).await?;
    assert_eq!(GetExperimentResponse::decode(answer.into_inner())?, all);

    let unknown = GetExperimentRequest { experiment_id: "nobody".to_owned() };
    let error = aggregator.device.get_experiment(unknown).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let malformed = GetExperimentRequest { experiment_id: "No!".to_owned() };
    let error = aggregator.device.get_experiment(malformed).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    aggregator.process.stop().await
}

#[tokio::test]
async fn the_server_draws_arms_for_callers_without_a_policy() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("draws")).await?;
    let request = || SelectArmRequest { experiment_id: "draws".to_owned(), ..Default::default() };
    let mut given = [0; 3];
    for _ in 0..300 {
        let answer = aggregator.device.select_arm(request()).await?.into_inner();
        assert_eq!(answer.digest, experiment.digest().as_bytes()[..]);
        given[answer.arm as usize] += 1;
    }
    // Binomial(300, 1/3) is below 40 with a probability below 1e-13.
    assert!(given.iter().all(|count| *count > 40), "{given:?}");
    let name = ExperimentName { experiment_id: "draws".to_owned() };
    aggregator.operator.stop_experiment(name).await?;
    let error = aggregator.device.select_arm(request()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    aggregator.process.stop().await
}

#[tokio::test]
async fn the_client_is_the_judge() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.create(three_arms("real")).await?;
    let id = ExperimentId::new("real")?;
    let mut transport = connect(&aggregator).await?;
    // The app accepts less privacy loss than the experiment asks for.
    let mut client = Client::new(Budget::UNLIMITED);
    client.enroll(id.clone(), acceptance(0.5)?);
    let client = Mutex::new(client);
    let refused = run_until(&client, &mut transport, &clock, soon()).await.unwrap_err();
    let TransportError::Client(ClientError::Refused(refusal)) = refused else {
        anyhow::bail!("{refused}");
    };
    assert_eq!(refusal, Refusal::Epsilon { offered: 1.0, accepted: 0.5 });
    let mut client = client.into_inner()?;
    assert!(matches!(client.draw(&id, clock()), Err(ClientError::NoPolicy { .. })));
    assert_eq!(client.statistics().answers_refused, 1);
    // Reproducible noise is for simulated experiments only.
    let mut simulated = SimulatedClient::seeded(1, 1);
    simulated.enroll(id.clone(), acceptance(1.0)?);
    let simulated = Mutex::new(simulated);
    assert!(run_until(&simulated, &mut transport, &clock, soon()).await.is_err());
    assert!(simulated.into_inner()?.draw(&id, clock()).is_err());
    // An unknown experiment is no network failure.
    let unknown = ExperimentId::new("unknown")?;
    let mut lost = Client::new(Budget::UNLIMITED);
    lost.enroll(unknown, acceptance(1.0)?);
    let answer = run_until(&Mutex::new(lost), &mut transport, &clock, soon()).await.unwrap_err();
    assert!(matches!(answer, TransportError::Status(s) if s.code() == Code::NotFound));
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_report_leaves_after_its_window_whatever_happens_in_between() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let message = Specification {
        attribution_window_seconds: 3600,
        release_delay_seconds_max: 600,
        ..three_arms("windows")
    };
    let experiment = aggregator.create(message).await?;
    let id = experiment.experiment_id().clone();
    let mut transport = connect(&aggregator).await?;
    let seconds = AtomicU64::new(clock().unix_ms() / 1000);
    let clock = || Timestamp::from_unix_ms(seconds.load(Ordering::SeqCst) * 1000);
    let mut client = Client::new(Budget::UNLIMITED);
    client.enroll(id.clone(), acceptance(1.0)?);
    let client = Mutex::new(client);
    let mut run = async || {
        run_until(&client, &mut transport, &clock, clock().after(Duration::from_secs(1))).await
    };
    run().await?;
    let assignment = client.lock().map_err(|e| anyhow::anyhow!("{e}"))?.draw(&id, clock())?;
    let sent = || client.lock().map(|client| client.statistics().uploads_accepted).ok();
    for (passed, expected) in [(0, 0), (1800, 0), (1799, 0), (602, 1), (100_000, 1)] {
        seconds.fetch_add(passed, Ordering::SeqCst);
        if passed == 1800 {
            let reward = Reward::new(1.0)?;
            let mut client = client.lock().map_err(|e| anyhow::anyhow!("{e}"))?;
            client.reward(assignment.id(), reward, clock())?;
        }
        run().await?;
        assert_eq!(sent(), Some(expected), "{passed} seconds later");
    }
    assert_eq!(aggregator.estimates(&experiment).await?.reports, 1);
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_server_that_never_answers_holds_nothing_up() -> anyhow::Result<()> {
    // A listener that accepts connections and sends nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let mut transport = Transport::new(Channel::from_shared(url)?.connect_lazy());
    let mut client = Client::new(Budget::UNLIMITED);
    client.enroll(ExperimentId::new("silent")?, acceptance(1.0)?);
    let client = Mutex::new(client);
    // The only real waiting time in these tests: the deadline itself.
    let start = tokio::time::Instant::now();
    let clock = || Timestamp::from_unix_ms(u64::try_from(start.elapsed().as_millis()).unwrap_or(0));
    run_until(&client, &mut transport, &clock, Timestamp::from_unix_ms(50)).await?;
    assert_eq!(client.into_inner()?.statistics().fetches_failed, 1);
    drop(listener);
    Ok(())
}
