//! Learners that choose one arm at a time.

use bandana_learners::divergence::{kl, upper};
use bandana_learners::indices::{
    bayes_ucb, bayes_ucb_ceiling, imed, kl_ucb_exploration, ldp_ucb_laplace, moss_anytime, ucb1,
};
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
    Index(Rule, Vec<Statistic>),
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

/// The index of an index rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// [`ucb1`].
    Ucb1,
    /// [`kl_ucb`](bandana_learners::indices::kl_ucb).
    KlUcb,
    /// [`bayes_ucb`].
    BayesUcb,
    /// [`imed`].
    Imed,
    /// [`moss_anytime`].
    MossAnytime,
    /// [`ldp_ucb_laplace`] for this epsilon.
    Laplace(f64),
}

/// The statistics of an arm for an index rule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistic {
    sum: f64,
    reports: f64,
    pending: u32,
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
        let index = |rule| Self::Index(rule, vec![Statistic::default(); arms]);
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
            Self::Index(_, statistics) => statistics[arm].pending += 1,
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
            Self::Index(rule, statistics) => {
                let arm = leader(*rule, statistics, rng);
                self.expect(arm);
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
            Self::Index(_, statistics) => {
                let statistic = &mut statistics[arm];
                statistic.sum += signal;
                statistic.reports += 1.0;
                statistic.pending = statistic.pending.saturating_sub(1);
            }
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

/// The arm with the largest index. The scan starts at a random arm, so that ties are broken at
/// random. Arms never chosen come first; arms without a report come last.
fn leader(rule: Rule, statistics: &[Statistic], rng: &mut Random) -> usize {
    let start = rng.random_range(0..statistics.len());
    let time = 1.0 + statistics.iter().map(|arm| arm.reports).sum::<f64>();
    let places = || (start..statistics.len()).chain(0..start);
    let mean_of = |arm: &Statistic| match arm.reports {
        0.0 => f64::NEG_INFINITY,
        reports => arm.sum / reports,
    };
    // The arm with the largest mean comes first: few other indices are needed then. It is also kept
    // where other indices near 1 are indistinguishable from its own.
    let favourite = places().fold(start, |best, place| {
        if mean_of(&statistics[place]) > mean_of(&statistics[best]) { place } else { best }
    });
    let best_mean = mean_of(&statistics[favourite]);
    let exploration = kl_ucb_exploration(time);
    let mut best = (start, f64::NEG_INFINITY);
    for place in std::iter::once(favourite).chain(places()) {
        let Statistic { sum, reports, pending } = statistics[place];
        if reports == 0.0 {
            if pending == 0 {
                return place;
            }
            continue;
        }
        let mean = sum / reports;
        let evidence = || Evidence::new(sum, reports - sum);
        let log_odds = |mean: f64| (mean / (1.0 - mean)).ln();
        // Expensive indices are computed only if they can win.
        let index = match rule {
            Rule::Ucb1 => ucb1(mean, reports, time),
            Rule::KlUcb if mean < best.1 && exploration / reports < kl(mean, best.1) => continue,
            Rule::KlUcb => upper(mean, exploration / reports),
            Rule::BayesUcb if log_odds(bayes_ucb_ceiling(evidence(), time)) < best.1 => continue,
            Rule::BayesUcb => bayes_ucb(evidence(), time),
            Rule::Imed => imed(mean, reports, best_mean),
            Rule::MossAnytime => moss_anytime(mean, reports, time, statistics.len()),
            Rule::Laplace(epsilon) => ldp_ucb_laplace(mean, reports, time, epsilon),
        };
        if index > best.1 {
            best = (place, index);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::generator;

    #[test]
    fn an_index_next_to_one_is_better_than_a_low_one() {
        // One reward of .95 among 100,000: the largest q is 1 within 1e-100.
        let few = Statistic { sum: 0.95, reports: 1.0, pending: 0 };
        let many = Statistic { sum: 2e4, reports: 1e5, pending: 0 };
        let mut rng = generator(1, 0);
        for _ in 0..50 {
            assert_eq!(leader(Rule::KlUcb, &[many, few, many], &mut rng), 1);
        }
        // Ties among such arms are broken at random.
        let all: Vec<usize> =
            (0..50).map(|_| leader(Rule::KlUcb, &[few, few, many], &mut rng)).collect();
        assert!(all.contains(&0) && all.contains(&1) && !all.contains(&2), "{all:?}");
    }
}
