//! Private contexts, from devices that never tell them to scores by which others choose.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::{Transport, run_until};
use bandana_client::{
    Acceptance, Clock as _, FetchTask, Fetched, Reward, SimulatedClient, SystemClock, Timestamp,
    Unreported,
};
use bandana_shared::identity::Day;
use bandana_shared::policy::Policy;
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{
    self, AddArmRequest, CreateExperimentRequest, ExperimentName, GetExperimentRequest, Learner,
    SelectArmRequest,
};
use bandana_tests::harness::{Aggregator, three_arms};
use tonic::Code;
use tonic::transport::Channel;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// A constant time on the server's day: everything due happens at once.
fn clock() -> Timestamp {
    static STOPPED: OnceLock<Timestamp> = OnceLock::new();
    *STOPPED.get_or_init(|| SystemClock.now())
}

/// Three arms and two features, for simulated users of whom more than half explore.
fn wanted(id: &str) -> v1::Specification {
    let feature = |(name, true_millionths): (&str, u32)| v1::PrivateFeature {
        name: name.to_owned(),
        true_millionths,
    };
    v1::Specification {
        simulation: true,
        epsilon: 4.0,
        attribution_window_seconds: 0,
        private_context: Some(v1::PrivateContext {
            features: [("weekend", 250_000), ("returning", 500_000)].map(feature).to_vec(),
            exploration_millionths: 600_000,
        }),
        ..three_arms(id)
    }
}

fn request(specification: v1::Specification) -> CreateExperimentRequest {
    CreateExperimentRequest {
        specification: Some(specification),
        learner: Learner::Uniform.into(),
        ..CreateExperimentRequest::default()
    }
}

async fn create(aggregator: &mut Aggregator, id: &str) -> anyhow::Result<Specification> {
    let made = aggregator.operator.create_experiment(request(wanted(id))).await?.into_inner();
    Ok(Specification::try_from(made.specification.as_ref().context("no specification")?)?)
}

/// On weekends the first arm is best, otherwise the second. The other feature does not matter.
fn likes([is_weekend, _]: [bool; 2]) -> [f64; 3] {
    if is_weekend { [0.9, 0.1, 0.4] } else { [0.1, 0.9, 0.4] }
}

fn best(context: [bool; 2]) -> usize {
    usize::from(!context[0])
}

/// What came of the users: those who explored, and those who did not and got the best arm or another.
#[derive(Debug, Default)]
struct Outcome {
    explored: u64,
    best: u64,
    others: u64,
}

/// Simulated users choose by contexts, react and report, each with a client of its own.
async fn simulate(
    aggregator: &mut Aggregator,
    experiment: &Specification,
    users: std::ops::Range<u64>,
) -> anyhow::Result<Outcome> {
    let id = experiment.experiment_id().clone();
    let url = aggregator.process.device_url.clone();
    let mut transport = Transport::new(Channel::from_shared(url)?.connect().await?);
    let soon = clock().after(Duration::from_mins(1));
    let terms = Acceptance::unsigned(experiment.epsilon(), Rewards::binary())
        .private_context(["weekend", "returning"]);
    let mut outcome = Outcome::default();
    for user in users {
        let mut client = SimulatedClient::seeded(11, user);
        client.enroll(id.clone(), terms.clone());
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon).await?;
        let mut client = client.into_inner()?;
        let context = [user % 4 == 0, user / 4 % 2 == 0];
        let assignment = client.draw_in_context(&id, &context, clock())?;
        let arm = assignment.arm().get();
        let explores = assignment.unreported().is_none();
        // A number of each user that says nothing about the context.
        let place = (user / 8 % 50) as f64 / 50.0;
        let reward = Reward::new(f64::from(u8::from(place < likes(context)[arm])))?;
        if explores {
            client.reward(assignment.id(), reward, clock())?;
            outcome.explored += 1;
        } else {
            ensure!(assignment.unreported() == Some(Unreported::NotExploring), "user {user}");
            *(if arm == best(context) { &mut outcome.best } else { &mut outcome.others }) += 1;
        }
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon).await?;
        let uploads = client.into_inner()?.statistics().uploads_accepted;
        ensure!(uploads == u64::from(explores), "user {user} made {uploads} uploads");
    }
    let name = ExperimentName { experiment_id: id.to_string() };
    aggregator.operator.refresh_policy(name).await?;
    Ok(outcome)
}

