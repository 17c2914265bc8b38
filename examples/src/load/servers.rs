//! The servers under load, and their own metrics.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::Transport;
use bandana_edge::operator_client::{Client, Connection, TlsSource, Wait};
use bandana_shared::cells::Measurement;
use bandana_shared::channel::Floor;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{CellIndex, Day, ExperimentId, Revision, UploadId};
use bandana_shared::participation::Participation;
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{
    self, CreateExperimentRequest, EstimatesRequest, ExperimentName, GetExperimentRequest,
    UploadRequest,
};
use prost::Message as _;
use rand::TryRng as _;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use super::{Database, Device, Make, PATIENCE, ProcessorTimes};
use crate::aggregator_process::AggregatorProcess;
use crate::process_usage::processor_time;
use crate::relay_process::{AT_ONCE, RelayProcess, gateway_key};

/// Arms of the experiment.
const ARMS: usize = 20;

/// Number of distinct patterns of reports, which uploads reuse.
const PATTERNS: usize = 60;

/// The metric of a server's processor time.
const CPU_METRIC: &str = "process_cpu_seconds_total";

/// The target of a load.
#[derive(Debug)]
pub enum Target {
    /// Servers that are already running.
    Running {
        /// URLs of their device services.
        devices: Vec<String>,
        /// URL of the operators' service of one of them.
        operator_url: String,
        /// The connection to that operators' service.
        operator: Box<Connection>,
        /// Root certificates for the device services.
        tls: TlsSource,
    },
    /// A new server with an embedded store: in this directory, or in a temporary one.
    Embedded(Option<PathBuf>),
    /// A new server with an embedded store in a temporary directory, and a relay to it.
    Relayed,
    /// This number of new replicas, on a database.
    Replicas(String, usize),
}

/// Servers with an experiment for the load.
#[derive(Debug)]
pub struct Servers {
    own: Vec<AggregatorProcess>,
    relay: Option<RelayProcess>,
    devices: Vec<Endpoint>,
    operator: Client,
    /// The address of metrics that are readable without a token.
    metrics: Option<String>,
    experiment: Specification,
    directory: Option<Directory>,
    database: Option<Database>,
}

/// The directory of a new server's data.
#[derive(Debug)]
enum Directory {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Directory {
    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }
}

impl Servers {
    /// Connects to the servers or starts them, and creates the experiment. `program` must call
    /// [`bandana_aggregator::cli::main`].
    ///
    /// # Errors
    /// When a server can't be reached or started, or refuses the experiment.
    pub async fn open(target: Target, program: &Path) -> anyhow::Result<Self> {
        let (mut own, mut directory) = (Vec::new(), None);
        let (mut metrics, mut relay, mut database) = (None, None, None);
        // The rate limits per connection are off.
        let no_limits = ["--limit-uploads-per-second-per-connection", "0"];
        let no_limits = [no_limits, ["--limit-questions-per-second-per-connection", "0"]].concat();
        let (devices, operator, tls) = match target {
            Target::Running { devices, operator_url, operator, tls } => {
                // Of several replicas, only one would answer.
                metrics = operator_url.strip_prefix("http://").map(str::to_owned);
                metrics = metrics.filter(|_| devices.len() == 1);
                (devices, *operator, tls)
            }
            Target::Embedded(wanted) => {
                let temporary = || tempfile::tempdir().map(Directory::Temporary);
                let given = wanted.map(Directory::Given).map_or_else(temporary, Ok);
                let folder = &*directory.insert(given.context("can't create a directory")?);
                let process = AggregatorProcess::start_with(&no_limits, program, folder.path());
                own.push(process.await?);
                described(&own)?
            }
            Target::Relayed => {
                let folder = tempfile::tempdir().context("can't create a directory")?;
                let key = gateway_key(program, folder.path()).await?.display().to_string();
                let flags = [&no_limits[..], &["--gateway-key-file", &key]].concat();
                let data_dir = folder.path().join("data");
                let process = AggregatorProcess::start_with(&flags, program, &data_dir).await?;
                relay = Some(RelayProcess::start(&AT_ONCE, program, &process.device_url).await?);
                own.push(process);
                directory = Some(Directory::Temporary(folder));
                described(&own)?
            }
            Target::Replicas(url, count) => {
                // Without it, its processor time is not known.
                database = Database::find(&url).await.ok();
                for _ in 0..count {
                    let replica = AggregatorProcess::start_replica_with(&no_limits, program, &url);
                    own.push(replica.await?);
                }
                described(&own)?
            }
        };
        let endpoint = |url: String| -> anyhow::Result<Endpoint> {
            let endpoint = Endpoint::from_shared(url)?.tcp_nodelay(true).timeout(PATIENCE);
            Ok(tls.apply(endpoint)?)
        };
        let devices = devices.into_iter().map(endpoint).collect::<anyhow::Result<_>>()?;
        let mut operator = operator.connect().await?;
        let experiment = create(&mut operator, ARMS).await?;
        Ok(Self { own, relay, devices, operator, metrics, experiment, directory, database })
    }

