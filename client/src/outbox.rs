use std::time::Duration;

use bandana_shared::identity::{ArmIndex, Day, Digest, ExperimentId, UploadId};
use bandana_shared::upload::Upload;

use crate::noise::{EntropyError, NoiseSource, uniform_up_to};
use crate::privatizer::PrivateBit;
use crate::time::Timestamp;

/// Reports that a client keeps at most for one experiment, assignments still
/// open among them: a month of one report every half hour. Beyond it arms are
/// still given, and those assignments never report.
pub(crate) const REPORTS_MAX: usize = 1500;

/// Bytes that an encoded upload of one report has at most.
const UPLOAD_BYTES: usize = 48;

/// First bound of the random wait after a failure; doubled with every further
/// one.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// Largest bound of that wait.
const BACKOFF_MAX: Duration = Duration::from_hours(1);

/// Longest wait that a server can ask for.
const PUSHBACK_MAX: Duration = Duration::from_hours(1);

/// How long a host has for a task. One whose result never came, because the call
/// hung or was given up, is handed out again then, with the same bytes.
pub(crate) const TASK_TIME_MAX: Duration = Duration::from_mins(2);

/// An upload to be carried out. Retries get the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadTask {
    id: UploadId,
    bytes: Vec<u8>,
}

impl UploadTask {
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
    /// Not committed as far as is known. The same bytes are sent again, after
    /// `retry_after` at the earliest.
    Retry {
        /// The server's wish, if it had one.
        retry_after: Option<Duration>,
    },
}

/// A released report, waiting to be sent.
#[derive(Debug)]
pub(crate) struct Parcel {
    experiment_id: ExperimentId,
    digest: Digest,
    arm: ArmIndex,
    bit: PrivateBit,
    /// Name and bytes, fixed when the report is first handed out.
    sealed: Option<UploadTask>,
    failures: u32,
    /// Not handed out before this time: the end of a wait, or of the time that a
    /// host has for a task that was handed out.
    not_before: Timestamp,
}

/// Released reports in no order, so that the order of uploads tells nothing
/// about the order of events.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    parcels: Vec<Parcel>,
}

impl Outbox {
    /// Number of reports of an experiment.
    pub(crate) fn count(&self, experiment_id: &ExperimentId) -> usize {
        self.parcels.iter().filter(|parcel| parcel.experiment_id == *experiment_id).count()
    }

    pub(crate) fn add(
        &mut self,
        experiment_id: ExperimentId,
        digest: Digest,
        arm: ArmIndex,
        bit: PrivateBit,
    ) {
        self.parcels.push(Parcel {
            experiment_id,
            digest,
            arm,
            bit,
            sealed: None,
            failures: 0,
            not_before: Timestamp::from_unix_ms(0),
        });
    }

    /// Whether a report of this experiment still needs the server's day.
    pub(crate) fn needs_day(&self, experiment_id: &ExperimentId) -> bool {
        self.parcels.iter().any(|p| p.sealed.is_none() && p.experiment_id == *experiment_id)
    }

    /// Hands out one of the reports that may be sent now, picked at random.
    ///
    /// `day_of` is the server's day for an experiment, if it was heard lately. A
    /// report waits until it was: with an old day the server would refuse it for
    /// good, and the day would tell when the device was last heard of.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        noise: &mut impl NoiseSource,
        day_of: impl Fn(&ExperimentId) -> Option<Day>,
    ) -> Result<Option<UploadTask>, EntropyError> {
        let ready = |parcel: &Parcel| {
            is_due(parcel.not_before, now)
                && (parcel.sealed.is_some() || day_of(&parcel.experiment_id).is_some())
        };
        let places: Vec<usize> =
            (0..self.parcels.len()).filter(|place| ready(&self.parcels[*place])).collect();
        let Some(last) = places.len().checked_sub(1) else {
            return Ok(None);
        };
        let place = uniform_up_to(last as u64, || noise.jitter())?;
        let parcel = &mut self.parcels[places[usize::try_from(place).unwrap_or(last)]];
        let task = match (&parcel.sealed, day_of(&parcel.experiment_id)) {
            (Some(task), _) => task.clone(),
            (None, Some(day)) => {
                let id = UploadId::new(noise.unique_name()?);
                let mut bytes = Vec::with_capacity(UPLOAD_BYTES);
                let names = (id, parcel.digest, day);
                Upload::encode_single_into(names, (parcel.arm, parcel.bit.get()), &mut bytes);
                UploadTask { id, bytes }
            }
            (None, None) => return Ok(None),
        };
        parcel.sealed = Some(task.clone());
        parcel.not_before = now.after(TASK_TIME_MAX);
        Ok(Some(task))
    }

    /// The earliest time at which a report that has all it needs may be sent.
    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        let sealed = self.parcels.iter().filter(|parcel| parcel.sealed.is_some());
        sealed.map(|parcel| parcel.not_before).min()
    }

    fn position(&self, id: UploadId) -> Option<usize> {
        let named = |parcel: &Parcel| parcel.sealed.as_ref().is_some_and(|task| task.id == id);
        self.parcels.iter().position(named)
    }

    /// Forgets an upload that needs no further attempt.
    pub(crate) fn remove(&mut self, id: UploadId) -> bool {
        self.position(id).map(|place| self.parcels.swap_remove(place)).is_some()
    }

    /// Keeps an upload for another attempt: after `retry_after`, plus a wait
    /// that is uniform up to a bound that doubles with every failure ("full
    /// jitter").
    pub(crate) fn postpone(
        &mut self,
        id: UploadId,
        retry_after: Option<Duration>,
        now: Timestamp,
        noise: &mut impl NoiseSource,
    ) -> Result<bool, EntropyError> {
        let Some(place) = self.position(id) else {
            return Ok(false);
        };
        let parcel = &mut self.parcels[place];
        let (failures, asked) = (parcel.failures, retry_after.unwrap_or_default());
        parcel.failures = parcel.failures.saturating_add(1);
        parcel.not_before = now.after(asked.min(PUSHBACK_MAX)).after(full_jitter(failures, noise)?);
        Ok(true)
    }
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
