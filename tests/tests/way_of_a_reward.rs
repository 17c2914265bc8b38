//! From a reward on a device to a better choice for the next user.

use bandana_client::grpc::{Transport, run_until};
use bandana_client::{
    Acceptance, Client, ClientError, Refusal, Reward, SimulatedClient, Timestamp,
};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::rewards::Rewards;
use bandana_shared::wire::v1::{
    ExperimentName, GetExperimentRequest, SelectArmRequest, Specification,
};
use bandana_tests::harness::{Aggregator, three_arms};
use tonic::Code;
use tonic::transport::Channel;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Simulated devices need no real time.
fn clock() -> Timestamp {
    Timestamp::from_unix_ms(0)
}

async fn connect(aggregator: &Aggregator) -> anyhow::Result<Transport> {
    let url = aggregator.process.device_url.clone();
    Ok(Transport::new(Channel::from_shared(url)?.connect().await?))
}

fn acceptance(epsilon: f64) -> anyhow::Result<Acceptance> {
    Ok(Acceptance::new(Epsilon::new(epsilon)?, Rewards::binary()))
}

#[tokio::test]
async fn the_server_learns_the_arm_that_users_like() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let message = Specification { simulation: true, epsilon: 4.0, ..three_arms("learns") };
    let experiment = aggregator.create(message).await?;
    let id = experiment.experiment_id().clone();
    let mut transport = connect(&aggregator).await?;
    let mut given_green_at_the_end = 0;
    for user in 0..400 {
        let mut client = SimulatedClient::seeded(5, user);
        client.enroll(id.clone(), acceptance(4.0)?);
        run_until(&mut client, &mut transport, &clock, clock()).await?;
        let assignment = client.choose(&id, clock())?;
        let likes = assignment.label() == "green";
        let reward = Reward::new(f64::from(u8::from(likes)))?;
        client.reward(assignment.id(), reward, clock())?;
        run_until(&mut client, &mut transport, &clock, clock()).await?;
        let statistics = client.statistics();
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
    // The others were given too rarely for a verdict at this level.
    assert_eq!(estimates.best_arm, None);
    let green = &estimates.arms[1];
    assert!(green.low <= 1.0 && green.high >= 1.0 && green.weight > 0.9, "{green:?}");
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_device_is_told_only_what_is_new() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("news")).await?;
    let request = |known_digest: &[u8], known_policy_version| GetExperimentRequest {
        experiment_id: "news".to_owned(),
        known_digest: known_digest.to_vec().into(),
        known_policy_version,
    };
    let all = aggregator.device.get_experiment(request(&[], 0)).await?.into_inner();
    let (sent, policy) = (all.experiment.unwrap_or_default(), all.policy.unwrap_or_default());
    assert_eq!(sent.digest, experiment.digest().as_bytes()[..]);
    assert_eq!(policy.weights.iter().sum::<u64>(), 1 << 32);

    let same = aggregator.device.get_experiment(request(&sent.digest, policy.version)).await?;
    let same = same.into_inner();
    assert!(same.experiment.is_none() && same.policy.is_none() && same.server_day > 0);
    let older = aggregator.device.get_experiment(request(&sent.digest, 1)).await?.into_inner();
    assert!(older.experiment.is_none() && older.policy.is_some());

    let unknown = GetExperimentRequest { experiment_id: "nobody".to_owned(), ..Default::default() };
    let error = aggregator.device.get_experiment(unknown).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let malformed = GetExperimentRequest { experiment_id: "No!".to_owned(), ..Default::default() };
    let error = aggregator.device.get_experiment(malformed).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    aggregator.process.stop().await
}

#[tokio::test]
async fn the_server_draws_arms_for_callers_without_a_policy() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("draws")).await?;
    let request = || SelectArmRequest { experiment_id: "draws".to_owned() };
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
    let mut client = Client::new();
    client.enroll(id.clone(), acceptance(0.5)?);
    let refused = run_until(&mut client, &mut transport, &clock, clock()).await.unwrap_err();
    let refusal = match refused {
        bandana_client::grpc::TransportError::Client(ClientError::Refused(refusal)) => refusal,
        other => anyhow::bail!("{other}"),
    };
    assert_eq!(refusal, Refusal::Epsilon { offered: 1.0, accepted: 0.5 });
    assert!(matches!(client.choose(&id, clock()), Err(ClientError::NoPolicy { .. })));
    // Noise that can be repeated is for simulated experiments only.
    let mut simulated = SimulatedClient::seeded(1, 1);
    simulated.enroll(id.clone(), acceptance(1.0)?);
    assert!(run_until(&mut simulated, &mut transport, &clock, clock()).await.is_err());
    assert!(simulated.choose(&id, clock()).is_err());
    // Within what the app accepts, the same experiment is fine.
    client.enroll(id.clone(), acceptance(1.0)?);
    run_until(&mut client, &mut transport, &clock, clock()).await?;
    client.choose(&id, clock())?;
    run_until(&mut client, &mut transport, &clock, clock()).await?;
    assert_eq!(client.statistics().uploads_accepted, 1);
    aggregator.process.stop().await
}
