//! Trusted experiments and query sessions, through calls to real servers.

mod query_sessions;
mod replicas;
mod windows;

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::trusted_client::TrustedClient;
use bandana_shared::wire::v1::trusted_operator_client::TrustedOperatorClient;
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    AdacGope, AdacOful, AdacUcb, DiscloseRequest, DiscloseResponse, DisclosureStatus as S,
    ExperimentState, LazyRelease, ListAuditEntriesRequest, ListTrustedExperimentsRequest,
    RecommendRequest, ReleasedStatistics, TrustedExperimentName, TrustedSpecification,
    TrustedStatus, Vector, disclose_request,
};
use bandana_tests::add_async;
use bandana_tests::harness::{Aggregator, create, three_arms};
use bandana_tests::postgres::{Postgres, Shared, query};
use bandana_tests::suite::Suite;
use bandana_tests::test_clock::TestClock;
use bandana_tests::watched_server::WatchedServer;
use rusqlite::Connection;
use tokio::process::Command;
use tonic::transport::Channel;
use tonic::{Code, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    let mut suite = Suite::from_args();
    let postgres = Shared::default();
    add_async!(suite;
        an_episode_goes_on_after_the_server_was_killed_in_its_middle,
        all_algorithms_are_served,
        what_is_wrong_is_refused_and_changes_nothing,
        an_experiment_is_paused_and_ended_and_the_log_tells_of_it,
        windows::a_day_leaves_the_window_when_another_one_is_borne_out,
        windows::a_window_that_a_wrong_clock_moved_is_mended_and_nothing_counts_twice,
        a_backup_has_no_reward_that_was_not_released,
        damage_to_a_trusted_experiment_is_found,
        replicas_share_an_experiment_and_count_each_disclosure_once,
        replicas::commits_are_left_to_one_replica_and_do_not_collide,
        replicas::whoever_leads_is_stopped_or_dies_and_each_disclosure_counts_once,
    );
    query_sessions::add(&mut suite, &postgres);
    let conclusion = suite.run();
    // The database server must end before the process does.
    drop(postgres);
    conclusion.exit_code()
}

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

fn named(id: &str) -> TrustedExperimentName {
    TrustedExperimentName { experiment_id: id.to_owned() }
}

/// Connections to a server.
#[derive(Clone, Debug)]
struct Ways {
    device: TrustedClient<Channel>,
    trusted: TrustedOperatorClient<Channel>,
    operator: OperatorClient<Channel>,
}

impl Ways {
    async fn to(device: &str, operator: &str) -> anyhow::Result<Self> {
        Ok(Self {
            device: TrustedClient::connect(device.to_owned()).await?,
            trusted: TrustedOperatorClient::connect(operator.to_owned()).await?,
            operator: OperatorClient::connect(operator.to_owned()).await?,
        })
    }

    async fn of(process: &AggregatorProcess) -> anyhow::Result<Self> {
        Self::to(&process.device_url, &process.operator_url).await
    }

    async fn create(&mut self, id: &str, algorithm: Algorithm) -> Result<TrustedStatus, Status> {
        let message = specification(id, algorithm);
        Ok(self.trusted.create_trusted_experiment(message).await?.into_inner())
    }

    async fn released(&mut self, id: &str) -> Result<ReleasedStatistics, Status> {
        Ok(self.trusted.get_released(named(id)).await?.into_inner())
    }

    async fn status(&mut self, id: &str) -> Result<TrustedStatus, Status> {
        Ok(self.trusted.get_trusted_status(named(id)).await?.into_inner())
    }

    async fn day(&mut self, id: &str) -> Result<u32, Status> {
        Ok(self.device.get_trusted_experiment(named(id)).await?.into_inner().server_day)
    }

    async fn recommend(&mut self, id: &str, actions: Vec<Vector>) -> Result<u32, Status> {
        let request = RecommendRequest { experiment_id: id.to_owned(), actions };
        Ok(self.device.recommend(request).await?.into_inner().arm)
    }

    async fn send(&mut self, request: DiscloseRequest) -> Result<DiscloseResponse, Status> {
        Ok(self.device.disclose(request).await?.into_inner())
    }

    async fn disclose(
        &mut self,
        id: &str,
        number: u128,
        arm: u32,
        reward: f64,
    ) -> Result<S, Status> {
        let day = self.day(id).await?;
        let request = disclosure(id, number, disclose_request::Played::Arm(arm), reward, day);
        Ok(self.send(request).await?.status())
    }

