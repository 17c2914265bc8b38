//! A real aggregator process for a test, and typical calls to it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_shared::identity::{CellIndex, Day, UploadId};
use bandana_shared::specification::Specification;
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    self, CreateExperimentRequest, Estimates, EstimatesRequest, GetExperimentRequest,
    UploadRequest, UploadStatus,
};
use prost::Message as _;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tonic::transport::Channel;

/// An aggregator with clients of both services. Dropping it kills the process.
#[derive(Debug)]
pub struct Aggregator {
    program: PathBuf,
    data_dir: TempDir,
    /// The process.
    pub process: AggregatorProcess,
    /// The client of the device service.
    pub device: DeviceClient<Channel>,
    /// The client of the operators' service.
    pub operator: OperatorClient<Channel>,
}

impl Aggregator {
    /// Starts `program` with an empty store.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(program: &str) -> anyhow::Result<Self> {
        Self::open(Path::new(program), tempfile::tempdir()?).await
    }

    async fn open(program: &Path, data_dir: TempDir) -> anyhow::Result<Self> {
        let process = AggregatorProcess::start(program, data_dir.path()).await?;
        let device = DeviceClient::connect(process.device_url.clone()).await?;
        let operator = OperatorClient::connect(process.operator_url.clone()).await?;
        Ok(Self { program: program.to_owned(), data_dir, process, device, operator })
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        self.data_dir.path()
    }

    /// Kills the process as a power cut would, and restarts it on the same store.
    ///
    /// # Errors
    /// When it does not start again.
    pub async fn kill_and_restart(self) -> anyhow::Result<Self> {
        self.process.kill().await?;
        Self::open(&self.program, self.data_dir).await
    }

    /// Shuts the process down, and restarts it on the same store.
    ///
    /// # Errors
    /// When it does not exit with 0, or does not start again.
    pub async fn stop_and_restart(self) -> anyhow::Result<Self> {
        self.stop_look_and_restart(|_| Ok(())).await
    }

    /// As [`Self::stop_and_restart`], with a call of `look` on the data directory in between.
    ///
    /// # Errors
    /// As there, and those of `look`.
    pub async fn stop_look_and_restart(
        self,
        look: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        self.process.stop().await?;
        look(self.data_dir.path())?;
        Self::open(&self.program, self.data_dir).await
    }

    /// Creates an experiment from `message` and returns it as it runs.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn create(&mut self, message: v1::Specification) -> anyhow::Result<Specification> {
        create(&mut self.operator, message).await
    }

    /// The server's day.
    ///
    /// # Errors
    /// When the server does not know the experiment.
    pub async fn day(&mut self, specification: &Specification) -> anyhow::Result<Day> {
        let experiment_id = specification.experiment_id().to_string();
        let request = GetExperimentRequest { experiment_id };
        Ok(Day::new(self.device.get_experiment(request).await?.into_inner().server_day))
    }

    /// The server's estimates.
    ///
    /// # Errors
    /// When the server does not know the experiment.
    pub async fn estimates(&mut self, specification: &Specification) -> anyhow::Result<Estimates> {
        let request = estimates_request(specification);
        Ok(self.operator.get_estimates(request).await?.into_inner())
    }

    /// For each arm, the number of reports, and of ones among them.
    ///
    /// # Errors
    /// When the server does not know the experiment.
    pub async fn tallies(
        &mut self,
        specification: &Specification,
    ) -> anyhow::Result<Vec<(u64, u64)>> {
        tallies(&mut self.operator, specification).await
    }
}

/// Creates an experiment from `message` and returns it as it runs.
///
/// # Errors
/// When the server refuses it.
pub async fn create(
    operator: &mut OperatorClient<Channel>,
    message: v1::Specification,
) -> anyhow::Result<Specification> {
    let request = CreateExperimentRequest {
        specification: Some(message),
        learner: v1::Learner::LdpTs.into(),
        ..Default::default()
    };
    let created = operator.create_experiment(request).await?.into_inner();
    let created = created.specification.context("an answer without specification")?;
    Ok(Specification::try_from(&created)?)
}

