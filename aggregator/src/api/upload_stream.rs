//! Streams of uploads: answered in order, and read no faster than the rates allow.

use std::collections::VecDeque;
use std::future::ready;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::admission::Admission;
use bandana_edge::memory::{HeldCall, callers_fault};
use bandana_edge::shutdown::ShutdownSignal;
use bandana_edge::status::GOING_DOWN;
use bandana_shared::wire::v1::UploadResponse;
use futures_util::stream::{self, ReadyChunks, Stream, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::device::DeviceService;
use super::device_server::Received;
use crate::ingest::QUEUE_MAX;

/// Most uploads of one stream that are handled together: those that have arrived when it is read.
const TOGETHER: usize = 16;

/// Most such parts of one stream that wait for their commit, and most whose answers wait to be
/// taken. Meanwhile the stream is not read further.
const WINDOW: usize = 4;

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
    /// The call that the stream is.
    pub(super) held: HeldCall,
}

/// The answers to a stream of uploads.
pub(super) type Answers =
    Pin<Box<dyn Stream<Item = Result<UploadResponse, Status>> + Send + 'static>>;

/// The rest of a stream.
struct Rest {
    /// The uploads, as many at once as have arrived. None: the stream has ended.
    parts: Option<ReadyChunks<Streaming<Received>>>,
    /// Uploads that have arrived, and whose rate does not allow them yet.
    waiting: VecDeque<Received>,
    /// The error with which the stream has ended.
    error: Option<Status>,
}

/// Uploads with their places in the queue.
type Placed = (Vec<Received>, OwnedSemaphorePermit);

impl UploadStream {
    /// The answers, followed by an error unless the stream ended normally.
    ///
    /// A separate task makes the answers. Otherwise a caller that takes none would keep all
    /// resources of the stream for as long as it likes. When the stream has ended, what is left of
    /// the answers must be taken in time, since its end can't be sent before.
    pub(super) fn answers(
        self,
        uploads: Streaming<Received>,
    ) -> impl Stream<Item = Result<UploadResponse, Status>> + Send + 'static {
        let (sender, answers) = mpsc::channel(WINDOW);
        let (end, ended) = oneshot::channel();
        let held = self.held.clone();
        tokio::spawn(async move {
            let outcome = Arc::new(self).run(uploads, sender).await;
            held.end();
            // The receiver may be gone.
            end.send(outcome).ok();
        });
        let end = stream::once(ended).filter_map(|ended| {
            ready(match ended {
                Ok(Ok(())) => None,
                Ok(Err(status)) => Some(Err(status)),
                Err(_) => Some(Err(Status::internal("the stream broke; send the bytes again"))),
            })
        });
        ReceiverStream::new(answers).flat_map(|part| stream::iter(part).map(Ok)).chain(end)
    }

    async fn run(
        self: Arc<Self>,
        uploads: Streaming<Received>,
        sender: mpsc::Sender<Vec<UploadResponse>>,
    ) -> Result<(), Status> {
        let revoked = self.admission.clone().revoked();
        let (reader, submitter) = (Arc::clone(&self), Arc::clone(&self));
        let rest = Rest {
            parts: Some(uploads.ready_chunks(TOGETHER)),
            waiting: VecDeque::with_capacity(TOGETHER),
            error: None,
        };
        let placed = stream::unfold(rest, move |rest| Arc::clone(&reader).next(rest));
        let submit = move |placed: Result<Placed, Status>| {
            let submitter = Arc::clone(&submitter);
            async move {
                let (uploads, _places) = placed?;
                let app = submitter.admission.app_share();
                submitter.service.upload_together(uploads, app.as_ref()).await
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
            let Some(answers) = answer else { break };
            let (answers, end) = answers?;
            match timeout(self.idle_time, sender.send(answers)).await {
                Ok(Ok(())) => {}
                // The caller is gone.
                Ok(Err(_)) => return Ok(()),
                Err(_) => return Err(self.idle("no answer was taken")),
            }
            if let Some(status) = end {
                return Err(status);
            }
        }
        if self.ending.has_come() { Err(Status::unavailable(GOING_DOWN)) } else { Ok(()) }
    }

    /// The next uploads, as many as their rate allows, once it allows one and there are places.
    async fn next(self: Arc<Self>, mut rest: Rest) -> Option<(Result<Placed, Status>, Rest)> {
        if rest.waiting.is_empty()
            && let Err(status) = self.read(&mut rest).await
        {
            return Some((Err(status), Rest { parts: None, ..rest }));
        }
        let mut uploads = Vec::with_capacity(rest.waiting.len());
        let Some(first) = rest.waiting.pop_front() else {
            let error = rest.error.take()?;
            return Some((Err(error), rest));
        };
        self.admission.passed().await;
        uploads.push(first);
        while !rest.waiting.is_empty() && self.admission.pass().is_ok() {
            uploads.extend(rest.waiting.pop_front());
        }
        let count = u32::try_from(uploads.len()).unwrap_or(u32::MAX);
        let places = Arc::clone(&self.places).acquire_many_owned(count).await;
        let placed = places.map(|places| (uploads, places));
        // The semaphore is never closed.
        Some((placed.map_err(|_| Status::unavailable(GOING_DOWN)), rest))
    }

    /// Reads what has arrived, and waits for it if nothing has.
    async fn read(&self, rest: &mut Rest) -> Result<(), Status> {
        let Some(parts) = &mut rest.parts else { return Ok(()) };
        let arrived = timeout(self.idle_time, parts.next()).await;
        let arrived = arrived.map_err(|_| self.idle("no upload came"))?;
        for upload in arrived.into_iter().flatten() {
            match upload {
                Ok(upload) => rest.waiting.push_back(upload),
                Err(status) => {
                    rest.error = Some(callers_fault(&status).unwrap_or(status));
                    // Where the next message begins is not known: what follows may be bytes of the
                    // refused one.
                    break;
                }
            }
        }
        if rest.waiting.is_empty() || rest.error.is_some() {
            rest.parts = None;
        }
        Ok(())
    }

    fn idle(&self, what: &str) -> Status {
        let seconds = self.idle_time.as_secs();
        Status::deadline_exceeded(format!("{what} within {seconds} seconds; open a new stream"))
    }
}
