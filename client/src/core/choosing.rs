//! Choosing draws an arm, fixes its report, and adds rewards to it.

use std::sync::Arc;
use std::time::Duration;

use bandana_shared::cells::Cell;
use bandana_shared::identity::{ArmIndex, CellIndex, ExperimentId};
use bandana_shared::participation::Millionths;
use bandana_shared::policy::Weights;
use bandana_shared::specification::{ReleaseTiming, Specification};

use super::contexts::check_context;
use super::{Change, ClientError, Core, Draw};
use crate::assignment::{AssignmentId, Chosen, OpenAssignment, Unreported};
use crate::budget::Exhausted;
use crate::membership::Secret;
use crate::noise::NoiseSource;
use crate::outbox::{REPORTS_IN_ALL_MAX, REPORTS_MAX};
use crate::reward::Reward;
use crate::sign::Sign;
use crate::time::Timestamp;

/// An assignment that never reports. It is not stored: after a restart another arm may be shown.
#[derive(Debug)]
pub(super) struct Shown {
    draw: Draw,
    periods: Periods,
    specification: Arc<Specification>,
    /// Whether it would report if it had explored.
    follows_context: bool,
}

impl Shown {
    fn arm(&self) -> ArmIndex {
        self.specification.cells().arm_of(self.draw.cell)
    }

    fn lasts(&self, now: Timestamp) -> bool {
        // A clock that was set back does not make it last longer.
        self.draw.chosen_at <= now && now < self.draw.rewards_until
    }
}

/// The cell of an assignment, were it to report.
pub(super) struct Drawn {
    pub(super) cell: CellIndex,
    /// Whether nothing private chose the arm: always without a private context.
    pub(super) explores: bool,
    pub(super) sign: Sign,
}

/// The lengths in days of the periods in which the installation reports once: the app's, and the
/// experiment's. 0: the only period never ends.
type Periods = [Option<u32>; 2];

