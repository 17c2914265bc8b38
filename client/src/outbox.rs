//! The outbox: reports that wait for their release, and uploads under way.

use std::collections::BTreeMap;
use std::time::Duration;

use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::{CellIndex, Day, Digest, ExperimentId, StoreId, UploadId};
use bandana_shared::shuffling::{BatchSize, ShuffledReport};
use bandana_shared::upload::Upload;

use crate::assignment::AssignmentId;
use crate::debit::Debit;
use crate::noise::{EntropyError, NoiseSource, uniform_up_to};
use crate::privatizer::PrivateReport;
use crate::shuffled_task::ShuffledTask;
use crate::time::{CLOCK_SLACK, Timestamp};

/// Largest number of reports that a client keeps for one experiment, open assignments included: a
/// month of one report every half hour. Beyond it, arms are still drawn, and those assignments
/// never report.
pub(crate) const REPORTS_MAX: usize = 1500;

/// The same limit over all experiments, which bounds the cost of a scan.
pub(crate) const REPORTS_IN_ALL_MAX: usize = 10_000;

/// Largest number of sealed and unsettled uploads in a queue. A sealed upload keeps its day, and a
/// server that was unreachable for longer than its replay window refuses that upload. So not every
/// report is sealed at once.
pub(crate) const SEALED_MAX: usize = 32;

/// Largest size of an encoded upload of one report, in bytes.
const UPLOAD_BYTES: usize = 48;

/// First bound of the random wait after a failure. The bound doubles with every further failure.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// Largest bound of the random wait after a failure.
const BACKOFF_MAX: Duration = Duration::from_hours(1);

/// The waits that a server can ask for, but for none: so few that none is a mark of a device.
const ASKED_WAITS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_mins(1),
    Duration::from_mins(10),
    PUSHBACK_MAX,
];

/// Longest wait that a server can demand.
pub(crate) const PUSHBACK_MAX: Duration = Duration::from_hours(1);

/// Longest time for carrying out a task. A task without a result by then, because the call hung or
/// was given up, is handed out again, with the same bytes.
pub(crate) const TASK_TIME_MAX: Duration = Duration::from_mins(2);

/// An upload to be carried out. Retries get the same bytes.
///
/// ```
#[doc = include_str!("example.txt")]
/// use std::time::Duration;
/// use bandana_client::{Task, UploadTask};
/// use bandana_shared::{upload::Upload, wire::v1::UploadRequest};
/// use prost::Message as _;
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// # client.draw(&id, now())?;
/// # let later = now().after(Duration::from_secs(600 + 3600));
/// # let Task::Fetch(_) = client.next_task(later)? else { return Err("no question".into()) };
/// # client.on_fetched(&FetchTask::new(id.clone()), answer(later)?, later)?;
/// let Task::Upload(task) = client.next_task(later)? else { return Err("not yet".into()) };
/// // The whole upload: a random name, the specification's digest, the day, an arm and a bit.
/// let upload = Upload::try_from(&UploadRequest::decode(task.bytes())?)?;
/// assert_eq!(upload.id, task.id());
/// assert_eq!(upload.day, later.day());
/// assert_eq!(upload.reports.tallies().count(), 1);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// The bytes hold only the private bit of the reward. The upload itself, its time and its arm were
/// fixed when the arm was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadTask {
    id: UploadId,
    bytes: Vec<u8>,
}

impl UploadTask {
    /// An upload from its stored parts.
    #[cfg(feature = "storage")]
    pub(crate) fn from_parts(id: UploadId, bytes: Vec<u8>) -> Self {
        Self { id, bytes }
    }

    /// The upload's id, for [`crate::Core::on_upload_result`].
    pub fn id(&self) -> UploadId {
        self.id
    }

