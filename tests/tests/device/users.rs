//! Simulated users who report through a relay, one or many at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use bandana_client::grpc::Transport;
use bandana_client::{
    Acceptance, Clock as _, Reward, SimulatedClient, SystemClock, Task, Timestamp, UploadOutcome,
};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::Specification;

use tokio::task::JoinHandle;

/// Longest time of a user's attempts.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);

/// A user with a clock that is turned on to whatever is due next.
pub(super) struct User {
    pub(super) client: SimulatedClient,
    now: Timestamp,
}

impl User {
    /// A user who has chosen an arm and reacted, on what `transport` fetched.
    pub(super) async fn new(
        number: u64,
        experiment: &Specification,
        transport: &mut Transport,
    ) -> anyhow::Result<Self> {
        let acceptance = Acceptance::unsigned(experiment.epsilon(), Rewards::binary());
        Self::with(number, experiment, acceptance, transport).await
    }

    /// As [`Self::new`], with these terms.
    pub(super) async fn with(
        number: u64,
        experiment: &Specification,
        acceptance: Acceptance,
        transport: &mut Transport,
    ) -> anyhow::Result<Self> {
        let mut client = SimulatedClient::seeded(9, number);
        let id = experiment.experiment_id().clone();
        client.enroll(id.clone(), acceptance);
        let mut user = Self { client, now: SystemClock.now() };
        while user.step(transport).await?.is_none() {}
        let assignment = user.client.draw(&id, user.now)?;
        user.client.reward(assignment.id(), Reward::new(1.0)?, user.now)?;
        Ok(user)
    }

    /// Does what is due next, and returns whether something is left.
    pub(super) async fn step(&mut self, transport: &mut Transport) -> anyhow::Result<Option<()>> {
        match self.client.next_task(self.now)? {
            Task::Fetch(task) => match transport.fetch(&task).await {
                Ok(fetched) => {
                    self.client.on_fetched(&task, fetched, self.now)?;
                    return Ok(Some(()));
                }
                Err(_) => self.client.on_fetch_failed(&task, None, self.now)?,
            },
            Task::Upload(task) => {
                let outcome = transport.upload(&task).await;
                self.client.on_upload_result(task.id(), &outcome, self.now)?;
                if !matches!(outcome, UploadOutcome::Unanswered { .. }) {
                    return Ok(Some(()));
                }
            }
            Task::Shuffled(task) => {
                let outcome = transport.upload_shuffled(&task).await;
                self.client.on_upload_result(task.id(), &outcome, self.now)?;
                if !matches!(outcome, UploadOutcome::Unanswered { .. }) {
                    return Ok(Some(()));
                }
            }
            Task::Wait(time) => self.now = time,
            Task::Done => return Ok(Some(())),
        }
        // What failed takes a moment to come back; the user's own waits are over at once.
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(None)
    }

    /// Reports, and returns how the aggregator counted it.
    pub(super) async fn report(mut self, transport: &mut Transport) -> anyhow::Result<u64> {
        let reporting = async {
            while self.client.waiting_reports() > 0 || self.client.statistics().reports_made == 0 {
                self.step(transport).await?;
            }
            let statistics = self.client.statistics();
            ensure!(statistics.uploads_refused == 0, "{statistics:?}");
            Ok(statistics.uploads_accepted + statistics.uploads_duplicate)
        };
        tokio::time::timeout(PATIENCE, reporting).await?
    }
}

/// Kills of relay and aggregator, in turn.
pub(super) fn kills() -> anyhow::Result<u32> {
    Ok(match std::env::var("BANDANA_KILLS") {
        Ok(number) => number.parse()?,
        Err(_) => 6,
    })
}

/// Users at the same time.
const USERS: u64 = 8;

/// Users who report one after the other, several at the same time, until they are told to end.
pub(super) struct Crowd {
    is_over: Arc<AtomicBool>,
    counted: Arc<AtomicU64>,
    users: Vec<JoinHandle<anyhow::Result<()>>>,
}

impl Crowd {
    /// Lets users with these terms call through the relay at `url`.
    pub(super) fn start(experiment: &Specification, acceptance: &Acceptance, url: &str) -> Self {
        let (is_over, counted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let user = |first| {
            let (is_over, counted) = (Arc::clone(&is_over), Arc::clone(&counted));
            let (experiment, acceptance) = (experiment.clone(), acceptance.clone());
            let url = url.to_owned();
            tokio::spawn(async move {
                let mut transport = Transport::to(&url)?.through_relay_unsigned();
                for number in (first..).step_by(usize::try_from(USERS)?) {
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let acceptance = acceptance.clone();
                    let user = User::with(number, &experiment, acceptance, &mut transport).await?;
                    counted.fetch_add(user.report(&mut transport).await?, Ordering::SeqCst);
                }
                Ok(())
            })
        };
        let users = (0..USERS).map(user).collect();
        Self { is_over, counted, users }
    }

    /// Waits until some more reports are acknowledged.
    pub(super) async fn report_more(&self) -> anyhow::Result<()> {
        let wanted = self.counted.load(Ordering::SeqCst) + 20;
        while self.counted.load(Ordering::SeqCst) < wanted {
            ensure!(self.users.iter().all(|user| !user.is_finished()), "a user gave up");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Ends, and returns how many reports were acknowledged.
    pub(super) async fn end(self) -> anyhow::Result<u64> {
        self.is_over.store(true, Ordering::SeqCst);
        for user in self.users {
            user.await??;
        }
        Ok(self.counted.load(Ordering::SeqCst))
    }
}
