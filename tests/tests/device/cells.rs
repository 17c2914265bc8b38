//! Segments and metrics, from devices that draw which one they report to estimates and policies.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::{Transport, run_until};
use bandana_client::{Acceptance, Clock as _, Reward, SimulatedClient, SystemClock, Timestamp};
use bandana_shared::cells::Metric;
use bandana_shared::identity::{CellIndex, UploadId};
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::specification::Specification;
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::v1::{
    self, ExperimentName, GetExperimentRequest, SelectArmRequest, UploadStatus,
};
use bandana_tests::harness::{Aggregator, three_arms};
use prost::Message as _;
use tonic::Code;
use tonic::transport::Channel;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// A constant time on the server's day: everything due happens at once.
fn clock() -> Timestamp {
    static STOPPED: OnceLock<Timestamp> = OnceLock::new();
    *STOPPED.get_or_init(|| SystemClock.now())
}

/// Three arms, two platforms, a guardrail and a number, for simulated users.
fn wanted(id: &str) -> anyhow::Result<v1::Specification> {
    let metrics = ["returned:0.3:at-most=0.5", "minutes:0.2:0..10"];
    let metrics = metrics.map(str::parse::<Metric>);
    Ok(v1::Specification {
        simulation: true,
        epsilon: 4.0,
        attribution_window_seconds: 0,
        segmentations: vec![v1::Segmentation {
            name: "platform".to_owned(),
            values: vec!["ios".to_owned(), "android".to_owned()],
        }],
        metrics: metrics
            .iter()
            .map(|metric| metric.as_ref().map(v1::Metric::from))
            .collect::<Result<_, _>>()
            .map_err(Clone::clone)?,
        ..three_arms(id)
    })
}

fn acceptance(experiment: &Specification) -> anyhow::Result<Acceptance> {
    Ok(Acceptance::unsigned(experiment.epsilon(), Rewards::binary())
        .metric("returned", Rewards::binary())
        .metric("minutes", Rewards::bounded(RewardRange::new(0.0, 10.0)?)))
}

/// A user's platform, and the probability of a reward for each arm: which arm without harm is the best
/// one differs. The one that does harm is as good, so that it has traffic until that is known.
const PLATFORMS: [(&str, [f64; 3]); 2] = [("ios", [0.2, 0.8, 0.8]), ("android", [0.8, 0.2, 0.8])];

/// Simulated users choose, react and report, each with a client of its own. On both platforms all
/// users of the third arm send things back, and none of the others.
async fn simulate(
    aggregator: &mut Aggregator,
    experiment: &Specification,
    users: u64,
) -> anyhow::Result<()> {
    let id = experiment.experiment_id().clone();
    let url = aggregator.process.device_url.clone();
    let mut transport = Transport::new(Channel::from_shared(url)?.connect().await?);
    let soon = clock().after(Duration::from_mins(1));
    for user in 0..users {
        let (platform, likes) = PLATFORMS[usize::try_from(user % 2)?];
        let mut client = SimulatedClient::seeded(9, user);
        client.enroll(id.clone(), acceptance(experiment)?.segment("platform", platform));
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon).await?;
        let mut client = client.into_inner()?;
        let assignment = client.draw(&id, clock())?;
        let arm = assignment.arm().get();
        // A number of each user that says nothing about the platform.
        let place = (user / 2 % 100) as f64 / 100.0;
        let reward = f64::from(u8::from(place < likes[arm]));
        client.reward(assignment.id(), Reward::new(reward)?, clock())?;
        let returned = f64::from(u8::from(arm == 2));
        client.measure(assignment.id(), "returned", Reward::new(returned)?, clock())?;
        client.measure(assignment.id(), "minutes", Reward::new(arm as f64 * 3.0)?, clock())?;
        client.measure(assignment.id(), "another", Reward::new(1e9)?, clock())?;
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon).await?;
        let statistics = client.into_inner()?.statistics();
        ensure!((statistics.uploads_accepted, statistics.rewards_refused) == (1, 0), "user {user}");
        if user % 50 == 49 {
            let name = ExperimentName { experiment_id: id.to_string() };
            aggregator.operator.refresh_policy(name).await?;
        }
    }
    Ok(())
}