    /// Plays the recommended arm for each of these numbers, and sends each disclosure twice; arm 1
    /// pays.
    async fn play(&mut self, id: &str, numbers: std::ops::Range<u128>) -> anyhow::Result<()> {
        for number in numbers {
            let arm = self.recommend(id, Vec::new()).await?;
            let reward = f64::from(u8::from(arm == 1));
            assert_eq!(self.disclose(id, number, arm, reward).await?, S::Counted);
            assert_eq!(self.disclose(id, number, arm, reward).await?, S::Duplicate);
        }
        Ok(())
    }
}

fn disclosure(
    id: &str,
    number: u128,
    played: disclose_request::Played,
    reward: f64,
    day: u32,
) -> DiscloseRequest {
    DiscloseRequest {
        experiment_id: id.to_owned(),
        disclosure_id: number.to_be_bytes().to_vec().into(),
        played: Some(played),
        reward,
        day,
    }
}

/// Runs the program, and returns its exit code and output.
async fn run(arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).clean_environment().stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(said)?))
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path in UTF-8")
}

async fn an_episode_goes_on_after_the_server_was_killed_in_its_middle() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let mut ways = Ways::of(&server.process).await?;
    let created = ways.create("headlines", ucb(3)).await?;
    assert_eq!((created.state(), created.rewards), (ExperimentState::Running, 0));
    assert_eq!(created.specification, Some(specification("headlines", ucb(3))));
    let at_first = ways.released("headlines").await?;
    assert!(at_first.means.len() == 3 && at_first.means.iter().all(|mean| mean.mean.is_none()));
    ways.play("headlines", 0..70).await?;
    let before = ways.released("headlines").await?;
    let arm = ways.recommend("headlines", Vec::new()).await?;
    // Sent twice each, counted once.
    assert_eq!(before.rewards, 70);

    let server = server.kill_and_restart().await?;
    let mut ways = Ways::of(&server.process).await?;
    assert_eq!(ways.released("headlines").await?, before);
    assert_eq!(ways.recommend("headlines", Vec::new()).await?, arm);
    // A user may play another arm than the one recommended.
    let other = (arm + 1) % 3;
    assert_eq!(ways.disclose("headlines", 1000, other, 0.5).await?, S::Counted);
    let server = server.kill_and_restart().await?;
    let mut ways = Ways::of(&server.process).await?;
    assert_eq!(ways.disclose("headlines", 1000, other, 0.5).await?, S::Duplicate);
    assert_eq!(ways.released("headlines").await?.rewards, 71);
    ways.play("headlines", 70..270).await?;
    let after = ways.released("headlines").await?;
    assert_eq!(after.rewards, 271);
    assert!(after.means.iter().all(|mean| mean.mean.is_some() && mean.noise_deviation > 0.0));
    assert!(ways.status("headlines").await?.releases > 5);
    server.process.stop().await
}

