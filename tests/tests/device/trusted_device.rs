//! Rewards that wait on a device's disk until a real server has given its verdict; and the
//! conformance of clients to the vectors.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::Transport;
use bandana_client::trusted::{
    Agreement, DisclosedReward, Disclosures, RhoBudget, TrustedError, TrustedExperiment,
};
use bandana_client::{Clock as _, SystemClock};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::disclose_request::Played;
use bandana_shared::wire::v1::trusted_client::TrustedClient;
use bandana_shared::wire::v1::trusted_operator_client::TrustedOperatorClient;
use bandana_shared::wire::v1::trusted_server::{Trusted, TrustedServer};
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    AdacUcb, DiscloseRequest, DiscloseResponse, DisclosureStatus, GetTrustedExperimentResponse,
    RecommendRequest, RecommendResponse, TrustedExperimentName, TrustedSpecification,
};
use bandana_tests::harness::Aggregator;
use bandana_tests::test_clock::TestClock;
use bandana_tests::trusted_app::users;
use prost::Message as _;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const APP: &str = "disclosing-app";

fn name() -> TrustedExperimentName {
    TrustedExperimentName { experiment_id: "headlines".to_owned() }
}

fn agreement() -> anyhow::Result<Agreement> {
    Ok(Agreement::users_disclose_rewards(Rho::new(0.5)?))
}

/// Creates the experiment that the app takes part in.
async fn create(operator_url: String) -> anyhow::Result<TrustedOperatorClient<Channel>> {
    let mut operator = TrustedOperatorClient::connect(operator_url).await?;
    let specification = TrustedSpecification {
        experiment_id: "headlines".to_owned(),
        rewards_are_disclosed: true,
        rho: 0.5,
        algorithm: Some(Algorithm::AdacUcb(AdacUcb { arms: 2, beta: 1.0 })),
    };
    operator.create_trusted_experiment(specification).await?;
    Ok(operator)
}

async fn counted(operator_url: String) -> anyhow::Result<u64> {
    let mut operator = TrustedOperatorClient::connect(operator_url).await?;
    Ok(operator.get_released(name()).await?.into_inner().rewards)
}

/// The app in a separate process. Dropping it kills the process.
struct App {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl App {
    fn start(directory: &Path, url: &str, kept: u32) -> anyhow::Result<Self> {
        let mut command = Command::new(PROGRAM);
        command.arg0(APP);
        command.arg(directory).arg(url).arg(kept.to_string()).clean_environment();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let output = child.stdout.take().context("no standard output")?;
        Ok(Self { child, output: BufReader::new(output).lines() })
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        self.output.next_line().await?.context("the app has ended")
    }