    /// The encoded `bandana.v1.UploadRequest`.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The result of an upload.
///
/// ```
#[doc = include_str!("example.txt")]
/// use std::time::Duration;
/// use bandana_client::{Task, UploadOutcome};
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// # client.draw(&id, now())?;
/// # let later = now().after(Duration::from_secs(600 + 3600));
/// # let Task::Fetch(_) = client.next_task(later)? else { return Err("no question".into()) };
/// # client.on_fetched(&FetchTask::new(id.clone()), answer(later)?, later)?;
/// let Task::Upload(first) = client.next_task(later)? else { return Err("not yet".into()) };
/// // The experiment is paused.
/// let retry = UploadOutcome::Retry { retry_after: Some(Duration::from_secs(60)) };
/// client.on_upload_result(first.id(), &retry, later)?;
/// let Task::Wait(time) = client.next_task(later)? else { return Err("at once".into()) };
/// assert!(time >= later.after(Duration::from_secs(60)));
///
/// let Task::Upload(again) = client.next_task(time)? else { return Err("not yet".into()) };
/// assert_eq!(again, first);
/// client.on_upload_result(again.id(), &UploadOutcome::Accepted, time)?;
/// assert_eq!(client.waiting_reports(), 0);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadOutcome {
    /// The server counted the upload on this call.
    Accepted,
    /// The server had counted the upload before; a success.
    Duplicate,
    /// Refused for good. The report is dropped and counted in the statistics.
    Refused {
        /// The server's message.
        message: String,
    },
    /// The server does not know the specification. This is final if the specification came from the
    /// server's store. Otherwise the upload counts as not committed, and the same bytes are sent
    /// again. For example, the server's store may have been started on an empty disk.
    UnknownSpecification {
        /// The store that the server names, or `None` if it names none.
        store: Option<StoreId>,
        /// The server's message.
        message: String,
    },
    /// The server answered and did not commit: it takes no reports of this experiment for now. The
    /// same bytes are sent again, after `retry_after` and a random wait. The bound of the random
    /// wait grows from one second to one hour. Other reports of the experiment wait in the same
    /// way.
    Retry {
        /// The wait that the server asks for, if any. More than one hour counts as one hour.
        retry_after: Option<Duration>,
    },
    /// Not sent. The report is to be shuffled, and the transport leads through no relay. The report
    /// waits for an hour, with other shuffled reports of the experiment. Everything else goes on.
    NoRelay,
    /// It is not known whether the upload was committed. There was no answer, or one that is about
    /// all calls. The same bytes are sent again. No call is made before `retry_after` and a random
    /// wait are over. The bound of the random wait grows from one second to one hour with every
    /// call that fails.
    Unanswered {
        /// The wait that the server asks for, if any. More than one hour counts as one hour.
        retry_after: Option<Duration>,
    },
}

/// A private report that no server has counted yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingReport {
    pub(crate) experiment_id: ExperimentId,
    pub(crate) digest: Digest,
    /// Arm, segment and metric.
    pub(crate) cell: CellIndex,
    pub(crate) report: PrivateReport,
    /// The debit for it.
    pub(crate) price: Debit,
    /// The reports of a batch; `None`: the report goes to the aggregator itself. One with a batch is
    /// never an [`UploadTask`].
    pub(crate) batch: Option<BatchSize>,
    /// Time before which the report is not handed out, drawn with the arm.
    pub(crate) release_at: Timestamp,
    /// Longest time from now to the release. A release further ahead was set before the clock was
    /// set back, and counts as passed.
    pub(crate) reach: Duration,
    /// The store that the specification came from; `None`: unknown.
    pub(crate) store: Option<StoreId>,
    /// Id and day of the upload, fixed before the report is first handed out.
    pub(crate) sealed: Option<Sealed>,
    /// Number of the last change of this report; see [`Outbox::take`].
    pub(crate) changed: u64,
    /// Failures so far and the next attempt: lost at a restart.
    pub(crate) attempts: Attempts,
}

/// What is fixed of an upload before it is first handed out.
#[derive(Clone, Debug)]
pub(crate) enum Sealed {
    /// An upload to the aggregator, with all of its bytes.
    Direct(UploadTask),
    /// An upload of a report that is shuffled. It is sealed anew for each attempt.
    Shuffled { id: UploadId, day: Day },
}

impl Sealed {
    fn id(&self) -> UploadId {
        match self {
            Self::Direct(task) => task.id,
            Self::Shuffled { id, .. } => *id,
        }
    }

    /// Whether a report with this batch may leave so.
    pub(crate) fn fits(&self, batch: Option<BatchSize>) -> bool {
        matches!(self, Self::Shuffled { .. }) == batch.is_some()
    }
}

