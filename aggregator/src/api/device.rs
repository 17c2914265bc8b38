//! The device service: specifications, policies, uploads.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bandana_edge::admission::Admission;
use bandana_edge::auth::AppShare;
use bandana_edge::clock::Clock;
use bandana_edge::explain::explain;
use bandana_edge::memory::{Budget, HeldCall, Shared};
use bandana_edge::pushback::exhausted;
use bandana_edge::random;
use bandana_edge::shutdown::ShutdownSignal;
use bandana_shared::identity::{Digest, StoreId, UnixSeconds};
use bandana_shared::limits::REPORTS_PER_UPLOAD_MAX;
use bandana_shared::specification::Specification;
use bandana_shared::upload::UploadError;
use bandana_shared::wire::read_upload;
use bandana_shared::wire::v1::{
    GetExperimentRequest, SelectArmRequest, SelectArmResponse, UploadRequest, UploadResponse,
    UploadStatus,
};
use bandana_store::{ExperimentState, ValidUpload, Verdict};
use bytes::Bytes;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use super::device_server::Received;
use super::gateway::NOT_SAID;
use super::upload_stream::{Answers, STREAMED_MAX, UploadStream};
use super::{find, unanswered, unknown, unknown_cell};
use crate::ingest::{Ingest, IngestError};
use crate::registry::ReplicaUnavailable;
use crate::registry::answers::RequestTime;
use crate::registry::{Experiment, PublishedExperiment, Registry, Revision};
use crate::transparency::{LoggedExperiment, Served};

/// The delay asked of a client whose upload found the queue full. The client adds random jitter.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

/// The least and the greatest delay until the next day, and the jitter added to it: at most an hour
/// in all, which is the longest that clients wait.
const FULL_WAIT_SECONDS: (u64, u64) = (60, 3000);
const FULL_SPREAD_SECONDS: u64 = 600;

/// Seconds of a day.
const DAY_SECONDS: u64 = 86_400;

/// The service that devices and gateways call. Cheap to clone: each call has one.
#[derive(Clone, Debug)]
pub struct DeviceService(Arc<DeviceParts>);

#[derive(Debug)]
struct DeviceParts {
    registry: Arc<Registry>,
    ingest: Ingest,
    clock: Arc<dyn Clock>,
    ending: ShutdownSignal,
    stream_idle_time: Duration,
    /// The id of the store, as included in answers.
    store_id: Bytes,
    budget: Budget,
    /// The places in the queue for streamed uploads.
    streamed: Arc<Semaphore>,
    /// What the public log says; empty: the server keeps none.
    log: OnceLock<Arc<Served>>,
}

impl DeviceService {
    /// The service over these experiments. Streams end when the server shuts down, and when nothing
    /// happens on them for `stream_idle_time`. Answers that devices have not yet taken are charged
    /// to `budget`.
    pub fn new(
        registry: Arc<Registry>,
        ingest: Ingest,
        clock: Arc<dyn Clock>,
        ending: ShutdownSignal,
        stream_idle_time: Duration,
        store: StoreId,
        budget: Budget,
    ) -> Self {
        let streamed = Arc::new(Semaphore::new(STREAMED_MAX));
        let store_id = store.as_bytes().to_vec().into();
        Self(Arc::new(DeviceParts {
            registry,
            ingest,
            clock,
            ending,
            stream_idle_time,
            store_id,
            budget,
            streamed,
            log: OnceLock::new(),
        }))
    }

    /// Has devices served what this log says, from now on.
    pub(crate) fn serve_log(&self, log: Option<Arc<Served>>) {
        // There is one log for each server.
        log.map(|log| self.0.log.set(log));
    }

    /// An experiment with its serving state for devices; none for a draft.
    async fn find(
        &self,
        name: String,
    ) -> Result<(Arc<Experiment>, Arc<PublishedExperiment>), Status> {
        let experiment = find(&self.0.registry, name).await?;
        let is_draft = self.0.registry.is_draft(&experiment).await;
        if is_draft.map_err(|error| unanswered(&error))? {
            return Err(unknown(experiment.id()));
        }
        let serving = experiment.serving();
        Ok((experiment, serving))
    }

    /// The experiment with a revision of this digest. A draft is reported as unknown, so that a
    /// guess of its digest is not confirmed.
    pub(super) async fn find_revision(
        &self,
        digest: Digest,
    ) -> Result<Option<Revision>, ReplicaUnavailable> {
        match self.0.registry.find_revision(digest).await? {
            Some(of_draft) if self.0.registry.is_draft(&of_draft.experiment).await? => Ok(None),
            found => Ok(found),
        }
    }

