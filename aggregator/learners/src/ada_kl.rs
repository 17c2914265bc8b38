//! Rand-AdaKL; see [`Learner::RandAdaKl`](super::Learner::RandAdaKl).
//!
//! With a scale c for all arms, the index of an arm is the largest q with
//! `kl(p, q) <= c r`, where r is its rate, `max(0, ln(t/H))/N`. As functions of c,
//! two such indices cross at most once: at the height u they need
//! `c = kl(p, u)/r`, and the quotient of `kl(p, u)` by `kl(p', u)` falls as u grows,
//! if p < p', because the slope of a chord of a convex function, `kl(p, u)/(u - p)`,
//! falls with it faster. So an arm that leads at both ends of a range of c leads
//! within it, and the shares follow from few comparisons.
//!
//! Heights are `-ln(1 - q)`, not q: beside an arm with 10^9 reports, one with few reports has
//! indices so close to 1 that q loses too many digits.
//!
//! Reports of more than two symbols count as bits with another lower end. Of all laws on numbers up
//! to 1 with their mean p and variance v, the law on two numbers of which one is 1 is the least
//! divergent from laws of a larger mean: it is 1 with probability `v/(v + (1 - p)^2)`, and its
//! divergence is that of bits with this probability. The index is therefore never below that of
//! Cappé, Garivier, Maillard, Munos and Stoltz, "Kullback-Leibler Upper Confidence Bounds for
//! Optimal Sequential Allocation" (2013), for the empirical law of the reports, and no variance is
//! assumed: an arm whose first reports agree by chance stays as open as one whose bits do. (A
//! normal law with the estimated variance took such an arm for certain, and gave it up for ever.)
//! Two such indices can cross twice, so a range with the same leader at both ends is divided until
//! no other arm can lead within, or to a part of 128.

mod sampler;

use bandana_shared::channel::Channel;

use super::divergence::{kl_risen, rise, upper};
use super::input::Evidence;

pub use sampler::AdaKlSampler;

/// The largest scale c of Rand-AdaKL, `1.5 - 0.35 s^2`, with s the contrast of the channel. The
/// scale is uniform between 0 and this.
///
/// This is measured, not derived. Regret grows with the range, by up to a quarter from 1 to 1.5.
/// With a smaller range, too many trials settle on a wrong arm for a long time, and the 99th
/// percentile exceeds that of LDP-TS. That happens below about 1.4 at ε = 0.5, and below about 1.3
/// at ε = 2. At ε = 5 it does not happen even at 1.
pub fn scale_max(channel: impl Into<Channel>) -> f64 {
    1.5 - 0.35 * channel.into().contrast().powi(2)
}

/// Width below which a range of the scale is not divided further.
const SCALE_PRECISION: f64 = 1e-10;

/// Maximum number of halvings in the search for a crossing.
const HALVINGS: usize = 64;

/// Part of the range of the scale below which a range with the same leader at both ends is not
/// divided, though indices may cross twice.
const LEAD_PRECISION: f64 = 1.0 / 128.0;

/// The law on 1 and a lower number with the mean and the variance of an arm's reports. The lower
/// number is 0 for bits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Law {
    /// The probability of 1.
    ones: f64,
    /// 1 minus that probability, without cancellation.
    rest: f64,
    /// The lower number.
    low: f64,
}

impl Law {
    /// The law of an arm with this mean; `left` is 1 minus the mean.
    fn of(arm: Evidence, mean: f64, left: f64) -> Self {
        match arm.empirical_variance() {
            Some(variance) if left > 0.0 => {
                let (total, square) = (variance + left * left, left * left);
                Self { ones: variance / total, rest: square / total, low: mean - variance / left }
            }
            _ => Self { ones: mean, rest: left, low: 0.0 },
        }
    }

    /// The probability of 1 at which the mean is `mean`.
    fn ones_at(self, mean: f64) -> f64 {
        (mean - self.low) / (1.0 - self.low)
    }

    /// The largest mean of at most this divergence.
    fn upper(self, divergence: f64) -> f64 {
        self.low + (1.0 - self.low) * upper(self.ones, divergence)
    }
}

/// The index of an arm as a function of the scale.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    mean: f64,
    law: Law,
    /// The height of the mean.
    base: f64,
    rate: f64,
}

