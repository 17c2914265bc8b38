//! The service of batches: shuffled reports from relays.
//!
//! Each report of a batch is opened, and the batch counted as one upload.

use std::collections::HashSet;
use std::time::Duration;

use bandana_edge::explain::explain;
use bandana_edge::gateway::{OpenError, Opened, Opener};
use bandana_edge::pushback::exhausted;
use bandana_shared::identity::{CellIndex, Day, Digest, UploadId};
use bandana_shared::shuffling::ShuffledReport;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1::batches_server::Batches;
use bandana_shared::wire::v1::{
    GetShuffledRequest, GetShuffledResponse, SubmitBatchRequest, UploadResponse, UploadStatus,
};
use bandana_store::{ExperimentState, ValidUpload};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use tonic::{Request, Response, Status};

use super::device::{CheckedUpload, DeviceService};
use crate::registry::Revision;

/// Reports after which a batch is given up of which none could be opened.
const UNOPENED_MAX: usize = 64;

/// Reports of one batch that are opened at the same time.
const CONCURRENT_OPENS: usize = 64;

/// How often, and after which wait, a report is tried again for which there was no room.
const OPEN_ATTEMPTS: u32 = 200;
const OPEN_WAIT: Duration = Duration::from_millis(20);

/// The delay asked of a relay while too much waits to be opened.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

/// The service that relays call.
#[derive(Clone, Debug)]
pub struct BatchesService {
    device: DeviceService,
    /// None: the aggregator is no gateway.
    opener: Option<Opener>,
}

impl BatchesService {
    /// The service over the experiments of `device`.
    pub fn new(device: DeviceService, opener: Option<Opener>) -> Self {
        Self { device, opener }
    }

    fn opener(&self) -> Result<&Opener, Status> {
        let none = "the aggregator is no gateway; set `gateway_key_file`, so that it can open what \
                    devices seal";
        self.opener.as_ref().ok_or_else(|| Status::unavailable(none))
    }

    /// The upload that a batch is. The inner error is the answer to a batch that no upload can be
    /// made of.
    async fn upload(&self, batch: &SubmitBatchRequest) -> Result<CheckedUpload, Status> {
        let opener = self.opener()?;
        let names = UploadId::try_from(&batch.batch_id[..])
            .and_then(|id| Ok((id, Digest::try_from(&batch.digest[..])?)));
        let (id, digest) = match names {
            Ok(names) => names,
            Err(error) => return Ok(Err((UploadStatus::Malformed, explain(&error)))),
        };
        if self.device.was_deleted(digest) {
            let message = "the experiment has ended, and was deleted".to_owned();
            return Ok(Err((UploadStatus::Stopped, message)));
        }
        let Some(Revision { experiment, specification }) =
            self.device.find_revision(digest).await.map_err(|error| super::unanswered(&error))?
        else {
            let message = format!("no specification has the digest {digest}");
            return Ok(Err((UploadStatus::UnknownSpecification, message)));
        };
        let malformed = |message: String| Ok(Err((UploadStatus::Malformed, message)));
        let Some(size) = specification.batch() else {
            return malformed("reports of this experiment are not shuffled".to_owned());
        };
        let expected = ShuffledReport::SEALED_BYTES * size.get() as usize;
        if batch.reports.len() != expected {
            let bytes = batch.reports.len();
            return malformed(format!(
                "a batch of this experiment has {} reports, {expected} bytes; got {bytes} bytes",
                size.get()
            ));
        }
        let cell = usize::try_from(batch.arm).ok().and_then(|cell| CellIndex::new(cell).ok());
        let cells = specification.cells().len();
        let Some(cell) = cell.filter(|cell| cell.get() < cells) else {
            let message = super::unknown_cell(batch.arm, &specification);
            return Ok(Err((UploadStatus::UnknownArm, message)));
        };
        let is_known = opener.has(&batch.keys);
        let tally = tally(opener, &batch.reports, (digest, cell), is_known).await?;
        if tally == Tally::EMPTY {
            return malformed(
                "none of the reports is about the experiment and arm of the batch".to_owned(),
            );
        }
        let (day, tallies) = (Day::new(batch.day), vec![(cell, tally)]);
        let revision = specification.revision();
        Ok(Ok(ValidUpload { id, day, experiment, revision, tallies, app: None }))
    }
}

