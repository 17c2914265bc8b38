//! A public log: what it says is taken, and what one device alone is told is not.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::{Transport, TransportError};
use bandana_client::{Acceptance, Budget, Client, ClientError, FetchTask, Fetched, Refusal};
use bandana_client::{Clock as _, SystemClock};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_examples::relay_process::{AT_ONCE, RelayProcess, gateway_key};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::identity::{ExperimentId, StoreId};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, Specification};
use bandana_shared::transparency::{ViewError, Witnessed};
use bandana_shared::wire::v1;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_tests::attacked::create;
use bandana_tests::harness::three_arms;
use bandana_tests::postgres::Postgres;
use bandana_tests::public_log::LogKeys;
use prost::Message as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;
use tokio::process::Command;

use super::relay::{address, program, question};
use super::users::kills;

/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_mins(1);

const ANYWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A folder with the keys of a log and of a witness.
struct Place {
    folder: TempDir,
    keys: LogKeys,
}

impl Place {
    async fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let keys = LogKeys::make(program(), folder.path()).await?;
        Ok(Self { folder, keys })
    }

    fn path(&self, name: &str) -> String {
        self.keys.path(name)
    }

    async fn server(&self, data: &str, more: &[&str]) -> anyhow::Result<AggregatorProcess> {
        let flags = self.keys.of_server();
        let flags: Vec<&str> =
            flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let data = PathBuf::from(self.path(data));
        AggregatorProcess::start_with(&flags, program(), &data).await
    }

    fn witnessed(&self) -> anyhow::Result<Witnessed> {
        Ok(Witnessed::new(self.keys.log.parse()?, vec![self.keys.witness.parse()?], 1)?)
    }

    fn acceptance(&self) -> anyhow::Result<Acceptance> {
        let terms =
            Acceptance::unsigned(bandana_shared::epsilon::Epsilon::new(1.0)?, Rewards::binary());
        let terms = terms.least_release_delay(Duration::ZERO);
        Ok(terms.witnessed(self.witnessed()?))
    }

    /// A device that takes part in this experiment, and the question that it asks.
    fn device(&self, id: &str) -> anyhow::Result<(Client, FetchTask)> {
        let loss = PrivacyLoss::new(10.0)?;
        let mut client = Client::new(Budget::new(loss, 7, loss)?);
        client.enroll(ExperimentId::new(id)?, self.acceptance()?);
        Ok((client, question(id)?))
    }

    /// What `bandana log check` says.
    async fn check(&self, server: &AggregatorProcess, more: &[&str]) -> anyhow::Result<String> {
        let ask = ["log", "check", "--server", &server.device_url, "--log", &self.keys.log];
        run(&[&ask, &["--witness", &*self.keys.witness][..], more].concat()).await
    }
}

async fn run(arguments: &[&str]) -> anyhow::Result<String> {
    let ran = Command::new(program()).args(arguments).clean_environment().output().await?;
    ensure!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    Ok(String::from_utf8(ran.stdout)?)
}

fn experiment(id: &str) -> v1::Specification {
    v1::Specification { epsilon: 1.0, release_delay_seconds_max: 0, ..three_arms(id) }
}

async fn created(server: &AggregatorProcess, id: &str) -> anyhow::Result<Specification> {
    create(&address(&server.operator_url)?.to_string(), experiment(id)).await
}

/// The answer to a device, once the log says the experiment.
async fn fetched(server: &str, id: &str) -> anyhow::Result<Fetched> {
    let mut transport = Transport::to(server)?;
    let said = async {
        loop {
            match transport.fetch(&question(id)?).await {
                Err(TransportError::Status(status))
                    if status.code() == tonic::Code::Unavailable => {}
                other => return anyhow::Ok(other?),
            }
        }
    };
    tokio::time::timeout(PATIENCE, said).await.context("the log does not say it")?
}

/// Why a device refuses what it is told.
fn refusal(told: Result<(), ClientError>) -> Option<ViewError> {
    match told {
        Err(ClientError::Refused(Refusal::Log(error))) => Some(error),
        _ => None,
    }
}

