//! Strata: users among whom the arms were in play together, and blocks of strata with the same traffic.
//!
//! A mean over all users weighs each stratum by its share of all assignments, which no arm can change.
//! Strata in which two arms got the same shares of the traffic are put together for that pair: given
//! the shares, which arm a user got tells nothing of the user (Rosenbaum and Rubin 1983). So the number
//! of blocks, which an interval pays for, is that of different shares, and not of days and segments.

use std::collections::BTreeMap;

use super::contrast::Block;
use super::count::Count;
use crate::alphabet::Alphabet;
use crate::tally::Tally;

/// Users of an experiment by stratum, with the reports on each arm.
#[derive(Clone, Debug, Default)]
pub struct Strata {
    strata: Vec<Stratum>,
    /// For each era, which arms have reports in any of its strata.
    played: BTreeMap<u32, Vec<bool>>,
    users: f64,
}

#[derive(Clone, Debug)]
struct Stratum {
    era: u32,
    users: f64,
    /// The mean of all reports.
    level: f64,
    arms: Vec<Count>,
}

impl Strata {
    /// Strata of users, each with its era and the count of each arm. Within an era, the same arms are
    /// in play: it is a revision of the experiment.
    pub fn new(strata: impl IntoIterator<Item = (u32, Vec<Count>)>) -> Self {
        let mut all = Self::default();
        for (era, arms) in strata {
            let sum = arms.iter().fold(Count::default(), |mut sum, arm| {
                sum += *arm;
                sum
            });
            if sum.reports <= 0.0 {
                continue;
            }
            let played = all.played.entry(era).or_default();
            played.resize(played.len().max(arms.len()), false);
            for (flag, arm) in played.iter_mut().zip(&arms) {
                *flag |= arm.reports > 0.0;
            }
            all.users += sum.reports;
            all.strata.push(Stratum { era, users: sum.reports, level: sum.mean(), arms });
        }
        // Groups begin with the strata of which most is known.
        all.strata.sort_by(|a, b| b.users.total_cmp(&a.users));
        all
    }

    /// All users as one stratum.
    pub fn of_tallies(tallies: &[Tally], alphabet: Alphabet) -> Self {
        let counts = tallies.iter().map(|tally| Count::of(tally, alphabet)).collect();
        Self::new([(0, counts)])
    }

    /// The reports on an arm in all strata.
    pub fn count(&self, arm: usize) -> Count {
        let mut sum = Count::default();
        for stratum in &self.strata {
            sum += stratum.count(arm);
        }
        sum
    }

    /// The blocks of strata that tell of an arm, or of two arms.
    pub(super) fn blocks(&self, arm: usize, other: Option<usize>) -> Blocks {
        let plays = |stratum: &&Stratum| {
            let flags = &self.played[&stratum.era];
            let plays = |arm: usize| flags.get(arm).copied().unwrap_or(false);
            plays(arm) && other.is_none_or(plays)
        };
        let strata: Vec<&Stratum> = self.strata.iter().filter(plays).collect();
        let mut tolerance = 1.0;
        loop {
            let groups = groups(&strata, (arm, other), tolerance);
            if groups.len() <= BLOCKS_MAX || tolerance > 1e6 {
                return Blocks::of(&groups, other.is_some(), self.users);
            }
            tolerance *= 2.0;
        }
    }
}

impl Stratum {
    fn count(&self, arm: usize) -> Count {
        self.arms.get(arm).copied().unwrap_or_default()
    }
}

/// Most blocks; beyond, strata whose traffic differs more are put together.
const BLOCKS_MAX: usize = 12;

/// Shares of the traffic are the same if they differ by so many standard deviations, or by this part.
const DEVIATIONS: f64 = 3.0;
const PART: f64 = 0.05;

/// Strata that are put together.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    users: f64,
    arms: (Count, Count),
    /// The sums of the strata's levels over the users, and over the reports on each arm.
    levels: f64,
    of_arms: (f64, f64),
}

