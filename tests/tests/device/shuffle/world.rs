//! An aggregator, a relay that shuffles, and what a test does with them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::Transport;
use bandana_client::{Acceptance, Shuffled};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::relay_process::{AT_ONCE, RelayProcess, ShuffleFlags, gateway_key};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::{CellIndex, Day, UploadId};
use bandana_shared::rewards::Rewards;
use bandana_shared::shuffling::{BatchSize, Envelope, ShuffledReport};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::gateway_client::GatewayClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::shuffler_client::ShufflerClient;
use bandana_shared::wire::v1::{
    EstimatesRequest, GetExperimentRequest, GetGatewayKeysRequest, SubmitShuffledRequest,
    UploadResponse,
};
use bandana_tests::attacked::create;
use bandana_tests::harness::three_arms;
use ohttp::ClientRequest;
use rusqlite::Connection;
use tempfile::TempDir;
use tonic::Status;

use crate::relay::{address, program, run};
use crate::users::{PATIENCE, User};

/// Reports of a batch.
pub(super) const BATCH: u32 = 5;

/// An aggregator, a relay that shuffles, and an experiment in batches.
pub(super) struct Shuffling {
    pub(super) folder: TempDir,
    pub(super) aggregator: AggregatorProcess,
    pub(super) relay: RelayProcess,
    pub(super) flags: ShuffleFlags,
    pub(super) experiment: Specification,
}

impl Shuffling {
    pub(super) async fn start(more: &[&str]) -> anyhow::Result<Self> {
        Self::start_sharing("1", more).await
    }

    /// With this share of a batch for an address.
    pub(super) async fn start_sharing(share: &str, more: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = gateway_key(program(), folder.path()).await?.display().to_string();
        let of_aggregator = ["--gateway-key-file", &*key];
        let data_dir = folder.path().join("data");
        let aggregator =
            AggregatorProcess::start_with(&of_aggregator, program(), &data_dir).await?;
        let operators = &aggregator.operator_url;
        let mut flags = ShuffleFlags::new(program(), folder.path(), operators).await?;
        share.clone_into(flags.flags.last_mut().context("no flags")?);
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

    pub(super) fn transport(&self) -> anyhow::Result<Transport> {
        Ok(Transport::to(&self.relay.url)?.through_relay_unsigned())
    }

    /// Terms of an app that believes this relay.
    pub(super) fn acceptance(&self) -> anyhow::Result<Acceptance> {
        let terms =
            Shuffled::by(self.flags.keys.clone(), PrivacyLoss::UNBOUNDED, Delta::new(1e-6)?);
        let acceptance = Acceptance::unsigned(self.experiment.epsilon(), Rewards::binary());
        Ok(acceptance.shuffled(terms))
    }

    pub(super) async fn user(&self, number: u64) -> anyhow::Result<User> {
        User::with(number, &self.experiment, self.acceptance()?, &mut self.transport()?).await
    }

    /// Has users with these numbers report.
    pub(super) async fn report(&self, numbers: std::ops::Range<u64>) -> anyhow::Result<()> {
        for number in numbers {
            let user = self.user(number).await?;
            ensure!(user.report(&mut self.transport()?).await? == 1, "user {number}");
        }
        Ok(())
    }

    /// Reports of each arm that the aggregator has counted.
    pub(super) async fn counted(&self) -> anyhow::Result<Vec<u64>> {
        let mut operator = OperatorClient::connect(self.aggregator.operator_url.clone()).await?;
        let experiment_id = self.experiment.experiment_id().to_string();
        let request = EstimatesRequest { experiment_id, ..Default::default() };
        let estimates = operator.get_estimates(request).await?.into_inner();
        Ok(estimates.arms.iter().map(|arm| arm.reports).collect())
    }

    /// Waits until the aggregator has counted so many reports.
    pub(super) async fn counts(&self, expected: u64) -> anyhow::Result<()> {
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
    pub(super) async fn stop_relay(self) -> anyhow::Result<(Waiting, Stopped)> {
        let Self { folder, aggregator, relay, flags, experiment } = self;
        let at = address(&relay.url)?;
        relay.stop().await?;
        let waiting = Waiting::read(folder.path())?;
        Ok((waiting, Stopped { folder, aggregator, flags, experiment, at }))
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.relay.stop().await?;
        self.aggregator.stop().await
    }

    pub(super) async fn submit(&self, envelope: &Envelope) -> anyhow::Result<UploadResponse> {
        let sealed = seal(&self.flags.keys, &envelope.to_bytes())?;
        Ok(submit(&self.relay.url, sealed).await?)
    }

    /// An envelope with a sealed report.
    pub(super) async fn envelope(&self, number: u8, cell: usize) -> anyhow::Result<Envelope> {
        let (digest, cell) = (self.experiment.digest(), CellIndex::new(cell)?);
        let report = ShuffledReport { digest, cell, bit: true };
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
            cell,
            batch: BatchSize::new(BATCH)?,
            keys: keys.digest(),
            report: sealed.try_into().map_err(|_| anyhow::anyhow!("another length"))?,
        })
    }
}

