//! Experiments as an app sees them: choices, assignments, and reasons for defaults.

use std::time::Duration;

use bandana_shared::identity::{ArmIndex, ExperimentId};
use bandana_shared::specification::Specification;
use thiserror::Error;

use super::Bandana;
use crate::assignment::{AssignmentId, Chosen, Unreported};
use crate::core::{ClientError, Core};
use crate::noise::OsNoise;
use crate::refusal::Refusal;
use crate::reward::Reward;
use crate::time::Timestamp;

/// One experiment of a [`crate::Bandana`]. It is cheap to clone. Like the client's handle, it keeps
/// the driver running.
///
/// ```
#[doc = include_str!("../example.txt")]
/// # let (bandana, _tasks, _clock) = started()?;
/// let experiment = bandana.experiment("button-colour")?;
/// let shown = experiment.choose().label_or("blue").to_owned();
/// assert!(["red", "green"].contains(&&*shown));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct Experiment {
    bandana: Bandana,
    id: ExperimentId,
}

impl Experiment {
    pub(super) fn new(bandana: Bandana, id: ExperimentId) -> Self {
        Self { bandana, id }
    }

    /// The experiment's id.
    pub fn id(&self) -> &ExperimentId {
        &self.id
    }

    /// Whether the client has a policy, so that [`Self::choose`] draws arms.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # use bandana_client::Bandana;
    /// # let (bandana, _tasks) = agree(Bandana::builder().host_transport().in_memory())?.build();
    /// let experiment = bandana.experiment("button-colour")?;
    /// assert!(!experiment.is_ready(), "no server has answered yet");
    /// # let (bandana, _tasks, _clock) = started()?;
    /// # let experiment = bandana.experiment("button-colour")?;
    /// // ... and later:
    /// assert!(experiment.is_ready());
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn is_ready(&self) -> bool {
        let core = self.bandana.shared.core();
        !core.is_opted_out() && core.specification(&self.id).is_some()
    }

