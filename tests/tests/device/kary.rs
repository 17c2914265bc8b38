//! Levels and categories, from a reward on a device to estimates and choices; and experiments with
//! limited memory.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::{Transport, run_until};
use bandana_client::{Acceptance, Clock as _, Reward, SimulatedClient, SystemClock, Timestamp};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::identity::{CellIndex, Day, UploadId};
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::specification::Specification;
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::v1::create_experiment_request::Memory;
use bandana_shared::wire::v1::specification::Mechanism;
use bandana_shared::wire::v1::{
    self, CreateExperimentRequest, ExperimentName, ExportTalliesRequest, UploadRequest,
    UploadStatus, experiment_status,
};
use bandana_tests::harness::{Aggregator, three_arms, upload};
use prost::Message as _;
use tokio::process::Command;
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::transport::Channel;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// A constant time on the server's day: everything due happens at once.
fn clock() -> Timestamp {
    static STOPPED: OnceLock<Timestamp> = OnceLock::new();
    *STOPPED.get_or_init(|| SystemClock.now())
}

fn kary(symbols: u32) -> Mechanism {
    Mechanism::RandomizedResponse(v1::RandomizedResponse { symbols })
}

/// Three arms with six levels for rewards from -1 to 4, and simulated users.
fn levels(id: &str) -> v1::Specification {
    v1::Specification {
        simulation: true,
        epsilon: 5.0,
        reward_kind: v1::RewardKind::Bounded.into(),
        reward_low: -1.0,
        reward_high: 4.0,
        default_reward: -1.0,
        mechanism: Some(kary(6)),
        attribution_window_seconds: 0,
        ..three_arms(id)
    }
}

/// Two arms and four categories.
fn categories(id: &str) -> v1::Specification {
    let mut message = v1::Specification {
        epsilon: 3.0,
        reward_kind: v1::RewardKind::Categorical.into(),
        reward_low: 0.0,
        reward_high: 3.0,
        default_reward: 0.0,
        ..levels(id)
    };
    message.mechanism = Some(kary(4));
    message.arms.truncate(2);
    message
}

fn creation(specification: v1::Specification, learner: v1::Learner) -> CreateExperimentRequest {
    CreateExperimentRequest {
        specification: Some(specification),
        learner: learner.into(),
        ..Default::default()
    }
}

async fn create(
    aggregator: &mut Aggregator,
    request: CreateExperimentRequest,
) -> anyhow::Result<Specification> {
    let created = aggregator.operator.create_experiment(request).await?.into_inner();
    Ok(Specification::try_from(&created.specification.context("no specification")?)?)
}

/// Simulated users choose, react and report, each with a separate client.
async fn simulate(
    aggregator: &mut Aggregator,
    experiment: &Specification,
    rewards: Rewards,
    users: u64,
    reaction: impl Fn(usize, u64) -> f64,
) -> anyhow::Result<()> {
    let id = experiment.experiment_id().clone();
    let url = aggregator.process.device_url.clone();
    let mut transport = Transport::new(Channel::from_shared(url)?.connect().await?);
    let soon = clock().after(Duration::from_mins(1));
    for user in 0..users {
        let mut client = SimulatedClient::seeded(5, user);
        client.enroll(id.clone(), Acceptance::unsigned(experiment.epsilon(), rewards));
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon).await?;
        let mut client = client.into_inner()?;
        let assignment = client.draw(&id, clock())?;
        let reward = reaction(assignment.arm().get(), user);
        client.reward(assignment.id(), Reward::new(reward)?, clock())?;
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon).await?;
        let statistics = client.into_inner()?.statistics();
        ensure!((statistics.uploads_accepted, statistics.uploads_refused) == (1, 0), "user {user}");
        if user % 50 == 49 {
            let name = ExperimentName { experiment_id: id.to_string() };
            aggregator.operator.refresh_policy(name).await?;
        }
    }
    Ok(())
}