    /// Sends the kept rewards, and returns the app's output.
    async fn send(mut self) -> anyhow::Result<String> {
        drop(self.child.stdin.take());
        let said = self.line().await?;
        ensure!(self.child.wait().await?.success(), "the app has failed");
        Ok(said)
    }
}

#[tokio::test]
async fn an_app_that_is_killed_before_it_sends_has_its_rewards_counted_once() -> anyhow::Result<()>
{
    let server = Aggregator::start(PROGRAM).await?;
    create(server.process.operator_url.clone()).await?;
    let directory = tempfile::tempdir()?;
    let mut app = App::start(directory.path(), &server.process.device_url, 40)?;
    assert_eq!(app.line().await?, "40 kept");
    app.child.kill().await?;
    assert_eq!(counted(server.process.operator_url.clone()).await?, 0);

    // The server is down: the rewards get a day, and continue to wait.
    let device_url = server.process.device_url.clone();
    let server = server.kill_and_restart().await?;
    assert_ne!(device_url, server.process.device_url);
    let mut app = App::start(directory.path(), &device_url, 0)?;
    assert_eq!(app.line().await?, "40 kept");
    assert_eq!(app.send().await?, "0 sent, 0 dropped, 40 wait");

    let mut app = App::start(directory.path(), &server.process.device_url, 0)?;
    assert_eq!(app.line().await?, "40 kept");
    assert_eq!(app.send().await?, "40 sent, 0 dropped, 0 wait");
    assert_eq!(counted(server.process.operator_url.clone()).await?, 40);
    assert!(!directory.path().join("disclosures").exists());
    server.process.stop().await
}

#[tokio::test]
async fn what_was_sent_and_not_erased_counts_once() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let mut operator = create(server.process.operator_url.clone()).await?;
    let transport = Transport::to(&server.process.device_url)?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("disclosures");
    let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
    let id = ExperimentId::new("headlines")?;
    let experiment = TrustedExperiment::open(transport.clone(), id, agreement()?).await?;
    disclosures.keep(experiment.disclosure(1, DisclosedReward::new(1.0)?)?)?;
    // While the experiment is paused the rewards are refused; they keep their day.
    operator.pause_trusted_experiment(name()).await?;
    let flushed = disclosures.flush(&transport, agreement()?).await;
    assert!(matches!(flushed.held_up[..], [(_, TrustedError::Paused)]), "{flushed:?}");
    let before = std::fs::read(&file)?;
    operator.resume_trusted_experiment(name()).await?;
    let flushed = disclosures.flush(&transport, agreement()?).await;
    assert_eq!((flushed.sent, flushed.waiting), (1, 0));
    drop(disclosures);

    // The state after a kill between the verdict and the erasure.
    std::fs::write(&file, before)?;
    let server = server.kill_and_restart().await?;
    let transport = Transport::to(&server.process.device_url)?;
    let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
    let flushed = disclosures.flush(&transport, agreement()?).await;
    assert_eq!((flushed.sent, flushed.waiting), (1, 0));
    assert_eq!(counted(server.process.operator_url.clone()).await?, 1);
    server.process.stop().await
}

#[tokio::test]
async fn a_day_that_has_left_the_window_is_refused_for_good() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let today = SystemClock.now().day();
    let clock = TestClock::at(today, folder.path())?;
    let server = clock.serve(PROGRAM, &folder.path().join("data")).await?;
    let mut operator = create(format!("http://{}", server.operator)).await?;
    let transport = Transport::to(&format!("http://{}", server.device))?;
    let disclosures = Disclosures::open(folder.path().join("device"), RhoBudget::UNLIMITED)?;
    let id = ExperimentId::new("headlines")?;
    let experiment = TrustedExperiment::open(transport.clone(), id, agreement()?).await?;
    disclosures.keep(experiment.disclosure(1, DisclosedReward::new(1.0)?)?)?;
    operator.pause_trusted_experiment(name()).await?;
    assert_eq!(disclosures.flush(&transport, agreement()?).await.waiting, 1);
    operator.resume_trusted_experiment(name()).await?;

    // A month later, as rewards of others show.
    server.stop().await?;
    clock.set(today.forward(30))?;
    let server = clock.serve(PROGRAM, &folder.path().join("data")).await?;
    let url = format!("http://{}", server.device);
    for (name, day) in [([1; 16], today.forward(29)), ([2; 16], today.forward(30))] {
        let message = DiscloseRequest {
            experiment_id: "headlines".to_owned(),
            disclosure_id: name.to_vec().into(),
            played: Some(Played::Arm(0)),
            reward: 1.0,
            day: day.get(),
        };
        let mut others = TrustedClient::connect(url.clone()).await?;
        let answer = others.disclose(message).await?.into_inner();
        assert_eq!(answer.status(), DisclosureStatus::Counted, "{answer:?}");
    }

    // This device still has the old day: rewards without a day wait, those with a day are too late.
    disclosures.keep(experiment.disclosure(1, DisclosedReward::new(1.0)?)?)?;
    let flushed = disclosures.flush(&Transport::to(&url)?, agreement()?).await;
    assert!(matches!(flushed.dropped[..], [(_, TrustedError::Expired { .. })]), "{flushed:?}");
    assert!(matches!(flushed.held_up[..], [(_, TrustedError::Day { .. })]), "{flushed:?}");
    assert_eq!((flushed.sent, flushed.waiting), (0, 1));
    assert_eq!(counted(format!("http://{}", server.operator)).await?, 2);
    server.stop().await?;
    Ok(())
}

