//! What a client knows of its experiments, and how it asks for more.

use std::sync::Arc;
use std::time::Duration;

use bandana_shared::identity::{Day, Digest, ExperimentId};
use bandana_shared::policy::Policy;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;

use super::state::{Change, Held};
use super::{ClientError, Core};
use crate::acceptance::{Acceptance, Refusal};
use crate::noise::NoiseSource;
use crate::outbox::{TASK_TIME_MAX, full_jitter, is_due};
use crate::time::Timestamp;

/// Age up to which the server's day is good enough for an upload.
const DAY_AGE_MAX: Duration = Duration::from_hours(1);

/// How long before its signatures expire an experiment is asked for anew.
const RENEWAL: Duration = Duration::from_hours(24);

/// A question for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTask {
    /// The experiment.
    pub experiment_id: ExperimentId,
    /// Digest and policy version that the client holds.
    pub known: Option<(Digest, u64)>,
}

/// A server's answer to a [`FetchTask`].
#[derive(Clone, Debug)]
pub struct Fetched {
    /// `None`: the specification that the client holds is current.
    pub specification: Option<Specification>,
    /// The signatures of the specification.
    pub signatures: Vec<Signature>,
    /// `None`: the policy that the client holds is current.
    pub policy: Option<Policy>,
    /// The server's day.
    pub day: Day,
}

/// An experiment that a client asks for.
#[derive(Debug)]
pub(super) struct Enrolled {
    /// What the app agrees to; `None`: it no longer takes part, and reports from
    /// before still need the server's day.
    acceptance: Option<Acceptance>,
    /// Until when what is held is within the acceptance; `None`: it is not.
    usable_until: Option<Timestamp>,
    /// Whether the answer of a server is needed now.
    wanted: bool,
    failures: u32,
    /// Not asked for before this time: the end of a wait, or of the time that a
    /// host has for a task that was handed out.
    not_before: Option<Timestamp>,
    /// Why the last answer was refused, if it was.
    refusal: Option<Refusal>,
}

impl Enrolled {
    fn new(acceptance: Option<Acceptance>, usable_until: Option<Timestamp>) -> Self {
        let wanted = acceptance.is_some() && usable_until.is_none();
        Self { acceptance, usable_until, wanted, failures: 0, not_before: None, refusal: None }
    }

    /// What the app agreed to.
    pub(super) fn into_acceptance(self) -> Option<Acceptance> {
        self.acceptance
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.wanted && self.not_before.is_none_or(|time| is_due(time, now))
    }
}

/// Whether something heard at `heard_at` is older than `lifetime`, or of unknown
/// age because the clock has been set back since.
fn is_older(heard_at: Timestamp, lifetime: Duration, now: Timestamp) -> bool {
    now < heard_at || now.since(heard_at) >= lifetime
}

impl Held {
    fn is_stale(&self, now: Timestamp) -> bool {
        let lifetime = Duration::from_secs(u64::from(self.policy.time_to_live_seconds));
        is_older(self.heard_at, lifetime, now)
    }
}

impl<N: NoiseSource> Core<N> {
    /// Takes part in an experiment, as far as `acceptance` allows. Enrolling
    /// again replaces the acceptance; what a server said is used further if the new
    /// one allows it too, and reports that wait are kept.
    pub fn enroll(&mut self, experiment_id: ExperimentId, acceptance: Acceptance) {
        let held = self.state.held.get(&experiment_id);
        // It is this late at least; the signatures are looked at again when they are used.
        let now = self.state.ledger.time(Timestamp::default());
        let usable_until = held.and_then(|held| {
            let offered = (&*held.specification, &held.signatures[..]);
            acceptance.judge(offered, None, N::SIMULATED, now).ok()
        });
        self.enrolled.insert(experiment_id, Enrolled::new(Some(acceptance), usable_until));
    }

    /// Every experiment that a server has told of.
    pub(crate) fn held_experiments(&self) -> Vec<ExperimentId> {
        self.state.held.keys().cloned().collect()
    }

