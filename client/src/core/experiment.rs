//! Experiments that a client takes part in, as it holds them.

use std::collections::VecDeque;
use std::time::Duration;

use bandana_shared::identity::{CellIndex, Digest, ExperimentId, StoreId};
use bandana_shared::refusals::RefusalReason;
use bandana_shared::specification::Specification;

use super::state::CachedExperiment;
use super::{ClientError, Core};
use crate::acceptance::{Acceptance, Accepted};
use crate::assignment::Unreported;
use crate::day::is_older;
use crate::debit::Debit;
use crate::noise::{EntropyError, NoiseSource, uniform_up_to};
use crate::outbox::is_due;
use crate::refusal::Refusal;
use crate::shuffled::Certified;
use crate::time::Timestamp;

/// Longest time from a choice by a stale policy to the fetch of a new one, and from a report that fills a
/// window to the fetch of the day. The time is random, so that the fetch does not reveal when the arm was
/// shown, nor whose report it was.
const REFRESH_DELAY_MAX: Duration = Duration::from_mins(5);

/// Time before the expiry of its signatures at which an experiment is fetched anew.
const RENEWAL: Duration = Duration::from_hours(24);

/// Maximum number of fetches of an experiment whose results are awaited. A result beyond it is
/// adopted, but dates no debit.
const ASKED_MAX: usize = 16;

/// An experiment that a client fetches.
#[derive(Debug)]
pub(super) struct Enrolled {
    /// The app's terms; `None`: it no longer takes part, but earlier reports still need the
    /// server's day.
    pub(super) acceptance: Option<Acceptance>,
    /// What was accepted of the held specification; `None`: it is not within the acceptance.
    pub(super) accepted: Option<Accepted>,
    /// The last batch whose loss was computed.
    pub(super) certified: Option<Certified>,
    /// Whether a fetch is due.
    pub(super) wanted: bool,
    /// Time of a fetch that need not be at once.
    pub(super) refresh_at: Option<Timestamp>,
    pub(super) failures: u32,
    /// Fetches without a result, the earliest first: the number of each, and the debits that were
    /// settled when it was handed out. An answer to an early one may tell an early day.
    asked: VecDeque<(u64, Debit)>,
    /// Time before which no fetch is made: the end of a wait, or of the time for a task that was
    /// handed out.
    pub(super) not_before: Option<Timestamp>,
    /// Reason why the last answer was refused, if it was.
    pub(super) refusal: Option<Refusal>,
}

impl Enrolled {
    pub(super) fn new(acceptance: Option<Acceptance>, accepted: Option<Accepted>) -> Self {
        let wanted = acceptance.is_some() && accepted.is_none();
        Self {
            acceptance,
            accepted,
            certified: None,
            wanted,
            refresh_at: None,
            failures: 0,
            asked: VecDeque::new(),
            not_before: None,
            refusal: None,
        }
    }

    /// Notes a fetch that is handed out.
    pub(super) fn begin(&mut self, number: u64, settled: Debit) {
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back((number, settled));
    }

    /// Notes the result of a fetch, and returns the debits that its day is for.
    pub(super) fn end(&mut self, number: u64) -> Debit {
        let place = self.asked.iter().position(|(asked, _)| *asked == number);
        let found = place.and_then(|place| self.asked.remove(place));
        found.map_or(Debit::ZERO, |(_, settled)| settled)
    }

    /// Notes that so many of the settled debits have a day now.
    pub(super) fn dated(&mut self, settled: Debit) {
        for (_, asked) in &mut self.asked {
            *asked = asked.saturating_sub(settled);
        }
    }

    /// Has it fetched at a random time, unless a fetch is to come.
    pub(super) fn refresh_later(
        &mut self,
        now: Timestamp,
        noise: &mut impl NoiseSource,
    ) -> Result<(), EntropyError> {
        if !self.wanted && self.refresh_at.is_none() {
            let delay_ms_max = u64::try_from(REFRESH_DELAY_MAX.as_millis()).unwrap_or(u64::MAX);
            let delay = uniform_up_to(delay_ms_max, || noise.jitter())?;
            self.refresh_at = Some(now.after(Duration::from_millis(delay)));
        }
        Ok(())
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.wanted && self.not_before.is_none_or(|time| is_due(time, now))
    }
}

impl CachedExperiment {
    fn is_stale(&self, now: Timestamp) -> bool {
        let lifetime = Duration::from_secs(u64::from(self.policy.time_to_live_seconds));
        is_older(self.heard_at, lifetime, now)
    }
}