async fn policy(aggregator: &mut Aggregator, id: &str) -> anyhow::Result<Policy> {
    let id = GetExperimentRequest { experiment_id: id.to_owned() };
    let answer = aggregator.device.get_experiment(id).await?.into_inner();
    Ok(Policy::try_from(&answer.policy.context("no policy")?)?)
}

const CONTEXTS: [[bool; 2]; 4] = [[false, false], [true, false], [false, true], [true, true]];

#[tokio::test]
async fn arms_are_learnt_by_contexts_that_nobody_tells() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = create(&mut aggregator, "private").await?;
    let private = experiment.private_context().context("no context")?.clone();
    let learning = simulate(&mut aggregator, &experiment, 0..2400).await?;
    // A server counts what explored, and nothing else.
    let found = aggregator.estimates(&experiment).await?;
    assert_eq!(found.reports, learning.explored);
    // Six of ten users, within five standard deviations.
    assert!((1320..=1560).contains(&learning.explored), "{learning:?}");

    let then = simulate(&mut aggregator, &experiment, 2400..2600).await?;
    assert!(then.others == 0 && then.best > 40, "{then:?}");
    let served = policy(&mut aggregator, "private").await?;
    for context in CONTEXTS {
        let arms = private.best_arms(&served.weights, &[true; 3], &context);
        assert_eq!(arms, [best(context)], "{context:?}");
    }
    // Every interval holds what is true, the arms' those of the users who explore: of whom a quarter is
    // there on a weekend. With moments m and means u of the features they are m_h = u_h m_0 + theta_h
    // (1 - u_h^2).
    let found = aggregator.estimates(&experiment).await?;
    let truth = [0.25 * 0.9 + 0.75 * 0.1, 0.25 * 0.1 + 0.75 * 0.9, 0.4];
    for (arm, truth) in found.arms.iter().zip(truth) {
        assert!(arm.low <= truth && truth <= arm.high, "{arm:?}");
    }
    let names: Vec<&str> = found.features.iter().map(|one| one.feature.as_str()).collect();
    assert_eq!(names, ["weekend", "returning"]);
    let [weekend, returning] = &found.features[..] else { anyhow::bail!("{names:?}") };
    for (score, mean) in weekend.scores.iter().zip(truth) {
        let theta = [0.8, -0.8, 0.0][usize::try_from(score.arm)?];
        let moment = -0.5 * (2.0 * mean - 1.0) + 0.75 * theta;
        assert!(score.low <= moment && moment <= score.high, "{score:?}");
    }
    assert!(weekend.scores[0].score > 0.4 && weekend.scores[1].score < -0.4, "{weekend:?}");
    assert!(returning.scores.iter().all(|score| score.score.abs() < 0.2), "{returning:?}");
    let reports: u64 = found.arms.iter().map(|arm| arm.reports).sum();
    let of_features = found.features.iter().flat_map(|one| &one.scores).map(|one| one.reports);
    assert_eq!(reports + of_features.sum::<u64>(), found.reports);
    Ok(())
}

