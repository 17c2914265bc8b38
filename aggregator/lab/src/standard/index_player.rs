//! Index rules in play: the arm with the largest index is chosen.

use bandana_learners::Evidence;
use bandana_learners::divergence::{kl, upper};
use bandana_learners::indices::{
    bayes_ucb, bayes_ucb_ceiling, imed, kl_ucb_exploration, ldp_ucb_laplace, may_exceed,
    moss_anytime, moss_anytime_exploration, ucb1, ucb1_exploration,
};
use rand::RngExt as _;

use crate::random::Random;

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

/// The statistics of an arm.
#[derive(Clone, Copy, Debug)]
struct Statistic {
    sum: f64,
    reports: f64,
    pending: u32,
    /// Kept, since one arm has a report in a round and all have an index. Minus infinity without
    /// reports.
    mean: f64,
    /// The logarithm of the number of reports, kept by [`Rule::MossAnytime`].
    log_reports: f64,
}

impl Statistic {
    const NONE: Self =
        Self { sum: 0.0, reports: 0.0, pending: 0, mean: f64::NEG_INFINITY, log_reports: 0.0 };

    fn evidence(self) -> Evidence {
        Evidence::new(self.sum, self.reports - self.sum)
    }
}

/// What all indices of a round depend on.
#[derive(Clone, Copy, Debug)]
struct Round {
    rule: Rule,
    arms: usize,
    time: f64,
    /// What the rule computes from the time alone.
    exploration: f64,
    best_mean: f64,
}

impl Round {
    /// The index of an arm with reports; `None` if it can't exceed `best`, where that is cheaper to see.
    #[inline]
    fn index(&self, arm: Statistic, best: f64) -> Option<f64> {
        let Self { rule, arms, time, exploration, best_mean } = *self;
        let Statistic { reports, mean, log_reports, .. } = arm;
        let log_odds = |mean: f64| (mean / (1.0 - mean)).ln();
        let can_win = match rule {
            Rule::Ucb1 => may_exceed(best, mean, reports, exploration),
            Rule::KlUcb => mean >= best || exploration / reports >= kl(mean, best),
            Rule::BayesUcb => log_odds(bayes_ucb_ceiling(arm.evidence(), time)) >= best,
            Rule::MossAnytime => {
                let exploration = moss_anytime_exploration(exploration - log_reports);
                may_exceed(best, mean, reports, exploration)
            }
            Rule::Imed | Rule::Laplace(_) => true,
        };
        can_win.then(|| match rule {
            Rule::Ucb1 => ucb1(mean, reports, exploration),
            Rule::KlUcb => upper(mean, exploration / reports),
            Rule::BayesUcb => bayes_ucb(arm.evidence(), time),
            Rule::Imed => imed(mean, reports, best_mean),
            Rule::MossAnytime => moss_anytime(mean, reports, time, arms),
            Rule::Laplace(epsilon) => ldp_ucb_laplace(mean, reports, time, epsilon),
        })
    }
}

/// An index rule during a trial.
#[derive(Clone, Debug)]
pub(crate) struct IndexPlayer {
    rule: Rule,
    arms: Vec<Statistic>,
    /// Number of reports of all arms.
    reports: f64,
}

impl IndexPlayer {
    /// A player without reports.
    pub(crate) fn new(rule: Rule, arms: usize) -> Self {
        Self { rule, arms: vec![Statistic::NONE; arms], reports: 0.0 }
    }

    /// Counts a report of this arm as pending.
    pub(crate) fn expect(&mut self, arm: usize) {
        self.arms[arm].pending += 1;
    }

    /// Processes the signal of a report.
    pub(crate) fn learn(&mut self, arm: usize, signal: f64) {
        self.reports += 1.0;
        let arm = &mut self.arms[arm];
        arm.sum += signal;
        arm.reports += 1.0;
        arm.pending = arm.pending.saturating_sub(1);
        arm.mean = arm.sum / arm.reports;
        if self.rule == Rule::MossAnytime {
            arm.log_reports = arm.reports.ln();
        }
    }

