//! Contrasts of two arms over blocks of users: intervals that hold at all times at once.
//!
//! Within a block, arms were drawn alike. The product of the martingales of all blocks is a martingale at
//! the true means, so all means at which it is below 1/α contain the true ones at all times. A contrast
//! has the interval of its values there: an extreme of a linear function on a convex set, which
//! Lagrange's multiplier finds, one block at a time.

use super::atoms::Mixture;
use super::count::Count;
use crate::interval::Interval;

/// The reports on two arms in a block of users.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    /// The share of the block's users among those of all blocks.
    pub(super) share: f64,
    /// The reports on the arm, and on the one that it is compared with; none on the latter, where an
    /// arm stands alone.
    pub(super) arms: (Count, Count),
}

/// A weighted sum of the means of two arms over blocks.
#[derive(Debug)]
pub(super) struct Contrast {
    blocks: Vec<(f64, Mixture)>,
    /// The variance of the estimate for each of the two arms, about.
    variances: (f64, f64),
    /// The estimates of the two means.
    means: (f64, f64),
    needed: f64,
}

/// The extreme of a contrast, and the means of both arms there.
#[derive(Clone, Copy, Debug)]
struct Extreme {
    value: f64,
    means: (f64, f64),
}

/// The evidence at the least favourable means for a multiplier, and the contrast there.
struct Point {
    evidence: f64,
    extreme: Extreme,
}

impl Contrast {
    /// The contrasts that are not rejected by this much evidence, as a logarithm.
    pub(super) fn new(blocks: &[Block], needed: f64) -> Self {
        let variance = |of: fn(&Block) -> Count| {
            let of_block = |block: &Block| {
                let count = of(block);
                block.share * block.share * count.variance() / count.reports.max(1.0)
            };
            blocks.iter().map(of_block).sum()
        };
        let mixture = |Block { share, arms: (a, b) }: &Block| {
            let mixture =
                if b.reports > 0.0 { Mixture::of_pair(*a, *b) } else { Mixture::of_arm(*a) };
            (*share, mixture)
        };
        let variances = (variance(|block| block.arms.0), variance(|block| block.arms.1));
        let mean = |of: fn(&Block) -> Count| {
            blocks.iter().map(|block| block.share * of(block).mean()).sum()
        };
        let means = (mean(|block| block.arms.0), mean(|block| block.arms.1));
        Self { blocks: blocks.iter().map(mixture).collect(), variances, means, needed }
    }

    /// The interval for `weights.0` times the mean of the first arm less `weights.1` times that of the
    /// second.
    pub(super) fn interval(&self, weights: (f64, f64)) -> Interval {
        let (low, high) = (self.extreme(weights, -1.0), self.extreme(weights, 1.0));
        Interval::between(low.value, high.value)
    }

    /// The lower end of the interval for the difference of the two means.
    pub(super) fn least_difference(&self) -> f64 {
        self.extreme((1.0, 1.0), -1.0).value
    }

    /// The interval for the ratio of the two means, each less its zero; `None` unless the second one
    /// is above that for certain.
    pub(super) fn ratio(&self, (zero, zero_of_second): (f64, f64)) -> Option<Interval> {
        let least = -self.extreme((0.0, 1.0), 1.0).value;
        // Nearer to it, the ratio has no bound that says anything.
        (least > zero_of_second + 1e-9).then_some(())?;
        let end = |sign: f64| {
            // Dinkelbach: the ratio is extreme where the contrast with it as a weight is.
            let mut ratio = (self.means.0 - zero) / (self.means.1 - zero_of_second).max(1e-9);
            for _ in 0..RATIO_STEPS_MAX {
                let (x, y) = self.extreme((1.0, ratio), sign).means;
                let next = (x - zero) / (y - zero_of_second);
                let is_near = (next - ratio).abs() <= 1e-5 * (1.0 + ratio.abs());
                ratio = next;
                if is_near {
                    break;
                }
            }
            ratio
        };
        Some(Interval::between(end(-1.0), end(1.0)))
    }

    /// The extreme in the direction of `sign`, rounded outwards.
    fn extreme(&self, weights: (f64, f64), sign: f64) -> Extreme {
        let mut starts = vec![None; self.blocks.len()];
        let mut at = |multiplier: f64| self.at(weights, sign * multiplier, &mut starts);
        let centre = at(0.0);
        let lacking = (self.needed - centre.evidence).max(0.0);
        let (of_a, of_b) = self.variances;
        let variance = weights.0 * weights.0 * of_a + weights.1 * weights.1 * of_b;
        let (mut low, mut below) = (0.0, -lacking);
        let mut high = libm::sqrt(2.0 * lacking / variance.max(1e-30));
        let mut outside = at(high);
        let mut doublings = 0;
        while outside.evidence < self.needed && doublings < DOUBLINGS_MAX {
            (low, below) = (high, outside.evidence - self.needed);
            high *= 2.0;
            outside = at(high);
            doublings += 1;
        }
        if outside.evidence < self.needed {
            // All values are inside.
            return outside.extreme;
        }
        let mut above = outside.evidence - self.needed;
        // Regula falsi with halved weights (Illinois).
        for _ in 0..ROOT_STEPS_MAX {
            if outside.evidence - self.needed < PRECISION || high - low <= 1e-7 * high {
                break;
            }
            let middle = ((low * above - high * below) / (above - below)).clamp(low, high);
            let point = at(middle);
            let excess = point.evidence - self.needed;
            if excess < 0.0 {
                (low, below, above) = (middle, excess, above / 2.0);
            } else {
                (high, above, below, outside) = (middle, excess, below / 2.0, point);
            }
        }
        outside.extreme
    }

    fn at(&self, weights: (f64, f64), multiplier: f64, starts: &mut [Option<(f64, f64)>]) -> Point {
        let mut point = Point { evidence: 0.0, extreme: Extreme { value: 0.0, means: (0.0, 0.0) } };
        for ((share, mixture), start) in self.blocks.iter().zip(starts) {
            let tilt = (multiplier * share * weights.0, -multiplier * share * weights.1);
            let ((x, y), evidence) = mixture.smallest(tilt, *start);
            *start = Some((x, y));
            point.evidence += evidence;
            let means = &mut point.extreme.means;
            *means = (means.0 + share * x, means.1 + share * y);
        }
        let (x, y) = point.extreme.means;
        point.extreme.value = weights.0 * x - weights.1 * y;
        point
    }
}

/// By how much the evidence may exceed what is needed: a hundred-thousandth of the width.
const PRECISION: f64 = 1e-4;

/// Most steps of each search.
const DOUBLINGS_MAX: usize = 60;
const ROOT_STEPS_MAX: usize = 60;
const RATIO_STEPS_MAX: usize = 30;