    /// Whether the app takes part in an experiment.
    pub fn is_enrolled(&self, experiment_id: &ExperimentId) -> bool {
        self.enrolled.get(experiment_id).is_some_and(|enrolled| enrolled.acceptance.is_some())
    }

    /// Why the last answer about an experiment was refused, if it was.
    pub fn refusal(&self, experiment_id: &ExperimentId) -> Option<&Refusal> {
        self.enrolled.get(experiment_id)?.refusal.as_ref()
    }

    /// The specification that the client takes part under.
    pub fn specification(&self, experiment_id: &ExperimentId) -> Option<&Specification> {
        self.enrolled.get(experiment_id)?.usable_until?;
        Some(&self.state.held.get(experiment_id)?.specification)
    }

    /// What is held of an experiment, if it can be used; asks for it anew when it is
    /// old.
    pub(super) fn use_held(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<(&Held, &Acceptance), ClientError> {
        let not_enrolled = || ClientError::NotEnrolled { experiment_id: experiment_id.clone() };
        let enrolled = self.enrolled.get_mut(experiment_id).ok_or_else(not_enrolled)?;
        let acceptance = enrolled.acceptance.as_ref().ok_or_else(not_enrolled)?;
        let no_policy = || ClientError::NoPolicy { experiment_id: experiment_id.clone() };
        let usable_until = enrolled.usable_until.ok_or_else(no_policy)?;
        let held = self.state.held.get(experiment_id).ok_or_else(no_policy)?;
        let time = self.state.ledger.time(now);
        enrolled.wanted |= held.is_stale(now) || time.after(RENEWAL) >= usable_until;
        if time >= usable_until {
            return Err(ClientError::SignaturesExpired { experiment_id: experiment_id.clone() });
        }
        Ok((held, acceptance))
    }

    /// The server's day, if it was heard lately.
    pub(super) fn day(&self, now: Timestamp) -> Option<Day> {
        let (day, heard_at) = self.heard_day?;
        (!is_older(heard_at, DAY_AGE_MAX, now)).then_some(day)
    }

    pub(super) fn fetch_task(&mut self, now: Timestamp) -> Option<FetchTask> {
        if self.day(now).is_none()
            && let Some(experiment_id) = self.state.outbox.needs_day(now)
        {
            let enrolled = self.enrolled.entry(experiment_id.clone());
            enrolled.or_insert_with(|| Enrolled::new(None, None)).wanted = true;
        }
        let (id, enrolled) = self.enrolled.iter_mut().find(|(_, enrolled)| enrolled.is_due(now))?;
        enrolled.not_before = Some(now.after(TASK_TIME_MAX));
        // Whose signatures are about to expire is asked for as a whole: a server leaves
        // out what is known.
        let renewal = self.state.ledger.time(now).after(RENEWAL);
        let lasting = enrolled.usable_until.is_some_and(|until| renewal < until);
        let held = self.state.held.get(id).filter(|_| lasting);
        let known = held.map(|held| (held.specification.digest(), held.policy.version));
        Some(FetchTask { experiment_id: id.clone(), known })
    }

    /// The earliest time at which a server is to be asked.
    pub(super) fn next_fetch(&self) -> Option<Timestamp> {
        let wanted = self.enrolled.values().filter(|enrolled| enrolled.wanted);
        wanted.filter_map(|enrolled| enrolled.not_before).min()
    }

    /// Takes a server's answer, if it is within what the app accepts.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the reason: the client goes on with what it
    /// held, believes the server's day, and asks again later.
    pub fn on_fetched(
        &mut self,
        experiment_id: &ExperimentId,
        fetched: Fetched,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        if self.state.opted_out {
            return Err(ClientError::OptedOut);
        }
        if !self.enrolled.contains_key(experiment_id) {
            return Err(ClientError::NotEnrolled { experiment_id: experiment_id.clone() });
        }
        self.heard_day = Some((fetched.day, now));
        let accepted = self.accept(experiment_id, fetched, now);
        if let Err(error) = accepted {
            self.statistics.answers_refused += 1;
            self.ask_later(experiment_id, now)?;
            if let (ClientError::Refused(refusal), Some(enrolled)) =
                (&error, self.enrolled.get_mut(experiment_id))
            {
                enrolled.refusal = Some(refusal.clone());
            }
            return Err(error);
        }
        if let Some(enrolled) = self.enrolled.get_mut(experiment_id) {
            enrolled.wanted = false;
            enrolled.failures = 0;
            enrolled.not_before = None;
            enrolled.refusal = None;
        }
        Ok(())
    }

    /// Judges an answer, merges it with what is held, and holds the result.
    fn accept(
        &mut self,
        experiment_id: &ExperimentId,
        fetched: Fetched,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let no_policy = || ClientError::NoPolicy { experiment_id: experiment_id.clone() };
        let Some(enrolled) = self.enrolled.get_mut(experiment_id) else {
            return Ok(());
        };
        let Some(acceptance) = &enrolled.acceptance else {
            // Asked for its day only.
            return Ok(());
        };
        let held = self.state.held.get(experiment_id);
        let time = self.state.ledger.time(now);
        let (specification, signatures, until) = match (fetched.specification, held) {
            (Some(offered), held) => {
                if offered.experiment_id() != experiment_id {
                    return Err(Refusal::OtherExperiment.into());
                }
                let (signatures, held) = (fetched.signatures, held.map(|h| &*h.specification));
                let offer = (&offered, &signatures[..]);
                let until = acceptance.judge(offer, held, N::SIMULATED, time)?;
                (Arc::new(offered), signatures, until)
            }
            (None, Some(held)) => {
                let until = enrolled.usable_until.ok_or_else(no_policy)?;
                (Arc::clone(&held.specification), held.signatures.clone(), until)
            }
            (None, None) => return Err(no_policy()),
        };
        let same = held.filter(|held| held.specification.digest() == specification.digest());
        let policy = fetched.policy.or_else(|| held.map(|held| held.policy.clone()));
        let policy = policy.ok_or_else(no_policy)?;
        let (weights, arms) = (policy.weights.len(), specification.arms().len());
        if weights != arms {
            return Err(Refusal::PolicyArms { weights, arms }.into());
        }
        enrolled.usable_until = Some(until);
        let anew = same.is_none_or(|held| held.signatures != signatures);
        let news = anew || same.is_some_and(|held| held.policy.version != policy.version);
        let next = Held { specification, signatures, policy, heard_at: now };
        if news {
            self.record(Change::Heard { held: next, anew });
        } else {
            // That it was heard again is not worth a write.
            self.state.held.insert(experiment_id.clone(), next);
        }
        Ok(())
    }

    /// Notes that a server could not be asked. The client asks again after a
    /// random wait that grows with every failure.
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::Entropy`].
    pub fn on_fetch_failed(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        self.statistics.fetches_failed += 1;
        self.ask_later(experiment_id, now)
    }

    /// Notes that a server's answer was not valid. As [`Self::on_fetch_failed`],
    /// but counted as refused.
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::Entropy`].
    pub fn on_answer_invalid(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        self.statistics.answers_refused += 1;
        self.ask_later(experiment_id, now)
    }

    fn ask_later(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let error = || ClientError::NotEnrolled { experiment_id: experiment_id.clone() };
        let enrolled = self.enrolled.get_mut(experiment_id).ok_or_else(error)?;
        enrolled.wanted = true;
        let wait = full_jitter(enrolled.failures, &mut self.noise)?;
        enrolled.failures = enrolled.failures.saturating_add(1);
        // At least a moment, so that a host that loops can't spin.
        enrolled.not_before = Some(now.after(wait).after(Duration::from_millis(1)));
        Ok(())
    }
}
