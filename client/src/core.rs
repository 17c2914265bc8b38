use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bandana_shared::identity::{Day, Digest, ExperimentId, UploadId};
use bandana_shared::policy::Policy;
use bandana_shared::specification::Specification;
use thiserror::Error;

use crate::acceptance::{Acceptance, Refusal};
use crate::assignment::{Assignment, AssignmentId, OpenAssignment};
#[cfg(feature = "simulation")]
use crate::noise::SeededNoise;
use crate::noise::{EntropyError, NoiseSource, OsNoise, uniform_up_to};
use crate::outbox::{
    Outbox, REPORTS_MAX, TASK_TIME_MAX, UploadOutcome, UploadTask, full_jitter, is_due,
};
use crate::privatizer::PrivatizeError;
use crate::reward::Reward;
use crate::time::Timestamp;

/// The client of a device.
pub type Client = Core<OsNoise>;

/// A client whose noise comes from a seed, for simulations.
#[cfg(feature = "simulation")]
pub type SimulatedClient = Core<SeededNoise>;

/// A client without input or output of its own: it is told the time, hands out
/// tasks, and is told their results.
///
/// # Privacy
/// A report leaves at the first [`Self::next_task`] after its release time, so
/// ask for tasks when a [`Task::Wait`] ends, when the app starts, or every so
/// often, and never *because* the user reacted: then the time of the upload
/// would tell.
#[derive(Debug)]
pub struct Core<N> {
    noise: N,
    enrolled: BTreeMap<ExperimentId, Enrolled>,
    open: BTreeMap<AssignmentId, OpenAssignment>,
    outbox: Outbox,
    last_assignment: u64,
    statistics: Statistics,
}

/// One experiment of a client.
#[derive(Debug)]
struct Enrolled {
    acceptance: Acceptance,
    held: Option<Held>,
    /// The server's day as last heard, also from an answer that was refused.
    heard: Option<(Day, Timestamp)>,
    /// Whether the answer of a server is needed now.
    wanted: bool,
    failures: u32,
    /// Not asked for before this time: the end of a wait, or of the time that a
    /// host has for a task that was handed out.
    not_before: Option<Timestamp>,
}

/// What a server said, and when.
#[derive(Debug)]
struct Held {
    specification: Arc<Specification>,
    policy: Policy,
    heard_at: Timestamp,
}

/// Age up to which the server's day is good enough for an upload.
const DAY_AGE_MAX: Duration = Duration::from_hours(1);

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

/// What a host is to do next.
#[derive(Debug)]
pub enum Task {
    /// Ask a server for an experiment, then call [`Core::on_fetched`] or
    /// [`Core::on_fetch_failed`].
    Fetch(FetchTask),
    /// Send an upload, then call [`Core::on_upload_result`].
    Upload(UploadTask),
    /// Nothing before this time.
    Wait(Timestamp),
    /// Nothing, until something else happens.
    Done,
}

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
    /// `None`: the policy that the client holds is current.
    pub policy: Option<Policy>,
    /// The server's day.
    pub day: Day,
}

/// Counts since the client was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Arms given.
    pub assignments: u64,
    /// Arms given without room for a report.
    pub assignments_without_report: u64,
    /// Reports released to the outbox.
    pub reports_released: u64,
    /// Uploads that a server counted on this answer.
    pub uploads_accepted: u64,
    /// Uploads that a server had counted before.
    pub uploads_duplicate: u64,
    /// Uploads refused for good.
    pub uploads_refused: u64,
    /// Attempts that will be repeated.
    pub uploads_postponed: u64,
    /// Questions for an experiment that no server answered.
    pub fetches_failed: u64,
    /// Answers that the client refused.
    pub answers_refused: u64,
}

impl Enrolled {
    /// The server's day, if it was heard lately.
    fn day(&self, now: Timestamp) -> Option<Day> {
        let (day, heard_at) = self.heard?;
        (!is_older(heard_at, DAY_AGE_MAX, now)).then_some(day)
    }
}

impl Client {
    /// A client without experiments.
    pub fn new() -> Self {
        Self::with_noise(OsNoise)
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "simulation")]
impl SimulatedClient {
    /// The simulated client of this number under this seed.
    pub fn seeded(seed: u64, user: u64) -> Self {
        Self::with_noise(SeededNoise::new(seed, user))
    }
}

impl<N: NoiseSource> Core<N> {
    fn with_noise(noise: N) -> Self {
        Self {
            noise,
            enrolled: BTreeMap::new(),
            open: BTreeMap::new(),
            outbox: Outbox::default(),
            last_assignment: 0,
            statistics: Statistics::default(),
        }
    }