#[tokio::test]
async fn what_one_device_alone_is_told_is_refused() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let witness = place.keys.new_witness().await?;
    let server = place.server("data", &[]).await?;
    created(&server, "logged").await?;
    let honest = fetched(&server.device_url, "logged").await?;
    let now = || SystemClock.now();
    // All devices get the same bytes, so that a cache may answer for the server. The witness may have
    // signed anew between two of them.
    let mut answers = Vec::new();
    for _ in 0..8 {
        let mut device = DeviceClient::connect(server.device_url.clone()).await?;
        let question = v1::GetExperimentRequest { experiment_id: "logged".to_owned() };
        answers.push(device.get_experiment(question).await?.into_inner().encode_to_vec());
    }
    ensure!(answers.windows(2).any(|two| two[0] == two[1]), "{answers:?}");

    // A policy, a store's id or a lifetime of the policy that only this device gets.
    let alone =
        Policy { weights: Weights::from_shares(&[0.0, 0.0, 1.0])?, ..honest.policy.clone() };
    let lifetime = Policy { time_to_live_seconds: 61, ..honest.policy.clone() };
    let version = Policy { version: honest.policy.version + 1, ..honest.policy.clone() };
    let forged = [
        Fetched { policy: alone, ..honest.clone() },
        Fetched { policy: lifetime, ..honest.clone() },
        Fetched { policy: version, ..honest.clone() },
        Fetched { store: Some(StoreId::new([9; 16])), ..honest.clone() },
        Fetched {
            specification: honest.specification.with_arm(Arm::new("four")?)?,
            ..honest.clone()
        },
    ];
    for (number, told) in forged.into_iter().enumerate() {
        let (mut device, task) = place.device("logged")?;
        let told = Fetched { policy: fitting(&told)?, ..told };
        let refused = refusal(device.on_fetched(&task, told, now()));
        ensure!(refused == Some(ViewError::Other), "{number}: {refused:?}");
        ensure!(device.draw(&ExperimentId::new("logged")?, now()).is_err(), "{number}");
    }
    let (mut device, task) = place.device("logged")?;
    let told = Fetched { view: None, ..honest.clone() };
    ensure!(refusal(device.on_fetched(&task, told, now())) == Some(ViewError::Missing));
    // Whoever runs the app can ask beforehand.
    let doctor = ["doctor", "logged", "--server", &server.device_url, "--log", &place.keys.log];
    let of_app = ["--least-release-delay-seconds", "0", "--witness", &place.keys.witness];
    let said = run(&[&doctor[..], &of_app].concat()).await?;
    ensure!(said.contains("of bandana.example/log says so"), "{said}");
    ensure!(run(&[&doctor[..], &of_app, &["--log-quorum", "2"]].concat()).await.is_err());
    // The same for all is taken, and then draws.
    device.on_fetched(&task, honest.clone(), now())?;
    device.draw(&ExperimentId::new("logged")?, now())?;
    // What witnesses saw two hours ago is no answer of now.
    let (mut device, task) = place.device("logged")?;
    let later = now().after(Duration::from_hours(2));
    let old = refusal(device.on_fetched(&task, honest, later));
    ensure!(old == Some(ViewError::Quorum { seen: 0, quorum: 1 }), "{old:?}");
    server.stop().await?;
    witness.stop().await
}

/// A policy with as many weights as there are arms.
fn fitting(told: &Fetched) -> anyhow::Result<Policy> {
    let arms = told.specification.arms().len();
    let weights = if told.policy.weights.len() == arms {
        told.policy.weights.clone()
    } else {
        Weights::uniform(&vec![true; arms])?
    };
    Ok(Policy { weights, ..told.policy.clone() })
}

#[tokio::test]
async fn two_views_of_one_log_are_cosigned_once() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let witness = place.keys.new_witness().await?;
    let server = place.server("data", &[]).await?;
    created(&server, "logged").await?;
    fetched(&server.device_url, "logged").await?;
    let state = place.path("state");
    place.check(&server, &["--state", &state]).await?;
    server.stop().await?;
    // The server is split: from here on it has two stores with the same key of the log.
    copy(Path::new(&place.path("data")), Path::new(&place.path("other")))?;
    let server = place.server("data", &[]).await?;
    created(&server, "for-all").await?;
    let honest = fetched(&server.device_url, "for-all").await?;
    let other = place.server("other", &[]).await?;
    created(&other, "for-few").await?;
    // Its log goes on, and is not cosigned: devices get what was cosigned last, or nothing.
    let mut transport = Transport::to(&other.device_url)?;
    let grown = async {
        let said = format!("http://{}", address(&other.device_url)?);
        let mut log = v1::transparency_log_client::TransparencyLogClient::connect(said).await?;
        loop {
            let epochs = log.list_epochs(v1::ListEpochsRequest { first: 0, limit: 0 }).await?;
            let of_few = |epoch: &v1::LogEpoch| {
                epoch.items.iter().any(|item| item.experiment_id == "for-few")
            };
            if epochs.into_inner().epochs.iter().any(of_few) {
                return anyhow::Ok(());
            }
        }
    };
    tokio::time::timeout(PATIENCE, grown).await.context("the other log does not grow")??;
    let told = transport.fetch(&question("for-few")?).await;
    ensure!(told.is_err(), "it was served: {told:?}");
    // Whoever watches sees it too, and the honest half goes on.
    let watched = place.check(&other, &["--state", &place.path("state")]).await;
    ensure!(watched.is_err(), "{watched:?}");
    place.check(&server, &["--state", &state]).await?;
    let (mut device, task) = place.device("for-all")?;
    device.on_fetched(&task, honest, SystemClock.now())?;
    server.stop().await?;
    other.kill().await?;
    witness.stop().await
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