impl Line {
    /// The line of an arm whose index at scale c has a divergence of `c log` divided by its
    /// selections; `None` without reports.
    fn of(arm: Evidence, log: f64) -> Option<Self> {
        let (mean, left) = (arm.mean()?, arm.zeros() / arm.reports());
        let base = if mean < 0.5 { -libm::log1p(-mean) } else { -libm::log(left) };
        // The index of a mean of 1 is 1, whatever the rate.
        let rate = if left > 0.0 { log / arm.selections() } else { 0.0 };
        Some(Self { mean, law: Law::of(arm, mean, left), base, rate })
    }

    fn at(self, scale: f64) -> f64 {
        self.base + rise(self.law.ones, self.law.rest, scale * self.rate)
    }

    /// The scale at which the index reaches `height`, which is at least that of the mean.
    fn scale_at(self, height: f64) -> f64 {
        if height <= self.base {
            return 0.0;
        }
        kl_risen(self.law.ones, self.law.rest, height - self.base) / self.rate
    }

    /// The tie-breaker between lines of equal mean: which one is ahead at small scales.
    fn slope(self) -> (f64, f64) {
        (self.rate * (self.mean - self.law.low), self.rate)
    }

    fn is_of_bits(self) -> bool {
        self.law.low.total_cmp(&0.0).is_eq()
    }
}

/// `sum of min(N, sqrt(N N'))` over the N' of all arms: the number of plays of the arms with which
/// an arm with N selections competes (Lattimore, "Refining the Confidence Level for Optimistic
/// Bandit Strategies", 2018).
fn rivalry(root: f64, roots: &[f64]) -> f64 {
    root * roots.iter().map(|other| root.min(*other)).sum::<f64>()
}

/// Least number of steps in averaging a policy for many selections.
const STEPS: u32 = 32;

/// Limit on what a step adds to an arm, as a part of its selections, and what every step may add. So
/// there are more steps in policies for more than 1,024 selections only. The
/// rule itself gives an arm that was lucky a few selections until its index falls: a step of ten
/// thousand, as in a policy for a million, would give it hundreds.
const STEP_GROWTH: f64 = 0.05;
const STEP_LEAST: f64 = 32.0;

/// The share of each arm for a policy that will serve `ahead` selections: the mean of the shares
/// along the way, as earlier selections become pending. Without this, an arm with little evidence
/// would get all of these selections.
pub(super) fn shares_ahead(mut arms: Vec<Evidence>, scale_max: f64, ahead: f64) -> Vec<f64> {
    if ahead <= 1.0 {
        return shares(&arms, scale_max);
    }
    let part = 1.0 / f64::from(STEPS);
    let mut means = vec![0.0; arms.len()];
    for _ in 0..STEPS {
        // A part of a step, until it is done.
        let mut left = part;
        while left > 0.0 {
            let shares = shares(&arms, scale_max);
            let most = arms.iter().zip(&shares).map(|(arm, share)| {
                (STEP_GROWTH * arm.selections()).max(STEP_LEAST) / (ahead * share)
            });
            let step = most.fold(left, f64::min);
            left -= step;
            for ((arm, mean), share) in arms.iter_mut().zip(&mut means).zip(shares) {
                *mean += step * share;
                *arm = arm.with_pending(arm.pending() + step * ahead * share);
            }
        }
    }
    means
}