    /// Takes part in an experiment, as far as `acceptance` allows. Enrolling
    /// again replaces the acceptance; what a server said is kept if the new one
    /// allows it too, and so are reports that wait.
    pub fn enroll(&mut self, experiment_id: ExperimentId, acceptance: Acceptance) {
        let before = self.enrolled.remove(&experiment_id);
        let (held, heard) = before.map_or((None, None), |before| (before.held, before.heard));
        let held = held.filter(|h| acceptance.judge(&h.specification, None, N::SIMULATED).is_ok());
        let wanted = held.is_none();
        let enrolled = Enrolled { acceptance, held, heard, wanted, failures: 0, not_before: None };
        self.enrolled.insert(experiment_id, enrolled);
    }

    /// Draws an arm by the policy as last heard, and fixes when its report will
    /// be released. Never waits for a network.
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::NoPolicy`] before a server
    /// has answered; [`ClientError::Entropy`].
    pub fn choose(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<Assignment, ClientError> {
        let enrolled = find(&mut self.enrolled, experiment_id)?;
        let held = enrolled
            .held
            .as_ref()
            .ok_or_else(|| ClientError::NoPolicy { experiment_id: experiment_id.clone() })?;
        enrolled.wanted |= held.is_stale(now);
        let arm = held.policy.weights.draw((self.noise.word()? >> 32) as u32);
        let timing = held.specification.timing();
        let delay_ms_max = u64::from(timing.release_delay_seconds_max) * 1000;
        let delay = Duration::from_millis(uniform_up_to(delay_ms_max, || self.noise.word())?);
        let window = Duration::from_secs(u64::from(timing.attribution_window_seconds));
        let rewards_until = now.after(window);

        self.last_assignment += 1;
        self.statistics.assignments += 1;
        let id = AssignmentId(self.last_assignment);
        let is_same = |open: &&OpenAssignment| open.specification.experiment_id() == experiment_id;
        let open = self.open.values().filter(is_same).count();
        let reports = open + self.outbox.count(experiment_id) < REPORTS_MAX;
        if reports {
            let release_at = rewards_until.after(delay);
            let specification = Arc::clone(&held.specification);
            let open = OpenAssignment::new(specification, arm, rewards_until, release_at);
            self.open.insert(id, open);
        } else {
            self.statistics.assignments_without_report += 1;
        }
        let label = held.specification.arms()[arm.get()].label().to_owned();
        Ok(Assignment { id, experiment_id: experiment_id.clone(), arm, label, reports })
    }

    /// Adds a reward to an assignment. Rewards add up to one report: their sum,
    /// clamped to the range, or for binary rewards whether one of them had the
    /// higher value.
    ///
    /// # Errors
    /// [`ClientError::NotOpen`] when its time is over or it never reports;
    /// [`ClientError::Reward`] for a reward that the experiment does not admit.
    /// Nothing was added then, and the report is made all the same.
    #[expect(clippy::needless_pass_by_value, reason = "the raw value is to end here")]
    pub fn reward(
        &mut self,
        assignment: AssignmentId,
        reward: Reward,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let in_time = |open: &&mut OpenAssignment| now <= open.rewards_until;
        let open = self.open.get_mut(&assignment).filter(in_time).ok_or(ClientError::NotOpen)?;
        Ok(open.add(&reward)?)
    }

    /// What to do next. Reports whose time has come are privatized here. A task
    /// whose result is not told within two minutes is handed out again.
    ///
    /// # Errors
    /// [`ClientError::Entropy`]: nothing is lost, ask again later.
    pub fn next_task(&mut self, now: Timestamp) -> Result<Task, ClientError> {
        self.release(now)?;
        let enrolled = &self.enrolled;
        let day_of = |id: &ExperimentId| enrolled.get(id)?.day(now);
        if let Some(task) = self.outbox.take(now, &mut self.noise, day_of)? {
            return Ok(Task::Upload(task));
        }
        if let Some(task) = self.fetch_task(now) {
            return Ok(Task::Fetch(task));
        }
        let fetches = self.enrolled.values().filter(|enrolled| enrolled.wanted);
        let next = fetches
            .filter_map(|enrolled| enrolled.not_before)
            .chain(self.open.values().map(|open| open.release_at))
            .chain(self.outbox.next_time())
            .min();
        Ok(next.map_or(Task::Done, Task::Wait))
    }

    /// Turns every assignment whose release time has come into a report.
    fn release(&mut self, now: Timestamp) -> Result<(), ClientError> {
        let due = self.open.iter().filter(|(_, open)| open.is_due(now));
        let ids: Vec<AssignmentId> = due.map(|(id, _)| *id).collect();
        for id in ids {
            let Some(open) = self.open.get(&id) else {
                continue;
            };
            let bit = open.privatize(&mut self.noise)?;
            let experiment_id = open.specification.experiment_id().clone();
            let (digest, arm) = (open.specification.digest(), open.arm);
            self.outbox.add(experiment_id, digest, arm, bit);
            self.open.remove(&id);
            self.statistics.reports_released += 1;
        }
        Ok(())
    }

    fn fetch_task(&mut self, now: Timestamp) -> Option<FetchTask> {
        for (id, enrolled) in &mut self.enrolled {
            enrolled.wanted |= enrolled.day(now).is_none() && self.outbox.needs_day(id);
        }
        let due = |enrolled: &Enrolled| {
            enrolled.wanted && enrolled.not_before.is_none_or(|time| is_due(time, now))
        };
        let (id, enrolled) = self.enrolled.iter_mut().find(|(_, enrolled)| due(enrolled))?;
        enrolled.not_before = Some(now.after(TASK_TIME_MAX));
        let known = enrolled.held.as_ref();
        let known = known.map(|held| (held.specification.digest(), held.policy.version));
        Some(FetchTask { experiment_id: id.clone(), known })
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
        let enrolled = find(&mut self.enrolled, experiment_id)?;
        enrolled.heard = Some((fetched.day, now));
        match Self::accept(enrolled, experiment_id, fetched, now) {
            Ok(held) => {
                enrolled.held = Some(held);
                enrolled.wanted = false;
                enrolled.failures = 0;
                enrolled.not_before = None;
                Ok(())
            }
            Err(error) => {
                self.statistics.answers_refused += 1;
                self.ask_later(experiment_id, now)?;
                Err(error)
            }
        }
    }

    /// Judges an answer and merges it with what is held.
    fn accept(
        enrolled: &mut Enrolled,
        experiment_id: &ExperimentId,
        fetched: Fetched,
        now: Timestamp,
    ) -> Result<Held, ClientError> {
        let held = enrolled.held.as_ref();
        let specification = match (fetched.specification, held) {
            (Some(offered), held) => {
                if offered.experiment_id() != experiment_id {
                    return Err(Refusal::OtherExperiment.into());
                }
                let held = held.map(|held| &*held.specification);
                enrolled.acceptance.judge(&offered, held, N::SIMULATED)?;
                Arc::new(offered)
            }
            (None, Some(held)) => Arc::clone(&held.specification),
            (None, None) => {
                return Err(ClientError::NoPolicy { experiment_id: experiment_id.clone() });
            }
        };
        let policy = fetched.policy.or_else(|| held.map(|held| held.policy.clone()));
        let policy =
            policy.ok_or_else(|| ClientError::NoPolicy { experiment_id: experiment_id.clone() })?;
        let (weights, arms) = (policy.weights.len(), specification.arms().len());
        if weights != arms {
            return Err(Refusal::PolicyArms { weights, arms }.into());
        }
        Ok(Held { specification, policy, heard_at: now })
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
        let enrolled = find(&mut self.enrolled, experiment_id)?;
        enrolled.wanted = true;
        let wait = full_jitter(enrolled.failures, &mut self.noise)?;
        enrolled.failures = enrolled.failures.saturating_add(1);
        // At least a moment, so that a host that loops can't spin.
        enrolled.not_before = Some(now.after(wait).after(Duration::from_millis(1)));
        Ok(())
    }

    /// Notes what became of an upload.
    ///
    /// # Errors
    /// [`ClientError::Entropy`]; the upload is handed out again later.
    pub fn on_upload_result(
        &mut self,
        id: UploadId,
        outcome: &UploadOutcome,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let (known, counter) = match outcome {
            UploadOutcome::Accepted => {
                (self.outbox.remove(id), &mut self.statistics.uploads_accepted)
            }
            UploadOutcome::Duplicate => {
                (self.outbox.remove(id), &mut self.statistics.uploads_duplicate)
            }
            UploadOutcome::Refused { .. } => {
                (self.outbox.remove(id), &mut self.statistics.uploads_refused)
            }
            UploadOutcome::Retry { retry_after } => {
                let kept = self.outbox.postpone(id, *retry_after, now, &mut self.noise)?;
                (kept, &mut self.statistics.uploads_postponed)
            }
        };
        *counter += u64::from(known);
        Ok(())
    }

    /// The specification that the client takes part under.
    pub fn specification(&self, experiment_id: &ExperimentId) -> Option<&Specification> {
        let held = self.enrolled.get(experiment_id)?.held.as_ref()?;
        Some(&held.specification)
    }

    /// Counts since the client was made.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }
}

fn find<'e>(
    enrolled: &'e mut BTreeMap<ExperimentId, Enrolled>,
    experiment_id: &ExperimentId,
) -> Result<&'e mut Enrolled, ClientError> {
    let error = || ClientError::NotEnrolled { experiment_id: experiment_id.clone() };
    enrolled.get_mut(experiment_id).ok_or_else(error)
}

/// A call that the client can't carry out. Nothing changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// See [`Core::enroll`].
    #[error("the client is not enrolled in experiment {experiment_id}; call `enroll` first")]
    NotEnrolled {
        /// The experiment.
        experiment_id: ExperimentId,
    },
    /// No server has answered yet.
    #[error("there is no policy for experiment {experiment_id} yet; show a default and try later")]
    NoPolicy {
        /// The experiment.
        experiment_id: ExperimentId,
    },
    /// The assignment's time is over, or it never reports.
    #[error("the assignment takes no more rewards")]
    NotOpen,
    /// The reward is not one that the experiment admits.
    #[error(transparent)]
    Reward(PrivatizeError),
    /// The server asks for more than the app accepts.
    #[error("the server's answer was refused")]
    Refused(#[from] Refusal),
    /// No randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

impl From<PrivatizeError> for ClientError {
    fn from(error: PrivatizeError) -> Self {
        match error {
            PrivatizeError::Entropy(entropy) => Self::Entropy(entropy),
            other => Self::Reward(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::identity::Revision;
    use bandana_shared::policy::Weights;
    use bandana_shared::rewards::Rewards;
    use bandana_shared::specification::{Arm, ReleaseTiming, SpecificationParts};

    use super::*;
    use crate::noise::double::Words;

    type Failure = Box<dyn std::error::Error>;

    fn fetched(id: &ExperimentId) -> Result<Fetched, Failure> {
        let epsilon = Epsilon::new(1.0)?;
        let specification = Specification::new(SpecificationParts {
            experiment_id: id.clone(),
            revision: Revision::FIRST,
            simulation: true,
            epsilon,
            floor: bandana_shared::channel::Floor::for_epsilon(epsilon).get(),
            rewards: Rewards::binary(),
            mechanism: Mechanism::Linear,
            arms: vec![Arm::new("a")?, Arm::new("b")?],
            timing: ReleaseTiming { release_delay_seconds_max: 5, ..ReleaseTiming::IMMEDIATE },
        })?;
        let weights = Weights::uniform(&[true, true])?;
        let policy = Policy { version: 1, weights, time_to_live_seconds: 1000 };
        Ok(Fetched { specification: Some(specification), policy: Some(policy), day: Day::new(1) })
    }

    /// Does `step`, and again with more words when they ran out. Counts the
    /// times that they did.
    fn patiently<T>(
        core: &mut Core<Words>,
        failures: &mut u32,
        mut step: impl FnMut(&mut Core<Words>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        match step(core) {
            Err(ClientError::Entropy(_)) => {
                *failures += 1;
                core.noise.0.extend(1000..1100);
                step(core)
            }
            other => other,
        }
    }

    #[test]
    fn wherever_the_randomness_fails_there_is_one_report_in_the_end() -> Result<(), Failure> {
        let id = ExperimentId::new("entropy")?;
        let mut total = 0;
        for words in 0..12 {
            let mut failures = 0;
            let mut core = Core::with_noise(Words((0..words).collect()));
            let acceptance = Acceptance::new(Epsilon::new(1.0)?, Rewards::binary());
            core.enroll(id.clone(), acceptance);
            let now = Timestamp::from_unix_ms(0);
            patiently(&mut core, &mut failures, |core| core.on_fetch_failed(&id, now))?;
            core.on_fetched(&id, fetched(&id)?, now)?;
            patiently(&mut core, &mut failures, |core| core.choose(&id, now))?;
            let later = Timestamp::from_unix_ms(6000);
            let mut sent = Vec::new();
            for attempt in 0..3 {
                let now = later.after(Duration::from_secs(200 * attempt));
                let task = patiently(&mut core, &mut failures, |core| core.next_task(now))?;
                let Task::Upload(task) = task else { return Err(format!("{task:?}").into()) };
                let outcome = match attempt {
                    2 => UploadOutcome::Accepted,
                    _ => UploadOutcome::Retry { retry_after: None },
                };
                let told = core.on_upload_result(task.id(), &outcome, now);
                failures += u32::from(told.is_err());
                core.noise.0.extend(told.is_err().then_some(0..100).into_iter().flatten());
                sent.push(task);
            }
            assert!(sent.iter().all(|task| *task == sent[0]), "the same bytes every time");
            assert_eq!(core.statistics.reports_released, 1, "with {words} words");
            assert_eq!((core.open.len(), core.outbox.count(&id)), (0, 0), "with {words} words");
            total += failures;
        }
        assert!(total > 8, "the randomness failed {total} times");
        Ok(())
    }
}