/// An upload that is handed out.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Direct(UploadTask),
    Shuffled(ShuffledTask),
}

/// The relay that the app believes for an experiment, if it does.
pub(crate) type Relays<'a> = &'a dyn Fn(&ExperimentId) -> Option<&'a GatewayKeys>;

/// The attempts to send one upload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    failures: u32,
    /// Whether the last one found that the transport leads through no relay.
    no_relay: bool,
    /// Time before which the upload is not handed out: the end of a wait, or of the time for a task
    /// that was handed out.
    pub(crate) not_before: Timestamp,
}

impl PendingReport {
    fn is_released(&self, now: Timestamp) -> bool {
        self.release_at <= now || self.release_at > now.after(self.reach).after(CLOCK_SLACK)
    }

    /// Whether the time for the next attempt has come. It may be as far beyond a wait as a release is
    /// beyond its assignment.
    fn is_due(&self, now: Timestamp) -> bool {
        let time = self.attempts.not_before;
        time <= now || is_due(time, now.after(self.reach)) && time > now.after(self.reach)
    }

    fn seal(&self, id: UploadId, day: Day) -> Sealed {
        if self.batch.is_some() {
            return Sealed::Shuffled { id, day };
        }
        let mut bytes = Vec::with_capacity(UPLOAD_BYTES);
        let names = (id, self.digest, day);
        Upload::encode_single_into(names, (self.cell, self.report.get()), &mut bytes);
        Sealed::Direct(UploadTask { id, bytes })
    }

    /// Whether nothing keeps the report from leaving but its time: it is not shuffled, or the app
    /// believes a relay.
    fn has_way(&self, relays: Relays<'_>) -> bool {
        self.batch.is_none() || relays(&self.experiment_id).is_some()
    }

    /// The upload, if the report is sealed and has a way.
    fn outgoing(&self, relays: Relays<'_>) -> Option<Outgoing> {
        match (self.sealed.as_ref()?, self.batch) {
            (Sealed::Direct(task), None) => Some(Outgoing::Direct(task.clone())),
            (Sealed::Shuffled { id, day }, Some(batch)) => {
                let relay = relays(&self.experiment_id)?.clone();
                let bit = self.report.get().get() != 0;
                let report = ShuffledReport { digest: self.digest, cell: self.cell, bit };
                Some(Outgoing::Shuffled(ShuffledTask::new((*id, *day), report, batch, relay)))
            }
            (Sealed::Direct(_), Some(_)) | (Sealed::Shuffled { .. }, None) => None,
        }
    }

    fn queue(&self) -> Queue<'_> {
        (&self.experiment_id, self.store, self.batch.is_some())
    }
}

/// Private reports that no server has counted yet. They leave in random order, so that the order of
/// uploads reveals nothing about the order of events.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) parcels: BTreeMap<AssignmentId, PendingReport>,
}

/// A queue: reports of one experiment and one store that are all shuffled or none, of which only a
/// limited number is sealed at a time. Reports for a store that never comes back do not hold up
/// other queues.
type Queue<'a> = (&'a ExperimentId, Option<StoreId>, bool);