async fn all_algorithms_are_served() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let mut ways = Ways::of(&server.process).await?;
    let vectors = [[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]];
    let actions = vectors.map(|vector| Vector { coordinates: vector.to_vec() }).to_vec();
    let gope = AdacGope { actions: actions.clone(), delta: 0.01 };
    ways.create("fixed", Algorithm::AdacGope(gope)).await?;
    ways.create("changing", Algorithm::AdacOful(AdacOful { dimension: 2 })).await?;
    ways.create("lazy", Algorithm::LazyRelease(LazyRelease { arms: 2 })).await?;
    let listed =
        ways.trusted.list_trusted_experiments(ListTrustedExperimentsRequest::default()).await?;
    let ids = listed.into_inner().experiments.into_iter();
    let ids: Vec<_> = ids.filter_map(|status| Some(status.specification?.experiment_id)).collect();
    assert_eq!(ids, ["changing", "fixed", "lazy"]);

    ways.play("fixed", 0..5).await?;
    ways.play("lazy", 0..40).await?;
    let day = ways.day("changing").await?;
    for number in 0..10 {
        let best = usize::try_from(ways.recommend("changing", actions.clone()).await?)?;
        let played = disclose_request::Played::Action(actions[best].clone());
        let told = ways.send(disclosure("changing", number, played, -0.5, day)).await?;
        assert_eq!((told.status(), told.server_day), (S::Counted, day), "{told:?}");
    }
    for (id, actions) in [("changing", Vec::new()), ("lazy", actions.clone())] {
        let refused = ways.recommend(id, actions).await.expect_err("it is to be refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    let server = server.kill_and_restart().await?;
    let mut ways = Ways::of(&server.process).await?;
    assert_eq!(ways.released("fixed").await?.rewards, 5);
    let lazy = ways.released("lazy").await?;
    assert!(lazy.rewards == 40 && lazy.means.iter().all(|mean| mean.mean.is_some()), "{lazy:?}");
    let after = ways.released("changing").await?;
    let coordinates = after.parameter.map(|vector| vector.coordinates.len());
    assert_eq!((after.rewards, coordinates), (10, Some(2)));
    let data_dir = text(server.data_dir())?.to_owned();
    let (code, said) = run(&["verify", "--data-dir", &data_dir]).await?;
    assert_eq!(code, Some(0), "{said}");
    server.process.stop().await
}

async fn what_is_wrong_is_refused_and_changes_nothing() -> anyhow::Result<()> {
    let mut server = Aggregator::start(PROGRAM).await?;
    let mut ways = Ways::of(&server.process).await?;
    let good = specification("headlines", ucb(2));
    for (bad, word) in [
        (TrustedSpecification { rewards_are_disclosed: false, ..good.clone() }, "must be true"),
        (TrustedSpecification { rho: 0.0, ..good.clone() }, "rho is 0"),
        (TrustedSpecification { rho: f64::NAN, ..good.clone() }, "rho is NaN"),
        (TrustedSpecification { algorithm: None, ..good.clone() }, "algorithm"),
        (specification("headlines", ucb(1)), "1 arms"),
        (specification("headlines", Algorithm::AdacOful(AdacOful { dimension: 0 })), "dimension"),
    ] {
        let refused =
            ways.trusted.create_trusted_experiment(bad).await.expect_err("it is to be refused");
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(word), "{refused}");
    }
    ways.create("headlines", ucb(2)).await?;
    // An id belongs to experiments of one kind only.
    server.create(three_arms("bits")).await?;
    for taken in ["headlines", "bits"] {
        let refused = ways.create(taken, ucb(2)).await.expect_err("it is to be refused");
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    }
    assert!(server.create(three_arms("headlines")).await.is_err());

    let day = ways.day("headlines").await?;
    let arm = |arm| disclose_request::Played::Arm(arm);
    let vector = disclose_request::Played::Action(Vector { coordinates: vec![0.5] });
    let good = disclosure("headlines", 1, arm(0), 0.5, day);
    for (bad, word) in [
        (disclosure("headlines", 1, arm(2), 0.5, day), "no arm 2"),
        (disclosure("headlines", 1, arm(0), 1.125, day), "not in the declared range"),
        (disclosure("headlines", 1, arm(0), f64::NAN, day), "not in the declared range"),
        (disclosure("headlines", 1, vector, 0.5, day), "numbered arms"),
        (DiscloseRequest { disclosure_id: vec![1; 15].into(), ..good.clone() }, "16 bytes"),
        (DiscloseRequest { played: None, ..good.clone() }, "played"),
    ] {
        let told = ways.send(bad).await?;
        assert_eq!(told.status(), S::Malformed, "{told:?}");
        assert!(told.message.contains(word) && !told.message.contains("1.125"), "{told:?}");
    }
    let unknown = ways
        .send(disclosure("unknown", 1, arm(0), 0.5, day))
        .await
        .expect_err("it is to be refused");
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(ways.released("headlines").await?.rewards, 0);
    // The refused disclosure's name is still usable.
    assert_eq!(ways.send(good).await?.status(), S::Counted);
    // The operators' service is not on the devices' port.
    let mut operator = TrustedOperatorClient::connect(server.process.device_url.clone()).await?;
    let refused = operator.get_released(named("headlines")).await.expect_err("it is to be refused");
    assert_eq!(refused.code(), Code::Unimplemented);
    server.process.stop().await
}

