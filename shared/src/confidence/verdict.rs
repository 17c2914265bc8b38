//! Verdicts which arm is best, and differences of arms, over all users of an experiment.

use super::contrast::{Block, Contrast};
use super::strata::{Blocks, Strata};
use crate::alphabet::Alphabet;
use crate::interval::{ErrorLevel, Interval};
use crate::tally::Tally;

/// Returns the arm whose mean exceeds that of every rival, once that is certain enough. This
/// stopping rule is wrong with probability at most α, at whatever time and however often you
/// evaluate it.
///
/// `tallies` are the tallies of bits of the arms to compare. All arms were present from the start,
/// and arms were always drawn alike for all users. For all other cases use [`Comparison`]. Returns
/// `None` while there is no verdict.
///
/// A verdict is false if it names an arm *i* although some arm *j* has the same mean or a larger
/// one. Such a verdict must pass the test of the pair of *i* and *j*. These pairs can change as
/// users drift, so each pair is tested at its part of α. The martingale of a pair is the same for
/// both of its orders.
pub fn best_arm(tallies: &[Tally], alpha: ErrorLevel) -> Option<usize> {
    best_active_arm(tallies, &vec![true; tallies.len()], tallies.len(), alpha)
}

/// Like [`best_arm`], among the arms that are `active`, with one flag for each tally. The first
/// `initial` arms were present from the start. The others have been added since.
pub fn best_active_arm(
    tallies: &[Tally],
    active: &[bool],
    initial: usize,
    alpha: ErrorLevel,
) -> Option<usize> {
    let strata = Strata::of_tallies(tallies, Alphabet::BITS);
    Comparison { strata: &strata, active, initial, alpha, costs: &[] }.best()
}

/// The comparison of the arms of an experiment.
///
/// The mean of an arm is its mean over all users, whatever traffic the arm got. It weights each
/// stratum by its share of all assignments. Two arms are compared within strata. A stratum where
/// only one of the two was ever played says nothing about the pair.
///
/// The part of α of a pair is fixed before the pair's first report, and stays. So a verdict holds
/// whenever arms are retired or added: no test starts again. Three quarters of α are divided
/// equally among the pairs of the first arms. The rest is for added arms. That takes 2% to 5% more
/// reports than without the possibility of adding arms. Parts that do not depend on `initial` would
/// take 20% or more. With probability at least 1 - α the intervals of all pairs hold, whenever you
/// look and at whichever pairs.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// The users, and the reports on each arm.
    pub strata: &'a Strata,
    /// The arms to compare, one flag for each.
    pub active: &'a [bool],
    /// The number of arms that were there from the start.
    pub initial: usize,
    /// The error level of all comparisons together.
    pub alpha: ErrorLevel,
    /// The cost of each arm, on the scale 0..=1 of the reports before they are debiased. Arms
    /// beyond the end cost nothing. Arms are compared by their means less these costs. The costs
    /// are known, so bounds hold as without them.
    pub costs: &'a [f64],
}

/// The mean of an arm over all users, each report scaled to 0..=1, before it is debiased.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// An interval for the mean, which holds at all times at once.
    pub interval: Interval,
    /// The share of the users that it covers, 0 to 1.
    pub coverage: f64,
}

/// The lead of an arm over the rival that is most in the way of a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lead {
    /// The arm that leads.
    pub leader: usize,
    /// The other arm whose distance from the leader has the lowest bound.
    pub rival: usize,
    /// The difference of the two means. A [`Comparison`] scales each to 0..=1, before it is debiased.
    pub difference: f64,
    /// An interval for the difference.
    pub interval: Interval,
    /// The share of the users that it covers, 0 to 1.
    pub coverage: f64,
}

/// The difference between an arm and the one that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The arm.
    pub arm: usize,
    /// Its mean less that of the other arm. A [`Comparison`] scales each to 0..=1, before it is
    /// debiased.
    pub difference: f64,
    /// An interval for the difference.
    pub interval: Interval,
    /// The difference as a share of the other arm's mean above the given zero, or `None` unless
    /// that mean is above it. If arms have costs, they are subtracted from both means.
    pub relative: Option<f64>,
    /// An interval for [`Self::relative`], which holds whenever [`Self::interval`] does. `None`
    /// unless the other arm's mean is certainly above zero.
    pub relative_interval: Option<Interval>,
    /// The share of the users that it covers, 0 to 1.
    pub coverage: f64,
}