/// All but the relay.
pub(super) struct Stopped {
    pub(super) folder: TempDir,
    pub(super) aggregator: AggregatorProcess,
    pub(super) flags: ShuffleFlags,
    pub(super) experiment: Specification,
    pub(super) at: std::net::SocketAddr,
}

impl Stopped {
    pub(super) async fn start_relay(self) -> anyhow::Result<Shuffling> {
        let Self { folder, aggregator, flags, experiment, at } = self;
        let of_relay = flags.after(&AT_ONCE);
        let gateway = &aggregator.device_url;
        let relay = RelayProcess::start_at(at, &of_relay, program(), gateway).await?;
        Ok(Shuffling { folder, aggregator, relay, flags, experiment })
    }
}

/// Reports in the store of a relay that is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) waiting_alone: u64,
    pub(super) in_batches: u64,
}

impl Waiting {
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let store = Connection::open(folder.join("relay/bandana.sqlite3"))?;
        let number = |query: &str| store.query_row(query, [], |row| row.get::<_, u64>(0));
        let bytes = number("SELECT coalesce(sum(length(reports)), 0) FROM batch")?;
        let in_batches = bytes / ShuffledReport::SEALED_BYTES as u64;
        Ok(Self { waiting_alone: number("SELECT count(*) FROM report")?, in_batches })
    }
}

pub(super) fn seal(keys: &GatewayKeys, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let client = ClientRequest::from_encoded_config_list(keys.configurations())?;
    Ok(client.encapsulate(bytes)?.0)
}

pub(super) async fn submit(relay: &str, envelope: Vec<u8>) -> Result<UploadResponse, Status> {
    let connected = ShufflerClient::connect(relay.to_owned()).await;
    let mut shuffler = connected.map_err(|error| Status::unknown(error.to_string()))?;
    let request = SubmitShuffledRequest { envelope: envelope.into() };
    Ok(shuffler.submit_shuffled(request).await?.into_inner())
}

/// What of so many reports for an arm is in full batches.
pub(super) fn whole(reports: u64) -> u64 {
    reports / u64::from(BATCH) * u64::from(BATCH)
}

/// Waits until the relay's store has no batch.
pub(super) async fn until_no_batch_waits(folder: &Path) -> anyhow::Result<()> {
    let settled = async {
        while Waiting::read(folder)?.in_batches > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, settled).await?
}

/// Makes tokens in files of this folder, and returns the file of all.
pub(super) async fn make_tokens(folder: &Path) -> anyhow::Result<String> {
    let tokens = folder.join("tokens").display().to_string();
    for (name, role) in [("admin", "administrator"), ("looker", "viewer"), ("relay", "relay")] {
        let new = ["token", "new", "--name", name, "--role", role, "--file", &tokens];
        std::fs::write(folder.join(format!("{name}-token")), run(&new).await?)?;
    }
    Ok(tokens)
}
