//! The service for shuffled reports, for devices.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::clock::Clock;
use bandana_edge::gateway::{OpenError, Opener};
use bandana_edge::peer::Peer;
use bandana_edge::pushback::exhausted;
use bandana_shared::shuffling::Envelope;
use bandana_shared::wire::v1::shuffler_server::Shuffler;
use bandana_shared::wire::v1::{SubmitShuffledRequest, UploadResponse, UploadStatus};
use bytes::Bytes;
use tonic::{Request, Response, Status};

use super::gateways::GatewayDigests;
use super::known::{Experiments, Known, Running};
use super::origins::Origins;
use super::report_writer::{NotKept, ReportWriter};
use super::store::Verdict;

/// The delay asked of a device while there is no room.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

/// The delay asked of a device while the store is full.
const FULL_WAIT: Duration = Duration::from_mins(10);

/// The delay asked of a device whose address has its share of the batch that fills.
const SHARE_WAIT: Duration = Duration::from_mins(10);

/// The service that devices call.
#[derive(Clone, Debug)]
pub(crate) struct ShufflerService {
    pub(super) opener: Opener,
    pub(super) origins: Origins,
    pub(super) experiments: Experiments,
    pub(super) writer: ReportWriter,
    pub(super) gateways: GatewayDigests,
    pub(super) clock: Arc<dyn Clock>,
}

impl ShufflerService {
    /// The status of a report, once it is kept or refused.
    async fn keep(
        &self,
        envelope: Envelope,
        known: Option<&Known>,
        address: Option<IpAddr>,
    ) -> Result<(UploadStatus, String), Status> {
        let Envelope { digest, cell, batch, .. } = envelope;
        let Some(known) = known else {
            let message = format!("the aggregator has no shuffled experiment of digest {digest}");
            return Ok((UploadStatus::UnknownSpecification, message));
        };
        let Some(Running { cells, batch: expected }) = known.running else {
            return Ok((UploadStatus::Stopped, "the experiment has ended".to_owned()));
        };
        if cell.get() >= cells {
            let arm = cell.get();
            let message = format!("there is no arm {arm}; the specification has {cells} arms");
            return Ok((UploadStatus::UnknownArm, message));
        }
        if batch != expected {
            let message = format!("a batch of this experiment has {} reports", expected.get());
            return Ok((UploadStatus::Malformed, message));
        }
        let origin = self.origins.of(address, &envelope);
        match self.writer.keep(envelope, origin).await {
            Ok(None) => Err(exhausted(
                "the batch that fills has as many reports of this address as it may; send the same \
                 report again",
                SHARE_WAIT,
            )),
            Ok(Some(verdict)) => answer_to(verdict),
            Err(NotKept::Full) => Err(exhausted("too many reports are waiting", NO_ROOM_WAIT)),
            Err(NotKept::Ended) => {
                Err(Status::unavailable("the relay is going down; send the same report again"))
            }
        }
    }
}

/// The answer to a decided report, in the aggregator's words.
fn answer_to(verdict: Verdict) -> Result<(UploadStatus, String), Status> {
    Ok(match verdict {
        Verdict::Accepted => (UploadStatus::Accepted, String::new()),
        Verdict::Duplicate => {
            (UploadStatus::Duplicate, "this upload was counted before".to_owned())
        }
        Verdict::Expired { oldest } => {
            (UploadStatus::Expired, format!("the oldest day that is taken is {oldest}"))
        }
        Verdict::FutureDay { today } => {
            (UploadStatus::FutureDay, format!("the server's day is {today}"))
        }
        Verdict::Full => {
            return Err(exhausted("the relay has no room for more reports", FULL_WAIT));
        }
        Verdict::ClockBehind => {
            return Err(Status::unavailable("the server's clock is wrong; try again later"));
        }
    })
}

fn not_for_this_relay() -> Status {
    Status::invalid_argument("the envelope was not sealed for the key of this relay")
}

#[tonic::async_trait]
impl Shuffler for ShufflerService {
    async fn submit_shuffled(
        &self,
        request: Request<SubmitShuffledRequest>,
    ) -> Result<Response<UploadResponse>, Status> {
        let address = request.extensions().get::<Peer>().and_then(|peer| peer.address);
        let sealed = request.into_inner().envelope;
        if sealed.len() != Envelope::SEALED_BYTES {
            return Err(not_for_this_relay());
        }
        let opened = self.opener.open(sealed).await.map_err(|error| match error {
            OpenError::Sealed => not_for_this_relay(),
            OpenError::Full => exhausted("the relay is busy", NO_ROOM_WAIT),
            OpenError::Failed => Status::unavailable("the relay failed"),
        })?;
        let Some(envelope) = Envelope::from_bytes(&opened.request) else {
            let what = "the envelope holds no report of a batch of 2 to 16384";
            return Err(Status::invalid_argument(what));
        };
        if !self.gateways.know(envelope.keys).await {
            let what =
                "the report is sealed for keys that the aggregator has not now; ask for its keys";
            return Err(Status::invalid_argument(what));
        }
        let upload_id = Bytes::copy_from_slice(envelope.id.as_bytes());
        let known = self.experiments.find(envelope.digest).await?;
        let (status, message) = self.keep(envelope, known.as_ref(), address).await?;
        Ok(Response::new(UploadResponse {
            upload_id,
            status: status.into(),
            message,
            server_day: self.clock.day().get(),
            store_id: known.map_or_else(Bytes::new, |known| known.store_id),
        }))
    }
}