/// All daily tallies of an experiment.
async fn tallies(
    aggregator: &mut Aggregator,
    experiment: &Specification,
) -> anyhow::Result<Vec<v1::DailyTally>> {
    let experiment_id = experiment.experiment_id().to_string();
    let request = ExportTalliesRequest { experiment_id, ..Default::default() };
    let rows = aggregator.operator.export_tallies(request).await?.into_inner();
    Ok(rows.collect::<Result<_, _>>().await?)
}

#[tokio::test]
async fn the_server_learns_from_levels_the_arm_that_users_like() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let request = creation(levels("stars"), v1::Learner::RandAdaKl);
    let experiment = create(&mut aggregator, request).await?;
    let rewards = Rewards::bounded(RewardRange::new(-1.0, 4.0)?);
    // Means of 0.5, 1.5 and 0.5; no reward is exactly on a level.
    let reaction = |arm, user| (if arm == 1 { 1.25 } else { 0.25 }) + 0.5 * (user % 2) as f64;
    simulate(&mut aggregator, &experiment, rewards, 400, reaction).await?;
    let estimates = aggregator.estimates(&experiment).await?;
    assert_eq!((estimates.reports, estimates.estimand()), (400, v1::Estimand::MeanReward));
    let liked = &estimates.arms[1];
    assert!(liked.weight > 0.8 && liked.low <= 1.5 && 1.5 <= liked.high, "{liked:?}");
    // Rounding and response leave a standard deviation below 1 for each of some 350 reports;
    // 0.3 is more than five standard errors.
    assert!((liked.estimate.context("no estimate")? - 1.5).abs() < 0.3, "{liked:?}");
    for arm in &estimates.arms {
        assert_eq!((arm.symbols.len(), arm.ones), (6, 0));
        assert_eq!(arm.symbols.iter().map(|symbol| symbol.count).sum::<u64>(), arm.reports);
    }
    // 1.25 and 1.75 lie between the third and the fourth level.
    let shares: Vec<f64> = liked.symbols.iter().filter_map(|symbol| symbol.frequency).collect();
    assert!(shares[2] > 0.3 && shares[3] > 0.3 && shares[2] + shares[3] > 0.9, "{shares:?}");
    // Everything is durable and exported.
    let mut aggregator = aggregator.kill_and_restart().await?;
    let again = aggregator.estimates(&experiment).await?;
    for (arm, before) in again.arms.iter().zip(&estimates.arms) {
        assert_eq!((&arm.symbols, arm.estimate), (&before.symbols, before.estimate));
    }
    for row in tallies(&mut aggregator, &experiment).await? {
        let counts: Vec<u64> =
            again.arms[row.arm as usize].symbols.iter().map(|symbol| symbol.count).collect();
        assert_eq!((row.symbols, row.ones), (counts, 0), "all reports are of one day");
    }
    aggregator.process.stop().await
}

#[tokio::test]
async fn shares_of_categories_are_estimated_and_arms_are_not_compared() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let message = categories("colours");
    let refused = creation(message.clone(), v1::Learner::LdpTs);
    let refused = aggregator.operator.create_experiment(refused).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("`uniform`"), "{refused}");
    let request = creation(message, v1::Learner::Uniform);
    let experiment = create(&mut aggregator, request).await?;
    // The first arm gets categories 0 and 1, the second one always 3.
    let truth = |arm, user| if arm == 1 { 3.0 } else { (user / 7 % 2) as f64 };
    let rewards = Rewards::categorical(Alphabet::new(4)?);
    simulate(&mut aggregator, &experiment, rewards, 600, truth).await?;
    let estimates = aggregator.estimates(&experiment).await?;
    assert_eq!(estimates.estimand(), v1::Estimand::Frequencies);
    assert_eq!(estimates.best_arm, None);
    for (arm, expected) in estimates.arms.iter().zip([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]) {
        assert_eq!((arm.estimate, arm.low, arm.high), (None, 0.0, 1.0));
        assert!((arm.weight - 0.5).abs() < 1e-9, "{arm:?}");
        // Fair coins among 600 are beyond 200 to 400 with a probability below 1e-15.
        assert!(arm.reports > 200, "{arm:?}");
        for (symbol, expected) in arm.symbols.iter().zip(expected) {
            let share = symbol.frequency.context("no share")?;
            // Six standard errors of a fair coin, by the contrast of .83.
            assert!((share - expected).abs() < 0.25, "{arm:?}");
            assert!(symbol.low <= expected && expected <= symbol.high, "{arm:?}");
        }
    }
    shown_to_people(&aggregator, &estimates).await?;
    aggregator.process.stop().await
}