    /// The labels of the arms in play. There are none before the client has a policy.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// assert_eq!(bandana.experiment("button-colour")?.labels(), ["red", "green"]);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn labels(&self) -> Vec<String> {
        let core = self.bandana.shared.core();
        let arms = core.specification(&self.id).map(Specification::arms);
        let in_play = arms.unwrap_or_default().iter().filter(|arm| !arm.is_retired());
        in_play.map(|arm| arm.label().to_owned()).collect()
    }

    /// Waits until [`Self::is_ready`] holds, for at most `patience`. It blocks. So use it only for
    /// the first start of a program that has nothing else to do. A later start reads the experiment
    /// from its directory, and an app shows its default meanwhile.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// # use bandana_client::Bandana;
    /// # let (bandana, _tasks) = agree(Bandana::builder().host_transport().in_memory())?.build();
    /// let experiment = bandana.experiment("button-colour")?;
    /// if let Err(why) = experiment.wait_until_ready(Duration::ZERO) {
    ///     eprintln!("showing the default: {why}");
    /// }
    /// # let (bandana, _tasks, _clock) = started()?;
    /// # let experiment = bandana.experiment("button-colour")?;
    /// // ... and after the first answer of a server:
    /// assert_eq!(experiment.wait_until_ready(Duration::from_secs(5)), Ok(()));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`NotReady`] when the time is over. It comes at once if the client has refused the server's
    /// answer, or if the user has opted out or not consented.
    pub fn wait_until_ready(&self, patience: Duration) -> Result<(), NotReady> {
        let shared = &self.bandana.shared;
        shared.wait_until(patience, |core| {
            core.is_opted_out()
                || core.specification(&self.id).is_some()
                || core.refusal(&self.id).is_some()
        });
        let failure = shared.failure();
        let core = shared.core();
        let reason = match (core.is_opted_out(), core.specification(&self.id)) {
            (true, _) => DefaultReason::OptedOut,
            (false, Some(_)) => return Ok(()),
            (false, None) => match core.refusal(&self.id) {
                Some(refusal) => DefaultReason::Refused(refusal.clone()),
                None => DefaultReason::NoPolicyYet,
            },
        };
        let failure = failure.filter(|_| reason == DefaultReason::NoPolicyYet);
        Err(NotReady { reason, failure })
    }

    /// Returns the arm to show. If an assignment has an attribution window that still lasts, it is
    /// the arm of that assignment, also after a restart. Otherwise this call makes a new
    /// assignment. So an installation shows one arm at a time and pays for it once, however often a
    /// page is shown. Never waits.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let experiment = bandana.experiment("button-colour")?;
    /// let choice = experiment.choose();
    /// println!("show the {} button", choice.label_or("blue"));
    /// // And when the page is shown again:
    /// assert_eq!(experiment.choose().label_or("blue"), choice.label_or("blue"));
    /// assert_eq!(bandana.status().open_assignments, 1);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// A new assignment either debits the ε of the experiment, whatever the user does later, or
    /// never reports ([`Assignment::unreported`]).
    pub fn choose(&self) -> Choice {
        self.choice(Core::choose)
    }

    /// Draws an arm, and fixes at once whether and when it will be reported. It draws also while
    /// the window of another assignment lasts. Use it where each choice is a new one, such as the
    /// order of one list. Never waits.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let experiment = bandana.experiment("button-colour")?;
    /// let (one, other) = (experiment.draw(), experiment.draw());
    /// // Each is paid for, and reports its own rewards.
    /// assert_eq!(bandana.status().open_assignments, 2);
    /// assert_eq!(bandana.status().spent.lifetime.get(), 2_000_000_000);
    /// # drop((one, other));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Either debits the ε of the experiment, whatever the user does later, or draws an arm that
    /// never reports ([`Assignment::unreported`]).
    pub fn draw(&self) -> Choice {
        self.choice(Core::draw)
    }

    /// Like [`Self::choose`], but in a context. Pass one `bool` for each feature that the app has
    /// agreed to by [`crate::Acceptance::private_context`], in the same order. **This is
    /// research.** In an experiment without a private context, it does the same as
    /// [`Self::choose`]. Never waits.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let experiment = bandana.experiment("button-colour")?;
    /// let is_weekend = true;
    /// println!("show the {} button", experiment.choose_in_context(&[is_weekend]).label_or("blue"));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The same as for [`crate::Core::choose_in_context`]: only assignments that explore report,
    /// and whether one does is independent of the context.
    pub fn choose_in_context(&self, context: &[bool]) -> Choice {
        self.choice(|core, id, now| core.choose_in_context(id, context, now))
    }

    /// Like [`Self::draw`], but in a context, which you pass as to [`Self::choose_in_context`].
    /// **This is research.**
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let experiment = bandana.experiment("button-colour")?;
    /// let (now, then) = (experiment.draw_in_context(&[true]), experiment.draw_in_context(&[false]));
    /// assert_eq!(bandana.status().open_assignments, 2);
    /// # drop((now, then));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The same as for [`Self::choose_in_context`].
    pub fn draw_in_context(&self, context: &[bool]) -> Choice {
        self.choice(|core, id, now| core.draw_in_context(id, context, now))
    }

    fn choice(
        &self,
        way: impl Fn(&mut Core<OsNoise>, &ExperimentId, Timestamp) -> Result<Chosen, ClientError>,
    ) -> Choice {
        let mut core = self.bandana.shared.core();
        let chosen = way(&mut core, &self.id, self.bandana.shared.now());
        let refusal = core.refusal(&self.id).cloned();
        let is_for_a_crowd = core.draws_for_a_crowd();
        drop(core);
        if is_for_a_crowd {
            self.bandana.shared.note_crowd(&self.id);
        }
        self.bandana.shared.draw_about_refusals();
        self.bandana.shared.wake_after_draw();
        match (chosen, refusal) {
            (Ok(chosen), _) => Choice::Arm(Assignment::new(self.bandana.clone(), chosen)),
            (Err(ClientError::OptedOut), _) => Choice::Default(DefaultReason::OptedOut),
            (Err(ClientError::Entropy(_)), _) => Choice::Default(DefaultReason::NoRandomness),
            (Err(ClientError::SignaturesExpired { .. }), _) => {
                Choice::Default(DefaultReason::SignaturesExpired)
            }
            (Err(ClientError::NotSampled { .. }), _) => Choice::Default(DefaultReason::NotSampled),
            (Err(ClientError::Context { expected, given, .. }), _) => {
                Choice::Default(DefaultReason::Context { expected, given })
            }
            (Err(_), Some(refusal)) => Choice::Default(DefaultReason::Refused(refusal)),
            (Err(_), None) => Choice::Default(DefaultReason::NoPolicyYet),
        }
    }
}

