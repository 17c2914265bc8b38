//! The configuration of a learner in an experiment, and the weights that follow from it.

use bandana_shared::identity::{ArmIndex, Day};
use bandana_shared::policy::Weights;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

use super::guardrails::Guardrails;
use super::window::{Days, Memory};
use super::{Evidence, Learner, LearnerError, LearnerInput};

/// Fewest new reports after which a policy is recomputed at once.
const REPORTS_PER_POLICY_MIN: u64 = 100;

/// How the learner of an experiment is run, beside its specification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnerConfig {
    /// Who chooses the arms.
    pub learner: Learner,
    /// Least share of the traffic for every arm in play.
    pub floor_weight: f64,
    /// How much the learner makes of old reports.
    pub memory: Memory,
    /// What it must not decide about.
    pub guardrails: Guardrails,
}

impl LearnerConfig {
    /// A learner without a floor weight or guardrails that forgets nothing.
    pub const fn new(learner: Learner) -> Self {
        let (memory, guardrails) = (Memory::Everything, Guardrails::OFF);
        Self { learner, floor_weight: 0.0, memory, guardrails }
    }

    /// The weights of the arms of a specification, of which the first `initial_arms` were there
    /// from the start, with so many selections of each arm not yet reported.
    ///
    /// # Errors
    /// [`LearnerError`], as [`Learner::weights`] has it.
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
            // Arms that nobody has reported on have none.
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

/// New reports after which a policy that was computed from so many is replaced at once.
pub fn reports_until_policy(used: u64) -> u64 {
    REPORTS_PER_POLICY_MIN.max(used / 100)
}

/// The committed tallies of an experiment.
#[derive(Clone, Debug, Default)]
pub struct TallySnapshot {
    /// Of every arm, all days together.
    pub tallies: Vec<Tally>,
    /// The same by day, of the days that its memory reaches; empty when it keeps
    /// everything.
    pub days: Days,
}

impl TallySnapshot {
    /// Reports of all arms together.
    pub fn reports(&self) -> u64 {
        self.tallies.iter().copied().sum::<Tally>().reports()
    }

    /// Adds a tally of an arm on a day, and forgets days that the memory does not reach any more.
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