impl Outbox {
    /// Reports that may be sealed now, which gives them a name and a day. For each
    /// queue: all released reports, and the number that may be sealed. A report without a way is not
    /// sealed, since its day could be long over when it has one.
    fn sealable(
        &self,
        now: Timestamp,
        relays: Relays<'_>,
    ) -> BTreeMap<Queue<'_>, (Vec<AssignmentId>, usize)> {
        let mut sealable: BTreeMap<Queue<'_>, (Vec<AssignmentId>, usize)> = BTreeMap::new();
        for (id, parcel) in &self.parcels {
            let queue = parcel.queue();
            let (released, room) = sealable.entry(queue).or_insert((Vec::new(), SEALED_MAX));
            if parcel.sealed.is_some() {
                *room = room.saturating_sub(1);
            } else if parcel.is_released(now) && parcel.has_way(relays) {
                released.push(*id);
            }
        }
        sealable.retain(|_, (released, room)| !released.is_empty() && *room > 0);
        sealable
    }

    /// The debits of all reports that may have been handed out.
    pub(crate) fn sealed(&self) -> Debit {
        let sealed = self.parcels.values().filter(|parcel| parcel.sealed.is_some());
        sealed.map(|parcel| parcel.price).fold(Debit::ZERO, Debit::saturating_add)
    }

    /// The experiments with a report that could be sent if the server's day were known.
    pub(crate) fn need_day(&self, now: Timestamp, relays: Relays<'_>) -> Vec<ExperimentId> {
        self.sealable(now, relays).into_keys().map(|(experiment, ..)| experiment.clone()).collect()
    }

    /// The reports to seal now, picked at random, each sealed with `day`.
    ///
    /// A server must have confirmed the day lately. With a wrong one it would refuse the reports for
    /// good.
    pub(crate) fn seal(
        &self,
        day: Day,
        now: Timestamp,
        relays: Relays<'_>,
        noise: &mut impl NoiseSource,
    ) -> Result<Vec<(AssignmentId, Sealed)>, EntropyError> {
        let mut sealed = Vec::new();
        for (mut released, room) in self.sealable(now, relays).into_values() {
            for _ in 0..room.min(released.len()) {
                let Some(place) = pick(released.len(), noise)? else {
                    break;
                };
                let id = released.swap_remove(place);
                if let Some(parcel) = self.parcels.get(&id) {
                    let name = UploadId::new(noise.unique_name()?);
                    sealed.push((id, parcel.seal(name, day)));
                }
            }
        }
        Ok(sealed)
    }

    /// Hands out one of the sealed reports that may be sent now, picked at random among those whose
    /// last change has a number of at most `durable`: no upload leaves that a restart would forget.
    /// A shuffled report without a relay is none of them.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        durable: u64,
        relays: Relays<'_>,
        noise: &mut impl NoiseSource,
    ) -> Result<Option<Outgoing>, EntropyError> {
        let ready = |(_, parcel): &(&AssignmentId, &PendingReport)| {
            parcel.sealed.is_some()
                && parcel.has_way(relays)
                && parcel.changed <= durable
                && parcel.is_due(now)
        };
        let parcels: Vec<AssignmentId> =
            self.parcels.iter().filter(ready).map(|(id, _)| *id).collect();
        let picked = pick(parcels.len(), noise)?.and_then(|place| parcels.get(place));
        let picked = picked.and_then(|id| self.parcels.get_mut(id));
        Ok(picked.and_then(|parcel| {
            parcel.attempts.not_before = now.after(TASK_TIME_MAX);
            parcel.outgoing(relays)
        }))
    }

    /// The earliest time at which a report needs work, apart from reports that wait for the
    /// server's day, for a write or for a relay.
    pub(crate) fn next_time(
        &self,
        now: Timestamp,
        durable: u64,
        relays: Relays<'_>,
    ) -> Option<Timestamp> {
        let next = |parcel: &PendingReport| match parcel.sealed {
            Some(_) if parcel.changed <= durable => Some(parcel.attempts.not_before),
            None if !parcel.is_released(now) => Some(parcel.release_at),
            _ => None,
        };
        self.parcels.values().filter(|parcel| parcel.has_way(relays)).filter_map(next).min()
    }

    /// The number of shuffled reports that no relay is there for: the app believes none, or the
    /// transport leads through none.
    pub(crate) fn without_relay(&self, relays: Relays<'_>) -> usize {
        let without = |parcel: &&PendingReport| !parcel.has_way(relays) || parcel.attempts.no_relay;
        self.parcels.values().filter(without).count()
    }

    /// The assignment whose report an upload carries.
    pub(crate) fn find(&self, id: UploadId) -> Option<AssignmentId> {
        let named =
            |parcel: &PendingReport| parcel.sealed.as_ref().is_some_and(|one| one.id() == id);
        self.parcels.iter().find(|(_, parcel)| named(parcel)).map(|(id, _)| *id)
    }

    /// Keeps an upload, and all of its queue, for another attempt after `retry_after`, as one of few
    /// sizes, and a wait that is uniform up to a bound that doubles with every failure ("full jitter").
    pub(crate) fn postpone(
        &mut self,
        id: AssignmentId,
        retry_after: Option<Duration>,
        now: Timestamp,
        noise: &mut impl NoiseSource,
    ) -> Result<(), EntropyError> {
        let Some(postponed) = self.parcels.get(&id) else { return Ok(()) };
        let wait = full_jitter(postponed.attempts.failures, noise)?;
        let attempts = Attempts {
            failures: postponed.attempts.failures.saturating_add(1),
            no_relay: false,
            not_before: now.after(asked_wait(retry_after)).after(wait),
        };
        self.set_attempts(id, attempts);
        Ok(())
    }

    /// The reports that nothing but a call keeps from leaving at `now`, or only those of them that have
    /// no day yet.
    pub(crate) fn released(&self, now: Timestamp, unsealed: bool) -> Vec<AssignmentId> {
        let released = |parcel: &PendingReport| {
            parcel.is_released(now) && parcel.is_due(now) && (!unsealed || parcel.sealed.is_none())
        };
        self.parcels.iter().filter(|(_, one)| released(one)).map(|(id, _)| *id).collect()
    }

    /// The reports of the queue of one that are released when its wait ends, and that end.
    pub(crate) fn gathered_by(&self, id: AssignmentId) -> Option<(Vec<AssignmentId>, Timestamp)> {
        let one = self.parcels.get(&id)?;
        let (queue, end) = (one.queue(), one.attempts.not_before);
        let gathered = |parcel: &PendingReport| parcel.queue() == queue && parcel.is_released(end);
        let parcels = self.parcels.iter().filter(|(_, parcel)| gathered(parcel));
        Some((parcels.map(|(id, _)| *id).collect(), end))
    }

    /// Keeps an upload that the transport can't send, and all of its queue, for another attempt in an
    /// hour: only a new start of the app changes its transport.
    pub(crate) fn wait_for_relay(&mut self, id: AssignmentId, now: Timestamp) {
        let not_before = now.after(PUSHBACK_MAX);
        self.set_attempts(id, Attempts { failures: 0, no_relay: true, not_before });
    }

    /// Sets the attempts of a report and of all of its queue.
    fn set_attempts(&mut self, id: AssignmentId, attempts: Attempts) {
        let Some(one) = self.parcels.get(&id) else { return };
        let (experiment_id, store, is_shuffled) = one.queue();
        let (experiment_id, rest) = (experiment_id.clone(), (store, is_shuffled));
        let of_queue = |parcel: &&mut PendingReport| {
            let (id, store, is_shuffled) = parcel.queue();
            *id == experiment_id && (store, is_shuffled) == rest
        };
        for parcel in self.parcels.values_mut().filter(of_queue) {
            parcel.attempts = attempts;
        }
    }

    /// Makes an upload due whose call was not answered.
    pub(crate) fn unanswered(&mut self, id: AssignmentId) {
        if let Some(parcel) = self.parcels.get_mut(&id) {
            parcel.attempts.not_before = Timestamp::default();
        }
    }
}

