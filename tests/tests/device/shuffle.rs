//! Reports that a relay shuffles: real devices, a real relay, a real aggregator.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::Transport;
use bandana_client::{Acceptance, Shuffled};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::relay_process::{AT_ONCE, RelayProcess, ShuffleFlags, gateway_key};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::{ArmIndex, Day, Digest, UploadId};
use bandana_shared::rewards::Rewards;
use bandana_shared::shuffling::{BatchSize, Envelope, ShuffledReport};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1;
use bandana_shared::wire::v1::batches_client::BatchesClient;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::gateway_client::GatewayClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::shuffler_client::ShufflerClient;
use bandana_shared::wire::v1::{
    EstimatesRequest, ExperimentName, GetExperimentRequest, GetGatewayKeysRequest,
    GetShuffledRequest, SubmitBatchRequest, SubmitShuffledRequest, UploadResponse, UploadStatus,
};
use bandana_tests::attacked::create;
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::test_clock::TestClock;
use ohttp::ClientRequest;
use rusqlite::Connection;
use tempfile::TempDir;
use tonic::{Code, Status};

use super::relay::{PATIENCE, USERS, User, address, kills, program, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Reports of a batch.
const BATCH: u32 = 5;

/// An aggregator, a relay that shuffles, and an experiment in batches.
struct Shuffling {
    folder: TempDir,
    aggregator: AggregatorProcess,
    relay: RelayProcess,
    flags: ShuffleFlags,
    experiment: Specification,
}

impl Shuffling {
    async fn start(more: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = gateway_key(program(), folder.path()).await?.display().to_string();
        let of_aggregator = ["--gateway-key-file", &*key];
        let data_dir = folder.path().join("data");
        let aggregator =
            AggregatorProcess::start_with(&of_aggregator, program(), &data_dir).await?;
        let operators = &aggregator.operator_url;
        let flags = ShuffleFlags::new(program(), folder.path(), operators).await?;
        let of_relay = [&AT_ONCE, more].concat();
        let gateway = &aggregator.device_url;
        let relay = RelayProcess::start(&flags.after(&of_relay), program(), gateway).await?;
        let message = v1::Specification {
            simulation: true,
            attribution_window_seconds: 0,
            shuffle_batch: BATCH,
            ..three_arms("shuffled")
        };
        let experiment = create(&address(operators)?.to_string(), message).await?;
        Ok(Self { folder, aggregator, relay, flags, experiment })
    }

    fn transport(&self) -> anyhow::Result<Transport> {
        Ok(Transport::to(&self.relay.url)?.through_relay_unsigned())
    }

    /// Terms of an app that believes this relay.
    fn acceptance(&self) -> anyhow::Result<Acceptance> {
        let terms =
            Shuffled::by(self.flags.keys.clone(), PrivacyLoss::UNBOUNDED, Delta::new(1e-6)?);
        let acceptance = Acceptance::unsigned(self.experiment.epsilon(), Rewards::binary());
        Ok(acceptance.shuffled(terms))
    }

    async fn user(&self, number: u64) -> anyhow::Result<User> {
        User::with(number, &self.experiment, self.acceptance()?, &mut self.transport()?).await
    }

    /// Has users with these numbers report.
    async fn report(&self, numbers: std::ops::Range<u64>) -> anyhow::Result<()> {
        for number in numbers {
            let user = self.user(number).await?;
            ensure!(user.report(&mut self.transport()?).await? == 1, "user {number}");
        }
        Ok(())
    }

    /// Reports of each arm that the aggregator has counted.
    async fn counted(&self) -> anyhow::Result<Vec<u64>> {
        let mut operator = OperatorClient::connect(self.aggregator.operator_url.clone()).await?;
        let experiment_id = self.experiment.experiment_id().to_string();
        let request = EstimatesRequest { experiment_id, ..Default::default() };
        let estimates = operator.get_estimates(request).await?.into_inner();
        Ok(estimates.arms.iter().map(|arm| arm.reports).collect())
    }

    /// Waits until the aggregator has counted so many reports.
    async fn counts(&self, expected: u64) -> anyhow::Result<()> {
        let counted = async {
            loop {
                let counted: u64 = self.counted().await?.iter().sum();
                ensure!(counted <= expected, "{counted} reports are counted, of {expected}");
                if counted == expected {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, counted).await.context("they are not counted")?
    }

    /// Stops the relay, and returns the reports that wait in its store for their batch, and those in
    /// batches.
    async fn stop_relay(self) -> anyhow::Result<(Waiting, Stopped)> {
        let Self { folder, aggregator, relay, flags, experiment } = self;
        let at = address(&relay.url)?;
        relay.stop().await?;
        let waiting = Waiting::read(folder.path())?;
        Ok((waiting, Stopped { folder, aggregator, flags, experiment, at }))
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.relay.stop().await?;
        self.aggregator.stop().await
    }

    async fn submit(&self, envelope: &Envelope) -> anyhow::Result<UploadResponse> {
        let sealed = seal(&self.flags.keys, &envelope.to_bytes())?;
        Ok(submit(&self.relay.url, sealed).await?)
    }

    /// An envelope with a sealed report.
    async fn envelope(&self, number: u8, arm: usize) -> anyhow::Result<Envelope> {
        let (digest, arm) = (self.experiment.digest(), ArmIndex::new(arm)?);
        let report = ShuffledReport { digest, arm, bit: true };
        let mut gateway = GatewayClient::connect(self.relay.url.clone()).await?;
        let keys = gateway.get_gateway_keys(GetGatewayKeysRequest {}).await?.into_inner();
        let keys = GatewayKeys::new(&keys.key_configurations)?;
        let sealed = seal(&keys, &report.to_bytes())?;
        let mut device = DeviceClient::connect(self.aggregator.device_url.clone()).await?;
        let question = GetExperimentRequest { experiment_id: "shuffled".to_owned() };
        let day = Day::new(device.get_experiment(question).await?.into_inner().server_day);
        Ok(Envelope {
            id: UploadId::new([number; 16]),
            day,
            digest,
            arm,
            batch: BatchSize::new(BATCH)?,
            keys: keys.digest(),
            report: sealed.try_into().map_err(|_| anyhow::anyhow!("another length"))?,
        })
    }
}

/// All but the relay.
struct Stopped {
    folder: TempDir,
    aggregator: AggregatorProcess,
    flags: ShuffleFlags,
    experiment: Specification,
    at: std::net::SocketAddr,
}

impl Stopped {
    async fn start_relay(self) -> anyhow::Result<Shuffling> {
        let Self { folder, aggregator, flags, experiment, at } = self;
        let of_relay = flags.after(&AT_ONCE);
        let gateway = &aggregator.device_url;
        let relay = RelayProcess::start_at(at, &of_relay, program(), gateway).await?;
        Ok(Shuffling { folder, aggregator, relay, flags, experiment })
    }
}

/// Reports in the store of a relay that is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    in_piles: u64,
    in_batches: u64,
}

impl Waiting {
    fn read(folder: &Path) -> anyhow::Result<Self> {
        let store = Connection::open(folder.join("relay/bandana.sqlite3"))?;
        let number = |query: &str| store.query_row(query, [], |row| row.get::<_, u64>(0));
        let bytes = number("SELECT coalesce(sum(length(reports)), 0) FROM batch")?;
        let in_batches = bytes / ShuffledReport::SEALED_BYTES as u64;
        Ok(Self { in_piles: number("SELECT count(*) FROM report")?, in_batches })
    }
}

fn seal(keys: &GatewayKeys, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let client = ClientRequest::from_encoded_config_list(keys.configurations())?;
    Ok(client.encapsulate(bytes)?.0)
}

async fn submit(relay: &str, envelope: Vec<u8>) -> Result<UploadResponse, Status> {
    let connected = ShufflerClient::connect(relay.to_owned()).await;
    let mut shuffler = connected.map_err(|error| Status::unknown(error.to_string()))?;
    let request = SubmitShuffledRequest { envelope: envelope.into() };
    Ok(shuffler.submit_shuffled(request).await?.into_inner())
}

/// What of so many reports for an arm is in full batches.
fn whole(reports: u64) -> u64 {
    reports / u64::from(BATCH) * u64::from(BATCH)
}

#[tokio::test]
async fn the_aggregator_gets_full_batches_and_the_rest_waits_over_a_restart() -> anyhow::Result<()>
{
    let shuffling = Shuffling::start(&[]).await?;
    shuffling.report(0..13).await?;
    let (first, stopped) = shuffling.stop_relay().await?;
    let shuffling = stopped.start_relay().await?;
    shuffling.report(13..40).await?;
    let counted = {
        // As many as fill batches, whatever the arms were.
        let total = 40;
        let (waiting, stopped) = shuffling.stop_relay().await?;
        assert!(first.in_piles > 0 && waiting.in_piles <= 3 * u64::from(BATCH - 1), "{waiting:?}");
        let shuffling = stopped.start_relay().await?;
        shuffling.counts(total - waiting.in_piles).await?;
        let counted = shuffling.counted().await?;
        shuffling.stop().await?;
        counted
    };
    assert!(counted.iter().all(|reports| *reports == whole(*reports)), "{counted:?}");
    Ok(())
}

#[tokio::test]
async fn a_device_believes_no_other_relay_and_calls_no_aggregator_directly() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    // Without terms for shuffling the specification is refused.
    let plain = Acceptance::unsigned(shuffling.experiment.epsilon(), Rewards::binary());
    let refused =
        User::with(1, &shuffling.experiment, plain, &mut shuffling.transport()?).await.map(drop);
    assert!(refused.is_err());
    // So is one that certifies too little.
    let little =
        Shuffled::by(shuffling.flags.keys.clone(), PrivacyLoss::new(0.01)?, Delta::new(1e-6)?);
    let little =
        Acceptance::unsigned(shuffling.experiment.epsilon(), Rewards::binary()).shuffled(little);
    let refused =
        User::with(2, &shuffling.experiment, little, &mut shuffling.transport()?).await.map(drop);
    assert!(refused.is_err());
    // A direct upload is refused by the aggregator, whoever made it.
    let mut device = DeviceClient::connect(shuffling.aggregator.device_url.clone()).await?;
    let today = shuffling.envelope(1, 0).await?.day;
    let direct = upload(1, &shuffling.experiment, today, &[(0, true)])?;
    let answer = device.submit_upload(direct).await?.into_inner();
    assert_eq!(answer.status(), UploadStatus::Malformed, "{answer:?}");
    assert!(answer.message.contains("batches"), "{answer:?}");
    shuffling.stop().await
}

#[tokio::test]
async fn what_a_relay_refuses() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    let good = shuffling.envelope(1, 0).await?;
    let status = |answer: anyhow::Result<UploadResponse>| answer.map(|answer| answer.status());
    assert_eq!(status(shuffling.submit(&good).await)?, UploadStatus::Accepted);
    assert_eq!(status(shuffling.submit(&good).await)?, UploadStatus::Duplicate);
    let id = |number: u8| UploadId::new([number; 16]);
    for (envelope, expected) in [
        (
            Envelope { id: id(2), batch: BatchSize::new(BATCH - 1)?, ..good.clone() },
            UploadStatus::Malformed,
        ),
        (Envelope { id: id(3), arm: ArmIndex::new(3)?, ..good.clone() }, UploadStatus::UnknownArm),
        (
            Envelope { id: id(4), digest: Digest::new([7; 16]), ..good.clone() },
            UploadStatus::UnknownSpecification,
        ),
        (Envelope { id: id(5), day: good.day.back(7), ..good.clone() }, UploadStatus::Expired),
        (Envelope { id: id(6), day: good.day.forward(2), ..good.clone() }, UploadStatus::FutureDay),
    ] {
        assert_eq!(status(shuffling.submit(&envelope).await)?, expected, "{envelope:?}");
    }
    // What was not sealed for this relay, or is no envelope.
    let relay = &shuffling.relay.url;
    let sealed = seal(&shuffling.flags.keys, &good.to_bytes())?;
    let mut damaged = sealed.clone();
    damaged[100] ^= 1;
    let other: GatewayKeys = run(&[
        "gateway-key",
        "generate",
        "--out",
        &shuffling.folder.path().join("other").display().to_string(),
    ])
    .await?
    .lines()
    .next()
    .context("no key")?
    .parse()?;
    for garbage in [
        damaged,
        sealed[1..].to_vec(),
        Vec::new(),
        vec![0; Envelope::SEALED_BYTES],
        seal(&other, &good.to_bytes())?,
        seal(&shuffling.flags.keys, &good.to_bytes()[1..])?,
        seal(&shuffling.flags.keys, &[0; Envelope::BYTES])?,
    ] {
        let refused = submit(relay, garbage).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    }
    let refused = submit(relay, vec![0; 2000]).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let (waiting, stopped) = shuffling.stop_relay().await?;
    assert_eq!(waiting, Waiting { in_piles: 1, in_batches: 0 });
    stopped.aggregator.stop().await
}