/// The reason why an experiment draws no arms yet.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// use bandana_client::DefaultReason;
/// # let (bandana, mut tasks, _clock) = started()?;
/// let experiment = bandana.experiment("font-size")?;
/// # let bandana_client::Task::Fetch(task) = tasks.next_task()? else { return Err("none".into()) };
/// # tasks.on_fetch_failed(&task, None)?;
/// let why = experiment.wait_until_ready(Duration::ZERO).unwrap_err();
/// assert_eq!(why.reason(), &DefaultReason::NoPolicyYet);
/// assert!(why.to_string().ends_with("the last time, the host could not ask"), "{why}");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NotReady {
    reason: DefaultReason,
    /// Reason why the last fetch failed.
    failure: Option<String>,
}

impl NotReady {
    /// The reason, as in [`Choice::Default`].
    pub fn reason(&self) -> &DefaultReason {
        &self.reason
    }
}

impl std::fmt::Display for NotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.reason)?;
        match &self.failure {
            Some(failure) => write!(f, "; the last time, {failure}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotReady {}

/// The arm or default that an app is to show.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::Choice;
/// # let (bandana, _tasks, _clock) = started()?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// let label = match &choice {
///     Choice::Arm(assignment) => assignment.label(),
///     Choice::Default(_) => "blue",
/// };
/// assert_eq!(label, choice.label_or("blue"));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "an arm was drawn, and its report will be made"]
pub enum Choice {
    /// The arm of this assignment.
    Arm(Assignment),
    /// The app shows its own default. There will be no report.
    Default(DefaultReason),
}

impl Choice {
    /// The label of the arm, or `default`.
    ///
    /// ```
    /// use bandana_client::{Choice, DefaultReason};
    /// let choice = Choice::Default(DefaultReason::NoPolicyYet);
    /// assert_eq!(choice.label_or("blue"), "blue");
    /// ```
    pub fn label_or<'a>(&'a self, default: &'a str) -> &'a str {
        match self {
            Self::Arm(assignment) => assignment.label(),
            Self::Default(_) => default,
        }
    }

    /// Adds a reward to the arm's assignment: see [`Assignment::reward`]. Does nothing if there is
    /// no arm.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let choice = bandana.experiment("button-colour")?.choose();
    /// // The user has pressed the button.
    /// choice.reward(1.0);
    /// assert_eq!(bandana.status().statistics.rewards_refused, 0);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn reward(&self, reward: f64) {
        if let Self::Arm(assignment) = self {
            assignment.reward(reward);
        }
    }

    /// Adds a value of a metric to the arm's assignment: see [`Assignment::measure`]. Does nothing
    /// if there is no arm.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let choice = bandana.experiment("button-colour")?.choose();
    /// // The user has sent back what was bought.
    /// choice.measure("returned", 1.0);
    /// assert_eq!(bandana.status().statistics.rewards_refused, 0);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn measure(&self, metric: &str, value: f64) {
        if let Self::Arm(assignment) = self {
            assignment.measure(metric, value);
        }
    }

    /// The assignment, if an arm was drawn.
    ///
    /// ```
    /// use bandana_client::{Choice, DefaultReason};
    /// let choice = Choice::Default(DefaultReason::OptedOut);
    /// assert!(choice.assignment().is_none());
    /// ```
    pub fn assignment(&self) -> Option<&Assignment> {
        match self {
            Self::Arm(assignment) => Some(assignment),
            Self::Default(_) => None,
        }
    }
}

/// The reason why no arm was drawn.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Choice, DefaultReason};
/// # let (bandana, _tasks, _clock) = started()?;
/// // No server has sent this experiment yet.
/// let choice = bandana.experiment("font-size")?.choose();
/// let Choice::Default(reason) = choice else { return Err("an arm".into()) };
/// assert_eq!(reason, DefaultReason::NoPolicyYet);
/// println!("showing the default: {reason}");
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Error, PartialEq)]
#[non_exhaustive]
pub enum DefaultReason {
    /// No server has answered yet. The next choice may succeed.
    #[error("no server has told of the experiment yet")]
    NoPolicyYet,
    /// The server's answer is outside the app's acceptance.
    #[error("the app does not accept what the server asks for: {0}")]
    Refused(Refusal),
    /// The signatures of the experiment have expired.
    #[error("the experiment's signatures have expired")]
    SignaturesExpired,
    /// The experiment is for a part of the installations, and this is not one of them.
    #[error("the experiment is for a part of the installations, and this is not one of them")]
    NotSampled,
    /// The experiment chooses arms by a private context. The call gave no context, or one with
    /// another number of features.
    #[error("the experiment's private context has {expected} features, and the call gave {given}")]
    Context {
        /// Number of the experiment's features.
        expected: usize,
        /// Number of the features given; 0 for a call without a context.
        given: usize,
    },
    /// The user has opted out, or has not consented yet.
    #[error("the user does not take part")]
    OptedOut,
    /// The operating system has no randomness.
    #[error("the operating system's random source failed")]
    NoRandomness,
}