/// The mean of an arm over all users, with an interval of this level, or `None` without reports.
pub fn mean_over_all(strata: &Strata, arm: usize, alpha: ErrorLevel) -> Option<Mean> {
    let blocks = strata.blocks(arm, None);
    if blocks.parts.is_empty() {
        return None;
    }
    let contrast = Contrast::new(&blocks.parts, -libm::log(alpha.get()));
    let interval = widened(contrast.interval((1.0, 0.0)), blocks.skew).clamped(0.0, 1.0);
    Some(Mean { mean: blocks.estimate(), interval, coverage: blocks.coverage })
}

/// The share of the users that [`mean_over_all`] covers, 0 to 1, and that mean without an interval.
pub fn estimate_over_all(strata: &Strata, arm: usize) -> Option<(f64, f64)> {
    let blocks = strata.blocks(arm, None);
    (!blocks.parts.is_empty()).then(|| (blocks.estimate(), blocks.coverage))
}

/// A pair of arms.
struct Pair {
    blocks: Blocks,
    contrast: Contrast,
}

impl Pair {
    fn interval(&self) -> Interval {
        widened(self.contrast.interval((1.0, 1.0)), self.blocks.skew).clamped(-1.0, 1.0)
    }
}

fn widened(interval: Interval, by: f64) -> Interval {
    Interval::between(interval.low() - by, interval.high() + by)
}

fn moved(interval: Interval, by: f64) -> Interval {
    Interval::between(interval.low() + by, interval.high() + by)
}

/// The most evidence that any mixture can have that the first arm exceeds the second.
fn most_evidence(blocks: &[Block]) -> f64 {
    let of = |Block { arms: (a, b), .. }: &Block| {
        let common = (a.sum + b.sum) / (a.reports + b.reports);
        a.reports * divergence(a.mean(), common) + b.reports * divergence(b.mean(), common)
    };
    blocks.iter().map(of).sum()
}

/// The Kullback-Leibler divergence of two Bernoulli laws.
fn divergence(p: f64, q: f64) -> f64 {
    let part = |p: f64, q: f64| if p > 0.0 { p * libm::log(p / q) } else { 0.0 };
    part(p, q) + part(1.0 - p, 1.0 - q)
}