async fn an_experiment_is_paused_and_ended_and_the_log_tells_of_it() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let mut ways = Ways::of(&server.process).await?;
    ways.create("headlines", ucb(2)).await?;
    ways.play("headlines", 0..20).await?;
    let refused = ways
        .trusted
        .resume_trusted_experiment(named("headlines"))
        .await
        .expect_err("it is to be refused");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let paused = ways.trusted.pause_trusted_experiment(named("headlines")).await?.into_inner();
    assert_eq!((paused.state(), paused.rewards), (ExperimentState::Paused, 20));
    let arm = ways.recommend("headlines", Vec::new()).await?;
    assert_eq!(ways.disclose("headlines", 20, 0, 1.0).await?, S::Paused);
    assert_eq!(ways.disclose("headlines", 19, 0, 1.0).await?, S::Duplicate);
    ways.trusted.resume_trusted_experiment(named("headlines")).await?;
    assert_eq!(ways.disclose("headlines", 20, arm, 1.0).await?, S::Counted);
    let stopped = ways.trusted.stop_trusted_experiment(named("headlines")).await?.into_inner();
    assert_eq!((stopped.state(), stopped.rewards), (ExperimentState::Stopped, 21));
    let refused = ways
        .trusted
        .pause_trusted_experiment(named("headlines"))
        .await
        .expect_err("it is to be refused");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");

    // Released statistics remain available for recommendations and display; everything else is
    // erased.
    let before = ways.released("headlines").await?;
    let arm = ways.recommend("headlines", Vec::new()).await?;
    let server = server
        .stop_look_and_restart(|folder| {
            let store = Connection::open(folder.join("bandana.sqlite3"))?;
            let query = "SELECT count(*) FROM trusted_experiment WHERE private IS NOT NULL";
            assert_eq!(store.query_row(query, [], |row| row.get::<_, i64>(0))?, 0);
            Ok(())
        })
        .await?;
    let mut ways = Ways::of(&server.process).await?;
    assert_eq!(ways.released("headlines").await?, before);
    assert_eq!(ways.recommend("headlines", Vec::new()).await?, arm);
    assert_eq!(ways.disclose("headlines", 20, arm, 1.0).await?, S::Duplicate);
    assert_eq!(ways.disclose("headlines", 21, arm, 1.0).await?, S::Stopped);
    assert_eq!(ways.status("headlines").await?, stopped);

    let request =
        ListAuditEntriesRequest { experiment_id: "headlines".to_owned(), ..Default::default() };
    let entries = ways.operator.list_audit_entries(request).await?.into_inner().entries;
    let told: Vec<_> = entries.iter().rev().map(|entry| entry.detail.as_str()).collect();
    assert_eq!(
        told,
        [
            "trusted, rho 0.5, adac-ucb, 2 arms",
            "trusted, running -> paused",
            "trusted, paused -> running",
            "trusted, running -> stopped"
        ]
    );
    let data_dir = text(server.data_dir())?.to_owned();
    server.process.stop().await?;
    assert!(run(&["verify", "--data-dir", &data_dir]).await?.1.contains("trusted"));
    Ok(())
}

async fn a_backup_has_no_reward_that_was_not_released() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let mut ways = Ways::of(&server.process).await?;
    ways.create("headlines", ucb(2)).await?;
    ways.play("headlines", 0..25).await?;
    let released = ways.released("headlines").await?;
    let name = u128::from_be_bytes(*b"a disclosure's i");
    assert_eq!(ways.disclose("headlines", name, 1, 0.5).await?, S::Counted);
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("backup.sqlite3");
    let data_dir = text(server.data_dir())?.to_owned();
    let key = private_key(&server.data_dir().join("bandana.sqlite3"))?;
    let (code, said) = run(&["backup", "--data-dir", &data_dir, "--out", text(&out)?]).await?;
    assert_eq!(code, Some(0), "{said}");
    let bytes = std::fs::read(&out)?;
    for secret in [&name.to_be_bytes()[..], &key] {
        assert!(!bytes.windows(secret.len()).any(|part| part == secret), "{secret:?}");
    }
    server.process.stop().await?;

    let restored = tempfile::tempdir()?;
    std::fs::copy(&out, restored.path().join("bandana.sqlite3"))?;
    let (code, said) = run(&["verify", text(&out)?]).await?;
    assert_eq!(code, Some(0), "{said}");
    let process = AggregatorProcess::start(Path::new(PROGRAM), restored.path()).await?;
    let mut ways = Ways::of(&process).await?;
    assert_eq!(ways.status("headlines").await?.state(), ExperimentState::Stopped);
    assert_eq!(ways.released("headlines").await?.means, released.means);
    ways.recommend("headlines", Vec::new()).await?;
    assert_eq!(ways.disclose("headlines", 99, 1, 0.5).await?, S::Stopped);
    process.stop().await
}