    /// Whether a revision of a deleted experiment had this digest.
    pub(super) fn was_deleted(&self, digest: Digest) -> bool {
        self.0.registry.was_deleted(digest)
    }

    /// The id of the store, as included in answers.
    pub(super) fn store_id(&self) -> Bytes {
        self.0.store_id.clone()
    }

    /// Handles an upload up to its answer.
    pub(super) async fn upload(
        &self,
        received: Received,
        app: Option<AppShare>,
    ) -> Result<UploadResponse, Status> {
        only(self.upload_together(vec![received], app.as_ref()).await?)
    }

    /// Handles uploads that came together, up to their answers in the same order. An upload without
    /// an answer ends them with an error.
    pub(super) async fn upload_together(
        &self,
        received: Vec<Received>,
        app: Option<&AppShare>,
    ) -> Result<Answered, Status> {
        let mut uploads = Vec::with_capacity(received.len());
        for received in received {
            uploads.push(match received {
                Received::Upload(request) => {
                    let upload = self.valid_upload(&request, app.cloned()).await?;
                    (request.upload_id, upload)
                }
                Received::Undecodable(message) => {
                    (Bytes::default(), Err((UploadStatus::Malformed, message)))
                }
            });
        }
        Ok(self.count_together(uploads).await)
    }

    /// The answer to an upload, or to what no upload can be made of.
    pub(super) async fn count(
        &self,
        upload_id: Bytes,
        upload: CheckedUpload,
    ) -> Result<UploadResponse, Status> {
        only(self.count_together(vec![(upload_id, upload)]).await)
    }

    async fn count_together(&self, uploads: Vec<(Bytes, CheckedUpload)>) -> Answered {
        let mut valid = Vec::with_capacity(uploads.len());
        let outcome = |(id, upload): (Bytes, CheckedUpload)| {
            let refused = |refusal: &(UploadStatus, String)| {
                self.0.ingest.metrics().refused(refusal.0);
            };
            (id, upload.map(|upload| valid.push(upload)).inspect_err(refused))
        };
        let outcomes: Vec<_> = uploads.into_iter().map(outcome).collect();
        let mut verdicts = self.0.ingest.submit_together(valid).await.into_iter();
        let now = self.0.clock.unix_seconds();
        let mut answers = Vec::with_capacity(outcomes.len());
        for (id, outcome) in outcomes {
            let answer = outcome.map_or_else(Ok, |()| {
                let verdict = verdicts.next().unwrap_or(Err(IngestError::Ended));
                verdict.map_err(turn_away).and_then(|verdict| answer_to(verdict, now))
            });
            match answer {
                Ok(answer) => answers.push(self.answer(id, answer)),
                Err(status) => return (answers, Some(status)),
            }
        }
        (answers, None)
    }

    fn answer(
        &self,
        upload_id: Bytes,
        (status, message): (UploadStatus, String),
    ) -> UploadResponse {
        UploadResponse {
            upload_id,
            status: status.into(),
            message,
            server_day: self.0.clock.day().get(),
            store_id: self.0.store_id.clone(),
        }
    }

    /// Checks everything about an upload that does not depend on others. The outer error says
    /// nothing about the upload.
    async fn valid_upload(
        &self,
        request: &UploadRequest,
        app: Option<AppShare>,
    ) -> Result<CheckedUpload, Status> {
        let digest = match Digest::try_from(&request.digest[..]) {
            Ok(digest) => digest,
            Err(error) => return Ok(Err(refuse(&error.into()))),
        };
        if self.0.registry.was_deleted(digest) {
            let message = "the experiment has ended, and was deleted".to_owned();
            return Ok(Err((UploadStatus::Stopped, message)));
        }
        let found = self.find_revision(digest).await;
        let found = found.map_err(|error| {
            self.0.ingest.metrics().turned_away(IngestError::Store);
            unanswered(&error)
        })?;
        let Some(revision) = found else {
            let message = format!("no specification has the digest {digest}");
            return Ok(Err((UploadStatus::UnknownSpecification, message)));
        };
        if revision.specification.batch().is_some() {
            let message = "reports of this experiment must come in batches from a relay that \
                           shuffles; send them to the relay";
            return Ok(Err((UploadStatus::Malformed, message.to_owned())));
        }
        // The specification defines the meaning of the upload's bits.
        let alphabet = revision.specification.channel().alphabet();
        let upload = match read_upload(request, alphabet) {
            Ok(upload) => upload,
            Err(error) => {
                let (status, message) = refuse(&error);
                let message = wrong_run(&error, &revision.specification).unwrap_or(message);
                return Ok(Err((status, message)));
            }
        };
        Ok(match upload.reports.last_cell() {
            Some(cell) if cell.get() >= revision.specification.cells().len() => {
                let message = unknown_cell(cell.to_u32(), &revision.specification);
                Err((UploadStatus::UnknownArm, message))
            }
            _ => Ok(ValidUpload {
                id: upload.id,
                day: upload.day,
                experiment: revision.experiment,
                revision: revision.specification.revision(),
                tallies: upload.reports.tallies().collect(),
                app,
            }),
        })
    }
}