/// A random index below `places`; `None`: there are none.
fn pick(places: usize, noise: &mut impl NoiseSource) -> Result<Option<usize>, EntropyError> {
    let Some(last) = places.checked_sub(1) else {
        return Ok(None);
    };
    let place = uniform_up_to(last as u64, || noise.jitter())?;
    Ok(Some(usize::try_from(place).unwrap_or(last)))
}

/// The wait for a server that asks for one: the least of few sizes that is no shorter, and at most the
/// longest.
pub(crate) fn asked_wait(retry_after: Option<Duration>) -> Duration {
    let asked = retry_after.unwrap_or_default();
    let longer = ASKED_WAITS.into_iter().find(|wait| *wait >= asked).unwrap_or(PUSHBACK_MAX);
    if asked.is_zero() { asked } else { longer }
}

/// Whether `time` has come. A time further ahead than any wait lasts was set before the clock was
/// set back, and counts as passed.
pub(crate) fn is_due(time: Timestamp, now: Timestamp) -> bool {
    time <= now || time > now.after(BACKOFF_MAX).after(PUSHBACK_MAX).after(TASK_TIME_MAX)
}

/// A wait that is uniform from zero to a bound that doubles with every failure so far.
pub(crate) fn full_jitter(
    failures: u32,
    noise: &mut impl NoiseSource,
) -> Result<Duration, EntropyError> {
    let bound = BACKOFF_FIRST.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX);
    let bound_ms = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
    Ok(Duration::from_millis(uniform_up_to(bound_ms, || noise.jitter())?))
}
