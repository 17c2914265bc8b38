//! The outbox: reports that wait for their release, and uploads under way.

use std::collections::BTreeMap;
use std::time::Duration;

use bandana_shared::identity::{ArmIndex, Day, Digest, ExperimentId, StoreId, UploadId};
use bandana_shared::upload::Upload;

use crate::assignment::AssignmentId;
use crate::noise::{EntropyError, NoiseSource, uniform_up_to};
use crate::privatizer::PrivateReport;
use crate::time::{CLOCK_SLACK, Timestamp};

/// Reports that a client keeps at most for one experiment, assignments still
/// open among them: a month of one report every half hour. Beyond it arms are
/// still given, and those assignments never report.
pub(crate) const REPORTS_MAX: usize = 1500;

/// The same for all experiments together, so that looking through them stays cheap.
pub(crate) const REPORTS_IN_ALL_MAX: usize = 10_000;

/// Uploads that are sealed and not yet settled. A sealed upload keeps its day, and
/// a server that is away for longer than its replay window refuses it then; so
/// not everything is sealed at once.
pub(crate) const SEALED_MAX: usize = 32;

/// Bytes that an encoded upload of one report has at most.
const UPLOAD_BYTES: usize = 48;

/// First bound of the random wait after a failure; doubled with every further
/// one.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// Largest bound of that wait.
const BACKOFF_MAX: Duration = Duration::from_hours(1);

/// Longest wait that a server can ask for.
pub(crate) const PUSHBACK_MAX: Duration = Duration::from_hours(1);

/// How long a host has for a task. One whose result never came, because the call
/// hung or was given up, is handed out again then, with the same bytes.
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
/// # client.choose(&id, now())?;
/// # let later = now().after(Duration::from_secs(600 + 3600));
/// # let Task::Fetch(_) = client.next_task(later)? else { return Err("no question".into()) };
/// # client.on_fetched(&id, answer(later)?, later)?;
/// let Task::Upload(task) = client.next_task(later)? else { return Err("not yet".into()) };
/// // All that a server hears: a random name, the specification, the day, an arm and a bit.
/// let upload = Upload::try_from(&UploadRequest::decode(task.bytes())?)?;
/// assert_eq!(upload.id, task.id());
/// assert_eq!(upload.day, later.day());
/// assert_eq!(upload.reports.tallies().count(), 1);
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// The bytes hold nothing of the reward but the private bit. That they leave, when, and
/// for which arm was settled when the arm was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadTask {
    id: UploadId,
    bytes: Vec<u8>,
}

impl UploadTask {
    /// An upload as it was stored.
    #[cfg(feature = "storage")]
    pub(crate) fn from_parts(id: UploadId, bytes: Vec<u8>) -> Self {
        Self { id, bytes }
    }

    /// Its name, for [`crate::Core::on_upload_result`].
    pub fn id(&self) -> UploadId {
        self.id
    }

    /// The encoded `bandana.v1.UploadRequest`.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What became of an upload.
///
/// ```
#[doc = include_str!("example.txt")]
/// use std::time::Duration;
/// use bandana_client::{Task, UploadOutcome};
///
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// # client.choose(&id, now())?;
/// # let later = now().after(Duration::from_secs(600 + 3600));
/// # let Task::Fetch(_) = client.next_task(later)? else { return Err("no question".into()) };
/// # client.on_fetched(&id, answer(later)?, later)?;
/// let Task::Upload(first) = client.next_task(later)? else { return Err("not yet".into()) };
/// // The server is busy, and asks for a minute.
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
    /// Committed now.
    Accepted,
    /// Committed before; a success.
    Duplicate,
    /// Refused for good: the report is dropped and counted.
    Refused {
        /// The server's words.
        message: String,
    },
    /// The server does not know the specification. Refused for good, if the specification came
    /// from the server's store; from any other, such as one that was started on an empty disk,
    /// it is not committed as far as is known, and the same bytes are sent again.
    UnknownSpecification {
        /// The store that the server says it has, if it says so.
        store: Option<StoreId>,
        /// The server's words.
        message: String,
    },
    /// Not committed as far as is known. The same bytes are sent again, after
    /// `retry_after` and a random wait whose bound grows from one second to one hour.
    Retry {
        /// The server's wish, if it had one. More than one hour counts as one hour.
        retry_after: Option<Duration>,
    },
}