#[tokio::test]
async fn reports_that_nobody_can_open_are_left_out_and_the_others_count() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    for number in 1..=3 {
        shuffling.submit(&shuffling.envelope(number, 1).await?).await?;
    }
    let nonsense =
        Envelope { report: [0; ShuffledReport::SEALED_BYTES], ..shuffling.envelope(4, 1).await? };
    shuffling.submit(&nonsense).await?;
    // A report of another arm, in the pile of this one.
    let moved = Envelope { arm: ArmIndex::new(1)?, ..shuffling.envelope(5, 2).await? };
    shuffling.submit(&moved).await?;
    shuffling.counts(3).await?;
    assert_eq!(shuffling.counted().await?, [0, 3, 0]);
    shuffling.stop().await
}

#[tokio::test]
async fn a_batch_counts_once_and_as_a_whole_or_not_at_all() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    let mut reports = Vec::new();
    for number in 0..BATCH {
        reports.extend(shuffling.envelope(u8::try_from(number)?, 0).await?.report);
    }
    let good = SubmitBatchRequest {
        batch_id: vec![1; 16].into(),
        digest: shuffling.experiment.digest().as_bytes().to_vec().into(),
        day: shuffling.envelope(1, 0).await?.day.get(),
        arm: 0,
        reports: reports.clone().into(),
    };
    let mut batches = BatchesClient::connect(shuffling.aggregator.operator_url.clone()).await?;
    let other = |id: u8| SubmitBatchRequest { batch_id: vec![id; 16].into(), ..good.clone() };
    let one_less = reports.len() - ShuffledReport::SEALED_BYTES;
    for (batch, expected) in [
        (good.clone(), UploadStatus::Accepted),
        (good.clone(), UploadStatus::Duplicate),
        (
            SubmitBatchRequest { reports: reports[..one_less].to_vec().into(), ..other(2) },
            UploadStatus::Malformed,
        ),
        (
            SubmitBatchRequest { reports: [&reports[..], &reports].concat().into(), ..other(3) },
            UploadStatus::Malformed,
        ),
        (
            SubmitBatchRequest { batch_id: vec![1; 15].into(), ..good.clone() },
            UploadStatus::Malformed,
        ),
        // They are about arm 0.
        (SubmitBatchRequest { arm: 1, ..other(4) }, UploadStatus::Malformed),
        (SubmitBatchRequest { arm: 3, ..other(5) }, UploadStatus::UnknownArm),
        (
            SubmitBatchRequest { digest: vec![9; 16].into(), ..other(6) },
            UploadStatus::UnknownSpecification,
        ),
        (SubmitBatchRequest { day: good.day - 100, ..other(7) }, UploadStatus::Expired),
    ] {
        let answer = batches.submit_batch(batch).await?.into_inner();
        assert_eq!(answer.status(), expected, "{answer:?}");
    }
    // Of another gateway: it may be this one's in time.
    let foreign = SubmitBatchRequest { reports: vec![0; reports.len()].into(), ..other(8) };
    let refused = batches.submit_batch(foreign).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert_eq!(shuffling.counted().await?, [u64::from(BATCH), 0, 0]);
    let unknown = GetShuffledRequest { digest: vec![9; 16].into() };
    assert_eq!(batches.get_shuffled(unknown).await.unwrap_err().code(), Code::NotFound);
    shuffling.stop().await
}