/// Checks that the command line shows the shares, and writes them to files.
async fn shown_to_people(aggregator: &Aggregator, known: &v1::Estimates) -> anyhow::Result<()> {
    let bandana = async |arguments: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg("colours").clean_environment();
        let url = &aggregator.process.operator_url;
        let output = command.env("BANDANA_OPERATOR_URL", url).output().await?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let shown = bandana(&["estimate"]).await?;
    let (means, shares) =
        shown.split_once("share of each category, before").context("no shares")?;
    ensure!(means.contains("categories have no order, so no arm is best"), "{shown}");
    let rows: Vec<Vec<&str>> =
        shares.lines().map(|line| line.split_whitespace().collect()).collect();
    for arm in &known.arms {
        for (place, symbol) in arm.symbols.iter().enumerate() {
            let share = format!("{:.4}", symbol.frequency.context("no share")?);
            let row = [arm.arm.to_string(), place.to_string(), symbol.count.to_string(), share];
            ensure!(
                rows.iter().any(|shown| shown.starts_with(&row.each_ref().map(|c| &**c))),
                "{shown}"
            );
        }
    }
    let csv = bandana(&["experiment", "export"]).await?;
    let mut lines = csv.lines();
    let names: Vec<_> = lines.next().context("no names")?.split(',').collect();
    for (line, arm) in lines.zip(&known.arms) {
        let cells: Vec<_> = line.split(',').collect();
        for (place, symbol) in arm.symbols.iter().enumerate() {
            let at = |name: String| names.iter().position(|known| **known == name);
            let count = at(format!("symbol_{place}")).context("no column")?;
            let share = at(format!("frequency_{place}")).context("no column")?;
            ensure!(cells[count].parse() == Ok(symbol.count), "{csv}");
            ensure!(cells[share].parse().ok() == symbol.frequency, "{csv}");
        }
    }
    // All reports are of one day.
    let tallies = bandana(&["experiment", "export", "--what", "tallies"]).await?;
    let mut lines = tallies.lines();
    let names: Vec<_> = lines.next().context("no names")?.split(',').collect();
    let first = names.iter().position(|name| *name == "symbol_0").context("no symbols")?;
    for (line, arm) in lines.zip(&known.arms) {
        let counts = line.split(',').skip(first).map(str::parse).take(arm.symbols.len());
        let counts: Vec<u64> = counts.collect::<Result<_, _>>()?;
        ensure!(counts.into_iter().eq(arm.symbols.iter().map(|symbol| symbol.count)), "{tallies}");
    }
    Ok(())
}

#[tokio::test]
async fn uploads_with_symbols_that_there_are_not_are_refused() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let request = creation(levels("six"), v1::Learner::LdpTs);
    let experiment = create(&mut aggregator, request).await?;
    let day = aggregator.day(&experiment).await?;
    let of = |number: u128, symbols: &[u8], alphabet| -> anyhow::Result<UploadRequest> {
        let report = |symbol: &u8| {
            anyhow::Ok((CellIndex::new(2)?, Symbol::new(*symbol).context("beyond all")?))
        };
        let reports = symbols.iter().map(report).collect::<anyhow::Result<_>>()?;
        let (id, digest) = (UploadId::new(number.to_be_bytes()), experiment.digest());
        let reports = PackedReports::pack_symbols(reports, Alphabet::new(alphabet)?)?;
        Ok(UploadRequest::decode(&Upload { id, digest, day, reports }.to_bytes()[..])?)
    };
    let bits = upload(3, &experiment, day, &[(0, true), (1, true), (2, true)])?;
    for (request, status, part) in [
        (of(1, &[5, 0, 5], 6)?, UploadStatus::Accepted, ""),
        (of(2, &[5, 6, 5], 7)?, UploadStatus::Malformed, "6 symbols"),
        (bits, UploadStatus::Malformed, "need 2 bytes"),
        (of(4, &[1, 1, 1], 4)?, UploadStatus::Malformed, "need 2 bytes"),
    ] {
        let answer = aggregator.device.submit_upload(request).await?.into_inner();
        assert_eq!(answer.status(), status, "{}", answer.message);
        assert!(answer.message.contains(part), "{}", answer.message);
    }
    let estimates = aggregator.estimates(&experiment).await?;
    let counts: Vec<u64> = estimates.arms[2].symbols.iter().map(|symbol| symbol.count).collect();
    assert_eq!((counts, estimates.reports), (vec![1, 0, 0, 0, 0, 2], 3));
    aggregator.process.stop().await
}