/// The segment of the installations with these values; `None` for no value.
fn segment_of(specification: &Specification, values: &[String]) -> Result<Option<usize>, Status> {
    if values.is_empty() {
        return Ok(None);
    }
    let segmentations = &specification.measurement().segmentations;
    let known = segmentations.all();
    let places = known.iter().zip(values).map(|(one, value)| one.place_of(value));
    let segment = segmentations.segment(places).filter(|_| values.len() == known.len());
    segment.map(Some).ok_or_else(|| {
        let known = match known {
            [] => "it has no segments".to_owned(),
            _ => format!("give one value for each of {segmentations}"),
        };
        let values = values.join(", ");
        Status::invalid_argument(format!("no segment of the experiment is {values:?}; {known}"))
    })
}

/// The answer to a malformed upload.
fn refuse(error: &UploadError) -> (UploadStatus, String) {
    let status = match error {
        UploadError::ReportCount { reports } if *reports > REPORTS_PER_UPLOAD_MAX as u64 => {
            UploadStatus::TooManyReports
        }
        UploadError::UnknownCell { .. } => UploadStatus::UnknownArm,
        _ => UploadStatus::Malformed,
    };
    (status, explain(error))
}

/// What is wrong with a run, named by its arm, and by segment and metric where there are any. `None`:
/// something else is wrong.
fn wrong_run(error: &UploadError, specification: &Specification) -> Option<String> {
    let (index, what) = match error {
        UploadError::EmptyRun { cell } => (*cell, "has no reports; leave it out"),
        UploadError::UnsortedRuns { cell } => {
            (*cell, "is out of order; indices must be strictly ascending")
        }
        _ => return None,
    };
    let cell = specification.cells().cell(index)?;
    let measurement = specification.measurement();
    let segmentations = &measurement.segmentations;
    let segment = (!segmentations.is_empty())
        .then(|| format!(", segment {}", segmentations.label(cell.segment)));
    let metric = specification.metric(cell.metric).map(|one| format!(", metric {}", one.name()));
    let held_out = cell.is_held_out.then(|| ", held out".to_owned());
    let cells = specification.cells();
    // Where nothing else tells cells apart, the index is the arm.
    let index = (cells.len() > cells.arms()).then(|| format!(" (index {index})"));
    let named = [segment, held_out, metric, index].into_iter().flatten().collect::<String>();
    Some(format!("the run of arm {}{named} {what}", cell.arm))
}

/// An upload, or why no upload can be made of what was sent.
pub(super) type CheckedUpload = Result<ValidUpload, (UploadStatus, String)>;

/// The answers to uploads that came together, and what ends them.
type Answered = (Vec<UploadResponse>, Option<Status>);

/// The answer to a single upload.
fn only((mut answers, end): Answered) -> Result<UploadResponse, Status> {
    answers.pop().ok_or_else(|| end.unwrap_or_else(|| turn_away(IngestError::Ended)))
}

/// The answer to a decided upload.
fn answer_to(verdict: Verdict, now: u64) -> Result<(UploadStatus, String), Status> {
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
        Verdict::Paused => {
            (UploadStatus::Paused, "the experiment is paused; try again later".to_owned())
        }
        Verdict::Stopped => (UploadStatus::Stopped, "the experiment has ended".to_owned()),
        Verdict::ClockBehind => {
            return Err(Status::unavailable("the server's clock is wrong; try again later"));
        }
        Verdict::Full => {
            let message = "the server can't remember more uploads today";
            return Err(exhausted(message, full_wait(now)?));
        }
        Verdict::FullForApp => {
            let message = "the server can't remember more uploads of this app today";
            return Err(exhausted(message, full_wait(now)?));
        }
    })
}

/// The delay for a client when the server has no ids left: until the day ends and the replay window
/// moves on, at most an hour, which is the longest that clients wait. Random jitter is added, so
/// that clients do not all return at midnight.
fn full_wait(now: u64) -> Result<Duration, Status> {
    let spread = u64::from(uniform()?) % FULL_SPREAD_SECONDS;
    let until_midnight = DAY_SECONDS - now % DAY_SECONDS;
    let wait = until_midnight.clamp(FULL_WAIT_SECONDS.0, FULL_WAIT_SECONDS.1);
    Ok(Duration::from_secs(wait + spread))
}