/// The share of each arm; they sum to 1. There is at least one arm.
pub(super) fn shares(arms: &[Evidence], scale_max: f64) -> Vec<f64> {
    if let Some(shares) = shared_by_beginners(arms) {
        return shares;
    }
    let time: f64 = 1.0 + arms.iter().map(|arm| arm.selections()).sum::<f64>();
    let roots: Vec<f64> = arms.iter().map(|arm| libm::sqrt(arm.selections())).collect();
    let line = |(arm, root): (&Evidence, &f64)| {
        Line::of(*arm, libm::log(time / rivalry(*root, &roots)).max(0.0))
    };
    let lines: Vec<Option<Line>> = arms.iter().zip(&roots).map(line).collect();
    let mut distinct: Vec<Line> = lines.iter().copied().flatten().collect();
    distinct.sort_by(|a, b| {
        let (first, second) = (a.slope(), b.slope());
        b.mean
            .total_cmp(&a.mean)
            .then(second.0.total_cmp(&first.0))
            .then(second.1.total_cmp(&first.1))
    });
    // Of the lines of bits with equal means, the one with the largest slope leads at every scale.
    distinct.dedup_by(|next, kept| {
        let is_behind = next.is_of_bits() && kept.is_of_bits();
        next == kept || is_behind && next.mean.total_cmp(&kept.mean).is_eq()
    });
    let masses = leading_masses(&distinct, scale_max);
    let mut shares = vec![0.0; arms.len()];
    for (line, mass) in distinct.iter().zip(masses) {
        let alike: Vec<usize> = (0..arms.len()).filter(|arm| lines[*arm] == Some(*line)).collect();
        for arm in &alike {
            shares[*arm] = mass / alike.len() as f64;
        }
    }
    shares
}

/// The number of selections up to which an arm precedes all others, whatever their indices. Arms
/// without selections come first. Before the first report, those with the fewest selections do.
fn beginner_limit(arms: &[Evidence]) -> f64 {
    if arms.iter().any(|arm| arm.reports() > 0.0) {
        // Estimated selections of less than one count as none.
        return 1.0_f64.next_down();
    }
    arms.iter().map(|arm| arm.selections()).fold(f64::INFINITY, f64::min)
}

/// Equal shares for the arms that precede all others, if there are any.
fn shared_by_beginners(arms: &[Evidence]) -> Option<Vec<f64>> {
    let limit = beginner_limit(arms);
    let first = |arm: &Evidence| arm.selections() <= limit;
    let count = arms.iter().filter(|arm| first(arm)).count();
    let share = 1.0 / count as f64;
    (count > 0).then(|| arms.iter().map(|arm| if first(arm) { share } else { 0.0 }).collect())
}

/// For each line, the fraction of the range of scales on which it leads. The lines are distinct,
/// with their means in descending order.
fn leading_masses(lines: &[Line], scale_max: f64) -> Vec<f64> {
    let leader = |scale: f64| {
        let mut best = (0, f64::NEG_INFINITY);
        for (place, line) in lines.iter().enumerate() {
            // The divergence shows at less cost than an index whether the arm can lead.
            if best.1 <= line.base || scale > line.scale_at(best.1) {
                let height = line.at(scale);
                if height > best.1 {
                    best = (place, height);
                }
            }
        }
        best
    };
    // Whether no other line reaches the leader's least height on a range that it leads at its ends.
    let cross_once = lines.iter().all(|line| line.is_of_bits());
    let is_alone = |(place, height): (usize, f64), high: f64| {
        let others = || lines.iter().enumerate().filter(|(other, _)| *other != place);
        cross_once
            || others().all(|(_, other)| other.base < height && other.scale_at(height) > high)
    };
    let mut masses = vec![0.0; lines.len()];
    // At scale 0 the line with the largest mean leads.
    let first = (0.0, (0, lines.first().map_or(0.0, |line| line.base)));
    let mut open = vec![(first, (scale_max, leader(scale_max)))];
    while let Some(((low, left), (high, right))) = open.pop() {
        if left.0 == right.0 {
            if high - low < LEAD_PRECISION * scale_max || is_alone(left, high) {
                masses[left.0] += high - low;
            } else {
                let middle = f64::midpoint(low, high);
                let there = (middle, leader(middle));
                open.push(((low, left), there));
                open.push((there, (high, right)));
            }
            continue;
        }
        let middle = crossing(lines[left.0], lines[right.0], (left.1, right.1)).clamp(low, high);
        let there = leader(middle);
        let is_narrow = middle - low < SCALE_PRECISION || high - middle < SCALE_PRECISION;
        let is_between_two = there.0 == left.0 || there.0 == right.0;
        if is_narrow || is_between_two && cross_once {
            masses[left.0] += middle - low;
            masses[right.0] += high - middle;
        } else if is_between_two {
            open.push(((low, left), (middle, (left.0, there.1))));
            open.push(((middle, (right.0, there.1)), (high, right)));
        } else {
            open.push(((low, left), (middle, there)));
            open.push(((middle, there), (high, right)));
        }
    }
    masses.iter().map(|mass| mass / scale_max).collect()
}

