//! Simulated users over real gRPC: a seed determines the outcome, and users take part in suitable
//! experiments.

use anyhow::Context as _;
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::population::Population;
use bandana_examples::report::Report;
use bandana_examples::simulation::{self, Connections, Settings};
use bandana_lab::instance::{Instance, RewardDistribution, SimulatedArm};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::{self, ExperimentState, Learner};
use bandana_tests::harness::{Aggregator, three_arms};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

async fn simulate(
    process: &AggregatorProcess,
    population: Population,
    seed: u64,
) -> anyhow::Result<Report> {
    let settings = Settings {
        batch: None,
        population,
        log: None,
        users: 600,
        refresh: 150,
        connections: 8,
        epsilon: Epsilon::new(2.0)?,
        mechanism: Mechanism::Linear,
        learner: Learner::LdpTs,
        seed,
    };
    let instance = Instance::paper_20();
    let mut connections = Connections::open(&process.server()?, settings.connections).await?;
    let outcome = simulation::run(&settings, &instance, &mut connections, |_| ()).await?;
    Ok(Report::new(&settings, &instance, &outcome, 0.0))
}

#[tokio::test]
async fn equal_seeds_give_equal_reports() -> anyhow::Result<()> {
    let data_dir = tempfile::tempdir()?;
    let process = AggregatorProcess::start(PROGRAM.as_ref(), data_dir.path()).await?;
    let first = simulate(&process, Population::PLAIN, 1).await?;
    let again = serde_json::to_string(&simulate(&process, Population::PLAIN, 1).await?)?;
    assert_eq!(serde_json::to_string(&first)?, again);
    let other = serde_json::to_string(&simulate(&process, Population::PLAIN, 2).await?)?;
    assert_ne!(again, other);

    assert_eq!((first.reports_sent, first.reports_accepted, first.duplicates), (600, 600, 0));
    assert_eq!(first.arms.iter().map(|arm| arm.reports).sum::<u64>(), 600);
    assert!(first.certified_epsilon <= 2.0 && first.estimand == "mean reward");
    process.stop().await
}

#[tokio::test]
async fn users_come_again_in_segments_and_report_the_rewards_or_a_metric_once() -> anyhow::Result<()>
{
    let data_dir = tempfile::tempdir()?;
    let process = AggregatorProcess::start(PROGRAM.as_ref(), data_dir.path()).await?;
    let population = Population { visits: 3, segments: 2, metrics: 2 };
    let first = simulate(&process, population, 1).await?;
    let again = serde_json::to_string(&simulate(&process, population, 1).await?)?;
    assert_eq!(serde_json::to_string(&first)?, again);

    assert_eq!((first.visits, first.reports_sent, first.reports_accepted), (3, 600, 600));
    let rewards = first.arms.iter().map(|arm| arm.reports).sum::<u64>();
    let in_segments = first.segments.iter().map(|segment| segment.reports).sum::<u64>();
    let metrics = first.metrics.iter().map(|metric| metric.reports).sum::<u64>();
    assert_eq!((rewards, rewards + metrics), (in_segments, 600));
    // Five standard deviations around a half.
    assert!((238..=362).contains(&metrics), "{metrics}");
    assert!(first.metrics.iter().all(|metric| metric.intervals_that_hold >= 18), "{first:?}");
    process.stop().await
}

/// Users for the arms of the harness.
fn users_of_three_arms() -> Instance {
    let arm = |(label, mean): (&str, f64)| SimulatedArm {
        label: label.to_owned(),
        rewards: RewardDistribution::Bernoulli(mean),
    };
    Instance { arms: [("red", 0.2), ("green", 0.8), ("blue", 0.4)].map(arm).into() }
}

#[tokio::test]
async fn users_take_part_in_an_experiment_that_is_theirs_and_leave_it_running() -> anyhow::Result<()>
{
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.create(three_arms("of-people")).await?;
    let theirs = v1::Specification {
        simulation: true,
        attribution_window_seconds: 0,
        ..three_arms("simulated")
    };
    let theirs = aggregator.create(theirs).await?;
    let mut connections = Connections::open(&aggregator.process.server()?, 2).await?;
    let instance = users_of_three_arms();
    for (name, instance, complaint) in [
        ("nobodys", &instance, "nobodys"),
        ("of-people", &instance, "create one with --simulation"),
        ("simulated", &Instance::paper_20(), "[\"red\", \"green\", \"blue\"]"),
    ] {
        let found = connections.find(&ExperimentId::new(name)?, instance).await;
        let error = format!("{:#}", found.err().context("found")?);
        assert!(error.contains(complaint), "{error}");
    }

    let (found, learner) = connections.find(theirs.experiment_id(), &instance).await?;
    assert_eq!((found.digest(), learner), (theirs.digest(), Learner::LdpTs));
    let settings = Settings {
        batch: None,
        population: Population::PLAIN,
        log: None,
        users: 100,
        refresh: 50,
        connections: 2,
        epsilon: found.epsilon(),
        mechanism: found.mechanism(),
        learner,
        seed: 1,
    };
    let outcome = simulation::run_in(found, &settings, &instance, &mut connections, |_| ()).await?;
    assert_eq!(outcome.statistics.uploads_accepted, 100);
    let name = v1::ExperimentName { experiment_id: "simulated".to_owned() };
    let status = aggregator.operator.get_experiment_status(name).await?.into_inner();
    assert_eq!((status.state(), status.reports), (ExperimentState::Running, 100));
    Ok(())
}