/// Sends uploads in which one arm is better on one day.
async fn report_day(
    aggregator: &mut Aggregator,
    experiment: &Specification,
    (day, liked): (Day, usize),
    reports: usize,
) -> anyhow::Result<()> {
    let of_arms = (0..3 * reports).map(|report| {
        let arm = report % 3;
        (arm, (report / 3) % 10 < if arm == liked { 7 } else { 3 })
    });
    let reports: Vec<(usize, bool)> = of_arms.collect();
    // Upload names are unique across experiments.
    let number = u128::from_be_bytes(*experiment.digest().as_bytes());
    let request = upload(number, experiment, day, &reports)?;
    let answer = aggregator.device.submit_upload(request).await?.into_inner();
    ensure!(answer.status() == UploadStatus::Accepted, "{}", answer.message);
    Ok(())
}

#[tokio::test]
async fn an_experiment_that_forgets_follows_what_users_like_now() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let memories = [
        ("keeps", None, [1.0, 0.0]),
        ("window", Some(Memory::WindowDays(2)), [0.0, 1.0]),
        ("discount", Some(Memory::DiscountPerDay(0.1)), [0.0, 1.0]),
    ];
    let mut experiments = Vec::new();
    for (id, memory, weights) in memories {
        let request =
            CreateExperimentRequest { memory, ..creation(three_arms(id), v1::Learner::LdpTs) };
        let experiment = create(&mut aggregator, request).await?;
        let today = aggregator.day(&experiment).await?;
        // Until three days ago the first arm was better; now the second one is.
        for back in [5, 4, 3] {
            report_day(&mut aggregator, &experiment, (today.back(back), 0), 4000).await?;
        }
        for back in [1, 0] {
            report_day(&mut aggregator, &experiment, (today.back(back), 1), 2000).await?;
        }
        experiments.push((experiment, weights));
    }
    for restarted in [false, true] {
        if restarted {
            aggregator = aggregator.kill_and_restart().await?;
        }
        for (experiment, weights) in &experiments {
            let name = || ExperimentName { experiment_id: experiment.experiment_id().to_string() };
            aggregator.operator.refresh_policy(name()).await?;
            let estimates = aggregator.estimates(experiment).await?;
            for (arm, weight) in estimates.arms.iter().zip(weights) {
                assert!((arm.weight - weight).abs() < 0.01, "{restarted} {estimates:?}");
            }
            // Estimates always use all reports.
            assert_eq!(estimates.reports, 48_000);
        }
    }
    let name = ExperimentName { experiment_id: "window".to_owned() };
    let status = aggregator.operator.get_experiment_status(name).await?.into_inner();
    assert_eq!(status.memory, Some(experiment_status::Memory::WindowDays(2)));
    for memory in [Memory::WindowDays(0), Memory::DiscountPerDay(1.0)] {
        let request = creation(three_arms("senseless"), v1::Learner::LdpTs);
        let request = CreateExperimentRequest { memory: Some(memory), ..request };
        let refused = aggregator.operator.create_experiment(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    aggregator.process.stop().await
}