/// A uniform word.
fn uniform() -> Result<u32, Status> {
    let word = random::word().map_err(|error| {
        let mut status = Status::unavailable("the server's random source failed");
        status.set_source(Arc::new(error));
        status
    })?;
    Ok((word >> 32) as u32)
}

/// The status for an upload without a decision.
fn turn_away(error: IngestError) -> Status {
    match error {
        IngestError::QueueFull => exhausted(error.to_string(), NO_ROOM_WAIT),
        IngestError::Ended | IngestError::Store => Status::unavailable(error.to_string()),
    }
}

/// The methods of the service.
impl DeviceService {
    /// An experiment for devices, as an encoded `GetExperimentResponse`.
    ///
    /// # Errors
    /// The status for the caller.
    pub async fn get_experiment(&self, request: GetExperimentRequest) -> Result<Shared, Status> {
        let (experiment, serving) = self.find(request.experiment_id).await?;
        let now = UnixSeconds::new(self.0.clock.unix_seconds());
        let server_day = self.0.clock.day().get();
        let time = RequestTime { now, server_day, store_id: &self.0.store_id };
        let (answers, budget) = (experiment.answers(), &self.0.budget);
        let Some(log) = self.0.log.get() else {
            return Ok(answers.answer((&serving, None), time, budget));
        };
        let answer = |logged: &LoggedExperiment| {
            answers.answer((&logged.experiment, Some(&logged.view)), time, budget)
        };
        log.with(experiment.id(), answer).ok_or_else(|| Status::unavailable(NOT_SAID))
    }

    pub(super) async fn select_arm(
        &self,
        request: Request<SelectArmRequest>,
    ) -> Result<SelectArmResponse, Status> {
        let SelectArmRequest { experiment_id, segment_values } = request.into_inner();
        let (experiment, serving) = self.find(experiment_id).await?;
        if serving.state == ExperimentState::Stopped {
            return Err(Status::failed_precondition("the experiment has ended"));
        }
        if serving.specification.private_context().is_some() {
            return Err(Status::invalid_argument(
                "the experiment has a private context, so the server can't choose arms; fetch the \
                 experiment by `GetExperiment`, and choose on the device",
            ));
        }
        let segment = segment_of(&serving.specification, &segment_values)?;
        let arm = serving.policy.weights.draw_in(segment, uniform()?);
        experiment.count_selection(arm);
        Ok(SelectArmResponse {
            arm: arm.to_u32(),
            digest: Bytes::copy_from_slice(serving.specification.digest().as_bytes()),
            server_day: self.0.clock.day().get(),
        })
    }

    pub(super) async fn submit_upload(
        &self,
        request: Request<Received>,
    ) -> Result<UploadResponse, Status> {
        let admission = Admission::of(request.extensions());
        admission.pass().inspect_err(|_| self.0.ingest.metrics().over_rate())?;
        let app = admission.app_share();
        self.upload(request.into_inner(), app).await
    }

    pub(super) fn submit_uploads(
        &self,
        request: Request<Streaming<Received>>,
    ) -> Response<Answers> {
        let stream = UploadStream {
            admission: Admission::of(request.extensions()),
            service: self.clone(),
            idle_time: self.0.stream_idle_time,
            places: Arc::clone(&self.0.streamed),
            ending: self.0.ending.clone(),
            held: HeldCall::of(request.extensions()),
        };
        Response::new(Box::pin(stream.answers(request.into_inner())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn an_overloaded_server_tells_when_to_come_back() {
        let pushback = |status: Status| -> u64 {
            assert_eq!(status.code(), Code::ResourceExhausted);
            let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap();
            pushback.to_str().unwrap().parse().unwrap()
        };
        assert!(pushback(turn_away(IngestError::QueueFull)) > 0);
        for verdict in [Verdict::Full, Verdict::FullForApp] {
            // Noon, and a time before the day ends.
            for (now, least) in [(43_200, 3_000_000), (86_399, 60_000)] {
                let wait = pushback(answer_to(verdict, now).unwrap_err());
                assert!((least..least + 600_000).contains(&wait), "{wait}");
            }
        }
        for status in
            [Err(turn_away(IngestError::Ended)), answer_to(Verdict::ClockBehind, 0).map(drop)]
        {
            assert_eq!(status.unwrap_err().code(), Code::Unavailable);
        }
    }
}