/// A private report on its way.
#[derive(Clone, Debug)]
pub(crate) struct PendingReport {
    pub(crate) experiment_id: ExperimentId,
    pub(crate) digest: Digest,
    pub(crate) arm: ArmIndex,
    pub(crate) report: PrivateReport,
    /// Not handed out before this time, drawn with the arm.
    pub(crate) release_at: Timestamp,
    /// How far ahead that time can lie at most. One further ahead was set before
    /// the clock was set back; it has come.
    pub(crate) reach: Duration,
    /// The store that the specification came from, if that is known.
    pub(crate) store: Option<StoreId>,
    /// Name and bytes, fixed before the report is first handed out.
    pub(crate) sealed: Option<UploadTask>,
    /// Number of the last change of this parcel; see [`Outbox::take`].
    pub(crate) changed: u64,
    /// How often it was tried, and when next: forgotten by a restart.
    pub(crate) attempts: Attempts,
}

/// The attempts to send one upload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    failures: u32,
    /// Not handed out before this time: the end of a wait, or of the time that a
    /// host has for a task that was handed out.
    not_before: Timestamp,
}

impl PendingReport {
    fn is_released(&self, now: Timestamp) -> bool {
        self.release_at <= now || self.release_at > now.after(self.reach).after(CLOCK_SLACK)
    }

    fn seal(&self, id: UploadId, day: Day) -> UploadTask {
        let mut bytes = Vec::with_capacity(UPLOAD_BYTES);
        let names = (id, self.digest, day);
        Upload::encode_single_into(names, (self.arm, self.report.get()), &mut bytes);
        UploadTask { id, bytes }
    }
}

/// Private reports that no server has counted yet. They leave in random order, so
/// that the order of uploads tells nothing about the order of events.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) parcels: BTreeMap<AssignmentId, PendingReport>,
}

/// Reports that are sealed one by one as others of them are settled: those of an experiment, of
/// one store. What waits for a store that never comes back does not hold up the others.
type Queue<'a> = (&'a ExperimentId, Option<StoreId>);

