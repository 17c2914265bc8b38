//! The configuration of a learner in an experiment, and the weights computed with it.

use bandana_shared::identity::{ArmIndex, Day};
use bandana_shared::policy::Weights;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

use super::guardrails::Guardrails;
use super::window::{Days, Memory};
use super::{Evidence, Learner, LearnerError, LearnerInput};

/// Minimum number of new reports that triggers a new policy.
const REPORTS_PER_POLICY_MIN: u64 = 100;

/// The configuration of an experiment's learner, beside its specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnerConfig {
    /// The learner.
    pub learner: Learner,
    /// Minimum share of the traffic for every arm in play.
    pub floor_weight: f64,
    /// The weight of old reports.
    pub memory: Memory,
    /// Limits on the learner's decisions.
    pub guardrails: Guardrails,
}

impl LearnerConfig {
    /// A learner without floor weight, guardrails or forgetting.
    pub const fn new(learner: Learner) -> Self {
        let (memory, guardrails) = (Memory::Everything, Guardrails::OFF);
        Self { learner, floor_weight: 0.0, memory, guardrails }
    }

    /// The weights of the arms of a specification, given the pending selections of each arm. The
    /// first `initial_arms` arms were there from the start.
    ///
    /// # Errors
    /// [`LearnerError`], as for [`Learner::weights`].
    pub fn weigh(
        self,
        specification: &Specification,
        initial_arms: usize,
        snapshot: &TallySnapshot,
        pending: &[f64],
    ) -> Result<Weights, LearnerError> {
        let active = specification.active_arms();
        let channel = specification.channel();
        let TallySnapshot { tallies, days } = snapshot;
        let arms = active.len().max(tallies.len());
        let evidence = if self.memory.is_everything() {
            // Arms without reports have no tally.
            let tally = |arm| tallies.get(arm).copied().unwrap_or(Tally::EMPTY);
            (0..arms).map(|arm| Evidence::of(&tally(arm), channel.alphabet())).collect()
        } else {
            self.memory.evidence(days, arms, channel.alphabet())
        };
        let burning_in = self.guardrails.burning_in(tallies, &active, initial_arms);
        let input = LearnerInput::of(evidence, &active, channel)
            .with_pending(pending)
            .with_ahead(reports_until_policy(snapshot.reports()) as f64)
            .with_floor_weight(self.floor_weight)
            .with_burning_in(burning_in)
            .with_holdout_share(self.guardrails.holdout_share);
        self.learner.weights(&input)
    }
}

/// The number of new reports that triggers a new policy, after a policy computed from `used`
/// reports.
pub fn reports_until_policy(used: u64) -> u64 {
    REPORTS_PER_POLICY_MIN.max(used / 100)
}

/// The committed tallies of an experiment.
#[derive(Clone, Debug, Default)]
pub struct TallySnapshot {
    /// Tallies of every arm, over all days.
    pub tallies: Vec<Tally>,
    /// Tallies by day, for the days within the memory; empty if the memory is unlimited.
    pub days: Days,
}

impl TallySnapshot {
    /// Number of reports of all arms.
    pub fn reports(&self) -> u64 {
        self.tallies.iter().copied().sum::<Tally>().reports()
    }

    /// Adds a tally of an arm on a day, and drops days beyond the memory.
    pub fn add(&mut self, memory: Memory, (day, arm, tally): (Day, ArmIndex, Tally)) {
        add_to(&mut self.tallies, arm, tally);
        if !memory.is_everything() {
            let is_new = !self.days.contains_key(&day);
            add_to(self.days.entry(day).or_default(), arm, tally);
            if is_new {
                memory.prune(&mut self.days);
            }
        }
    }
}

fn add_to(tallies: &mut Vec<Tally>, arm: ArmIndex, tally: Tally) {
    if tallies.len() <= arm.get() {
        tallies.resize(arm.get() + 1, Tally::EMPTY);
    }
    tallies[arm.get()] += tally;
}
