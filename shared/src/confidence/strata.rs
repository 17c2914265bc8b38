//! Strata: users among whom the arms were in play together, and blocks of strata with the same traffic.
//!
//! A mean over all users weighs each stratum by its share of all assignments, which no arm can
//! change. Strata in which two arms got the same shares of the traffic are put together for that
//! pair: given the shares, which arm a user got tells nothing of the user (Rosenbaum and Rubin
//! 1983). An interval gets wider with the number of blocks. There are as many blocks as different
//! shares, and not as many as days and segments.

use std::collections::BTreeMap;

use super::contrast::Block;
use super::count::Count;
use crate::alphabet::Alphabet;
use crate::tally::Tally;

/// Users of an experiment by stratum, with the reports on each arm.
#[derive(Clone, Debug, Default)]
pub struct Strata {
    parts: Vec<Stratum>,
    /// For each era, which arms have reports in any of its strata.
    played: BTreeMap<u32, Vec<bool>>,
    users: f64,
}

#[derive(Clone, Debug)]
struct Stratum {
    era: u32,
    users: f64,
    /// The sum of all reports.
    sum: f64,
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
            all.parts.push(Stratum { era, users: sum.reports, sum: sum.sum, arms });
        }
        // Groups begin with the strata of which most is known.
        all.parts.sort_by(|a, b| b.users.total_cmp(&a.users));
        all
    }

    /// All users as one stratum.
    pub fn of_tallies(tallies: &[Tally], alphabet: Alphabet) -> Self {
        let counts = tallies.iter().map(|tally| Count::of(tally, alphabet)).collect();
        Self::new([(0, counts)])
    }

    /// The reports in all strata.
    pub fn users(&self) -> f64 {
        self.users
    }

    /// The reports on an arm in all strata.
    pub fn count(&self, arm: usize) -> Count {
        let mut sum = Count::default();
        for stratum in &self.parts {
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
        let strata: Vec<&Stratum> = self.parts.iter().filter(plays).collect();
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
#[derive(Clone, Debug, Default)]
struct Group {
    users: f64,
    arms: (Count, Count),
    /// The other reports by which a stratum's level is told: on the other arm, or on all others.
    beside: Count,
    parts: Vec<Part>,
}

/// A stratum of a group.
#[derive(Clone, Copy, Debug)]
struct Part {
    users: f64,
    arm: Count,
    beside: Count,
}

impl Group {
    fn add(&mut self, stratum: &Stratum, (a, b): (Count, Count), is_pair: bool) {
        self.users += stratum.users;
        self.arms.0 += a;
        self.arms.1 += b;
        let rest = Count { reports: stratum.users - a.reports, sum: stratum.sum - a.sum };
        let beside = if is_pair { b } else { rest };
        self.beside += beside;
        self.parts.push(Part { users: stratum.users, arm: a, beside });
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

    /// By how much the difference of the two means can be shifted since the traffic within the group was
    /// not quite the same; for one arm, its mean. In each stratum an arm's mean differs from that in the
    /// group by what its own reports there say, as far as there are enough, and else by what all of the
    /// stratum's reports are above the means of their arms.
    fn skew(&self, is_pair: bool) -> f64 {
        let (a, b) = (self.arms.0, self.beside);
        let of_arm = |all: Count, of: fn(&Part) -> Count| -> f64 {
            let shift = |part: &Part| {
                let (n, m) = (part.arm.reports, part.beside.reports);
                let above = part.arm.sum + part.beside.sum - n * a.mean() - m * b.mean();
                let level = above / (n + m).max(1.0);
                let own = of(part);
                let trust = own.reports / (own.reports + TOLD_BY);
                let differs = trust * (own.mean() - all.mean()) + (1.0 - trust) * level;
                (own.reports / all.reports.max(1.0) - part.users / self.users) * differs
            };
            self.parts.iter().map(shift).sum()
        };
        let of_a = of_arm(a, |part| part.arm);
        if is_pair { (of_a - of_arm(b, |part| part.beside)).abs() } else { of_a.abs() }
    }

    /// The users of strata in which the arm was played, or both arms: those of strata with reports on it,
    /// and as many as have none by chance, if all strata where it was played had the same share of it.
    fn played(&self, is_pair: bool) -> f64 {
        let has = |part: &&Part| part.arm.reports > 0.0 && (!is_pair || part.beside.reports > 0.0);
        let told: f64 = self.parts.iter().filter(has).map(|part| part.users).sum();
        let mut played = self.users;
        for _ in 0..PLAYED_STEPS {
            let told_by_chance = |part: &Part| {
                let expected = |all: Count| part.users * all.reports / played.max(told);
                let some = |all: Count| -libm::expm1(-expected(all));
                let of_other = if is_pair { some(self.beside) } else { 1.0 };
                part.users / self.users * some(self.arms.0) * of_other
            };
            let share: f64 = self.parts.iter().map(told_by_chance).sum();
            played = (told / share.max(1e-12)).clamp(told, self.users);
        }
        played
    }
}

/// The reports of an arm in a stratum from which on they tell more of it there than the level of all.
const TOLD_BY: f64 = 20.0;

/// Steps of the fixed point of [`Group::played`].
const PLAYED_STEPS: usize = 20;

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
        groups[place].add(stratum, counts, other.is_some());
        if groups.len() > BLOCKS_MAX {
            break;
        }
    }
    groups
}

/// The blocks that tell of a pair of arms, or of an arm alone.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    pub(super) parts: Vec<Block>,
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
        let played: f64 = telling.iter().map(|group| group.played(is_pair)).sum();
        Self {
            parts: telling.iter().map(block).collect(),
            coverage: if users > 0.0 { played / users } else { 0.0 },
            skew: telling.iter().map(skew).sum(),
        }
    }

    /// The difference of the two means, or the mean of the arm alone.
    pub(super) fn estimate(&self) -> f64 {
        let of = |block: &Block| {
            let (a, b) = block.arms;
            block.share * (a.mean() - if b.reports > 0.0 { b.mean() } else { 0.0 })
        };
        self.parts.iter().map(of).sum()
    }

    /// The mean of the arm that the first one is compared with.
    pub(super) fn second_mean(&self) -> f64 {
        self.parts.iter().map(|block| block.share * block.arms.1.mean()).sum()
    }

    /// The blocks after so many more users, of whom each arm gets this share.
    pub(super) fn grown(&self, more: f64, (a, b): (f64, f64)) -> Vec<Block> {
        let grown = |block: &Block| {
            let more = block.share * more;
            let arms = (block.arms.0.grown_by(more * a), block.arms.1.grown_by(more * b));
            Block { arms, ..*block }
        };
        self.parts.iter().map(grown).collect()
    }
}