#[tokio::test]
async fn scores_outlive_a_restart_and_follow_an_added_and_a_retired_arm() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = create(&mut aggregator, "arms").await?;
    let private = experiment.private_context().context("no context")?.clone();
    simulate(&mut aggregator, &experiment, 0..2400).await?;
    let before = policy(&mut aggregator, "arms").await?;
    let mut aggregator = aggregator.kill_and_restart().await?;
    let after = policy(&mut aggregator, "arms").await?;
    assert_eq!(after.weights, before.weights);

    let request = AddArmRequest { experiment_id: "arms".to_owned(), label: "later".to_owned() };
    aggregator.operator.add_arm(request).await?;
    let more = policy(&mut aggregator, "arms").await?;
    assert_eq!((more.weights.len(), more.weights.segments()), (4, 3));
    // Nothing is known of it: it is explored like the others, and not chosen.
    assert_eq!(more.weights.get(3), 1 << 30);
    for context in CONTEXTS {
        assert_eq!(private.best_arms(&more.weights, &[true; 4], &context), [best(context)]);
    }
    let request = v1::RetireArmRequest { experiment_id: "arms".to_owned(), arm: 0 };
    aggregator.operator.retire_arm(request).await?;
    let fewer = policy(&mut aggregator, "arms").await?;
    assert_eq!(fewer.weights.get(0), 0);
    Ok(())
}

#[tokio::test]
async fn a_server_refuses_what_a_private_context_does_not_go_with() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = create(&mut aggregator, "kept").await?;
    // A caller who draws on the server would have to tell its context.
    let request_arm =
        SelectArmRequest { experiment_id: "kept".to_owned(), segment_values: Vec::new() };
    let refused = aggregator.device.select_arm(request_arm).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("the server can't choose arms"), "{}", refused.message());

    let sticky = v1::Sticky { until_weight_below: 0, report_days: 0 };
    let segmentation = v1::Segmentation {
        name: "platform".to_owned(),
        values: vec!["ios".to_owned(), "android".to_owned()],
    };
    let context = wanted("x").private_context.unwrap_or_default();
    let none = v1::PrivateContext { exploration_millionths: 0, ..context.clone() };
    let all = v1::PrivateContext { exploration_millionths: 1_000_000, ..context };
    for (specification, complaint) in [
        (v1::Specification { sticky: Some(sticky), ..wanted("x") }, "sticky arms"),
        (v1::Specification { segmentations: vec![segmentation], ..wanted("x") }, "segments"),
        (v1::Specification { shuffle_batch: 100, ..wanted("x") }, "shuffled reports"),
        (v1::Specification { private_context: Some(none), ..wanted("x") }, "must be above 0"),
        (v1::Specification { private_context: Some(all), ..wanted("x") }, "and below 1"),
    ] {
        let refused = aggregator.operator.create_experiment(request(specification)).await;
        let refused = refused.map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(complaint), "{complaint}: {}", refused.message());
    }
    let earning =
        CreateExperimentRequest { learner: Learner::LdpTs.into(), ..request(wanted("x")) };
    let refused = aggregator.operator.create_experiment(earning).await.map(drop).unwrap_err();
    assert!(refused.message().contains("`uniform`"), "{}", refused.message());

    // An app that has agreed to nothing of the kind keeps its default.
    let mut client = SimulatedClient::seeded(1, 1);
    let id = experiment.experiment_id().clone();
    client.enroll(id.clone(), Acceptance::unsigned(experiment.epsilon(), Rewards::binary()));
    let question = GetExperimentRequest { experiment_id: id.to_string() };
    let answer = aggregator.device.get_experiment(question).await?.into_inner();
    let fetched = Fetched {
        specification: experiment,
        signatures: Vec::new(),
        policy: Policy::try_from(&answer.policy.context("no policy")?)?,
        day: Day::new(answer.server_day),
        store: None,
        view: None,
    };
    assert!(client.on_fetched(&FetchTask::new(id.clone()), fetched, clock()).is_err());
    assert!(client.draw_in_context(&id, &[true, true], clock()).is_err());
    let why = client.refusal(&id).context("no refusal")?.to_string();
    assert!(why.contains("private context") && why.contains("research"), "{why}");
    Ok(())
}
