//! Experiments with a trusted curator, from the client to the store of a real server.

use bandana_client::grpc::Transport;
use bandana_client::trusted::{Agreement, DisclosedReward, TrustedError, TrustedExperiment};
use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::trusted_client::TrustedClient;
use bandana_shared::wire::v1::trusted_operator_client::TrustedOperatorClient;
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    AdacGope, AdacOful, AdacUcb, DiscloseRequest, ReleasedStatistics, TrustedExperimentName,
    TrustedSpecification, Vector, disclose_request,
};
use bandana_tests::harness::Aggregator;
use tonic::Code;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

fn specification(id: &str, algorithm: Algorithm) -> TrustedSpecification {
    TrustedSpecification {
        experiment_id: id.to_owned(),
        rewards_are_disclosed: true,
        rho: 0.5,
        algorithm: Some(algorithm),
    }
}

fn ucb(arms: u32) -> Algorithm {
    Algorithm::AdacUcb(AdacUcb { arms, beta: 1.0 })
}

async fn create(server: &Aggregator, message: TrustedSpecification) -> Result<(), tonic::Status> {
    let url = server.process.operator_url.clone();
    let connected = TrustedOperatorClient::connect(url).await;
    let mut operator = connected.map_err(|error| tonic::Status::unknown(error.to_string()))?;
    operator.create_trusted_experiment(message).await.map(drop)
}

async fn released(server: &Aggregator, id: &str) -> anyhow::Result<ReleasedStatistics> {
    let mut operator = TrustedOperatorClient::connect(server.process.operator_url.clone()).await?;
    let name = TrustedExperimentName { experiment_id: id.to_owned() };
    Ok(operator.get_released(name).await?.into_inner())
}

async fn open(server: &Aggregator, id: &str, rho: f64) -> Result<TrustedExperiment, TrustedError> {
    let agreement = Agreement::users_disclose_rewards(Rho::new(rho).unwrap_or(Rho::ZERO));
    let transport = Transport::to(&server.process.device_url).map_err(|_| TrustedError::Reward)?;
    let id = ExperimentId::new(id).map_err(|_| TrustedError::Reward)?;
    TrustedExperiment::open(transport, id, agreement).await
}

/// Plays what is recommended, `rounds` times; arm 1 pays.
async fn play(experiment: &TrustedExperiment, rounds: u32) -> anyhow::Result<()> {
    for _ in 0..rounds {
        let arm = experiment.recommend().await?;
        let reward = DisclosedReward::new(f64::from(u8::from(arm == 1)))?;
        let disclosure = experiment.disclosure(arm, reward)?;
        experiment.disclose(&disclosure).await?;
        experiment.disclose(&disclosure).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_episode_goes_on_after_the_server_was_killed_in_its_middle() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    assert!(!server.data_dir().join("trusted.sqlite3").exists());
    create(&server, specification("headlines", ucb(3))).await?;
    let experiment = open(&server, "headlines", 0.5).await?;
    assert!((experiment.rho().get() - 0.5).abs() < 1e-12);
    let at_first = released(&server, "headlines").await?;
    assert!(at_first.means.len() == 3 && at_first.means.iter().all(|mean| mean.mean.is_none()));
    play(&experiment, 70).await?;
    let (before, arm) = (released(&server, "headlines").await?, experiment.recommend().await?);
    // Sent twice each, counted once.
    assert_eq!(before.rewards, 70);

    let server = server.kill_and_restart().await?;
    let experiment = open(&server, "headlines", 0.5).await?;
    assert_eq!(released(&server, "headlines").await?, before);
    assert_eq!(experiment.recommend().await?, arm);
    // A user may play another arm than the one recommended.
    let other = experiment.disclosure((arm + 1) % 3, DisclosedReward::new(0.5)?)?;
    experiment.disclose(&other).await?;
    let server = server.kill_and_restart().await?;
    let experiment = open(&server, "headlines", 0.5).await?;
    experiment.disclose(&other).await?;
    assert_eq!(released(&server, "headlines").await?.rewards, 71);
    play(&experiment, 200).await?;
    let after = released(&server, "headlines").await?;
    assert_eq!(after.rewards, 271);
    assert!(after.means.iter().all(|mean| mean.mean.is_some() && mean.noise_deviation > 0.0));
    server.process.stop().await
}

#[tokio::test]
async fn linear_experiments_are_served() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let vectors = [[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]].map(|vector| vector.to_vec());
    let actions = vectors.clone().map(|coordinates| Vector { coordinates }).to_vec();
    let gope = Algorithm::AdacGope(AdacGope { actions, delta: 0.01 });
    create(&server, specification("fixed", gope)).await?;
    let oful = Algorithm::AdacOful(AdacOful { dimension: 2 });
    create(&server, specification("changing", oful)).await?;

    let fixed = open(&server, "fixed", 1.0).await?;
    play(&fixed, 5).await?;
    let changing = open(&server, "changing", 1.0).await?;
    assert!(changing.has_contexts() && !fixed.has_contexts());
    for _ in 0..10 {
        let best = usize::try_from(changing.recommend_among(&vectors).await?)?;
        let reward = DisclosedReward::new(-0.5)?;
        let disclosure = changing.disclosure_of(vectors[best].clone(), reward)?;
        changing.disclose(&disclosure).await?;
    }
    let server = server.kill_and_restart().await?;
    assert_eq!(released(&server, "fixed").await?.rewards, 5);
    let after = released(&server, "changing").await?;
    assert_eq!(
        (after.rewards, after.parameter.map(|vector| vector.coordinates.len())),
        (10, Some(2))
    );
    server.process.stop().await
}