#[tokio::test]
async fn what_is_left_at_the_end_of_an_experiment_is_dropped() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    shuffling.submit(&shuffling.envelope(1, 0).await?).await?;
    shuffling.submit(&shuffling.envelope(2, 1).await?).await?;
    let late = shuffling.envelope(3, 1).await?;
    let mut operator = OperatorClient::connect(shuffling.aggregator.operator_url.clone()).await?;
    let name = ExperimentName { experiment_id: "shuffled".to_owned() };
    operator.stop_experiment(name).await?;
    let (waiting, stopped) = shuffling.stop_relay().await?;
    assert_eq!(waiting.in_piles, 2);
    // A relay looks for ends when it starts, and now and then.
    let shuffling = stopped.start_relay().await?;
    let ended = async {
        while Waiting::read(shuffling.folder.path())?.in_piles > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, ended).await??;
    let answer = shuffling.submit(&late).await?;
    assert_eq!(answer.status(), UploadStatus::Stopped, "{answer:?}");
    assert_eq!(shuffling.counted().await?, [0, 0, 0]);
    shuffling.stop().await
}

/// Waits until the relay's store has no batch.
async fn until_no_batch_waits(folder: &Path) -> anyhow::Result<()> {
    let settled = async {
        while Waiting::read(folder)?.in_batches > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, settled).await?
}