/// The scale at which `second` overtakes `first`. The heights are those at which each of them
/// leads.
fn crossing(first: Line, second: Line, heights: (f64, f64)) -> f64 {
    let halve = |(low, high): (f64, f64), _| {
        let middle = f64::midpoint(low, high);
        if first.scale_at(middle) < second.scale_at(middle) {
            (middle, high)
        } else {
            (low, middle)
        }
    };
    let (low, high) = (0..HALVINGS).fold(heights, halve);
    second.scale_at(f64::midpoint(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_shared::alphabet::Alphabet;

    const SCALE_MAX: f64 = 1.5;

    fn arms(counts: &[(f64, f64)]) -> Vec<Evidence> {
        counts.iter().map(|(ones, zeros)| Evidence::new(*ones, *zeros)).collect()
    }

    /// The arm with the largest index, by the definition.
    fn leader_at(arms: &[Evidence], scale: f64) -> usize {
        let time = 1.0 + arms.iter().map(|arm| arm.selections()).sum::<f64>();
        let index = |arm: &Evidence| {
            let mine = arm.selections();
            let rivalry: f64 =
                arms.iter().map(|other| mine.min((mine * other.selections()).sqrt())).sum();
            let room = scale * (time / rivalry).ln().max(0.0) / mine;
            let mean = arm.mean().unwrap();
            // The law on 1 and a lower number, of which 1 becomes more likely.
            let low = |variance: f64| mean - variance / (1.0 - mean);
            let low = arm.empirical_variance().map_or(0.0, low);
            low + (1.0 - low) * upper((mean - low) / (1.0 - low), room)
        };
        let indices: Vec<f64> = arms.iter().map(index).collect();
        let most = indices.iter().copied().fold(0.0_f64, f64::max);
        indices.iter().position(|index| *index >= most).unwrap()
    }

    /// The shares by the midpoint rule over the scale.
    fn by_counting(arms: &[Evidence], points: u32) -> Vec<f64> {
        let mut counts = vec![0.0; arms.len()];
        for point in 0..points {
            let scale = SCALE_MAX * (f64::from(point) + 0.5) / f64::from(points);
            counts[leader_at(arms, scale)] += 1.0 / f64::from(points);
        }
        counts
    }

    #[test]
    fn shares_agree_with_counting_scales() {
        for counts in [
            vec![(30.0, 10.0), (12.0, 9.0), (3.0, 3.0), (1.0, 0.0), (0.0, 2.0)],
            vec![(700.0, 300.0), (60.0, 40.0), (65.0, 46.0), (20.0, 9.0)],
            vec![(5e8, 5e8), (4e4, 4.1e4), (2e4, 2.03e4), (900.0, 1000.0)],
        ] {
            let arms = arms(&counts);
            for (exact, counted) in shares(&arms, SCALE_MAX).iter().zip(by_counting(&arms, 100_000))
            {
                assert!((exact - counted).abs() < 3e-5, "{counts:?}: {exact} {counted}");
            }
        }
    }

    #[test]
    fn so_do_those_of_levels() {
        // Arms of three levels. One of them has no variance; two have equal means.
        let alphabet = three();
        let counts = [[40.0, 300.0, 60.0], [0.0, 90.0, 0.0], [20.0, 5.0, 25.0], [1.0, 8.0, 3.0]];
        let of = |counts: &[f64; 3]| Evidence::of_counts(&counts.iter().copied(), alphabet);
        let arms: Vec<Evidence> = counts.iter().map(of).chain([of(&[9.0, 2.0, 9.0])]).collect();
        for (exact, counted) in shares(&arms, SCALE_MAX).iter().zip(by_counting(&arms, 100_000)) {
            assert!((exact - counted).abs() < 3e-5, "{exact} {counted}");
        }
    }

    #[test]
    fn indices_of_levels_that_cross_twice_are_followed() {
        // The second arm leads in the middle of the scales only: its reports vary more, and there
        // are more of them.
        let of = |counts: [f64; 3]| Evidence::of_counts(&counts.into_iter(), three());
        let arms = [of([0.0, 11.0, 0.0]), of([22.0, 0.0, 17.0]), of([1e5, 0.0, 0.0])];
        let leaders: Vec<usize> =
            (1..=150).map(|part| leader_at(&arms, 0.01 * f64::from(part))).collect();
        assert!(leaders[0] == 0 && leaders.contains(&1) && leaders[149] == 0, "{leaders:?}");
        for (exact, counted) in shares(&arms, SCALE_MAX).iter().zip(by_counting(&arms, 100_000)) {
            assert!((exact - counted).abs() < 3e-5, "{exact} {counted}");
        }
    }

    fn three() -> Alphabet {
        Alphabet::new(3).unwrap()
    }

    #[test]
    fn first_levels_that_agree_lock_no_arm_out() {
        // Five reports of the lowest level, by chance: as open as five bits of 0, and far from
        // certain beside a hundred thousand reports in the middle.
        let many = Evidence::of_counts(&[0.0, 1e5, 0.0].into_iter(), three());
        let few = Evidence::of_counts(&[5.0, 0.0, 0.0].into_iter(), three());
        let of_levels = shares(&[many, few], SCALE_MAX);
        let of_bits = shares(&[Evidence::new(5e4, 5e4), Evidence::new(0.0, 5.0)], SCALE_MAX);
        assert!(of_levels[1] > 0.5, "{of_levels:?}");
        assert!((of_levels[1] - of_bits[1]).abs() < 0.01, "{of_levels:?} {of_bits:?}");
    }

    #[test]
    fn arms_that_nobody_was_sent_to_come_first() {
        let mut known = arms(&[(5.0, 4.0), (0.0, 0.0), (0.0, 0.0)]);
        assert_eq!(shares(&known, SCALE_MAX), [0.0, 0.5, 0.5]);
        known[1] = known[1].with_pending(1.0);
        assert_eq!(shares(&known, SCALE_MAX), [0.0, 0.0, 1.0]);
        // All arms have selections, one has a report: the others are waited for.
        known[2] = known[2].with_pending(3.0);
        assert_eq!(shares(&known, SCALE_MAX), [1.0, 0.0, 0.0]);
        let silent = [2.0, 1.0, 1.0].map(|n| Evidence::default().with_pending(n));
        assert_eq!(shares(&silent, SCALE_MAX), [0.0, 0.5, 0.5]);
    }

    #[test]
    fn a_policy_for_many_selections_spreads_them() {
        // The second arm has little evidence: it leads at most scales, but not for a thousand
        // selections.
        let arms = arms(&[(620.0, 380.0), (1.0, 4.0)]);
        let now = shares_ahead(arms.clone(), SCALE_MAX, 1.0);
        let long = shares_ahead(arms, SCALE_MAX, 1000.0);
        assert!(now[1] > 0.6 && long[1] < 0.1, "{now:?} {long:?}");
        assert!((long[0] + long[1] - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_lucky_arm_gets_what_the_rule_would_give_it_of_a_million_selections_too() {
        // The second arm leads at a part of the scales. The rule, a hundred selections at a time:
        let mut known = arms(&[(6e7, 4e7), (5_780.0, 4_220.0)]);
        let before = known.clone();
        for _ in 0..10_000 {
            let shares = shares(&known, SCALE_MAX);
            for (arm, share) in known.iter_mut().zip(shares) {
                *arm = arm.with_pending(arm.pending() + 100.0 * share);
            }
        }
        let expected = known[1].pending();
        let given = 1e6 * shares_ahead(before, SCALE_MAX, 1e6)[1];
        assert!(expected > 1000.0 && (given / expected - 1.0).abs() < 0.1, "{given} {expected}");
    }

    #[test]
    fn equal_arms_share() {
        assert_eq!(shares(&arms(&[(3.0, 2.0); 4]), SCALE_MAX), [0.25; 4]);
        assert_eq!(shares(&arms(&[(1e9, 1e9); 1]), SCALE_MAX), [1.0]);
        // All reports are ones: both indices are 1, the maximum.
        assert_eq!(
            shares(&arms(&[(3.0, 0.0), (9.0, 1.0), (1.0, 0.0)]), SCALE_MAX),
            [0.5, 0.0, 0.5]
        );
    }
}
