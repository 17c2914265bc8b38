//! A real server with a well-behaved client, while other clients attack.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    self, CreateExperimentRequest, GetExperimentRequest, Learner, UploadStatus,
};
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use crate::harness::{three_arms, upload};
use crate::process_usage::own_memory_high_water;
use crate::watched_server::WatchedServer;

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// Allowance for the server's own memory under attack: the store's cache, the ids of the client's
/// uploads, the allocator's slack.
const OWN_BYTES: u64 = 8 * 1024 * 1024;

/// A server, and a client that uploads one report after the other.
#[derive(Debug)]
pub struct Attacked {
    /// The server.
    pub server: WatchedServer,
    /// The experiment that the client reports to.
    pub experiment: Specification,
    /// The day of its uploads.
    pub day: Day,
    _folder: TempDir,
    memory_before: u64,
    answered: watch::Receiver<u64>,
    stop: oneshot::Sender<()>,
    honest: JoinHandle<anyhow::Result<()>>,
}

impl Attacked {
    /// Starts server and client.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn begin(program: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        // Hostile connections stay open until shutdown, which waits for half of this time.
        let arguments = [&["--drain-deadline", "10"], arguments].concat();
        let server = WatchedServer::start(program, folder.path(), &arguments).await?;
        let experiment = create(&server.operator, three_arms("attacked")).await?;
        let mut device = DeviceClient::connect(format!("http://{}", server.device)).await?;
        let question = GetExperimentRequest { experiment_id: "attacked".to_owned() };
        let day = Day::new(device.get_experiment(question).await?.into_inner().server_day);
        let (answers, answered) = watch::channel(0);
        let (stop, stopped) = oneshot::channel();
        let honest = tokio::spawn(report(device, experiment.clone(), day, answers, stopped));
        let mut attacked = Self {
            server,
            experiment,
            day,
            _folder: folder,
            memory_before: 0,
            answered,
            stop,
            honest,
        };
        // What the server takes for itself and for this client is there then.
        attacked.answered_more(10).await?;
        attacked.memory_before = own_memory_high_water(attacked.server.id()?)?;
        Ok(attacked)
    }

    /// The number of answers to the client so far.
    pub fn answered(&self) -> u64 {
        *self.answered.borrow()
    }

    /// Waits for this number of further answers to the client.
    ///
    /// # Errors
    /// On a timeout.
    pub async fn answered_more(&mut self, answers: u64) -> anyhow::Result<()> {
        let enough = *self.answered.borrow() + answers;
        let waiting = self.answered.wait_for(|count| *count >= enough);
        let outcome = tokio::time::timeout(PATIENCE, waiting).await;
        outcome.context("the client that behaves gets no answers")?.context("it failed").map(drop)
    }

    /// Ends the client and shuts the server down. Checks that all of the client's reports were
    /// counted, and that the server used at most this many bytes for other clients.
    ///
    /// # Errors
    /// When a check fails.
    pub async fn end(mut self, bytes_for_others: u64) -> anyhow::Result<String> {
        self.answered_more(10).await?;
        self.stop.send(()).ok();
        tokio::time::timeout(PATIENCE, self.honest).await???;
        let taken = own_memory_high_water(self.server.id()?)?.saturating_sub(self.memory_before);
        let allowed = OWN_BYTES + bytes_for_others;
        ensure!(taken <= allowed, "the server took {taken} bytes, and may take {allowed}");
        self.server.stop().await
    }
}

/// Creates an experiment.
///
/// # Errors
/// When the server refuses it.
pub async fn create(
    operator: &str,
    specification: v1::Specification,
) -> anyhow::Result<Specification> {
    let mut operator = OperatorClient::connect(format!("http://{operator}")).await?;
    let request = CreateExperimentRequest {
        specification: Some(specification),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    let created = operator.create_experiment(request).await?.into_inner();
    Ok(Specification::try_from(&created.specification.context("no specification")?)?)
}

/// Uploads one report after the other, each of which must count.
async fn report(
    mut device: DeviceClient<Channel>,
    experiment: Specification,
    day: Day,
    answers: watch::Sender<u64>,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    for number in 0_u128.. {
        let request = upload(number, &experiment, day, &[(0, true)])?;
        let answer = tokio::select! {
            answer = tokio::time::timeout(PATIENCE, device.submit_upload(request)) => answer,
            _ = &mut stopped => return Ok(()),
        };
        let answer = answer.context("no answer")??.into_inner();
        ensure!(answer.status() == UploadStatus::Accepted, "{answer:?}");
        answers.send_modify(|count| *count += 1);
    }
    Ok(())
}
