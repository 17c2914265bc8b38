//! Operators create experiments, change their arms, and list and watch them.

use bandana_shared::wire::v1::specification::Mechanism;
use bandana_shared::wire::v1::{
    self, AddArmRequest, CreateExperimentRequest, Estimand, EstimatesRequest, ExperimentName,
    ExperimentState, ListExperimentsRequest, RetireArmRequest, UploadStatus,
};
use bandana_tests::harness::{Aggregator, estimates_request, three_arms, upload};
use tokio_stream::StreamExt as _;
use tonic::Code;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

fn creation(specification: v1::Specification) -> CreateExperimentRequest {
    CreateExperimentRequest {
        specification: Some(specification),
        learner: v1::Learner::LdpTs.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn bad_experiments_are_refused_with_a_reason() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let good = || creation(three_arms("good"));
    let with = |change: fn(&mut v1::Specification)| {
        let mut request = good();
        request.specification.iter_mut().for_each(change);
        request
    };
    let bounded = |mechanism| {
        let mut request = good();
        if let Some(specification) = &mut request.specification {
            specification.reward_kind = v1::RewardKind::Bounded.into();
            specification.mechanism = Some(mechanism);
        }
        request
    };
    let cases = [
        (CreateExperimentRequest { specification: None, ..good() }, "`specification`"),
        (CreateExperimentRequest { learner: 0, ..good() }, "`learner`"),
        (CreateExperimentRequest { floor_weight: 0.5, ..good() }, "floor weight"),
        (CreateExperimentRequest { floor_weight: f64::NAN, ..good() }, "floor weight"),
        (with(|s| s.experiment_id = "Bad Id".to_owned()), "Bad Id"),
        (with(|s| s.epsilon = 0.0), "epsilon is 0"),
        (with(|s| s.epsilon = f64::INFINITY), "epsilon is inf"),
        (with(|s| s.floor = 1), "floor 0"),
        (with(|s| s.revision = 2), "revision"),
        (with(|s| s.mechanism = None), "`mechanism`"),
        (with(|s| s.reward_kind = 0), "`reward_kind`"),
        (with(|s| s.out_of_range = 0), "`out_of_range`"),
        (with(|s| s.reward_high = -1.0), "range 0 to -1"),
        (with(|s| s.default_reward = 0.5), "default reward 0.5"),
        (with(|s| s.arms.clear()), "1 to 1024 arms"),
        (with(|s| s.arms[1].label = "red".to_owned()), "two arms are labelled"),
        (with(|s| s.arms[1].label = String::new()), "label"),
        (with(|s| s.arms.iter_mut().for_each(|arm| arm.retired = true)), "every arm is retired"),
        (with(|s| s.attribution_window_seconds = u32::MAX), "attribution window"),
        (with(|s| s.attribution_window_seconds = 0), "real users take time"),
        (
            bounded(Mechanism::RandomizedResponse(v1::RandomizedResponse { symbols: 0 })),
            "binary rewards",
        ),
        (bounded(Mechanism::Exponential(v1::Exponential {})), "accept_nonlinear_estimand"),
        (bounded(Mechanism::Quadratic(v1::Quadratic { curvature: 1 })), "accept_nonlinear"),
        (bounded(Mechanism::Quadratic(v1::Quadratic { curvature: 1 << 21 })), "curvature"),
    ];
    for (request, part) in cases {
        let error = aggregator.operator.create_experiment(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{part}: {error}");
        assert!(error.message().contains(part), "{part}: {}", error.message());
    }
    let listed = aggregator.operator.list_experiments(ListExperimentsRequest::default()).await?;
    assert!(listed.into_inner().experiments.is_empty());

    aggregator.operator.create_experiment(good()).await?;
    let error = aggregator.operator.create_experiment(good()).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    let unknown = ExperimentName { experiment_id: "nobody".to_owned() };
    let error = aggregator.operator.pause_experiment(unknown).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_nonlinear_curve_is_labelled_with_what_it_estimates() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let mut request = creation(v1::Specification {
        reward_kind: v1::RewardKind::Bounded.into(),
        reward_low: -5.0,
        reward_high: 5.0,
        mechanism: Some(Mechanism::Exponential(v1::Exponential {})),
        ..three_arms("curved")
    });
    request.accept_nonlinear_estimand = true;
    aggregator.operator.create_experiment(request).await?;
    let linear = v1::Specification {
        reward_kind: v1::RewardKind::Bounded.into(),
        reward_low: -5.0,
        reward_high: 5.0,
        ..three_arms("linear")
    };
    aggregator.operator.create_experiment(creation(linear)).await?;
    for (experiment_id, estimand, low, high) in [
        ("curved", Estimand::MeanCurvedReward, 0.0, 1.0),
        ("linear", Estimand::MeanReward, -5.0, 5.0),
    ] {
        let experiment_id = experiment_id.to_owned();
        let request = EstimatesRequest {
            experiment_id,
            alpha: 0.01,
            dishonest_share: 0.02,
            ..Default::default()
        };
        let estimates = aggregator.operator.get_estimates(request).await?.into_inner();
        assert_eq!(estimates.estimand(), estimand);
        let arm = &estimates.arms[0];
        assert_eq!((arm.low, arm.high, arm.estimate), (low, high, None));
        // 1/tanh(1/2) per unit of the range, and 2% of it.
        let gain = (high - low) / 0.5_f64.tanh();
        assert!((estimates.manipulation_gain - gain).abs() < 1e-9);
        assert!((arm.manipulation_shift - 0.02 * gain).abs() < 1e-9);
        assert!((estimates.alpha - 0.01).abs() < f64::EPSILON);
    }
    aggregator.process.stop().await
}

#[tokio::test]
async fn arms_come_and_go_and_old_reports_still_count() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let first = aggregator.create(three_arms("arms")).await?;
    let day = aggregator.day(&first).await?;
    let experiment_id = || "arms".to_owned();
    let add = AddArmRequest { experiment_id: experiment_id(), label: "black".to_owned() };
    let added = aggregator.operator.add_arm(add.clone()).await?.into_inner();
    let retire = |arm| RetireArmRequest { experiment_id: experiment_id(), arm };
    let retired = aggregator.operator.retire_arm(retire(0)).await?.into_inner();
    assert_eq!(added.specification.as_ref().map(|s| (s.revision, s.arms.len())), Some((2, 4)));
    assert_eq!(retired.specification.as_ref().map(|s| (s.revision, s.arms.len())), Some((3, 4)));
    assert_ne!(added.digest, retired.digest);

    let error = aggregator.operator.add_arm(add).await.unwrap_err();
    assert!(error.message().contains("labelled"), "{}", error.message());
    let error = aggregator.operator.retire_arm(retire(4)).await.unwrap_err();
    assert!(error.message().contains("there is no arm 4"), "{}", error.message());

    // A device with the first revision still reports for the retired arm, but not for an arm that
    // its revision lacks.
    let aggregator = &mut aggregator.stop_and_restart().await?;
    let old = upload(1, &first, day, &[(0, true), (2, true)])?;
    let answer = aggregator.device.submit_upload(old).await?.into_inner();
    assert_eq!(answer.status(), UploadStatus::Accepted, "{}", answer.message);
    let impossible = upload(2, &first, day, &[(3, true)])?;
    let answer = aggregator.device.submit_upload(impossible).await?.into_inner();
    assert_eq!(answer.status(), UploadStatus::UnknownArm);

    aggregator.operator.refresh_policy(ExperimentName { experiment_id: experiment_id() }).await?;
    let estimates = aggregator.estimates(&first).await?;
    let arms: Vec<_> = estimates.arms.iter().map(|a| (a.reports, a.retired)).collect();
    assert_eq!(arms, [(1, true), (0, false), (1, false), (0, false)]);
    assert_eq!(estimates.arms[0].weight.to_bits(), 0.0_f64.to_bits());
    let shares: f64 = estimates.arms.iter().map(|arm| arm.weight).sum();
    assert!((shares - 1.0).abs() < 1e-9);

    let again = aggregator.operator.retire_arm(retire(0)).await.unwrap_err();
    assert!(again.message().contains("retired already"), "{}", again.message());
    for arm in [1, 2] {
        aggregator.operator.retire_arm(retire(arm)).await?;
    }
    let error = aggregator.operator.retire_arm(retire(3)).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("at least one must be in play"), "{}", error.message());
    Ok(())
}