impl Group {
    fn add(&mut self, stratum: &Stratum, (a, b): (Count, Count)) {
        // Other arms may be of another level, and have other shares.
        let both = Count { reports: a.reports + b.reports, sum: a.sum + b.sum };
        let level = if b.reports > 0.0 { both.mean() } else { stratum.level };
        self.users += stratum.users;
        self.arms.0 += a;
        self.arms.1 += b;
        self.levels += stratum.users * level;
        self.of_arms.0 += a.reports * level;
        self.of_arms.1 += b.reports * level;
    }

    /// Whether a stratum has the same traffic.
    fn is_like(&self, users: f64, reports: (f64, f64), tolerance: f64) -> bool {
        let is_like = |all: f64, reports: f64| {
            let share = ((all + 0.5) / (self.users + 1.0)).min(1.0);
            let expected = users * share;
            let variance = expected * (1.0 - share) * (1.0 + users / self.users);
            let allowed = DEVIATIONS * libm::sqrt(variance) + PART * expected;
            (reports - expected).abs() <= tolerance * allowed
        };
        is_like(self.arms.0.reports, reports.0) && is_like(self.arms.1.reports, reports.1)
    }

    /// By how much the strata's common level can have shifted the difference of the two means, since
    /// the traffic within the group was not quite the same; for one arm, its mean.
    fn skew(&self, is_pair: bool) -> f64 {
        let of_arm = self.of_arms.0 / self.arms.0.reports;
        let other =
            if is_pair { self.of_arms.1 / self.arms.1.reports } else { self.levels / self.users };
        (of_arm - other).abs()
    }
}

fn groups(strata: &[&Stratum], (arm, other): (usize, Option<usize>), tolerance: f64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for stratum in strata {
        let counts = (stratum.count(arm), other.map_or(Count::default(), |arm| stratum.count(arm)));
        let reports = (counts.0.reports, counts.1.reports);
        let is_like = |group: &Group| group.is_like(stratum.users, reports, tolerance);
        let place = groups.iter().position(is_like).unwrap_or(groups.len());
        if place == groups.len() {
            groups.push(Group::default());
        }
        groups[place].add(stratum, counts);
        if groups.len() > BLOCKS_MAX {
            break;
        }
    }
    groups
}

/// The blocks that tell of a pair of arms, or of an arm alone.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    pub(super) blocks: Vec<Block>,
    /// The share of all users that they have.
    pub(super) coverage: f64,
    /// What differences of traffic within blocks can have done.
    pub(super) skew: f64,
}

impl Blocks {
    fn of(groups: &[Group], is_pair: bool, users: f64) -> Self {
        let tells =
            |group: &&Group| group.arms.0.reports > 0.0 && (!is_pair || group.arms.1.reports > 0.0);
        let telling: Vec<&Group> = groups.iter().filter(tells).collect();
        let covered: f64 = telling.iter().map(|group| group.users).sum();
        let block = |group: &&Group| Block { share: group.users / covered, arms: group.arms };
        let skew = |group: &&Group| group.users / covered * group.skew(is_pair);
        Self {
            blocks: telling.iter().map(block).collect(),
            coverage: if users > 0.0 { covered / users } else { 0.0 },
            skew: telling.iter().map(skew).sum(),
        }
    }

    /// The difference of the two means, or the mean of the arm alone.
    pub(super) fn estimate(&self) -> f64 {
        let of = |block: &Block| {
            let (a, b) = block.arms;
            block.share * (a.mean() - if b.reports > 0.0 { b.mean() } else { 0.0 })
        };
        self.blocks.iter().map(of).sum()
    }

    /// The mean of the arm that the first one is compared with.
    pub(super) fn second_mean(&self) -> f64 {
        self.blocks.iter().map(|block| block.share * block.arms.1.mean()).sum()
    }

    /// The blocks after so many more users, of whom each arm gets this share.
    pub(super) fn grown(&self, more: f64, (a, b): (f64, f64)) -> Vec<Block> {
        let grown = |block: &Block| {
            let more = block.share * more;
            let arms = (block.arms.0.grown_by(more * a), block.arms.1.grown_by(more * b));
            Block { arms, ..*block }
        };
        self.blocks.iter().map(grown).collect()
    }
}