impl Comparison<'_> {
    fn alpha_of(&self, a: usize, b: usize) -> ErrorLevel {
        self.alpha.part(pair_share(self.initial, a.max(b)))
    }

    fn cost(&self, arm: usize) -> f64 {
        self.costs.get(arm).copied().unwrap_or(0.0)
    }

    /// By how much the first of two arms costs more.
    fn dearer(&self, a: usize, b: usize) -> f64 {
        self.cost(a) - self.cost(b)
    }

    fn needed(&self, a: usize, b: usize) -> f64 {
        -libm::log(self.alpha_of(a, b).get())
    }

    /// The comparison of two arms; `None` unless some users tell of both.
    fn pair(&self, a: usize, b: usize) -> Option<Pair> {
        let blocks = self.strata.blocks(a, Some(b));
        if blocks.parts.is_empty() {
            return None;
        }
        let contrast = Contrast::new(&blocks.parts, self.needed(a, b));
        Some(Pair { blocks, contrast })
    }

    fn contenders(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.active.len()).filter(|arm| self.active[*arm])
    }

    /// The active arms with reports, and the one of them that leads: no other one is ahead of it
    /// where both were played, if there is such an arm.
    fn leader(&self) -> Option<usize> {
        let reported: Vec<usize> =
            self.contenders().filter(|arm| self.strata.count(*arm).reports > 0.0).collect();
        let estimate = |arm: &usize| {
            let found = estimate_over_all(self.strata, *arm);
            found.map_or(f64::NEG_INFINITY, |(mean, _)| mean - self.cost(*arm))
        };
        let of_mean = |a: &(usize, f64), b: &(usize, f64)| a.1.total_cmp(&b.1);
        let means = reported.iter().map(|arm| (*arm, estimate(arm)));
        let (mut leader, _) = means.max_by(of_mean)?;
        let mut seen = vec![leader];
        loop {
            let ahead = |rival: &usize| {
                let blocks = self.strata.blocks(*rival, Some(leader));
                let ahead = blocks.estimate() - self.dearer(*rival, leader);
                (*rival, if blocks.parts.is_empty() { 0.0 } else { ahead })
            };
            let rivals = reported.iter().filter(|rival| !seen.contains(rival)).map(ahead);
            match rivals.max_by(of_mean) {
                Some((rival, difference)) if difference > 0.0 => leader = rival,
                _ => return Some(leader),
            }
            seen.push(leader);
        }
    }

    /// The best of the active arms, or `None` if there is no verdict yet.
    pub fn best(&self) -> Option<usize> {
        let mut contenders = self.contenders();
        if let (Some(only), None) = (contenders.next(), contenders.next()) {
            return Some(only);
        }
        let leader = self.leader()?;
        let is_ahead = |rival: usize| rival == leader || self.is_ahead(leader, rival);
        self.contenders().all(is_ahead).then_some(leader)
    }

    fn is_ahead(&self, leader: usize, rival: usize) -> bool {
        let blocks = self.strata.blocks(leader, Some(rival));
        let least = blocks.skew + self.dearer(leader, rival);
        is_certain(&blocks.parts, self.needed(leader, rival), least)
    }

    /// The lead among the active arms, or `None` unless two of them can be compared.
    ///
    /// [`Self::best`] has a verdict exactly when the interval is above 0 and every active arm can be
    /// compared with the leader.
    pub fn lead(&self) -> Option<Lead> {
        let leader = self.leader()?;
        let lead = |rival: usize| {
            let pair = self.pair(leader, rival)?;
            let low = pair.contrast.least_difference() - pair.blocks.skew;
            Some((rival, low - self.dearer(leader, rival), pair))
        };
        let leads = self.contenders().filter(|rival| *rival != leader).filter_map(lead);
        let (rival, _, pair) = leads.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let dearer = self.dearer(leader, rival);
        Some(Lead {
            leader,
            rival,
            difference: pair.blocks.estimate() - dearer,
            interval: moved(pair.interval(), -dearer),
            coverage: pair.blocks.coverage,
        })
    }

    /// The differences of all other active arms from the arm `control`, in the order of the arms.
    /// Arms without users to compare them on are left out. `zero` is the scaled mean that stands
    /// for a mean of 0. With `None`, there are no differences as a share.
    ///
    /// With probability at least 1 - α the intervals of all pairs hold, at all times and for every
    /// control. You may choose the control after a look at the reports.
    pub fn differences_from(&self, control: usize, zero: Option<f64>) -> Vec<Difference> {
        let against = |arm: usize| {
            let pair = self.pair(arm, control)?;
            let dearer = self.dearer(arm, control);
            let (difference, skew) = (pair.blocks.estimate() - dearer, pair.blocks.skew);
            let zeros = zero.map(|zero| (zero + self.cost(arm), zero + self.cost(control)));
            let above = zeros.map(|zeros| (zeros, pair.blocks.second_mean() - zeros.1));
            let above = above.filter(|(_, base)| *base > 0.0);
            let relative_interval = above.and_then(|(zeros, base)| {
                let ratio = pair.contrast.ratio(zeros)?;
                let interval = Interval::between(ratio.low() - 1.0, ratio.high() - 1.0);
                Some(widened(interval, skew / base))
            });
            Some(Difference {
                arm,
                difference,
                interval: moved(pair.interval(), -dearer),
                relative: above.map(|(_, base)| difference / base),
                relative_interval,
                coverage: pair.blocks.coverage,
            })
        };
        self.contenders().filter(|arm| *arm != control).filter_map(against).collect()
    }

    /// The number of further reports of all arms until [`Self::best`] has a verdict, to within a
    /// hundredth. It assumes that means stay as they are, and that each arm gets its share of
    /// `shares` in every block. 0 if there is a verdict, and `None` if there will be none.
    pub fn reports_left(&self, shares: &[f64]) -> Option<u64> {
        let leader = self.leader()?;
        let share = |arm: usize| shares.get(arm).copied().unwrap_or(0.0);
        let rivals: Vec<(usize, Blocks)> = (self.contenders().filter(|rival| *rival != leader))
            .map(|rival| (rival, self.strata.blocks(leader, Some(rival))))
            .collect();
        let is_behind = |(rival, blocks): &(usize, Blocks)| {
            blocks.parts.is_empty() || blocks.estimate() <= self.dearer(leader, *rival)
        };
        if rivals.iter().any(is_behind) {
            return None;
        }
        first_certain(|more| {
            rivals.iter().all(|(rival, blocks)| {
                let grown = blocks.grown(more, (share(leader), share(*rival)));
                let least = blocks.skew + self.dearer(leader, *rival);
                is_certain(&grown, self.needed(leader, *rival), least)
            })
        })
    }
}

