//! The wait of a client for its server: one for all its fetches and uploads.

use std::time::Duration;

use crate::noise::{EntropyError, NoiseSource};
use crate::outbox::{asked_wait, full_jitter, is_due};
use crate::time::Timestamp;

/// Shortest time between two ends of a wait that a host asks for.
const RESUMES_APART: Duration = Duration::from_secs(10);

/// Calls that failed since the last answer, and the time of the next one. It is about the server, or
/// the way to it: what is due is sent once any call is answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerWait {
    failures: u32,
    not_before: Timestamp,
    resumed_at: Option<Timestamp>,
    /// There was a wait, and what it has gathered is still together.
    gathered: bool,
    /// A call was handed out and has no outcome yet.
    calling: bool,
    /// When the last call was handed out, until one ends.
    called_at: Option<Timestamp>,
    /// The last call that failed was an upload: a fetch is next, if one is due, since a server may
    /// answer one kind of call and not the other.
    fetch_next: bool,
}

/// Time from which on a call gathers what falls due meanwhile, as a wait does.
const LONG_CALL: Duration = Duration::from_secs(1);

/// Wait when there is no randomness for another one.
const NO_RANDOMNESS_WAIT: Duration = Duration::from_secs(10);

impl ServerWait {
    /// The end of the wait, if there is one.
    pub(super) fn end(&self, now: Timestamp) -> Option<Timestamp> {
        (!is_due(self.not_before, now)).then_some(self.not_before)
    }

    /// Notes that a call is handed out.
    pub(super) fn called(&mut self, now: Timestamp) {
        (self.calling, self.called_at) = (true, Some(now));
    }

    /// Notes the end of a call, whatever it was. A server can make a call as long as a wait, and accept it.
    pub(super) fn ended(&mut self, now: Timestamp) {
        self.calling = false;
        let called_at = self.called_at.take();
        self.gathered |= called_at.is_some_and(|at| now.since(at) >= LONG_CALL);
    }

    /// Notes that a call was given up: the way to the server has changed.
    #[cfg(feature = "grpc")]
    pub(super) fn given_up(&mut self) {
        (self.calling, self.called_at) = (false, None);
    }

    /// Notes an answer.
    pub(super) fn answered(&mut self) {
        let Self { resumed_at, gathered, .. } = *self;
        *self = Self { resumed_at, gathered, ..Self::default() };
    }

    /// Notes that there was no answer, or one that asks for a pause. The wait is the one
    /// of few sizes that `retry_after` fits, and a random time whose bound doubles with every failure, from one second to one hour.
    pub(super) fn failed(
        &mut self,
        was_upload: bool,
        retry_after: Option<Duration>,
        now: Timestamp,
        noise: &mut impl NoiseSource,
    ) -> Result<(), EntropyError> {
        (self.fetch_next, self.gathered) = (was_upload, true);
        self.not_before = now.after(NO_RANDOMNESS_WAIT);
        let wait = full_jitter(self.failures, noise)?;
        self.failures = self.failures.saturating_add(1);
        // At least a moment, so that a host that loops can't spin.
        let wait = wait + asked_wait(retry_after);
        self.not_before = now.after(wait).after(Duration::from_millis(1));
        Ok(())
    }

    /// Whether reports are to be parted that a wait has gathered.
    pub(super) fn has_gathered(&self) -> bool {
        self.gathered
    }

    /// Notes that they were.
    pub(super) fn parted(&mut self) {
        self.gathered = false;
    }

    /// Whether a fetch is to be tried before an upload.
    pub(super) fn fetch_next(&self) -> bool {
        self.fetch_next
    }

    /// Ends the wait within a second, and has the call under way made anew, since the way to the
    /// server may be another one. Does nothing, and returns `false`, when that was done less than
    /// ten seconds ago.
    pub(super) fn resume(
        &mut self,
        now: Timestamp,
        noise: &mut impl NoiseSource,
    ) -> Result<bool, EntropyError> {
        if self.resumed_at.is_some_and(|at| at <= now && now < at.after(RESUMES_APART)) {
            return Ok(false);
        }
        let waits = self.end(now).is_some();
        if waits {
            self.not_before = now.after(full_jitter(0, noise)?);
        }
        if waits || self.calling {
            self.resumed_at = Some(now);
        }
        Ok(true)
    }
}