#[tokio::test]
async fn states_and_reports_are_listed() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let b = aggregator.create(three_arms("b")).await?;
    aggregator.create(three_arms("a")).await?;
    let day = aggregator.day(&b).await?;
    let request = upload(1, &b, day, &[(0, true), (1, false)])?;
    aggregator.device.submit_upload(request).await?;
    let name = ExperimentName { experiment_id: "a".to_owned() };
    aggregator.operator.pause_experiment(name).await?;
    let listed = aggregator.operator.list_experiments(ListExperimentsRequest::default()).await?;
    let listed: Vec<_> = listed
        .into_inner()
        .experiments
        .into_iter()
        .map(|e| (e.specification.clone().unwrap_or_default().experiment_id, e.state(), e.reports))
        .collect();
    let expected = [
        ("a".to_owned(), ExperimentState::Paused, 0),
        ("b".to_owned(), ExperimentState::Running, 2),
    ];
    assert_eq!(listed, expected);
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_watch_shows_every_new_policy() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("watched")).await?;
    let day = aggregator.day(&experiment).await?;
    let watch = estimates_request(&experiment);
    let mut estimates = aggregator.operator.watch_estimates(watch).await?.into_inner();
    let first = estimates.next().await.transpose()?.unwrap_or_default();
    assert_eq!(first.reports, 0);
    let request = upload(1, &experiment, day, &[(2, true)])?;
    aggregator.device.submit_upload(request).await?;
    // The refresh comes without a request.
    let second = estimates.next().await.transpose()?.unwrap_or_default();
    assert_eq!(second.reports, 1);
    assert_ne!(second.policy_version, first.policy_version);
    assert!(second.arms[2].weight > first.arms[2].weight);
    aggregator.process.stop().await
}