#[tokio::test]
async fn servers_and_witnesses_that_are_killed_go_on_with_one_log() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let mut witness = place.keys.new_witness().await?;
    let at = address(&witness.url)?;
    let state = place.path("state");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let rounds = kills()?;
    for round in 0..rounds {
        let server = place.server("data", &[]).await?;
        let id = format!("round-{round}");
        created(&server, &id).await?;
        // Until then the epoch is written, handed in, cosigned and served, or not.
        let moment = Duration::from_millis(random.random_range(0..2000));
        if let Ok(told) = tokio::time::timeout(moment, fetched(&server.device_url, &id)).await {
            let (mut device, task) = place.device(&id)?;
            device.on_fetched(&task, told?, SystemClock.now())?;
            place.check(&server, &["--state", &state]).await?;
        }
        if random.random() {
            server.kill().await?;
        } else {
            server.stop().await?;
        }
        if random.random() {
            witness.kill().await?;
            witness = place.keys.witness_at(at, &[]).await?;
        }
    }
    let server = place.server("data", &[]).await?;
    // Whatever was acknowledged is in the log, whose last epoch is served.
    for round in 0..rounds {
        fetched(&server.device_url, &format!("round-{round}")).await?;
    }
    let said = place.check(&server, &["--json"]).await?;
    for round in 0..rounds {
        ensure!(said.contains(&format!("\"round-{round}\"")), "{said}");
    }
    place.check(&server, &["--state", &state]).await?;
    server.stop().await?;
    witness.stop().await
}

#[tokio::test]
async fn a_gateway_key_of_ones_own_is_refused_and_a_relay_can_be_a_witness() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let key = gateway_key(program(), place.folder.path()).await?.display().to_string();
    // The witness is the relay itself, so its address must be known before the server starts.
    let free = std::net::TcpListener::bind(ANYWHERE)?;
    let at = free.local_addr()?;
    drop(free);
    place.keys.name_witness(&format!("http://{at}"))?;
    let server = place.server("data", &["--gateway-key-file", &key]).await?;
    let flags = place.keys.of_witness();
    let flags: Vec<&str> = AT_ONCE
        .into_iter()
        .chain(flags.iter().map(String::as_str))
        .chain(["--witness-init"])
        .collect();
    let relay = RelayProcess::start_at(at, &flags, program(), &server.device_url).await?;
    created(&server, "relayed").await?;
    let through = |url: &str| -> anyhow::Result<Transport> {
        Ok(Transport::to(url)?.through_relay_unsigned().witnessed(place.witnessed()?))
    };
    let mut transport = through(&relay.url)?;
    let served = async {
        loop {
            if let Ok(fetched) = transport.fetch(&question("relayed")?).await {
                return anyhow::Ok(fetched);
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, served).await.context("nothing was served")??;
    let (mut device, task) = place.device("relayed")?;
    device.on_fetched(&task, told, SystemClock.now())?;

    // Another gateway with a key of its own, for one device: no log says that key.
    let folder = tempfile::tempdir()?;
    let own = gateway_key(program(), folder.path()).await?.display().to_string();
    let other = AggregatorProcess::start_with(
        &["--gateway-key-file", &own],
        program(),
        &folder.path().join("data"),
    )
    .await?;
    let refused = through(&other.device_url)?.fetch(&question("relayed")?).await;
    let refused = format!("{:?}", refused.err().context("its key was taken")?);
    ensure!(refused.contains("keeps no public log"), "{refused}");
    other.stop().await?;
    relay.stop().await?;
    server.stop().await
}

#[test]
fn replicas_keep_one_log() -> anyhow::Result<()> {
    let postgres = Postgres::start()?;
    let url = postgres.database()?;
    tokio::runtime::Runtime::new()?.block_on(replicas_on(&url))
}

async fn replicas_on(url: &str) -> anyhow::Result<()> {
    let place = Place::new().await?;
    let witness = place.keys.new_witness().await?;
    let flags = place.keys.of_server();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let one = AggregatorProcess::start_replica_with(&flags, program(), url).await?;
    let other = AggregatorProcess::start_replica_with(&flags, program(), url).await?;
    for id in ["first", "second"] {
        created(&one, id).await?;
        for server in [&one, &other] {
            let told = fetched(&server.device_url, id).await?;
            let (mut device, task) = place.device(id)?;
            device.on_fetched(&task, told, SystemClock.now())?;
        }
    }
    let mut logs = BTreeSet::new();
    for server in [&one, &other] {
        let state = place.path("state");
        place.check(server, &["--state", &state]).await?;
        let mut state: serde_json::Value = serde_json::from_str(&fs::read_to_string(state)?)?;
        // All but the time of the check.
        state
            .as_object_mut()
            .context("no object")?
            .remove("checked_unix_seconds")
            .context("a time")?;
        logs.insert(state.to_string());
    }
    ensure!(logs.len() == 1, "{logs:?}");
    one.stop().await?;
    other.stop().await?;
    witness.stop().await
}