    /// The data directory of a server started here.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(Directory::path)
    }

    /// Opens `count` connections, distributed over the servers.
    ///
    /// # Errors
    /// When a server is unreachable.
    pub async fn connect(&self, count: usize) -> anyhow::Result<Vec<DeviceClient<Channel>>> {
        let mut devices = Vec::new();
        for endpoint in self.devices.iter().cycle().take(count) {
            let unreachable = || format!("can't reach the device service at {}", endpoint.uri());
            let channel = Wait::default().connect(endpoint).await.with_context(unreachable)?;
            devices.push(DeviceClient::new(channel.into_channel()));
        }
        Ok(devices)
    }

    /// Opens `count` connections to the relay. None: there is no relay.
    ///
    /// # Errors
    /// When it is unreachable.
    pub async fn connect_relay(&self, count: usize) -> anyhow::Result<Option<Vec<Device>>> {
        let Some(relay) = &self.relay else { return Ok(None) };
        let endpoint = Endpoint::from_shared(relay.url.clone())?.tcp_nodelay(true);
        let mut devices = Vec::new();
        for _ in 0..count {
            let channel = endpoint.connect().await.context("can't reach the relay")?;
            // The relay and the gateway are processes of this machine.
            let transport = Transport::new(channel).through_relay_unsigned();
            devices.push(Device::Relayed(transport));
        }
        Ok(Some(devices))
    }

    /// A generator of uploads with this number of reports, for the server's day.
    ///
    /// # Errors
    /// When the server does not report its day, or there are too many reports.
    pub async fn uploads(
        &self,
        device: &DeviceClient<Channel>,
        reports: usize,
    ) -> anyhow::Result<Box<Make>> {
        uploads_of(&self.experiment, device, reports).await
    }

    /// Creates another experiment, and makes uploads of one report for it.
    pub(super) async fn uploads_of_another(&self, arms: usize) -> anyhow::Result<Box<Make>> {
        let experiment = create(&mut self.operator.clone(), arms).await?;
        let devices = self.connect(1).await?;
        uploads_of(&experiment, devices.first().context("no connection")?, 1).await
    }

    /// The only server started here.
    pub(super) fn only_server(&self) -> anyhow::Result<&AggregatorProcess> {
        let [one] = &self.own[..] else { anyhow::bail!("one server of our own is needed") };
        Ok(one)
    }

    /// Length of the file of the store's log, in bytes.
    pub(super) fn log_bytes(&self) -> anyhow::Result<u64> {
        let directory = self.directory().context("an embedded store is needed")?;
        let log = directory.join("bandana.sqlite3-wal");
        Ok(std::fs::metadata(&log).with_context(|| log.display().to_string())?.len())
    }

    /// The first server's service for devices.
    pub(super) fn endpoint(&self) -> Option<&Endpoint> {
        self.devices.first()
    }

    /// The process of the only server started here.
    pub(super) fn only_process(&self) -> anyhow::Result<u32> {
        self.only_server()?.id()
    }

    /// The name of the experiment.
    pub(super) fn experiment_id(&self) -> String {
        self.experiment.experiment_id().to_string()
    }

    /// Total processor time of all servers so far. None: unknown.
    pub async fn processor_time(&self) -> Option<Duration> {
        if let Some(address) = &self.metrics {
            return processor_time_of(address).await.ok();
        }
        if self.own.is_empty() {
            return None;
        }
        let times = self.own.iter().map(|process| processor_time(process.id()?));
        times.sum::<anyhow::Result<Duration>>().ok()
    }

    /// Processor time of servers, relay and database so far.
    pub async fn processor_times(&self) -> ProcessorTimes {
        ProcessorTimes {
            servers: self.processor_time().await,
            relay: self.relay_time(),
            database: self.database.and_then(|database| database.processor_time().ok()),
        }
    }

    /// Processor time of the relay so far. None: there is none.
    fn relay_time(&self) -> Option<Duration> {
        self.relay.as_ref().and_then(|relay| processor_time(relay.id().ok()?).ok())
    }

    /// The number of counted reports.
    ///
    /// # Errors
    /// When the operators' service does not answer.
    pub async fn counted(&mut self) -> anyhow::Result<u64> {
        let experiment_id = self.experiment.experiment_id().to_string();
        let name = ExperimentName { experiment_id: experiment_id.clone() };
        // A replica's estimates lag slightly, unless a policy is requested first.
        self.operator.refresh_policy(name).await?;
        let request = EstimatesRequest { experiment_id, ..Default::default() };
        let estimates = self.operator.get_estimates(request).await?.into_inner();
        Ok(estimates.arms.iter().map(|arm| arm.reports).sum())
    }

    /// Ends the experiment, and the servers that were started for it.
    ///
    /// # Errors
    /// When one of them ends with an error.
    pub async fn close(mut self) -> anyhow::Result<()> {
        let experiment_id = self.experiment.experiment_id().to_string();
        self.operator.stop_experiment(ExperimentName { experiment_id }).await?;
        if let Some(relay) = self.relay {
            relay.stop().await?;
        }
        for process in self.own {
            process.stop().await?;
        }
        Ok(())
    }
}