/// For each arm, the number of reports, and of ones among them.
///
/// # Errors
/// When the server does not know the experiment.
pub async fn tallies(
    operator: &mut OperatorClient<Channel>,
    specification: &Specification,
) -> anyhow::Result<Vec<(u64, u64)>> {
    let estimates = operator.get_estimates(estimates_request(specification)).await?.into_inner();
    Ok(estimates.arms.iter().map(|arm| (arm.reports, arm.ones)).collect())
}

/// A request for the estimates of an experiment at the default error level.
pub fn estimates_request(specification: &Specification) -> EstimatesRequest {
    let experiment_id = specification.experiment_id().to_string();
    EstimatesRequest { experiment_id, ..Default::default() }
}

/// A binary experiment with three arms and epsilon 1, valid for real clients.
pub fn three_arms(experiment_id: &str) -> v1::Specification {
    let arm = |label: &str| v1::Arm { label: label.to_owned(), retired: false };
    v1::Specification {
        experiment_id: experiment_id.to_owned(),
        epsilon: 1.0,
        reward_kind: v1::RewardKind::Binary.into(),
        reward_low: 0.0,
        reward_high: 1.0,
        out_of_range: v1::OutOfRange::Refuse.into(),
        mechanism: Some(v1::specification::Mechanism::Linear(v1::Linear {})),
        arms: vec![arm("red"), arm("green"), arm("blue")],
        attribution_window_seconds: 3600,
        ..Default::default()
    }
}

/// An upload of these reports, named by a number.
///
/// # Errors
/// When there are no reports, too many, or an arm beyond all limits.
pub fn upload(
    number: u128,
    specification: &Specification,
    day: Day,
    reports: &[(usize, bool)],
) -> anyhow::Result<UploadRequest> {
    let report = |&(arm, bit): &(usize, bool)| Ok((CellIndex::new(arm)?, bit));
    let reports: Vec<_> = reports.iter().map(report).collect::<anyhow::Result<_>>()?;
    let upload = Upload {
        id: UploadId::new(number.to_be_bytes()),
        digest: specification.digest(),
        day,
        reports: PackedReports::pack(reports)?,
    };
    Ok(UploadRequest::decode(&upload.to_bytes()[..])?)
}

/// Sends an upload of one report, a one for the first arm, and returns its answer.
///
/// # Errors
/// When the server gives none.
pub async fn submit_one(
    device: &mut DeviceClient<Channel>,
    specification: &Specification,
    day: Day,
    number: u128,
) -> anyhow::Result<UploadStatus> {
    let request = upload(number, specification, day, &[(0, true)])?;
    Ok(device.submit_upload(request).await?.into_inner().status())
}

/// Number of workers of [`keep_uploading`]. The upload numbers of worker w begin at w in the upper
/// half, and increase by one.
pub const UPLOADERS: u128 = 16;

/// Sends uploads of one report, a one for the first arm, from [`UPLOADERS`] workers until the
/// server ends. Sends the number of each upload with its answer to the receiver.
pub fn keep_uploading(
    device: &DeviceClient<Channel>,
    specification: &Specification,
    day: Day,
) -> UnboundedReceiver<(u128, UploadStatus)> {
    let (acknowledged, acknowledgements) = unbounded_channel();
    for worker in 0..UPLOADERS {
        let (mut device, acknowledged) = (device.clone(), acknowledged.clone());
        let specification = specification.clone();
        tokio::spawn(async move {
            for number in 0_u128.. {
                let number = worker << 64 | number;
                let request = upload(number, &specification, day, &[(0, true)])?;
                let status = device.submit_upload(request).await?.into_inner().status();
                acknowledged.send((number, status))?;
            }
            anyhow::Ok(())
        });
    }
    acknowledgements
}