/// A server that answers with bytes of the vectors.
struct Recorded {
    experiment: GetTrustedExperimentResponse,
    verdict: DiscloseResponse,
}

#[tonic::async_trait]
impl Trusted for Recorded {
    async fn get_trusted_experiment(
        &self,
        _: Request<TrustedExperimentName>,
    ) -> Result<Response<GetTrustedExperimentResponse>, Status> {
        let mut experiment = self.experiment.clone();
        experiment.server_day = SystemClock.now().day().get();
        Ok(Response::new(experiment))
    }

    async fn recommend(
        &self,
        _: Request<RecommendRequest>,
    ) -> Result<Response<RecommendResponse>, Status> {
        Err(Status::unimplemented("not recorded"))
    }

    async fn disclose(
        &self,
        _: Request<DiscloseRequest>,
    ) -> Result<Response<DiscloseResponse>, Status> {
        Ok(Response::new(self.verdict.clone()))
    }
}

/// Opens an experiment of a server with these answers, and discloses a reward to it.
async fn outcome(recorded: Recorded) -> anyhow::Result<(&'static str, &'static str)> {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let transport = Transport::to(&format!("http://{}", incoming.local_addr()?))?;
    let router = Server::builder().add_service(TrustedServer::new(recorded));
    let serving = tokio::spawn(router.serve_with_incoming(incoming));
    let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
    let id = ExperimentId::new("headlines")?;
    let opened = TrustedExperiment::open(transport, id, agreement).await;
    let outcome = match opened {
        Err(TrustedError::Beyond { .. }) => ("beyond", ""),
        Err(TrustedError::NotUnderstood) => ("not understood", ""),
        Err(error) => return Err(error.into()),
        Ok(experiment) => {
            let disclosure = experiment.disclosure(1, DisclosedReward::new(1.0)?)?;
            let verdict = match experiment.disclose(&disclosure, &users()?).await {
                Ok(()) => "success",
                Err(error) if error.is_final() => "drop",
                Err(_) => "send again",
            };
            ("accepted", verdict)
        }
    };
    serving.abort();
    Ok(outcome)
}

#[tokio::test]
async fn the_client_does_as_the_vectors_say() -> anyhow::Result<()> {
    fn bytes(vector: &serde_json::Value, field: &str) -> anyhow::Result<Vec<u8>> {
        let hex = vector[field].as_str().context("no bytes")?.as_bytes();
        let byte = |pair: &[u8]| anyhow::Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
        hex.chunks(2).map(byte).collect()
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/trusted.json");
    let vectors: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let list = |name: &str| vectors[name].as_array().cloned().context("no vectors");
    let (experiments, verdicts) = (list("experiments")?, list("verdicts")?);
    let experiment =
        |vector| anyhow::Ok(GetTrustedExperimentResponse::decode(&bytes(vector, "response")?[..])?);
    let verdict = |vector| anyhow::Ok(DiscloseResponse::decode(&bytes(vector, "bytes")?[..])?);
    for vector in &experiments {
        let recorded =
            Recorded { experiment: experiment(vector)?, verdict: verdict(&verdicts[1])? };
        assert_eq!(vector["outcome"], outcome(recorded).await?.0, "{vector}");
    }
    for vector in &verdicts {
        let recorded =
            Recorded { experiment: experiment(&experiments[0])?, verdict: verdict(vector)? };
        assert_eq!(vector["outcome"], outcome(recorded).await?.1, "{vector}");
    }
    assert!(experiments.len() > 10 && verdicts.len() == 9);
    Ok(())
}
