//! The delivery of full batches to the aggregator, again and again until it has them.
//!
//! A batch that the aggregator does not take for now waits by itself, longer each time, so that it
//! holds up no other one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_shared::identity::{Day, Digest};
use bandana_shared::shuffling::ShuffledReport;
use bandana_shared::wire::v1::{SubmitBatchRequest, UploadStatus};
use tonic::{Code, Status};

use super::known::{Experiments, quoted};
use super::report_writer::{NotKept, ReportWriter};
use super::store::Batch;
use crate::delay::RandomDelay;
use bandana_edge::operator_client::BatchesClient;

/// The first and the longest wait after a failure of the aggregator; each further one doubles it.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// The same of one batch that the aggregator does not take for now.
const WAITS_OF_BATCH: (Duration, Duration) = (Duration::from_secs(2), Duration::from_hours(1));

/// The time between two looks for experiments that have ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// Hands on batches.
#[derive(Debug)]
pub(super) struct Delivery {
    writer: ReportWriter,
    experiments: Experiments,
    aggregator: BatchesClient,
    delay: RandomDelay,
    clock: Arc<dyn Clock>,
    replay_window_days: u32,
    /// Batches that wait by themselves, by key: until when, and for how long.
    waiting: HashMap<i64, (Duration, Duration)>,
}

/// What became of a batch.
#[derive(Debug)]
enum Handed {
    /// The aggregator has it.
    Counted,
    /// The aggregator will never take it.
    Refused(String),
    /// Its experiment has ended.
    Ended,
    /// Most of it can't be opened for now.
    Unopened(String),
    /// Not for now, because of this batch.
    Later(String),
    /// Not for now, because of the aggregator.
    Unreachable(Status),
}

impl Delivery {
    pub(super) fn new(
        (writer, experiments): (ReportWriter, Experiments),
        aggregator: BatchesClient,
        delay: RandomDelay,
        clock: Arc<dyn Clock>,
        replay_window_days: u32,
    ) -> Self {
        let waiting = HashMap::new();
        Self { writer, experiments, aggregator, delay, clock, replay_window_days, waiting }
    }