/// Makes tokens in files of this folder, and returns the file of all.
async fn make_tokens(folder: &Path) -> anyhow::Result<String> {
    let tokens = folder.join("tokens").display().to_string();
    for (name, role) in [("admin", "administrator"), ("looker", "viewer"), ("relay", "relay")] {
        let new = ["token", "new", "--name", name, "--role", role, "--file", &tokens];
        std::fs::write(folder.join(format!("{name}-token")), run(&new).await?)?;
    }
    Ok(tokens)
}

#[tokio::test]
async fn batches_wait_for_a_relay_s_token_and_for_a_former_key() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    for number in 1..BATCH {
        let number = u8::try_from(number)?;
        shuffling.submit(&shuffling.envelope(number, 0).await?).await?;
    }
    let last = shuffling.envelope(99, 0).await?;
    let later = shuffling.envelope(98, 0).await?;
    let (of_devices, of_operators) =
        (address(&shuffling.aggregator.device_url)?, address(&shuffling.aggregator.operator_url)?);
    let Shuffling { folder, aggregator, relay, flags, experiment } = shuffling;
    let at = address(&relay.url)?;
    aggregator.stop().await?;
    // The relay goes on: it knows the experiment and the keys.
    let sealed = |envelope: &Envelope| seal(&flags.keys, &envelope.to_bytes());
    assert_eq!(submit(&relay.url, sealed(&last)?).await?.status(), UploadStatus::Accepted);
    relay.stop().await?;
    assert_eq!(Waiting::read(folder.path())?.in_batches, u64::from(BATCH));

    // The aggregator asks for tokens from now on, and its gateway has another key.
    let path = |name: &str| folder.path().join(name).display().to_string();
    let tokens = make_tokens(folder.path()).await?;
    std::fs::create_dir(folder.path().join("new"))?;
    let new_key = gateway_key(program(), &folder.path().join("new")).await?.display().to_string();
    let new_keys: GatewayKeys = run(&["gateway-key", "show", &new_key]).await?.trim().parse()?;
    let of_aggregator = ["--operator-tokens-file", &tokens, "--gateway-key-file", &new_key];
    let data_dir = folder.path().join("data");
    let start = |flags: Vec<String>| {
        let data_dir = data_dir.clone();
        async move {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let addresses = (of_devices, of_operators);
            AggregatorProcess::start_at_both_with(addresses, &flags, program(), &data_dir).await
        }
    };
    let of_aggregator = of_aggregator.map(str::to_owned).to_vec();
    let aggregator = start(of_aggregator.clone()).await?;
    let gateway = aggregator.device_url.clone();
    let relay_with = |token: &str| {
        let (flags, token) = (flags.after(&AT_ONCE), path(token));
        let gateway = gateway.clone();
        async move {
            let flags = [&flags[..], &["--token-file", &token]].concat();
            RelayProcess::start_at(at, &flags, program(), &gateway).await
        }
    };
    // A viewer's token is not a relay's, so the relay learns nothing, and keeps nothing more.
    let relay = relay_with("looker-token").await?;
    let now = Envelope { keys: new_keys.digest(), ..later.clone() };
    let refused = submit(&relay.url, sealed(&now)?).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    relay.stop().await?;
    let relay = relay_with("relay-token").await?;
    // What is sealed for the old key would be seen apart from others.
    let refused = submit(&relay.url, sealed(&later)?).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert_eq!(submit(&relay.url, sealed(&now)?).await?.status(), UploadStatus::Accepted);
    relay.stop().await?;
    // All five were sealed for the old key: the batch is kept until the aggregator has it.
    assert_eq!(Waiting::read(folder.path())?.in_batches, u64::from(BATCH));
    aggregator.stop().await?;
    let former = ["--gateway-former-key-file".to_owned(), path("gateway-key")];
    let aggregator = start([of_aggregator, former.to_vec()].concat()).await?;
    let relay = relay_with("relay-token").await?;
    until_no_batch_waits(folder.path()).await?;
    let url = aggregator.operator_url.clone();
    let admin = path("admin-token");
    let name = experiment.experiment_id().to_string();
    let estimate = ["estimate", &*name, "--json", "--operator-url", &url, "--token-file", &admin];
    let estimates: serde_json::Value = serde_json::from_str(&run(&estimate).await?)?;
    assert_eq!(estimates["reports"], BATCH);
    relay.stop().await?;
    aggregator.stop().await
}