/// Makes uploads with this number of reports for an experiment, on the server's day.
async fn uploads_of(
    experiment: &Specification,
    device: &DeviceClient<Channel>,
    reports: usize,
) -> anyhow::Result<Box<Make>> {
    let (name, arms) = (experiment.experiment_id().to_string(), experiment.arms().len());
    let request = GetExperimentRequest { experiment_id: name };
    let day = device.clone().get_experiment(request).await?.into_inner().server_day;
    let mut patterns = Vec::with_capacity(PATTERNS);
    for pattern in 0..PATTERNS {
        let report = |report: usize| {
            let number = pattern + report;
            anyhow::Ok((CellIndex::new(number % arms)?, number.is_multiple_of(3)))
        };
        let reports = (0..reports).map(report).collect::<anyhow::Result<_>>()?;
        let upload = Upload {
            id: UploadId::new([0; 16]),
            digest: experiment.digest(),
            day: Day::new(day),
            reports: PackedReports::pack(reports)?,
        };
        patterns.push(UploadRequest::decode(&upload.to_bytes()[..])?);
    }
    // The names of uploads are unique to this load, and in no order, as those of devices are.
    let load = random()?;
    Ok(Box::new(move |number| {
        let pattern = patterns[usize::try_from(number % PATTERNS as u64)?].clone();
        let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let name = u128::from(scattered) << 64 | u128::from(load);
        let upload_id = name.to_be_bytes().to_vec().into();
        Ok(UploadRequest { upload_id, ..pattern })
    }))
}

/// The URLs and credentials of servers started here.
fn described(own: &[AggregatorProcess]) -> anyhow::Result<(Vec<String>, Connection, TlsSource)> {
    let first = own.first().context("at least one server is needed")?.server()?;
    let devices = own.iter().map(|process| process.device_url.clone()).collect();
    Ok((devices, first.operator, first.device_tls))
}

/// Creates an experiment under a unique name, in which no device takes part.
async fn create(operator: &mut Client, arms: usize) -> anyhow::Result<Specification> {
    let epsilon = Epsilon::new(1.0)?;
    let arms = (0..arms).map(|arm| Arm::new(format!("arm {arm}")));
    let wanted = Specification::new(SpecificationParts {
        experiment_id: ExperimentId::new(format!("load-{:016x}", random()?))?,
        revision: Revision::FIRST,
        simulation: true,
        epsilon,
        floor: Floor::for_epsilon(epsilon).get(),
        rewards: Rewards::binary(),
        mechanism: Mechanism::Linear,
        arms: arms.collect::<Result<_, _>>()?,
        timing: ReleaseTiming::IMMEDIATE,
        batch: None,
        participation: Participation::EVERYONE,
        measurement: Measurement::REWARDS_ONLY,
    })?;
    let request = CreateExperimentRequest {
        specification: Some(v1::Specification { floor: 0, ..(&wanted).into() }),
        learner: v1::Learner::LdpTs.into(),
        ..Default::default()
    };
    let created = operator.create_experiment(request).await.context("creating the experiment")?;
    let created = created.into_inner().specification.context("an answer without experiment")?;
    Ok(Specification::try_from(&created)?)
}

fn random() -> anyhow::Result<u64> {
    rand::rngs::SysRng.try_next_u64().context("no randomness for a name")
}

/// The processor time in a server's metrics, where these are readable without a token.
async fn processor_time_of(address: &str) -> anyhow::Result<Duration> {
    let address = address.trim_end_matches('/');
    let read = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        anyhow::Ok(page)
    };
    let page = tokio::time::timeout(PATIENCE, read).await??;
    ensure!(page.starts_with("HTTP/1.1 200"), "no metrics");
    let seconds = page.lines().find_map(|line| line.strip_prefix(CPU_METRIC));
    Ok(Duration::try_from_secs_f64(seconds.context("no such metric")?.trim().parse()?)?)
}