/// Opens a report once there is room: devices' calls come first.
async fn open(opener: &Opener, report: Bytes) -> Result<Opened, OpenError> {
    for _ in 0..OPEN_ATTEMPTS {
        match opener.open(report.clone()).await {
            Err(OpenError::Full) => tokio::time::sleep(OPEN_WAIT).await,
            opened => return opened,
        }
    }
    Err(OpenError::Full)
}

/// The tally of the reports that can be opened and are about this arm. If their key `is_known`, the
/// others are nonsense, however many they are.
async fn tally(
    opener: &Opener,
    reports: &Bytes,
    about: (Digest, CellIndex),
    is_known: bool,
) -> Result<Tally, Status> {
    let starts = (0..reports.len()).step_by(ShuffledReport::SEALED_BYTES);
    let mut seen = HashSet::new();
    // The same seal twice is one report.
    let sealed = starts
        .map(|start| reports.slice(start..start + ShuffledReport::SEALED_BYTES))
        .filter(|report| seen.insert(report.clone()));
    let mut opened =
        stream::iter(sealed.map(|report| open(opener, report))).buffer_unordered(CONCURRENT_OPENS);
    let (mut tally, mut unopened, mut looked_at) = (Tally::EMPTY, 0, 0);
    while let Some(opened) = opened.next().await {
        looked_at += 1;
        // They are in random order: if half could be opened, one of these would be.
        if !is_known
            && looked_at == UNOPENED_MAX
            && unopened == UNOPENED_MAX - 1
            && matches!(opened, Err(OpenError::Sealed))
        {
            unopened = looked_at;
            break;
        }
        let report = match opened {
            Ok(opened) => ShuffledReport::from_bytes(&opened.request),
            Err(OpenError::Sealed) => {
                unopened += 1;
                continue;
            }
            Err(OpenError::Full) => {
                return Err(exhausted(OpenError::Full.to_string(), NO_ROOM_WAIT));
            }
            Err(OpenError::Failed) => return Err(Status::unavailable("the gateway failed")),
        };
        if let Some(ShuffledReport { bit, .. }) =
            report.filter(|report| (report.digest, report.cell) == about)
        {
            tally += Tally::of_bit(bit);
        }
    }
    let all = looked_at;
    if !is_known && 2 * unopened > all {
        // The key is another one since. Fewer are nonsense of strangers, without whom the others
        // count.
        return Err(Status::failed_precondition(
            "most reports of the batch were not sealed for a key of this gateway; if you replaced \
             its key, start the aggregator with the old one as `gateway_former_key_file`",
        ));
    }
    if unopened > 0 {
        tracing::warn!(unopened, all, "reports of a batch can't be opened, and are not counted");
    }
    Ok(tally)
}

#[tonic::async_trait]
impl Batches for BatchesService {
    async fn get_shuffled(
        &self,
        request: Request<GetShuffledRequest>,
    ) -> Result<Response<GetShuffledResponse>, Status> {
        self.opener()?;
        let digest = Digest::try_from(&request.into_inner().digest[..])
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let store_id = self.device.store_id();
        if self.device.was_deleted(digest) {
            let ended = GetShuffledResponse { has_ended: true, store_id, ..Default::default() };
            return Ok(Response::new(ended));
        }
        let found = self.device.find_revision(digest).await;
        let found = found.map_err(|error| super::unanswered(&error))?;
        let shuffled = found.filter(|revision| revision.specification.batch().is_some());
        let Revision { experiment, specification } = shuffled.ok_or_else(|| {
            Status::not_found(format!("no shuffled experiment has the digest {digest}"))
        })?;
        Ok(Response::new(GetShuffledResponse {
            specification: specification.canonical_bytes().into(),
            has_ended: experiment.serving().state == ExperimentState::Stopped,
            store_id,
        }))
    }

    async fn submit_batch(
        &self,
        request: Request<SubmitBatchRequest>,
    ) -> Result<Response<UploadResponse>, Status> {
        let batch = request.into_inner();
        let upload = self.upload(&batch).await?;
        Ok(Response::new(self.device.count(batch.batch_id, upload).await?))
    }
}