impl<N: NoiseSource> Core<N> {
    /// The assignment of an experiment whose attribution window still lasts. If several windows
    /// last, it is the newest assignment. If none does, it is a new assignment, as [`Self::draw`]
    /// makes it. An arm that was retired meanwhile is not shown again. Never waits for a network or
    /// a disk.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let chosen = client.choose(&id, now())?;
    /// // A page that is shown again shows the same arm, and costs nothing.
    /// assert_eq!(client.choose(&id, now())?, chosen);
    /// assert_eq!(client.spent().lifetime.get(), 1_000_000_000);
    /// // The attribution window lasts ten minutes.
    /// let later = now().after(Duration::from_secs(600));
    /// assert_ne!(client.choose(&id, later)?.id(), chosen.id());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Whether an arm is drawn depends on the time, the specification and what was drawn before. It
    /// does not depend on a reward.
    ///
    /// # Errors
    /// The same as for [`Self::draw`].
    pub fn choose(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<Chosen, ClientError> {
        self.choose_by(experiment_id, None, now)
    }

    /// [`Self::choose`], in a context if there is one.
    pub(super) fn choose_by(
        &mut self,
        experiment_id: &ExperimentId,
        context: Option<&[bool]>,
        now: Timestamp,
    ) -> Result<Chosen, ClientError> {
        if self.is_opted_out() {
            return Err(ClientError::OptedOut);
        }
        let (held, ..) = self.use_held(experiment_id, now)?;
        check_context(&held.specification, context)?;
        match self.current(experiment_id, now) {
            Some(chosen) => Ok(chosen),
            None => self.draw_by(experiment_id, context, now),
        }
    }

    /// The newest assignment of an experiment whose window lasts and which reports.
    pub(crate) fn open_assignment(
        &self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Option<AssignmentId> {
        let chosen = self.current(experiment_id, now)?;
        chosen.unreported().is_none().then_some(chosen.id())
    }

    /// The newest assignment of an experiment whose window lasts.
    fn current(&self, experiment_id: &ExperimentId, now: Timestamp) -> Option<Chosen> {
        if let Some(shown) = self.unreported.get(experiment_id).filter(|one| one.lasts(now)) {
            // Once there is no reason any more, the next arm reports.
            let unreported = if shown.follows_context {
                Some(Unreported::NotExploring)
            } else {
                Some(self.why_unreported(&shown.draw, shown.periods, now)?)
            };
            return self.shown(shown.draw.id, &shown.specification, shown.arm(), unreported);
        }
        // What the process was copied with reports for the other one.
        if self.journal.why_unreported() == Some(Unreported::Forked) {
            return None;
        }
        let mut open = self.state.open.iter().rev();
        let (id, open) = open.find(|(_, open)| {
            open.specification.experiment_id() == experiment_id && !open.is_over(now)
        })?;
        self.shown(*id, &open.specification, open.arm(), None)
    }

    /// An assignment as it is chosen; `None`: its arm is no longer one of the experiment's.
    fn shown(
        &self,
        id: AssignmentId,
        specification: &Specification,
        arm: ArmIndex,
        unreported: Option<Unreported>,
    ) -> Option<Chosen> {
        let experiment_id = specification.experiment_id().clone();
        let label = specification.arms()[arm.get()].label().to_owned();
        let held = &self.state.cached.get(&experiment_id)?.specification;
        let known = held.arms().get(arm.get());
        let is_shown = known.is_some_and(|known| known.label() == label && !known.is_retired());
        is_shown.then_some(Chosen { id, experiment_id, arm, label, unreported })
    }

    /// Draws an arm by the policy last received, and fixes whether and when its report will be
    /// released. It draws also while the window of another assignment lasts. In a
    /// [sticky](bandana_shared::participation::Sticky) experiment, it returns the arm that the
    /// installation keeps, as long as the installation keeps one. Never waits for a network or a
    /// disk.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let chosen = client.draw(&id, now())?;
    /// println!("show the {} button", chosen.label());
    /// // The report is paid for, even if the user never reacts.
    /// assert_eq!(client.spent().lifetime.get(), 1_000_000_000);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The call either debits the ε of the experiment, or draws an arm that never reports. If
    /// reports are shuffled, the central account is debited by what their batches certify, with all
    /// earlier reports for the same arm counted in one batch.
    ///
    /// # Errors
    /// [`ClientError::NotEnrolled`]; [`ClientError::NoPolicy`] before an answer of a server within
    /// the acceptance; [`ClientError::NotSampled`]; [`ClientError::SignaturesExpired`];
    /// [`ClientError::OptedOut`]; [`ClientError::Entropy`]. Nothing is debited then.
    pub fn draw(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<Chosen, ClientError> {
        self.draw_by(experiment_id, None, now)
    }

    /// [`Self::draw`], in a context if there is one.
    pub(super) fn draw_by(
        &mut self,
        experiment_id: &ExperimentId,
        context: Option<&[bool]>,
        now: Timestamp,
    ) -> Result<Chosen, ClientError> {
        if self.is_opted_out() {
            return Err(ClientError::OptedOut);
        }
        let (held, acceptance, price) = self.use_held(experiment_id, now)?;
        let (specification, once_days) = (held.specification.clone(), acceptance.once_days());
        let weights = held.policy.weights.clone();
        check_context(&specification, context)?;
        let segmentations = &specification.measurement().segmentations;
        let segment = acceptance.segment_of(segmentations);
        if segment.is_none() || !self.takes_part(&specification)? {
            return Err(ClientError::NotSampled { experiment_id: experiment_id.clone() });
        }
        // Without segmentations the weights are those for all installations.
        let segment = segment.filter(|_| !segmentations.is_empty());
        let Drawn { cell, explores, sign } =
            self.draw_cell(&specification, &weights, segment, context)?;
        let price = self.price_in(&specification, cell, price);
        let sticky = specification.participation().sticky;
        let periods = [once_days, sticky.map(|sticky| sticky.report_days)];
        let (rewards_until, release_at) = self.draw_times(specification.timing(), now)?;
        let id = AssignmentId::new(self.state.last_assignment.saturating_add(1));
        let mut draw = Draw {
            id,
            digest: specification.digest(),
            experiment_id: experiment_id.clone(),
            cell,
            chosen_at: now,
            rewards_until,
            release_at,
            price,
            // What is drawn before a server has told its day counts in the later period.
            day: Some(self.state.day().max(now.day())),
        };
        let follows_context = !explores;
        let unreported = self.why_unreported(&draw, periods, now);
        let unreported = if follows_context { Some(Unreported::NotExploring) } else { unreported };
        if let (Some(context), Some(_)) = (context, unreported) {
            draw.cell = self.best_cell(&specification, &weights, context)?.unwrap_or(draw.cell);
        }
        let arm = specification.cells().arm_of(draw.cell);
        let label = specification.arms()[arm.get()].label().to_owned();
        self.statistics.assignments += 1;
        self.crowd.drawn(unreported, now);
        if unreported.is_none() {
            self.unreported.remove(experiment_id);
            self.record(Change::Drawn(draw));
            self.remember(id, sign);
        } else {
            self.state.last_assignment = id.get();
            self.statistics.assignments_without_report += 1;
            if sticky.is_some() {
                self.keep(experiment_id, arm);
            }
            let shown = Shown { draw, periods, specification, follows_context };
            self.unreported.insert(experiment_id.clone(), shown);
        }
        Ok(Chosen { id, experiment_id: experiment_id.clone(), arm, label, unreported })
    }

    /// The end of the time for rewards, and the time of the release.
    fn draw_times(
        &mut self,
        timing: ReleaseTiming,
        now: Timestamp,
    ) -> Result<(Timestamp, Timestamp), ClientError> {
        let window = Duration::from_secs(u64::from(timing.attribution_window_seconds));
        let rewards_until = now.after(window);
        let release_at = self.draw_release(rewards_until, timing.release_delay_seconds_max)?;
        Ok((rewards_until, release_at))
    }

    /// Draws an arm by the weights of a segment, evenly if the installation is held out, unless one is
    /// kept, and the metric to report; or, with a private context, whether to explore, and the
    /// coordinate to report.
    fn draw_cell(
        &mut self,
        specification: &Specification,
        weights: &Weights,
        segment: Option<usize>,
        context: Option<&[bool]>,
    ) -> Result<Drawn, ClientError> {
        if let (Some(private), Some(context)) = (specification.private_context(), context) {
            return self.draw_coordinate((specification, private), weights, context);
        }
        let measurement = specification.measurement();
        let (id, holdout) = (specification.experiment_id(), measurement.holdout);
        let is_held_out = holdout != Millionths::NONE && self.secret()?.is_held_out(id, holdout);
        let kept = self.kept_arm(specification, weights, (segment, is_held_out));
        let arm = if let Some(kept) = kept {
            kept
        } else if is_held_out {
            weights.draw_evenly_in(segment, self.uniform()?)
        } else {
            weights.draw_in(segment, self.uniform()?)
        };
        let metric =
            if measurement.metrics.is_empty() { 0 } else { measurement.draw(self.uniform()?) };
        let segment = segment.unwrap_or(0);
        let cell = Cell { segment, is_held_out, metric, ..Cell::of(arm) };
        let cell = specification.cells().index(cell);
        Ok(Drawn { cell, explores: true, sign: Sign::Known { is_negative: false } })
    }

    /// A uniformly random number.
    pub(super) fn uniform(&mut self) -> Result<u32, ClientError> {
        Ok((self.noise.word()? >> 32) as u32)
    }

    /// Whether the installation is one of those that an experiment is for.
    fn takes_part(&mut self, specification: &Specification) -> Result<bool, ClientError> {
        let participation = specification.participation();
        Ok(participation.is_for_all()
            || self.secret()?.takes_part(specification.experiment_id(), participation))
    }

    /// The secret of the installation, drawn if there is none yet.
    fn secret(&mut self) -> Result<Secret, ClientError> {
        if let Some(secret) = &self.state.secret {
            return Ok(secret.clone());
        }
        let secret = Secret::draw(&mut self.noise)?;
        // Reports follow it in the journal, so none leaves that another secret would not make.
        match self.journal.why_unreported() {
            None => self.record(Change::SecretDrawn(secret.clone())),
            Some(_) => self.state.secret = Some(secret.clone()),
        }
        Ok(secret)
    }

    /// The arm that the installation keeps in an experiment, if it does.
    fn kept_arm(
        &self,
        specification: &Specification,
        weights: &Weights,
        (segment, is_held_out): (Option<usize>, bool),
    ) -> Option<ArmIndex> {
        let sticky = specification.participation().sticky?;
        let arm = *self.state.kept.get(specification.experiment_id())?;
        let in_play = specification.arms().get(arm.get()).is_some_and(|arm| !arm.is_retired());
        let weight = weights.get_in(segment, arm.get());
        let keeps = if is_held_out { weight > 0 } else { sticky.keeps(weight) };
        (in_play && keeps).then_some(arm)
    }

    /// Keeps an arm that does not report.
    fn keep(&mut self, experiment_id: &ExperimentId, arm: ArmIndex) {
        if self.state.kept.get(experiment_id) == Some(&arm) {
            return;
        }
        let experiment_id = experiment_id.clone();
        match self.journal.why_unreported() {
            None => self.record(Change::Kept { experiment_id, arm }),
            Some(_) => drop(self.state.kept.insert(experiment_id, arm)),
        }
    }

    /// Reason why a draw is not to report, if it is not.
    fn why_unreported(&self, draw: &Draw, periods: Periods, now: Timestamp) -> Option<Unreported> {
        if let Some(why) = self.journal.why_unreported() {
            return Some(why);
        }
        let reports = self.state.reports.get(&draw.experiment_id);
        let in_all = self.state.open.len() + self.state.outbox.parcels.len();
        if in_all >= REPORTS_IN_ALL_MAX || reports.is_some_and(|own| *own >= REPORTS_MAX) {
            return Some(Unreported::OutboxFull);
        }
        let has_drawn = |days: u32| {
            let day = draw.day.map_or(self.state.day(), |day| day.min(self.state.day()));
            self.state.has_drawn(&draw.experiment_id, days, day)
        };
        if periods.into_iter().flatten().any(has_drawn) {
            return Some(Unreported::ReportedOnce);
        }
        if !self.clock_agrees(now) {
            return Some(Unreported::ClockDisagrees);
        }
        if let Some(cap) = self.budget.beyond(draw.price.local) {
            return Some(Unreported::BeyondBudget { price: draw.price.local, cap });
        }
        match self.state.ledger.admits(draw.price, &self.budget) {
            Ok(()) => None,
            Err(Exhausted::Window) => Some(Unreported::WindowSpent),
            Err(Exhausted::Lifetime) => Some(Unreported::LifetimeSpent),
            Err(Exhausted::CentralWindow) => Some(Unreported::CentralWindowSpent),
            Err(Exhausted::CentralLifetime) => Some(Unreported::CentralLifetimeSpent),
        }
    }

    /// Adds a reward to an assignment. All rewards of an assignment make one report. Rewards in a
    /// range are summed, and the sum is clamped to the range. Binary rewards count as the higher
    /// value once any of them had it. Of categorical rewards, the last one counts.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::{ClientError, Reward};
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let chosen = client.draw(&id, now())?;
    /// client.reward(chosen.id(), Reward::new(1.0)?, now())?;
    /// // The attribution window lasts ten minutes.
    /// let late = now().after(Duration::from_secs(601));
    /// let refused = client.reward(chosen.id(), Reward::new(1.0)?, late);
    /// assert!(matches!(refused, Err(ClientError::NotOpen)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// A reward changes only the odds of one bit. It costs nothing beyond the debit when the arm
    /// was drawn.
    ///
    /// # Errors
    /// [`ClientError::NotOpen`] when the attribution window has ended or the assignment never
    /// reports. [`ClientError::Reward`] for a reward that the experiment does not admit. In both
    /// cases nothing was added, and the report is made all the same.
    #[expect(clippy::needless_pass_by_value, reason = "the raw value is to end here")]
    pub fn reward(
        &mut self,
        assignment: AssignmentId,
        reward: Reward,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        self.add(assignment, None, &reward, now)
    }

    /// Adds a value of a metric to an assignment, as [`Self::reward`] adds a reward. An assignment
    /// reports either its rewards or one metric. The device drew which of them together with the
    /// arm, and values of the others change nothing. A metric that the experiment does not have is
    /// ignored. So an app may tell more metrics than any experiment measures.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::Reward;
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let chosen = client.draw(&id, now())?;
    /// client.measure(chosen.id(), "returned", Reward::new(1.0)?, now())?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The same as for [`Self::reward`]: there is one report, of the rewards or of one metric.
    ///
    /// # Errors
    /// The same as for [`Self::reward`], whether or not this metric is the one that is reported.
    #[expect(clippy::needless_pass_by_value, reason = "the raw value is to end here")]
    pub fn measure(
        &mut self,
        assignment: AssignmentId,
        metric: &str,
        value: Reward,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        self.add(assignment, Some(metric), &value, now)
    }

    /// Adds a reward, or a value of a metric.
    fn add(
        &mut self,
        assignment: AssignmentId,
        metric: Option<&str>,
        value: &Reward,
        now: Timestamp,
    ) -> Result<(), ClientError> {
        let in_time = |open: &&mut OpenAssignment| now <= open.rewards_until;
        let open = self.state.open.get_mut(&assignment).filter(in_time);
        let added = match open {
            Some(open) => match metric {
                None => open.add(0, value).map_err(ClientError::from),
                Some(name) => match open.specification.measurement().number_of(name) {
                    Some(number) => open.add(number, value).map_err(ClientError::from),
                    None => return Ok(()),
                },
            },
            None => Err(ClientError::NotOpen),
        };
        match &added {
            Ok(()) => self.journal.note_reward(),
            Err(ClientError::NotOpen) => self.refuse_late_reward(),
            Err(_) => self.refuse_unfit_reward(),
        }
        added
    }

    /// Counts a reward of an assignment that takes none, or that nobody knows.
    pub(crate) fn refuse_late_reward(&mut self) {
        self.statistics.rewards_refused += 1;
    }

    /// Counts a reward that its experiment does not admit, such as one that is no number.
    pub(crate) fn refuse_unfit_reward(&mut self) {
        self.statistics.rewards_refused += 1;
        self.rewards_not_admitted += 1;
    }

    /// An assignment that still takes rewards, as [`Self::draw`] returned it.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use std::time::Duration;
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let chosen = client.draw(&id, now())?;
    /// assert_eq!(client.assigned(chosen.id(), now()).as_ref(), Some(&chosen));
    /// assert_eq!(client.assigned(chosen.id(), now().after(Duration::from_secs(601))), None);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn assigned(&self, id: AssignmentId, now: Timestamp) -> Option<Chosen> {
        let open = self.state.open.get(&id).filter(|open| now <= open.rewards_until)?;
        let arm = open.arm();
        let label = open.specification.arms()[arm.get()].label().to_owned();
        let experiment_id = open.specification.experiment_id().clone();
        Some(Chosen { id, experiment_id, arm, label, unreported: None })
    }
}