/// Whether the first arm exceeds the second by more than `least`, with this much evidence.
fn is_certain(blocks: &[Block], needed: f64, least: f64) -> bool {
    if blocks.is_empty() || (least >= 0.0 && most_evidence(blocks) < needed) {
        return false;
    }
    let ahead = |block: &Block| block.share * (block.arms.0.mean() - block.arms.1.mean());
    let difference: f64 = blocks.iter().map(ahead).sum();
    difference > least && Contrast::new(blocks, needed).least_difference() > least
}

/// Most further reports that [`Comparison::reports_left`] counts.
const REPORTS_LEFT_MAX: f64 = 1e15;

/// The least number for which `is_certain` holds, to within a hundredth.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number from 0 to 1e15"
)]
fn first_certain(is_certain: impl Fn(f64) -> bool) -> Option<u64> {
    if is_certain(0.0) {
        return Some(0);
    }
    let mut high = 1.0;
    while !is_certain(high) {
        high *= 2.0;
        if high > REPORTS_LEFT_MAX {
            return None;
        }
    }
    let mut low = high / 2.0;
    while high - low > (0.01 * high).max(1.0) {
        let middle = f64::midpoint(low, high);
        if is_certain(middle) { high = middle } else { low = middle }
    }
    Some(high.ceil() as u64)
}

/// The total share of an error level that the first arms have, or their pairs.
const INITIAL_SHARE: f64 = 0.75;

/// The share of α for a pair of arms, of which `later` is the larger index. Over all possible pairs
/// the shares sum to at most 1: of the a-th added arm, all pairs with earlier arms have
/// `1/(a (a+1))` of the share of added arms.
fn pair_share(initial: usize, later: usize) -> f64 {
    if later < initial {
        let pairs = initial as f64 * (initial as f64 - 1.0) / 2.0;
        return INITIAL_SHARE / pairs.max(1.0);
    }
    let added = (later - initial + 1) as f64;
    (1.0 - INITIAL_SHARE) / (added * (added + 1.0) * later.max(1) as f64)
}

/// The share of an error level for an arm. The first `initial` arms were there from the start. The
/// shares of all arms that are ever added sum to at most 1.
pub fn arm_share(initial: usize, arm: usize) -> f64 {
    if arm < initial {
        return INITIAL_SHARE / initial as f64;
    }
    let added = (arm - initial + 1) as f64;
    (1.0 - INITIAL_SHARE) / (added * (added + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::ARMS_MAX;

    #[test]
    fn the_shares_of_all_pairs_and_arms_are_no_more_than_the_whole() {
        for initial in [1, 2, 3, 20, ARMS_MAX - 1, ARMS_MAX] {
            let pairs = (0..ARMS_MAX).map(|later| later as f64 * pair_share(initial, later));
            let sum: f64 = pairs.sum();
            assert!(sum <= 1.0 + 1e-12, "{initial}: {sum}");
            let first: f64 = (0..initial).map(|j| j as f64 * pair_share(initial, j)).sum();
            let expected = if initial > 1 { INITIAL_SHARE } else { 0.0 };
            assert!((first - expected).abs() < 1e-9, "{initial}: {first}");
            let arms: f64 = (0..ARMS_MAX).map(|arm| arm_share(initial, arm)).sum();
            assert!(arms <= 1.0 + 1e-12, "{initial}: {arms}");
        }
    }
}