/// The arms with the most traffic: for all installations and in each segment.
fn favourites(weights: &[u64]) -> Vec<usize> {
    let largest = |list: &[u64]| (0..list.len()).max_by_key(|arm| list[*arm]).unwrap_or_default();
    weights.chunks(3).map(largest).collect()
}

#[tokio::test]
async fn each_segment_learns_its_arm_and_harm_ends_an_arms_traffic() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(wanted("checkout")?).await?;
    simulate(&mut aggregator, &experiment, 1500).await?;
    let name = ExperimentName { experiment_id: "checkout".to_owned() };
    aggregator.operator.refresh_policy(name).await?;

    let found = aggregator.estimates(&experiment).await?;
    assert_eq!(found.reports, 1500);
    let of = |arms: &[v1::ArmEstimate]| arms.iter().map(|arm| arm.reports).sum::<u64>();
    let metrics: Vec<u64> = found.metrics.iter().map(|metric| of(&metric.arms)).collect();
    assert_eq!(of(&found.arms) + metrics.iter().sum::<u64>(), 1500);
    // Five standard deviations around 450 and 300.
    assert!((360..540).contains(&metrics[0]) && (220..380).contains(&metrics[1]), "{metrics:?}");
    assert_eq!(found.segments.iter().map(|one| of(&one.arms)).sum::<u64>(), of(&found.arms));

    // Every interval holds what is true of the users.
    let holds = |arm: &v1::ArmEstimate, truth: f64| arm.low <= truth && truth <= arm.high;
    for (segment, (value, likes)) in found.segments.iter().zip(PLATFORMS) {
        assert_eq!(segment.value, value);
        assert!(
            segment.arms.iter().zip(likes).all(|(arm, truth)| holds(arm, truth)),
            "{segment:?}"
        );
    }
    let (returned, minutes) = (&found.metrics[0], &found.metrics[1]);
    assert!(returned.arms.iter().zip([0.0, 0.0, 1.0]).all(|(arm, truth)| holds(arm, truth)));
    assert!(minutes.arms.iter().zip([0.0, 3.0, 6.0]).all(|(arm, truth)| holds(arm, truth)));
    assert_eq!((returned.at_most, returned.at_least), (Some(0.5), None));
    assert_eq!((&returned.harmful_arms[..], &minutes.harmful_arms[..]), (&[2][..], &[][..]));

    // The arm that does harm has no traffic anywhere, and each segment has its own favourite.
    let id = GetExperimentRequest { experiment_id: "checkout".to_owned() };
    let policy = aggregator.device.get_experiment(id).await?.into_inner().policy.context("none")?;
    assert_eq!(policy.weights.len(), 9);
    assert!(policy.weights.chunks(3).all(|list| list[2] == 0), "{policy:?}");
    assert_eq!(favourites(&policy.weights)[1..], [1, 0], "{policy:?}");
    aggregator.process.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_server_takes_the_cells_of_a_specification_and_no_others() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(wanted("checkout")?).await?;
    assert_eq!(experiment.cells().len(), 18);
    let day = aggregator.day(&experiment).await?;
    for (cell, status) in [(17, UploadStatus::Accepted), (18, UploadStatus::UnknownArm)] {
        let upload = Upload {
            id: UploadId::new([u8::try_from(cell)?; 16]),
            digest: experiment.digest(),
            day,
            reports: PackedReports::single(CellIndex::new(cell)?, true),
        };
        let request = v1::UploadRequest::decode(&upload.to_bytes()[..])?;
        let answer = aggregator.device.submit_upload(request).await?.into_inner();
        assert_eq!(answer.status(), status, "{answer:?}");
        if status == UploadStatus::UnknownArm {
            assert!(
                answer.message.contains("3 arms, 2 segments and 2 metrics beside"),
                "{answer:?}"
            );
        }
    }
    let invalid = Some(Code::InvalidArgument);
    let cases: [(&[&str], _); 4] =
        [(&[], None), (&["ios"], None), (&["windows"], invalid), (&["ios", "young"], invalid)];
    for (values, expected) in cases {
        let segment_values = values.iter().map(|value| (*value).to_owned()).collect();
        let request = SelectArmRequest { experiment_id: "checkout".to_owned(), segment_values };
        let answer = aggregator.device.select_arm(request).await;
        assert_eq!(answer.as_ref().err().map(tonic::Status::code), expected, "{answer:?}");
    }
    aggregator.process.stop().await?;
    Ok(())
}