impl Outbox {
    /// Reports that may be sealed now, that is given a name and the server's day: for each
    /// experiment all that are released, and how many of them.
    fn sealable(&self, now: Timestamp) -> BTreeMap<Queue<'_>, (Vec<AssignmentId>, usize)> {
        let mut sealable: BTreeMap<Queue<'_>, (Vec<AssignmentId>, usize)> = BTreeMap::new();
        for (id, parcel) in &self.parcels {
            let queue = (&parcel.experiment_id, parcel.store);
            let (released, room) = sealable.entry(queue).or_insert((Vec::new(), SEALED_MAX));
            if parcel.sealed.is_some() {
                *room = room.saturating_sub(1);
            } else if parcel.is_released(now) {
                released.push(*id);
            }
        }
        sealable.retain(|_, (released, room)| !released.is_empty() && *room > 0);
        sealable
    }

    /// The experiments with a report that could be sent if the server's day were known.
    pub(crate) fn need_day(&self, now: Timestamp) -> Vec<ExperimentId> {
        self.sealable(now).into_keys().map(|(experiment, _)| experiment.clone()).collect()
    }

    /// Reports to be sealed now, picked at random, as they will be with this day.
    ///
    /// The day must have been heard lately: with an old one the server would refuse the
    /// reports for good, and the day would tell when the device was last heard of.
    pub(crate) fn seal(
        &self,
        day: Day,
        now: Timestamp,
        noise: &mut impl NoiseSource,
    ) -> Result<Vec<(AssignmentId, UploadTask)>, EntropyError> {
        let mut sealed = Vec::new();
        for (mut released, room) in self.sealable(now).into_values() {
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

    /// Hands out one of the sealed reports that may be sent now, picked at random
    /// among those whose last change has a number of `durable` or less: no upload
    /// leaves that a restart would not know of.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        durable: u64,
        noise: &mut impl NoiseSource,
    ) -> Result<Option<UploadTask>, EntropyError> {
        let ready = |(_, parcel): &(&AssignmentId, &PendingReport)| {
            parcel.sealed.is_some()
                && parcel.changed <= durable
                && is_due(parcel.attempts.not_before, now)
        };
        let parcels: Vec<AssignmentId> =
            self.parcels.iter().filter(ready).map(|(id, _)| *id).collect();
        let picked = pick(parcels.len(), noise)?.and_then(|place| parcels.get(place));
        let picked = picked.and_then(|id| self.parcels.get_mut(id));
        Ok(picked.and_then(|parcel| {
            parcel.attempts.not_before = now.after(TASK_TIME_MAX);
            parcel.sealed.clone()
        }))
    }

    /// The earliest time at which something is to be done about a report, apart from
    /// those that wait for the server's day or for a write.
    pub(crate) fn next_time(&self, now: Timestamp, durable: u64) -> Option<Timestamp> {
        let next = |parcel: &PendingReport| match parcel.sealed {
            Some(_) if parcel.changed <= durable => Some(parcel.attempts.not_before),
            None if !parcel.is_released(now) => Some(parcel.release_at),
            _ => None,
        };
        self.parcels.values().filter_map(next).min()
    }

    /// The report that an upload carries.
    pub(crate) fn find(&self, id: UploadId) -> Option<AssignmentId> {
        let named =
            |parcel: &PendingReport| parcel.sealed.as_ref().is_some_and(|task| task.id == id);
        self.parcels.iter().find(|(_, parcel)| named(parcel)).map(|(id, _)| *id)
    }

    /// Keeps an upload for another attempt: after `retry_after`, plus a wait
    /// that is uniform up to a bound that doubles with every failure ("full
    /// jitter").
    pub(crate) fn postpone(
        &mut self,
        id: AssignmentId,
        retry_after: Option<Duration>,
        now: Timestamp,
        noise: &mut impl NoiseSource,
    ) -> Result<(), EntropyError> {
        if let Some(parcel) = self.parcels.get_mut(&id) {
            let Attempts { failures, not_before } = &mut parcel.attempts;
            let wait = full_jitter(*failures, noise)?;
            *failures = failures.saturating_add(1);
            *not_before = now.after(retry_after.unwrap_or_default().min(PUSHBACK_MAX)).after(wait);
        }
        Ok(())
    }
}

/// A place among so many, picked at random.
fn pick(places: usize, noise: &mut impl NoiseSource) -> Result<Option<usize>, EntropyError> {
    let Some(last) = places.checked_sub(1) else {
        return Ok(None);
    };
    let place = uniform_up_to(last as u64, || noise.jitter())?;
    Ok(Some(usize::try_from(place).unwrap_or(last)))
}

/// Whether `time` has come. A time further ahead than any wait lasts comes from
/// a clock that has been set back since, and has come too.
pub(crate) fn is_due(time: Timestamp, now: Timestamp) -> bool {
    time <= now || time > now.after(BACKOFF_MAX).after(PUSHBACK_MAX).after(TASK_TIME_MAX)
}

/// Uniform from zero to a bound that doubles with every failure so far.
pub(crate) fn full_jitter(
    failures: u32,
    noise: &mut impl NoiseSource,
) -> Result<Duration, EntropyError> {
    let bound = BACKOFF_FIRST.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX);
    let bound_ms = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
    Ok(Duration::from_millis(uniform_up_to(bound_ms, || noise.jitter())?))
}