    /// The arm with the largest index. The scan starts at a random arm, so that ties are broken at
    /// random. Arms never chosen come first; arms without a report come last.
    pub(crate) fn leader(&self, rng: &mut Random) -> usize {
        let count = self.arms.len();
        let start = rng.random_range(0..count);
        let places = || (start..count).chain(0..start);
        // The arm with the largest mean comes first: few other indices are needed then. It is also
        // kept where other indices near 1 are indistinguishable from its own.
        let mut favourite = start;
        places().for_each(|place| {
            if self.arms[place].mean > self.arms[favourite].mean {
                favourite = place;
            }
        });
        let round = self.round(self.arms[favourite].mean);
        let mut best = (start, f64::NEG_INFINITY);
        for place in std::iter::once(favourite).chain(places()) {
            let arm = self.arms[place];
            if arm.reports == 0.0 {
                if arm.pending == 0 {
                    return place;
                }
                continue;
            }
            if let Some(index) = round.index(arm, best.1).filter(|index| *index > best.1) {
                best = (place, index);
            }
        }
        best.0
    }

    fn round(&self, best_mean: f64) -> Round {
        let Self { rule, .. } = *self;
        let (arms, time) = (self.arms.len(), 1.0 + self.reports);
        let exploration = match rule {
            Rule::Ucb1 => ucb1_exploration(time),
            Rule::KlUcb => kl_ucb_exploration(time),
            Rule::MossAnytime => (time / arms as f64).ln(),
            Rule::BayesUcb | Rule::Imed | Rule::Laplace(_) => 0.0,
        };
        Round { rule, arms, time, exploration, best_mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::generator;

    /// A player with these sums of signals and numbers of reports.
    fn player(rule: Rule, arms: &[(f64, f64)]) -> IndexPlayer {
        let of = |(sum, reports): &(f64, f64)| Statistic {
            sum: *sum,
            reports: *reports,
            mean: sum / reports,
            log_reports: reports.ln(),
            ..Statistic::NONE
        };
        let reports = arms.iter().map(|(_, reports)| reports).sum();
        IndexPlayer { rule, arms: arms.iter().map(of).collect(), reports }
    }

    #[test]
    fn an_index_next_to_one_is_better_than_a_low_one() {
        // One reward of .95 among 100,000: the largest q is 1 within 1e-100.
        let (few, many) = ((0.95, 1.0), (2e4, 1e5));
        let one = player(Rule::KlUcb, &[many, few, many]);
        let mut rng = generator(1, 0);
        for _ in 0..50 {
            assert_eq!(one.leader(&mut rng), 1);
        }
        // Ties among such arms are broken at random.
        let two = player(Rule::KlUcb, &[few, few, many]);
        let all: Vec<usize> = (0..50).map(|_| two.leader(&mut rng)).collect();
        assert!(all.contains(&0) && all.contains(&1) && !all.contains(&2), "{all:?}");
    }

    #[test]
    fn the_leader_has_the_largest_index_though_few_are_computed() {
        let mut rng = generator(2, 0);
        for rule in [Rule::Ucb1, Rule::MossAnytime] {
            let mut player = IndexPlayer::new(rule, 12);
            for round in 0..5000 {
                let arm = player.leader(&mut rng);
                if round >= 12 {
                    let time = f64::from(round) + 1.0;
                    let indices = player.arms.iter().map(|arm| match rule {
                        Rule::Ucb1 => ucb1(arm.mean, arm.reports, ucb1_exploration(time)),
                        _ => moss_anytime(arm.mean, arm.reports, time, 12),
                    });
                    let indices: Vec<f64> = indices.collect();
                    let most = indices.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    assert!(indices[arm] >= most, "{rule:?} {round}: {arm} {indices:?}");
                }
                player.expect(arm);
                player.learn(arm, f64::from(u8::from(rng.random_bool(0.3 + 0.03 * arm as f64))));
            }
        }
    }
}
