//! Learners that choose one arm at a time.

use bandana_learners::{
    AdaKlSampler, Evidence, Learner as ServedLearner, LearnerInput, ThompsonSampler,
    TruncatedSampler, reports_until_policy, scale_max,
};
use bandana_shared::curve::Mechanism;
use bandana_shared::identity::ArmIndex;
use bandana_shared::policy::Weights;
use rand::{Rng as _, RngExt as _};

use crate::channel::reports;
use crate::learner::{Contestant as _, Learner, Privacy};
use crate::random::Random;
use crate::standard::StandardLearner;
use crate::standard::index_player::{IndexPlayer, Rule};

/// A learner during a trial.
#[derive(Debug)]
pub(crate) enum Player {
    /// Samples from posteriors.
    Thompson(ThompsonSampler, Vec<Evidence>),
    /// Samples from truncated posteriors.
    Truncated(TruncatedSampler, Vec<Evidence>),
    /// Indices with a random scale.
    AdaKl(AdaKlSampler, Signals),
    /// Indices.
    Index(IndexPlayer),
    /// Weights as a server would serve them, until the next policy.
    Served(ServedLearner, Box<LearnerInput>, Weights),
    /// Weights that are computed anew after as many reports as on a server.
    Renewed(Box<Renewed>),
    /// A learner whose reports come only once a batch of their arm is full, and the arms of which
    /// no batch has been.
    Filling(Box<Self>, Vec<usize>),
}

/// The kind of signals that a learner receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signals {
    /// Zeros and ones.
    Bits,
    /// Symbols, scaled to 0..=1.
    Levels,
}

impl Signals {
    fn of(privacy: Privacy) -> Self {
        match privacy.mechanism {
            Mechanism::Kary(_) => Self::Levels,
            _ => Self::Bits,
        }
    }

    /// The evidence at the beginning.
    fn nothing(self) -> Evidence {
        match self {
            Self::Bits => Evidence::default(),
            Self::Levels => Evidence::of_levels(),
        }
    }
}

/// Adds a signal to the evidence.
fn hear(evidence: &mut Evidence, signal: f64) {
    match evidence.variance() {
        Some(_) => evidence.add_level(signal),
        None => evidence.add_bit(signal > 0.5),
    }
}

/// A learner whose weights stay until enough new reports have come.
#[derive(Debug)]
pub(crate) struct Renewed {
    learner: ServedLearner,
    input: LearnerInput,
    weights: Weights,
    reports: u64,
    /// Number of reports at which the weights are computed anew.
    due: u64,
}

impl Renewed {
    fn new(learner: ServedLearner, input: LearnerInput) -> anyhow::Result<Self> {
        let weights = learner.weights(&input)?;
        Ok(Self { learner, input, weights, reports: 0, due: reports_until_policy(0) })
    }

    fn learn(&mut self, arm: usize, signal: f64) -> anyhow::Result<()> {
        hear(&mut self.input.arms[arm], signal);
        self.reports += 1;
        if self.reports >= self.due {
            self.due = self.reports + reports_until_policy(self.reports);
            self.weights = self.learner.weights(&self.input)?;
        }
        Ok(())
    }
}

impl Player {
    /// A learner without evidence.
    ///
    /// # Errors
    /// When there are too many arms.
    pub(crate) fn new(
        contestant: StandardLearner,
        arms: usize,
        privacy: Privacy,
    ) -> anyhow::Result<Self> {
        let signals = match contestant {
            StandardLearner::NonprivateTs => Signals::Bits,
            _ => Signals::of(privacy),
        };
        let channel = reports(privacy.mechanism, privacy.epsilon);
        let evidence = vec![signals.nothing(); arms];
        let index = |rule| Self::Index(IndexPlayer::new(rule, arms));
        let renewed = |learner, evidence| {
            let input = LearnerInput::of(evidence, &vec![true; arms], channel);
            anyhow::Ok(Self::Renewed(Box::new(Renewed::new(learner, input)?)))
        };
        Ok(match contestant {
            StandardLearner::LdpTs | StandardLearner::NonprivateTs => {
                Self::Thompson(ThompsonSampler::new(&evidence)?, evidence)
            }
            StandardLearner::TruncatedTs => {
                Self::Truncated(TruncatedSampler::new(&evidence, channel)?, evidence)
            }
            StandardLearner::RandAdaKl => {
                Self::AdaKl(AdaKlSampler::new(arms, scale_max(channel)), signals)
            }
            StandardLearner::RandAdaKlBold => Self::AdaKl(AdaKlSampler::new(arms, 1.0), signals),
            StandardLearner::TopTwo => renewed(ServedLearner::TopTwo, evidence)?,
            StandardLearner::Uniform => renewed(ServedLearner::Uniform, evidence)?,
            StandardLearner::LdpUcb | StandardLearner::NonprivateUcb1 => index(Rule::Ucb1),
            StandardLearner::KlUcb | StandardLearner::NonprivateKlUcb => index(Rule::KlUcb),
            StandardLearner::BayesUcb => index(Rule::BayesUcb),
            StandardLearner::Imed => index(Rule::Imed),
            StandardLearner::MossAnytime => index(Rule::MossAnytime),
            StandardLearner::LdpUcbLaplace => index(Rule::Laplace(privacy.epsilon.get())),
        })
    }

