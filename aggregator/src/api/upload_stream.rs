//! Streams of uploads: answered in order, and read no faster than the rates allow.

use std::future::ready;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::wire::v1::UploadResponse;
use futures_util::stream::{self, Stream, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::GOING_DOWN;
use super::device::DeviceService;
use super::device_server::Received;
use crate::admission::Admission;
use crate::ingest::QUEUE_MAX;
use crate::shutdown::ShutdownSignal;

/// Most uploads of one stream that wait for their commit, and most answers that wait to be taken.
/// Meanwhile the stream is not read further.
const WINDOW: usize = 64;

/// Most uploads of all streams that wait for their commit: half of the queue. Streams wait for a
/// place, so they leave room for calls, which do not.
pub(super) const STREAMED_MAX: usize = QUEUE_MAX / 2;

/// A stream of uploads with the state that its answers need.
pub(super) struct UploadStream {
    pub(super) service: DeviceService,
    pub(super) admission: Admission,
    /// The longest time until the next upload, and until an answer is taken.
    pub(super) idle_time: Duration,
    pub(super) places: Arc<Semaphore>,
    pub(super) ending: ShutdownSignal,
}

/// The answers to a stream of uploads.
pub(super) type Answers =
    Pin<Box<dyn Stream<Item = Result<UploadResponse, Status>> + Send + 'static>>;

/// An upload with a place in the queue.
type Placed = (Received, OwnedSemaphorePermit);

impl UploadStream {
    /// The answers, followed by an error unless the stream ended normally.
    ///
    /// A separate task makes the answers. Otherwise a caller that takes none would keep all
    /// resources of the stream for as long as it likes.
    pub(super) fn answers(
        self,
        uploads: Streaming<Received>,
    ) -> impl Stream<Item = Result<UploadResponse, Status>> + Send + 'static {
        let (sender, answers) = mpsc::channel(WINDOW);
        let (end, ended) = oneshot::channel();
        tokio::spawn(async move {
            // The receiver may be gone.
            end.send(Arc::new(self).run(uploads, sender).await).ok();
        });
        let end = stream::once(ended).filter_map(|ended| {
            ready(match ended {
                Ok(Ok(())) => None,
                Ok(Err(status)) => Some(Err(status)),
                Err(_) => Some(Err(Status::internal("the stream broke; send the bytes again"))),
            })
        });
        ReceiverStream::new(answers).map(Ok).chain(end)
    }

    async fn run(
        self: Arc<Self>,
        uploads: Streaming<Received>,
        sender: mpsc::Sender<UploadResponse>,
    ) -> Result<(), Status> {
        let revoked = self.admission.clone().revoked();
        let (reader, submitter) = (Arc::clone(&self), Arc::clone(&self));
        let placed =
            stream::unfold(Some(uploads), move |uploads| Arc::clone(&reader).next(uploads));
        let submit = move |placed: Result<Placed, Status>| {
            let submitter = Arc::clone(&submitter);
            async move {
                let (request, _place) = placed?;
                submitter.service.upload(request, submitter.admission.app_share()).await
            }
        };
        // When the server shuts down, uploads that were read are still answered.
        let placed = placed.take_until(Box::pin(self.ending.clone().wait()));
        let mut answers = pin!(placed.map(submit).buffered(WINDOW));
        let mut revoked = pin!(revoked);
        loop {
            let answer = tokio::select! {
                answer = answers.next() => answer,
                status = &mut revoked => return Err(status),
            };
            let Some(answer) = answer else { break };
            match timeout(self.idle_time, sender.send(answer?)).await {
                Ok(Ok(())) => {}
                // The caller is gone.
                Ok(Err(_)) => return Ok(()),
                Err(_) => return Err(self.idle("no answer was taken")),
            }
        }
        if self.ending.has_come() { Err(Status::unavailable(GOING_DOWN)) } else { Ok(()) }
    }

    /// The next upload, once its rate and a place allow it, and the rest of the stream.
    async fn next(
        self: Arc<Self>,
        uploads: Option<Streaming<Received>>,
    ) -> Option<(Result<Placed, Status>, Option<Streaming<Received>>)> {
        let mut uploads = uploads?;
        let request = match timeout(self.idle_time, uploads.message()).await {
            Ok(Ok(request)) => request?,
            Ok(Err(status)) => return Some((Err(status), None)),
            Err(_) => return Some((Err(self.idle("no upload came")), None)),
        };
        self.admission.passed().await;
        let place = Arc::clone(&self.places).acquire_owned().await;
        let placed = place.map(|place| (request, place));
        // The semaphore is never closed.
        Some((placed.map_err(|_| Status::unavailable(GOING_DOWN)), Some(uploads)))
    }

    fn idle(&self, what: &str) -> Status {
        let seconds = self.idle_time.as_secs();
        Status::deadline_exceeded(format!("{what} within {seconds} seconds; open a new stream"))
    }
}