#[tokio::test]
async fn shuffled_reports_are_counted_once_though_relay_and_aggregator_are_killed()
-> anyhow::Result<()> {
    let mut shuffling = Shuffling::start(&[]).await?;
    let relay_url = shuffling.relay.url.clone();
    let (of_devices, of_operators, of_relay) = (
        address(&shuffling.aggregator.device_url)?,
        address(&shuffling.aggregator.operator_url)?,
        address(&relay_url)?,
    );
    let data_dir = shuffling.folder.path().join("data");
    let key = shuffling.folder.path().join("gateway-key").display().to_string();
    let (is_over, kept) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let users: Vec<_> = (0..USERS)
        .map(|first| {
            let (is_over, kept) = (Arc::clone(&is_over), Arc::clone(&kept));
            let (experiment, url) = (shuffling.experiment.clone(), relay_url.clone());
            let acceptance = shuffling.acceptance();
            tokio::spawn(async move {
                let acceptance = acceptance?;
                let mut transport = Transport::to(&url)?.through_relay_unsigned();
                for number in (first..).step_by(usize::try_from(USERS)?) {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let acceptance = acceptance.clone();
                    let user = User::with(number, &experiment, acceptance, &mut transport).await?;
                    kept.fetch_add(user.report(&mut transport).await?, Ordering::SeqCst);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for kill in 0..kills()? {
        let wanted = kept.load(Ordering::SeqCst) + 20;
        while kept.load(Ordering::SeqCst) < wanted {
            ensure!(users.iter().all(|user| !user.is_finished()), "a user gave up");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if kill % 2 == 0 {
            shuffling.relay.kill().await?;
            let flags = shuffling.flags.after(&AT_ONCE);
            let gateway = shuffling.aggregator.device_url.clone();
            shuffling.relay = RelayProcess::start_at(of_relay, &flags, program(), &gateway).await?;
        } else {
            shuffling.aggregator.kill().await?;
            let (flags, addresses) = (["--gateway-key-file", &key], (of_devices, of_operators));
            shuffling.aggregator =
                AggregatorProcess::start_at_both_with(addresses, &flags, program(), &data_dir)
                    .await?;
        }
    }
    is_over.store(true, Ordering::SeqCst);
    for user in users {
        user.await??;
    }
    let kept = kept.load(Ordering::SeqCst);
    let (waiting, stopped) = shuffling.stop_relay().await?;
    let shuffling = stopped.start_relay().await?;
    shuffling.counts(kept - waiting.in_piles).await?;
    let counted = shuffling.counted().await?;
    assert!(counted.iter().all(|reports| *reports == whole(*reports)), "{counted:?}");
    shuffling.stop().await
}

/// Fills a batch for this arm with what nobody can open.
async fn fill_with_nonsense(shuffling: &Shuffling, first: u8, arm: usize) -> anyhow::Result<()> {
    for number in first..first + u8::try_from(BATCH)? {
        let mut nonsense = shuffling.envelope(number, arm).await?;
        nonsense.report = [number; ShuffledReport::SEALED_BYTES];
        assert_eq!(shuffling.submit(&nonsense).await?.status(), UploadStatus::Accepted);
    }
    Ok(())
}

#[tokio::test]
async fn batches_that_nobody_can_open_hold_up_no_others_and_are_given_up() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    for number in [10, 20, 30] {
        fill_with_nonsense(&shuffling, number, 0).await?;
    }
    for number in 1..=5 {
        shuffling.submit(&shuffling.envelope(number, 1).await?).await?;
    }
    shuffling.counts(u64::from(BATCH)).await?;
    let today = shuffling.envelope(1, 0).await?.day;
    let (waiting, stopped) = shuffling.stop_relay().await?;
    assert_eq!(waiting, Waiting { in_piles: 0, in_batches: 3 * u64::from(BATCH) });
    // A relay eight days later, to which the aggregator says the same.
    let Stopped { folder, aggregator, flags, .. } = stopped;
    let clock = TestClock::at(today.forward(8), folder.path())?;
    let program = clock.wrapper(PROGRAM.as_ref(), folder.path())?;
    let of_relay = flags.after(&AT_ONCE);
    let relay = RelayProcess::start(&of_relay, &program, &aggregator.device_url).await?;
    until_no_batch_waits(folder.path()).await?;
    relay.stop().await?;
    aggregator.stop().await
}

#[tokio::test]
async fn the_same_seal_twice_in_a_batch_is_one_report() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    let good = shuffling.envelope(1, 0).await?;
    for number in 1..=4 {
        shuffling.submit(&Envelope { id: UploadId::new([number; 16]), ..good.clone() }).await?;
    }
    shuffling.submit(&shuffling.envelope(5, 0).await?).await?;
    shuffling.counts(2).await?;
    shuffling.stop().await
}

#[tokio::test]
async fn a_relay_makes_no_store_unless_it_is_told_to() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    let (_, Stopped { folder, aggregator, flags, .. }) = shuffling.stop_relay().await?;
    std::fs::remove_dir_all(folder.path().join("relay"))?;
    let without: Vec<&str> =
        flags.after(&AT_ONCE).into_iter().filter(|flag| *flag != "--init").collect();
    let started = RelayProcess::start(&without, program(), &aggregator.device_url).await;
    assert!(started.is_err(), "the disk with its store is not mounted");
    assert!(!folder.path().join("relay").exists());
    aggregator.stop().await
}