    /// A learner that plays by a server's policies; `None` for a learner that servers lack.
    ///
    /// # Errors
    /// When there are too many arms.
    pub(crate) fn served(
        contestant: StandardLearner,
        arms: usize,
        privacy: Privacy,
        batch: usize,
    ) -> anyhow::Result<Option<Self>> {
        let Ok(learner) = contestant.name().parse::<ServedLearner>() else { return Ok(None) };
        let channel = reports(privacy.mechanism, privacy.epsilon);
        let nothing = vec![Signals::of(privacy).nothing(); arms];
        let input = LearnerInput::of(nothing, &vec![true; arms], channel);
        let input = input.with_ahead(batch as f64);
        let weights = learner.weights(&input)?;
        Ok(Some(Self::Served(learner, Box::new(input), weights)))
    }

    /// The learner, if the reports of an arm come only once there are enough of them. A learner
    /// without a prior has no index for an arm before its first report, and waits for it; that
    /// would be for ever, so it first plays the arms of which no batch is full.
    #[must_use]
    pub(crate) fn filling_batches(self, arms: usize) -> Self {
        match self {
            Self::AdaKl(..) | Self::Index(..) => Self::Filling(Box::new(self), (0..arms).collect()),
            other => other,
        }
    }

    /// Counts a report of this arm as pending, if the learner counts them.
    fn expect(&mut self, arm: usize) {
        match self {
            Self::AdaKl(sampler, _) => sampler.select(arm),
            Self::Index(player) => player.expect(arm),
            Self::Filling(player, _) => player.expect(arm),
            Self::Thompson(..) | Self::Truncated(..) | Self::Served(..) | Self::Renewed(..) => {}
        }
    }
}

impl Learner for Player {
    #[inline]
    fn choose(&mut self, rng: &mut Random) -> usize {
        match self {
            Self::Thompson(sampler, _) => sampler.draw(rng).get(),
            Self::Truncated(sampler, _) => sampler.draw(rng).get(),
            Self::AdaKl(sampler, _) => {
                let arm = sampler.draw(rng);
                self.expect(arm);
                arm
            }
            Self::Index(player) => {
                let arm = player.leader(rng);
                player.expect(arm);
                arm
            }
            Self::Served(_, _, weights) => weights.draw(rng.next_u32()).get(),
            Self::Renewed(renewed) => renewed.weights.draw(rng.next_u32()).get(),
            Self::Filling(player, unseen) if unseen.is_empty() => player.choose(rng),
            Self::Filling(player, unseen) => {
                let arm = unseen[rng.random_range(0..unseen.len())];
                player.expect(arm);
                arm
            }
        }
    }

    #[inline]
    fn learn(&mut self, arm: usize, signal: f64) -> anyhow::Result<()> {
        match self {
            Self::Thompson(sampler, evidence) => {
                hear(&mut evidence[arm], signal);
                sampler.update(index_of(arm), evidence[arm].as_bits());
            }
            Self::Truncated(sampler, evidence) => {
                hear(&mut evidence[arm], signal);
                sampler.update(index_of(arm), evidence[arm].as_bits());
            }
            Self::AdaKl(sampler, Signals::Bits) => sampler.report(arm, signal > 0.5),
            Self::AdaKl(sampler, Signals::Levels) => sampler.report_level(arm, signal),
            Self::Index(player) => player.learn(arm, signal),
            Self::Served(_, input, _) => hear(&mut input.arms[arm], signal),
            Self::Renewed(renewed) => return renewed.learn(arm, signal),
            Self::Filling(player, unseen) => {
                unseen.retain(|other| *other != arm);
                return player.learn(arm, signal);
            }
        }
        Ok(())
    }

    fn end_batch(&mut self) -> anyhow::Result<()> {
        if let Self::Served(learner, input, weights) = self {
            *weights = learner.weights(input)?;
        }
        Ok(())
    }
}

fn index_of(arm: usize) -> ArmIndex {
    ArmIndex::new(arm).unwrap_or_else(|_| unreachable!("checked when the player was made"))
}