#[tokio::test]
async fn what_is_not_agreed_or_wrong_is_refused_and_changes_nothing() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let good = specification("headlines", ucb(2));
    for (bad, word) in [
        (TrustedSpecification { rewards_are_disclosed: false, ..good.clone() }, "must be true"),
        (TrustedSpecification { rho: 0.0, ..good.clone() }, "rho is 0"),
        (TrustedSpecification { rho: f64::NAN, ..good.clone() }, "rho is NaN"),
        (TrustedSpecification { algorithm: None, ..good.clone() }, "algorithm"),
        (specification("headlines", ucb(1)), "1 arms"),
        (specification("headlines", Algorithm::AdacOful(AdacOful { dimension: 0 })), "dimension"),
    ] {
        let refused = create(&server, bad).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(word), "{refused}");
    }
    create(&server, good.clone()).await?;
    assert_eq!(create(&server, good).await.unwrap_err().code(), Code::AlreadyExists);

    // The app agreed to less.
    let refused = open(&server, "headlines", 0.1).await.unwrap_err();
    assert!(matches!(refused, TrustedError::Beyond { .. }), "{refused}");
    let experiment = open(&server, "headlines", 0.5).await?;
    for (arm, reward) in [(2, 0.5), (0, 1.5)] {
        let disclosure = experiment.disclosure(arm, DisclosedReward::new(reward)?)?;
        let refused = experiment.disclose(&disclosure).await.unwrap_err();
        let TrustedError::Call(status) = refused else { panic!("{refused}") };
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(!status.message().contains("1.5"), "{status}");
    }
    let mut device = TrustedClient::connect(server.process.device_url.clone()).await?;
    let nameless = DiscloseRequest {
        experiment_id: "headlines".to_owned(),
        disclosure_id: vec![1; 15].into(),
        played: Some(disclose_request::Played::Arm(0)),
        reward: 1.0,
    };
    let refused = device.disclose(nameless).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(released(&server, "headlines").await?.rewards, 0);
    // The operators' calls are not on the devices' port.
    let mut operator = TrustedOperatorClient::connect(server.process.device_url.clone()).await?;
    let name = TrustedExperimentName { experiment_id: "headlines".to_owned() };
    assert_eq!(operator.get_released(name).await.unwrap_err().code(), Code::Unimplemented);
    server.process.stop().await
}
