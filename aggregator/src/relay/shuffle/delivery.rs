//! The delivery of full batches to the aggregator, again and again until it has them.

use std::collections::BTreeSet;
use std::time::Duration;

use bandana_shared::identity::Digest;
use bandana_shared::shuffling::ShuffledReport;
use bandana_shared::wire::v1::{SubmitBatchRequest, UploadStatus};
use tonic::Code;

use super::keeper::{Keeper, NotKept};
use super::known::Experiments;
use super::store::Batch;
use crate::operator_client::BatchesClient;

/// The first and the longest wait after a failure; each further failure doubles it.
const WAITS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// The time between two looks for experiments that have ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// Hands on batches.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) keeper: Keeper,
    pub(super) experiments: Experiments,
    pub(super) aggregator: BatchesClient,
}

/// What became of a batch.
#[derive(Debug)]
enum Handed {
    /// The aggregator has it, or will never take it: what was said then.
    Settled(Option<String>),
    /// Its experiment has ended.
    Ended,
    /// Not for now, because of this batch.
    Later(String),
    /// Not for now, because of the aggregator.
    Unreachable(String),
}

impl Delivery {
    /// Delivers until the keeper has ended.
    pub(super) async fn run(mut self) {
        let deliver = async {
            let mut wait = WAITS.0;
            loop {
                match self.deliver_all().await {
                    Ok(true) => {
                        wait = WAITS.0;
                        self.keeper.filled.notified().await;
                    }
                    Ok(false) => {
                        tokio::time::sleep(wait).await;
                        wait = (wait * 2).min(WAITS.1);
                    }
                    Err(_) => return,
                }
            }
        };
        deliver.await;
    }

    /// Hands on each batch once. Returns whether none is left.
    async fn deliver_all(&mut self) -> Result<bool, NotKept> {
        let (mut after, mut is_none_left) = (0, true);
        while let Some(batch) = self.keeper.batch_after(after).await? {
            after = batch.key;
            let reports = batch.reports.len() / ShuffledReport::SEALED_BYTES;
            let (digest, arm) = (batch.digest, batch.arm.get());
            match self.submit(&batch).await {
                Handed::Settled(None) => {
                    tracing::info!(%digest, arm, reports, "the aggregator has a batch");
                    self.keeper.settle(batch).await?;
                }
                Handed::Settled(Some(message)) => {
                    tracing::error!(
                        %digest, arm, reports, message,
                        "the aggregator will never take a batch; its reports are lost"
                    );
                    self.keeper.settle(batch).await?;
                }
                Handed::Ended => end(&self.keeper, &self.experiments, digest).await?,
                Handed::Later(message) => {
                    tracing::warn!(%digest, arm, reports, message, "a batch waits");
                    is_none_left = false;
                }
                Handed::Unreachable(message) => {
                    tracing::warn!(message, "batches wait: the aggregator does not answer");
                    return Ok(false);
                }
            }
        }
        Ok(is_none_left)
    }

    async fn submit(&mut self, batch: &Batch) -> Handed {
        let request = SubmitBatchRequest {
            batch_id: batch.id.as_bytes().to_vec().into(),
            digest: batch.digest.as_bytes().to_vec().into(),
            day: batch.day.get(),
            arm: batch.arm.to_u32(),
            reports: batch.reports.clone().into(),
        };
        match self.aggregator.submit_batch(request).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                let (status, message) = (answer.status(), answer.message);
                match status {
                    UploadStatus::Accepted | UploadStatus::Duplicate => Handed::Settled(None),
                    UploadStatus::Stopped => Handed::Ended,
                    UploadStatus::Malformed
                    | UploadStatus::UnknownArm
                    | UploadStatus::TooManyReports
                    | UploadStatus::Expired => Handed::Settled(Some(message)),
                    // An aggregator on another store, perhaps by mistake, knows no specification.
                    UploadStatus::UnknownSpecification
                    | UploadStatus::FutureDay
                    | UploadStatus::Paused
                    | UploadStatus::Unspecified => Handed::Later(message),
                }
            }
            Err(status) if status.code() == Code::FailedPrecondition => {
                Handed::Later(status.message().to_owned())
            }
            Err(status) => Handed::Unreachable(status.to_string()),
        }
    }
}

/// Looks for experiments that have ended, for ever.
pub(super) async fn watch_ends(keeper: Keeper, experiments: Experiments) {
    loop {
        let Ok(piles) = keeper.piles().await else { return };
        let digests: BTreeSet<Digest> = piles.into_iter().map(|(pile, _)| pile.digest).collect();
        for digest in digests {
            let asked = experiments.ask(digest).await;
            let has_ended = asked.ok().flatten().is_some_and(|known| known.has_ended);
            if has_ended && end(&keeper, &experiments, digest).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Drops what is left of an experiment that has ended, and says so.
async fn end(keeper: &Keeper, experiments: &Experiments, digest: Digest) -> Result<(), NotKept> {
    experiments.end(digest);
    let dropped = keeper.drop_experiment(digest).await?;
    tracing::warn!(
        %digest, reports = dropped.reports, batches = dropped.batches,
        "the experiment has ended: the reports whose batch was not full, and the batches that the \
         aggregator did not take any more, were dropped"
    );
    Ok(())
}