bandana_shared::debug_says!(DefaultReason);

/// A drawn arm, and the handle by which you add its rewards. Whether and when it reports, and for
/// which arm, is already fixed. That does not change if you drop the assignment, add no reward, or
/// add many.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use std::time::Duration;
/// # let (bandana, mut tasks, clock) = started()?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// let assignment = choice.assignment().ok_or("no arm")?;
/// assert_eq!(assignment.unreported(), None);
/// println!("show the {} button", assignment.label());
/// drop(choice);
/// // The report is made and sent all the same.
/// clock.forward(Duration::from_secs(600 + 3600));
/// assert_eq!(serve(&mut tasks, &clock)?, 1);
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct Assignment {
    bandana: Bandana,
    chosen: Chosen,
}

impl Assignment {
    pub(super) fn new(bandana: Bandana, chosen: Chosen) -> Self {
        Self { bandana, chosen }
    }

    /// The assignment's id, for [`crate::Bandana::assignment`]. It is valid after a restart too.
    pub fn id(&self) -> AssignmentId {
        self.chosen.id()
    }

    /// The id of the experiment.
    pub fn experiment_id(&self) -> &ExperimentId {
        self.chosen.experiment_id()
    }

    /// The arm to show.
    pub fn arm(&self) -> ArmIndex {
        self.chosen.arm()
    }

    /// The arm's label.
    pub fn label(&self) -> &str {
        self.chosen.label()
    }

    /// The reason why there will be no report, or `None` if there will be one.
    pub fn unreported(&self) -> Option<Unreported> {
        self.chosen.unreported()
    }

    /// Adds a reward, while the attribution window lasts. All rewards of an assignment make one
    /// report. Rewards in a range are summed, and the sum is clamped to the range. Binary rewards
    /// count as the higher value once any of them had it. Of categorical rewards, the last one
    /// counts. A reward is ignored if the experiment does not admit it, or if it comes too late.
    /// [`crate::Statistics::rewards_refused`] counts such rewards.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// # let (bandana, _tasks, clock) = started()?;
    /// let choice = bandana.experiment("button-colour")?.choose();
    /// let assignment = choice.assignment().ok_or("no arm")?;
    /// assignment.reward(1.0);
    /// assert_eq!(bandana.status().statistics.rewards_refused, 0);
    /// // The attribution window lasts ten minutes.
    /// clock.forward(Duration::from_secs(601));
    /// assignment.reward(1.0);
    /// assert_eq!(bandana.status().statistics.rewards_refused, 1);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// A reward changes only the odds of the private bit. Any number of rewards costs no more than
    /// the report that is already debited.
    pub fn reward(&self, reward: f64) {
        self.add(None, reward);
    }

    /// Adds a value of a metric that the experiment measures in addition to its rewards, while the
    /// attribution window lasts. An assignment reports either its rewards or one metric. The device
    /// drew which of them together with the arm. So tell the values of all metrics. A metric that
    /// the experiment does not have is ignored.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (bandana, _tasks, _clock) = started()?;
    /// let choice = bandana.experiment("button-colour")?.choose();
    /// let assignment = choice.assignment().ok_or("no arm")?;
    /// assignment.reward(1.0);
    /// assignment.measure("returned", 0.0);
    /// assert_eq!(bandana.status().statistics.rewards_refused, 0);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The same as for [`Self::reward`].
    pub fn measure(&self, metric: &str, value: f64) {
        self.add(Some(metric), value);
    }

    /// Adds a reward, or a value of a metric. Returns whether it was taken.
    pub(super) fn add(&self, metric: Option<&str>, value: f64) -> bool {
        let now = self.bandana.shared.now();
        // Infinities are beyond every range.
        let value = value.clamp(f64::MIN, f64::MAX);
        let mut core = self.bandana.shared.core();
        let is_added = match (Reward::new(value), metric) {
            // The core counts refused rewards.
            (Ok(reward), None) => core.reward(self.chosen.id(), reward, now).is_ok(),
            (Ok(value), Some(metric)) => core.measure(self.chosen.id(), metric, value, now).is_ok(),
            (Err(_), _) => {
                core.refuse_unfit_reward();
                false
            }
        };
        let keeps = core.keeps_rewards();
        drop(core);
        if !is_added {
            self.bandana.shared.tell_refusals();
        }
        if keeps {
            self.bandana.shared.writes.wake();
        }
        is_added
    }
}