impl<N: NoiseSource> Core<N> {
    /// Takes part in an experiment, within `acceptance`. Enrolling again replaces the acceptance.
    /// If the new acceptance admits the specification and the policy that the client holds, they
    /// stay in use. Waiting reports are kept.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Acceptance, Task};
    /// use bandana_shared::{epsilon::Epsilon, rewards::Rewards};
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// // The app is now stricter than the experiment.
    /// client.enroll(id.clone(), Acceptance::unsigned(Epsilon::new(0.1)?, Rewards::binary()));
    /// assert!(client.draw(&id, now()).is_err());
    /// assert!(matches!(client.next_task(now())?, Task::Fetch(_)));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn enroll(&mut self, experiment_id: ExperimentId, acceptance: Acceptance) {
        let held = self.state.cached.get(&experiment_id);
        // A lower bound of the time. The signatures are checked again when they are used.
        let now = self.state.ledger.time(Timestamp::default());
        let before = self.enrolled.get(&experiment_id);
        let mut certified = before.and_then(|enrolled| enrolled.certified.clone());
        let judged = held.map(|held| {
            let offered = (&*held.specification, &held.signatures[..]);
            acceptance.judge(offered, None, &mut certified, N::SIMULATED, now)
        });
        let (accepted, refusal) = match judged {
            Some(Ok(accepted)) => (Some(accepted), None),
            Some(Err(refusal)) => (None, Some(refusal)),
            None => (None, None),
        };
        let enrolled = Enrolled::new(Some(acceptance), accepted);
        self.enrolled.insert(experiment_id, Enrolled { certified, refusal, ..enrolled });
    }

    /// Why the first experiment, by their ids, is refused now, but for one; or that a reward was.
    pub(crate) fn first_refusal(&self, but_for: &ExperimentId) -> RefusalReason {
        let others = self.enrolled.iter().filter(|(id, _)| *id != but_for);
        let refusal = others
            .filter(|(_, enrolled)| enrolled.acceptance.is_some())
            .find_map(|(_, enrolled)| enrolled.refusal.as_ref());
        let of_rewards = (self.rewards_not_admitted > 0).then_some(RefusalReason::Rewards);
        refusal.map(Refusal::reason).or(of_rewards).unwrap_or(RefusalReason::Nothing)
    }

    /// Judges everything that is held anew.
    pub(super) fn enroll_again(&mut self) {
        // What is fetched for its day only has no terms.
        self.enrolled.retain(|_, enrolled| enrolled.acceptance.is_some());
        let terms = self.enrolled.iter().map(|(id, enrolled)| (id, &enrolled.acceptance));
        let terms: Vec<_> = terms.map(|(id, terms)| (id.clone(), terms.clone())).collect();
        for (experiment_id, acceptance) in terms {
            if let Some(acceptance) = acceptance {
                self.enroll(experiment_id, acceptance);
            }
        }
    }

    /// All experiments that the client holds.
    pub(crate) fn held_experiments(&self) -> Vec<ExperimentId> {
        self.state.cached.keys().cloned().collect()
    }

    /// Whether the app takes part in an experiment.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Budget, Client};
    /// # let id = specification()?.experiment_id().clone();
    /// let mut client = Client::new(Budget::UNLIMITED);
    /// assert!(!client.is_enrolled(&id));
    /// client.enroll(id.clone(), acceptance()?);
    /// assert!(client.is_enrolled(&id));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn is_enrolled(&self, experiment_id: &ExperimentId) -> bool {
        self.enrolled.get(experiment_id).is_some_and(|enrolled| enrolled.acceptance.is_some())
    }

    /// The reason why the client refused the last answer about an experiment, or the specification
    /// and policy that it held. `None` if it refused nothing.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Fetched, Refusal};
    /// use bandana_shared::{identity::ExperimentId, specification::Specification};
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// let mut parts = specification()?.to_parts();
    /// parts.experiment_id = ExperimentId::new("another")?;
    /// let specification = Specification::new(parts)?;
    /// let fetched = Fetched { specification, ..answer(now())? };
    /// let refused = client.on_fetched(&FetchTask::new(id.clone()), fetched, now());
    /// assert!(refused.is_err());
    /// assert_eq!(client.refusal(&id), Some(&Refusal::OtherExperiment));
    /// // The next valid answer clears it.
    /// client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now())?;
    /// assert_eq!(client.refusal(&id), None);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn refusal(&self, experiment_id: &ExperimentId) -> Option<&Refusal> {
        self.enrolled.get(experiment_id)?.refusal.as_ref()
    }

    /// The specification under which the client takes part, or `None` before a server has sent one
    /// that the app accepts.
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (client, id) = (client()?, specification()?.experiment_id().clone());
    /// let labels = client.specification(&id).map(|specification| {
    ///     specification.arms().iter().map(|arm| arm.label().to_owned()).collect::<Vec<_>>()
    /// });
    /// assert_eq!(labels, Some(vec!["red".to_owned(), "green".to_owned()]));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn specification(&self, experiment_id: &ExperimentId) -> Option<&Specification> {
        self.enrolled.get(experiment_id)?.accepted?;
        Some(&self.state.cached.get(experiment_id)?.specification)
    }

    /// Reason why no assignment of an experiment ever reports, if that is its price.
    pub(crate) fn beyond_budget(&self, experiment_id: &ExperimentId) -> Option<Unreported> {
        let price = self.enrolled.get(experiment_id)?.accepted?.price.local;
        let cap = self.budget.beyond(price)?;
        Some(Unreported::BeyondBudget { price, cap })
    }

    /// The held specification and policy of an experiment, if they can be used, and the price of a
    /// report. Schedules a fetch when they are stale.
    pub(super) fn use_held(
        &mut self,
        experiment_id: &ExperimentId,
        now: Timestamp,
    ) -> Result<(&CachedExperiment, &Acceptance, Debit), ClientError> {
        let not_enrolled = || ClientError::NotEnrolled { experiment_id: experiment_id.clone() };
        let enrolled = self.enrolled.get_mut(experiment_id);
        let enrolled = enrolled.filter(|one| one.acceptance.is_some()).ok_or_else(not_enrolled)?;
        let no_policy = || ClientError::NoPolicy { experiment_id: experiment_id.clone() };
        let Accepted { until, price } = enrolled.accepted.ok_or_else(no_policy)?;
        let held = self.state.cached.get(experiment_id).ok_or_else(no_policy)?;
        let time = self.state.ledger.time(now);
        let old = held.is_stale(now) || time.after(RENEWAL) >= until;
        if old {
            enrolled.refresh_later(now, &mut self.noise)?;
        }
        if time >= until {
            return Err(ClientError::SignaturesExpired { experiment_id: experiment_id.clone() });
        }
        let acceptance = enrolled.acceptance.as_ref().ok_or_else(not_enrolled)?;
        Ok((held, acceptance, price))
    }

    /// The price of a report whose arm is drawn: that of the first of a cell, or more, since all reports
    /// of a cell may lie in one batch.
    pub(super) fn price_in(
        &mut self,
        specification: &Specification,
        cell: CellIndex,
        first: Debit,
    ) -> Debit {
        if first == Debit::unshuffled(first.local) {
            return first;
        }
        let spent = self.state.ledger.lifetime().delta;
        let before = self.state.own_reports.before(specification.digest(), cell, (first, spent));
        let enrolled = self.enrolled.get_mut(specification.experiment_id());
        let certified = enrolled.and_then(|enrolled| enrolled.certified.as_mut());
        let central = before.and_then(|before| certified?.price_after(before, first));
        central.map_or(Debit::unshuffled(first.local), |central| Debit { central, ..first })
    }

    /// Forgets a specification that the store it came from does not know. An impostor may have
    /// named that store, and every specification that the store serves would then be refused as a
    /// change that no revision may make. Debits, assignments and reports stay as they are.
    ///
    /// The specification is kept where signers are pinned, since their word is better than a
    /// store's. The arm that the installation keeps is forgotten with it, since the next
    /// specification might number the same arm differently; that it has reported is not.
    pub(super) fn forget_disowned(
        &mut self,
        experiment_id: &ExperimentId,
        (digest, store): (Digest, StoreId),
    ) {
        let Some(enrolled) = self.enrolled.get_mut(experiment_id) else { return };
        let unsigned = enrolled.acceptance.as_ref().is_some_and(|accepted| !accepted.is_signed());
        let is_held =
            self.state.cached.get(experiment_id).is_some_and(|held| {
                held.specification.digest() == digest && held.store == Some(store)
            });
        if !unsigned || !is_held {
            return;
        }
        enrolled.accepted = None;
        enrolled.wanted = true;
        self.state.cached.remove(experiment_id);
        self.state.kept.remove(experiment_id);
        self.journal.replace();
    }
}