    /// Delivers until the writer has ended.
    pub(super) async fn run(mut self) {
        let mut wait = WAITS.0;
        loop {
            match self.deliver_due().await {
                Ok(true) => {
                    wait = WAITS.0;
                    let soonest = self.waiting.values().map(|(until, _)| *until).min();
                    let now = self.clock.monotonic();
                    let due = async {
                        match soonest {
                            Some(until) => tokio::time::sleep(until.saturating_sub(now)).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        // The aggregator does not learn when the last report of a batch came.
                        () = self.writer.filled.notified() => self.delay.wait().await,
                        () = due => {}
                    }
                }
                Ok(false) => {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(WAITS.1);
                }
                Err(_) => return,
            }
        }
    }

    /// Hands on each batch that does not wait by itself. Returns whether the aggregator answers.
    async fn deliver_due(&mut self) -> Result<bool, NotKept> {
        let keys = self.writer.batches().await?;
        let known: BTreeSet<i64> = keys.iter().copied().collect();
        self.waiting.retain(|key, _| known.contains(key));
        let now = self.clock.monotonic();
        // Those that were never tried come first.
        let (tried, new): (Vec<i64>, Vec<i64>) =
            keys.into_iter().partition(|key| self.waiting.contains_key(key));
        let is_due = |key: &i64| self.waiting.get(key).is_none_or(|(until, _)| *until <= now);
        let due: Vec<i64> = new.into_iter().chain(tried.into_iter().filter(is_due)).collect();
        for key in due {
            let Some(batch) = self.writer.batch(key).await? else { continue };
            if let Err(status) = self.hand_on(batch).await? {
                let what_to_do = match status.code() {
                    Code::Unauthenticated | Code::PermissionDenied => {
                        "give the relay a token with the role relay"
                    }
                    Code::ResourceExhausted => "it has no room for now",
                    _ => "see whether it is up and reachable",
                };
                let message = quoted(&status.to_string());
                tracing::warn!(message, what_to_do, "batches wait for the aggregator");
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hands on a batch. The inner error is one of the aggregator, not of the batch.
    async fn hand_on(&mut self, batch: Batch) -> Result<Result<(), Status>, NotKept> {
        let reports = batch.reports.len() / ShuffledReport::SEALED_BYTES;
        let (key, digest, arm, day) = (batch.key, batch.digest, batch.cell.get(), batch.day);
        match self.submit(&batch).await {
            Handed::Counted => {
                tracing::info!(%digest, arm, reports, "the aggregator has a batch");
                self.writer.settle(batch).await?;
            }
            Handed::Refused(message) => {
                let message = quoted(&message);
                tracing::error!(
                    %digest, arm, reports, message,
                    "the aggregator will never take a batch; its reports are lost"
                );
                self.writer.settle(batch).await?;
            }
            Handed::Unopened(message) if day < self.oldest() => {
                let message = quoted(&message);
                tracing::error!(
                    %digest, arm, reports, message,
                    "a batch of which most can't be opened is given up at the end of the replay \
                     window; its reports are lost"
                );
                self.writer.settle(batch).await?;
            }
            Handed::Ended => end(&self.writer, &self.experiments, digest).await?,
            Handed::Unopened(message) | Handed::Later(message) => {
                let wait = self.waiting.get(&key).map_or(WAITS_OF_BATCH.0, |(_, wait)| *wait * 2);
                let wait = wait.min(WAITS_OF_BATCH.1);
                self.waiting.insert(key, (self.clock.monotonic() + wait, wait));
                let (message, seconds) = (quoted(&message), wait.as_secs());
                tracing::warn!(%digest, arm, reports, message, seconds, "a batch waits");
            }
            Handed::Unreachable(status) => return Ok(Err(status)),
        }
        Ok(Ok(()))
    }

    /// The oldest day of the replay window.
    fn oldest(&self) -> Day {
        self.clock.day().back(self.replay_window_days.saturating_sub(1))
    }

    async fn submit(&mut self, batch: &Batch) -> Handed {
        let request = SubmitBatchRequest {
            batch_id: batch.id.as_bytes().to_vec().into(),
            digest: batch.digest.as_bytes().to_vec().into(),
            day: batch.day.get(),
            arm: batch.cell.to_u32(),
            reports: batch.reports.clone().into(),
            keys: batch.keys.clone().into(),
        };
        match self.aggregator.submit_batch(request).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                let (status, message) = (answer.status(), answer.message);
                match status {
                    UploadStatus::Accepted | UploadStatus::Duplicate => Handed::Counted,
                    UploadStatus::Stopped => Handed::Ended,
                    UploadStatus::Malformed
                    | UploadStatus::UnknownArm
                    | UploadStatus::TooManyReports
                    | UploadStatus::Expired => Handed::Refused(message),
                    // An aggregator on another store, perhaps by mistake, knows no specification.
                    UploadStatus::UnknownSpecification
                    | UploadStatus::FutureDay
                    | UploadStatus::Paused
                    | UploadStatus::Unspecified => Handed::Later(message),
                }
            }
            Err(status) => match status.code() {
                Code::FailedPrecondition => Handed::Unopened(status.message().to_owned()),
                Code::InvalidArgument | Code::OutOfRange | Code::Internal | Code::DataLoss => {
                    Handed::Later(status.to_string())
                }
                _ => Handed::Unreachable(status),
            },
        }
    }
}

/// Looks for experiments that have ended, for ever.
pub(super) async fn watch_ends(writer: ReportWriter, experiments: Experiments) {
    loop {
        let Ok(waiting) = writer.waiting_batches().await else { return };
        let digests: BTreeSet<Digest> = waiting.into_iter().map(|(key, _)| key.digest).collect();
        for digest in digests {
            let asked = experiments.ask(digest).await;
            let has_ended = asked.ok().flatten().is_some_and(|known| known.running.is_none());
            if has_ended && end(&writer, &experiments, digest).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Drops what is left of an experiment that has ended, and says so.
async fn end(
    writer: &ReportWriter,
    experiments: &Experiments,
    digest: Digest,
) -> Result<(), NotKept> {
    experiments.end(digest);
    let dropped = writer.drop_experiment(digest).await?;
    tracing::warn!(
        %digest, reports = dropped.reports, batches = dropped.batches,
        "the experiment has ended: the reports whose batch was not full, and the batches that the \
         aggregator did not take any more, were dropped"
    );
    Ok(())
}