/// The last bytes of a stored secret state: the key of its next release.
fn private_key(store: &Path) -> anyhow::Result<Vec<u8>> {
    let store = Connection::open(store)?;
    let query = "SELECT private FROM trusted_experiment";
    let private: Vec<u8> = store.query_row(query, [], |row| row.get(0))?;
    Ok(private[private.len() - 20..private.len() - 4].to_vec())
}

async fn damage_to_a_trusted_experiment_is_found() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let mut ways = Ways::of(&server.process).await?;
    ways.create("headlines", ucb(2)).await?;
    ways.create("other", ucb(2)).await?;
    ways.play("headlines", 0..5).await?;
    let data_dir = server.data_dir().to_owned();
    let server = server
        .stop_look_and_restart(|folder| {
            let store = Connection::open(folder.join("bandana.sqlite3"))?;
            store.execute(
                "UPDATE trusted_experiment SET released =
                    (SELECT released FROM trusted_experiment WHERE id = 'other')",
                [],
            )?;
            store.execute("UPDATE trusted_disclosure SET experiment = 2 WHERE day > 0", [])?;
            drop(store);
            Ok(bandana_store::seal_directory(folder)?)
        })
        .await?;
    let (code, said) = run(&["verify", "--data-dir", text(&data_dir)?]).await?;
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("headlines shows something else than what was released"), "{said}");
    assert!(said.contains("other has 5 disclosures, and 0 rewards"), "{said}");
    server.process.stop().await
}

async fn replicas_share_an_experiment_and_count_each_disclosure_once() -> anyhow::Result<()> {
    const EACH: u128 = 60;
    // The database server starts on a separate thread.
    let start = || {
        let server = Postgres::start()?;
        anyhow::Ok((server.database()?, server))
    };
    let (url, database) = tokio::task::spawn_blocking(start).await??;
    let one = AggregatorProcess::start_replica(Path::new(PROGRAM), &url).await?;
    let two = AggregatorProcess::start_replica(Path::new(PROGRAM), &url).await?;
    let (mut first, mut second) = (Ways::of(&one).await?, Ways::of(&two).await?);
    first.create("headlines", ucb(3)).await?;
    // No wait between a change at one server and a call at another.
    let day = second.day("headlines").await?;
    create(&mut first.operator, three_arms("bits")).await?;
    assert_eq!(
        second.create("bits", ucb(2)).await.expect_err("it is to be refused").code(),
        Code::AlreadyExists
    );

    let mut calls = tokio::task::JoinSet::new();
    for number in 0..EACH {
        for ways in [&first, &second] {
            let mut ways = ways.clone();
            calls.spawn(async move {
                let arm = ways.recommend("headlines", Vec::new()).await?;
                let played = disclose_request::Played::Arm(arm);
                ways.send(disclosure("headlines", number, played, 0.5, day)).await
            });
        }
    }
    let mut counted = 0;
    while let Some(told) = calls.join_next().await {
        match told??.status() {
            S::Counted => counted += 1,
            other => assert_eq!(other, S::Duplicate),
        }
    }
    assert_eq!(counted, EACH);
    let agree = async {
        loop {
            let released = first.released("headlines").await?;
            if released == second.released("headlines").await? {
                return anyhow::Ok(released);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let released = tokio::time::timeout(PATIENCE, agree).await.context("they never agree")??;
    assert_eq!(u128::from(released.rewards), EACH);

    // The remaining replica continues the experiment, and both know that it is paused.
    second.trusted.pause_trusted_experiment(named("headlines")).await?;
    assert_eq!(first.disclose("headlines", EACH, 0, 0.5).await?, S::Paused);
    one.kill().await?;
    second.trusted.resume_trusted_experiment(named("headlines")).await?;
    second.play("headlines", EACH..EACH + 20).await?;
    assert_eq!(second.disclose("headlines", 1, 0, 0.5).await?, S::Duplicate);
    let (of_database, told) = (url.clone(), "SELECT count(*) FROM trusted_disclosure");
    let rows = tokio::task::spawn_blocking(move || query(&of_database, told)).await??;
    assert_eq!(rows, [[(EACH + 20).to_string()]]);
    let (code, said) = run(&["verify", "--store", &url]).await?;
    assert_eq!(code, Some(0), "{said}");
    two.stop().await?;
    tokio::task::spawn_blocking(move || drop(database)).await?;
    Ok(())
}
