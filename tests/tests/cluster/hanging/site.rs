//! A replica, connections to it, and continuous uploads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::curator_client::CuratorClient;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::trusted_client::TrustedClient;
use bandana_shared::wire::v1::trusted_operator_client::TrustedOperatorClient;
use bandana_shared::wire::v1::{GetExperimentRequest, UploadStatus};
use bandana_tests::harness::{create, submit_one, three_arms};
use bandana_tests::page;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Timeout of every step.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Number of concurrent workers that upload.
const WORKERS: u128 = 8;

pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

/// A replica, and connections to it.
pub(crate) struct Site {
    pub(crate) process: AggregatorProcess,
    pub(crate) device: DeviceClient<Channel>,
    pub(crate) operator: OperatorClient<Channel>,
    pub(crate) curator: CuratorClient<Channel>,
    pub(crate) disclosing: TrustedClient<Channel>,
    pub(crate) trusted: TrustedOperatorClient<Channel>,
    address: String,
}

impl Site {
    pub(crate) async fn start(url: &str, flags: &[&str]) -> anyhow::Result<Self> {
        let process = AggregatorProcess::start_replica_with(flags, Path::new(PROGRAM), url).await?;
        let (device, operator) = (process.device_url.clone(), process.operator_url.clone());
        let address = operator.strip_prefix("http://").context("an odd URL")?.to_owned();
        Ok(Self {
            device: DeviceClient::connect(device.clone()).await?,
            disclosing: TrustedClient::connect(device).await?,
            operator: OperatorClient::connect(operator.clone()).await?,
            curator: CuratorClient::connect(operator.clone()).await?,
            trusted: TrustedOperatorClient::connect(operator).await?,
            process,
            address,
        })
    }

    pub(crate) async fn create(&mut self, name: &str) -> anyhow::Result<Specification> {
        create(&mut self.operator, three_arms(name)).await
    }

    pub(crate) async fn day(&mut self, name: &str) -> anyhow::Result<Day> {
        let request = GetExperimentRequest { experiment_id: name.to_owned() };
        Ok(Day::new(self.device.get_experiment(request).await?.into_inner().server_day))
    }

    pub(crate) async fn is_ready(&self) -> anyhow::Result<bool> {
        Ok(page::get(&self.address, "/readyz", &[]).await?.status == 200)
    }

    /// Waits until the replica reports that it is ready, or not ready.
    pub(crate) async fn until_ready(&self, is_ready: bool, within: Duration) -> anyhow::Result<()> {
        let changed = async {
            while self.is_ready().await? != is_ready {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        let what = || format!("it does not become {}ready", if is_ready { "" } else { "un" });
        tokio::time::timeout(within, changed).await.with_context(what)?
    }
}

/// Submits an upload of one report under this number, and waits for the answer.
pub(crate) async fn submit(
    device: &DeviceClient<Channel>,
    experiment: &Specification,
    day: Day,
    number: u128,
) -> Result<UploadStatus, Status> {
    let told = submit_one(&mut device.clone(), experiment, day, number).await;
    told.map_err(|error| {
        error.downcast().unwrap_or_else(|other| Status::internal(other.to_string()))
    })
}

/// Continuous uploads by several workers, until stopped.
pub(crate) struct Uploads {
    workers: JoinSet<Result<(), Status>>,
    acknowledged: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Uploads {
    pub(crate) fn start(site: &Site, experiment: &Specification, day: Day) -> Self {
        let mut workers = JoinSet::new();
        let (acknowledged, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        for worker in 1..=WORKERS {
            let (device, experiment) = (site.device.clone(), experiment.clone());
            let (acknowledged, is_over) = (Arc::clone(&acknowledged), Arc::clone(&is_over));
            workers.spawn(async move {
                let mut number = worker << 64;
                while !is_over.load(Ordering::Relaxed) {
                    match submit(&device, &experiment, day, number).await {
                        Ok(UploadStatus::Accepted | UploadStatus::Duplicate) => {
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                            number += 1;
                        }
                        Err(status) if status.code() == Code::Unavailable => {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        Ok(status) => return Err(Status::internal(format!("{status:?}"))),
                        Err(status) => return Err(status),
                    }
                }
                Ok(())
            });
        }
        Self { workers, acknowledged, is_over }
    }

    /// The number of acknowledgements within this time.
    pub(crate) async fn count(&self, time: Duration) -> u64 {
        let before = self.acknowledged.load(Ordering::Relaxed);
        tokio::time::sleep(time).await;
        self.acknowledged.load(Ordering::Relaxed) - before
    }

    /// Stops the workers, and returns the number of acknowledgements.
    pub(crate) async fn stop(mut self) -> anyhow::Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(worker) = self.workers.join_next().await {
            worker??;
        }
        Ok(self.acknowledged.load(Ordering::Relaxed))
    }
}
