//! The probabilities of arms to be best, given that a certain leader is not.
//!
//! The probability that arm a is best is the integral of f_a times G times all other F_j, with f_a
//! its posterior density, G the leader's distribution function and F_j those of the other
//! challengers. A leader that is far ahead leaves G and f_a in their tails, where the pass of
//! [`ldp_ts`](super::ldp_ts) has no digits left. Here f_a G is computed by its logarithm: f_a
//! relative to the point where it meets G, and G at every point by an integral of its own, relative
//! to the density there. The distribution functions of the others are 1 in their tails, so sums
//! from the right are precise enough for them, as there.
//!
//! Near its maximum, `-ln(f_a G)` is what it costs to move both arms to a common mean, N_a kl + N_L
//! kl: the transportation cost, which alone decides between challengers in the end. Its rounding
//! error is all that grows with the distance: at a depth of D nats, shares err by about `1e-15 D`,
//! besides an error that is below `1e-6` at any depth.

use super::input::Evidence;
use super::posterior::{Jet, Posterior};

/// Width of a panel, in scales of the narrowest function on it.
const PANEL_SCALES: f64 = 0.25;

/// Depth in nats below which a challenger's part in the integral counts as 0.
const DEPTH: f64 = 34.0;

/// Newton steps towards the end of a challenger's range; see [`Posterior::bounds`].
const NEWTON_STEPS: usize = 14;

/// The share of each arm; the leader's is 0, and they sum to 1. There are at least two arms.
pub(super) fn shares(arms: &[Evidence], leader: usize) -> Vec<f64> {
    let ahead = Leader::of(arms[leader]);
    let others = arms.iter().enumerate().filter(|(arm, _)| *arm != leader);
    let mut race: Vec<Challenger> =
        others.map(|(arm, evidence)| Challenger::new(arm, *evidence, &ahead)).collect();
    let largest = race.iter().map(|one| one.meeting.log_mass()).fold(f64::NEG_INFINITY, f64::max);
    for one in &mut race {
        let depth_max = DEPTH - (largest - one.meeting.log_mass());
        one.range = (depth_max > 0.0).then(|| one.meeting.range(&ahead, depth_max));
    }
    run(&mut race, &ahead, largest);
    let mut masses = vec![0.0; arms.len()];
    for one in &race {
        // Rounding can leave a mass just below 0.
        masses[one.arm] = one.mass.max(0.0);
    }
    let total: f64 = masses.iter().sum();
    if total.is_finite() && total > 0.0 {
        return masses.into_iter().map(|mass| mass / total).collect();
    }
    // The rough masses.
    for one in &race {
        masses[one.arm] = libm::exp(one.meeting.log_mass() - largest);
    }
    let total: f64 = masses.iter().sum();
    masses.into_iter().map(|mass| mass / total).collect()
}

/// The arm that is not to be best.
struct Leader {
    posterior: Posterior,
    /// Both ends of the density's support.
    bounds: (f64, f64),
    ones: f64,
    zeros: f64,
}

impl Leader {
    fn of(evidence: Evidence) -> Self {
        let posterior = Posterior::of(evidence);
        let (ones, zeros) = (1.0 + evidence.ones(), 1.0 + evidence.zeros());
        Self { posterior, bounds: posterior.bounds(), ones, zeros }
    }

    fn is_above(&self, y: f64) -> bool {
        y < self.posterior.centre()
    }

    /// `ln G` at `y`, with derivatives; below the peak without the logarithm of the density.
    fn log_distribution(&self, y: f64) -> Jet {
        let here = self.posterior.seen_from(y);
        let falls = here.falls(y);
        if self.is_above(y) {
            // The hazard is the slope plus the bend, so what would be their difference is exact.
            let (ratio, bend) = tail(&here, -1.0);
            let second = falls.second - bend / ratio;
            return Jet { value: libm::log(ratio), first: bend, second };
        }
        let density = self.posterior.density(y).value;
        let below = 1.0 - density * tail(&here, 1.0).0;
        let hazard = density / below;
        Jet { value: libm::log(below), first: hazard, second: -hazard * (falls.first + hazard) }
    }

    /// The left end of the widest panel that resolves G where it rises.
    fn panel_end(&self, right: f64) -> f64 {
        let (low, high) = self.bounds;
        if right <= low {
            return f64::NEG_INFINITY;
        }
        starting_at(high, PANEL_SCALES * self.posterior.scale(), right).max(low)
    }
}

/// Abscissae and weights of Gauss-Legendre quadrature with 8 nodes, for the right half.
const NODES: [(f64, f64); 4] = [
    (0.183_434_642_495_649_8, 0.362_683_783_378_362),
    (0.525_532_409_916_329, 0.313_706_645_877_887_3),
    (0.796_666_477_413_626_7, 0.222_381_034_453_374_5),
    (0.960_289_856_497_536_3, 0.101_228_536_290_376_3),
];

/// Ends of the panels of [`tail`], in local length scales.
const TAIL_ENDS: [f64; 8] = [0.0, 0.75, 1.5, 3.0, 6.0, 12.0, 24.0, 45.0];

/// The integral of the density beyond the point that it is seen from, in this direction, which
/// leads down, over the density there; and the mean growth of the slope, under the density beyond.
fn tail(here: &Posterior, direction: f64) -> (f64, f64) {
    let at = here.falls_beyond(0.0);
    let scale = 1.0 / libm::sqrt(at.first * at.first + at.second);
    let (mut mass, mut growth) = (0.0, 0.0);
    for ends in TAIL_ENDS.windows(2) {
        let (middle, half) = (f64::midpoint(ends[0], ends[1]), (ends[1] - ends[0]) / 2.0);
        let before = mass;
        for (node, weight) in NODES {
            for node in [-node, node] {
                let depth = here.falls_beyond(direction * scale * (middle + half * node));
                let part = half * weight * libm::exp(at.value - depth.value);
                mass += part;
                growth += part * (depth.first - at.first).abs();
            }
        }
        if mass - before < 1e-15 * mass {
            break;
        }
    }
    (scale * mass, growth / mass)
}

/// An arm in the pass from right to left, at the left end of the last panel.
struct Challenger {
    arm: usize,
    posterior: Posterior,
    /// Both ends of the density's support; beyond them it counts as 0 in the distribution function.
    bounds: (f64, f64),
    meeting: Meeting,
    /// Where the density times G counts; `None` if nowhere.
    range: Option<(f64, f64)>,
    density: Jet,
    /// Integral of the density from here to the right.
    survival: f64,
    /// Product of the distribution functions of the challengers before this one.
    before: Jet,
    /// Density times G times the distribution functions of the other challengers, scaled.
    integrand: Jet,
    /// Integral of the integrand from here to the right.
    mass: f64,
}

/// The point where a challenger's density times G is largest, up to slowly varying terms.
struct Meeting {
    at: f64,
    /// The challenger's density as seen from there.
    own: Posterior,
    /// The leader's density as seen from there, or from its peak if that is below.
    leader: Posterior,
    /// Depth of the leader's density at that point.
    leader_depth: f64,
    /// Logarithms of both densities at these points.
    log_densities: (f64, f64),
    curvature: f64,
}

impl Meeting {
    fn of(evidence: Evidence, own: Posterior, ahead: &Leader) -> Self {
        let leader = ahead.posterior;
        let is_behind = ahead.is_above(own.centre());
        // A challenger behind the leader meets it at their common mean.
        let (ones, zeros) = (1.0 + evidence.ones(), 1.0 + evidence.zeros());
        let pooled = libm::log((ahead.ones + ones) / (ahead.zeros + zeros));
        let at = if is_behind { pooled.min(leader.centre()) } else { own.centre() };
        let leader_depth = if is_behind { leader.fall(at) } else { 0.0 };
        let from = if is_behind { at } else { leader.centre() };
        let bend = if is_behind { leader.falls(at).second } else { 0.0 };
        Self {
            at,
            own: own.seen_from(at),
            leader: leader.seen_from(from),
            leader_depth,
            log_densities: (own.log_peak() - own.fall(at), leader.log_peak() - leader_depth),
            curvature: own.falls(at).second + bend,
        }
    }

    /// Logarithm of the integral of the density times G, roughly.
    fn log_mass(&self) -> f64 {
        self.log_densities.0 - self.leader_depth - 0.5 * libm::log(self.curvature)
    }

    /// Depth of the density times G below its value at the meeting, roughly, and its slope.
    fn depth(&self, y: f64, ahead: &Leader) -> (f64, f64) {
        let own = self.own.falls(y);
        if ahead.is_above(y) {
            let leader = self.leader.falls(y);
            return (own.value + leader.value, own.first + leader.first);
        }
        (own.value - self.leader_depth, own.first)
    }

    /// Where that depth is at most `depth_max`, by Newton's method: the depth is convex, so the
    /// first step overshoots and the others don't cross.
    fn range(&self, ahead: &Leader, depth_max: f64) -> (f64, f64) {
        let end = |direction: f64| {
            let mut y = self.at + direction * libm::sqrt(2.0 * depth_max / self.curvature);
            for _ in 0..NEWTON_STEPS {
                let (value, slope) = self.depth(y, ahead);
                let next = y - (value - depth_max) / slope;
                // Depths so large that they have no digits after the point give no direction.
                if !next.is_finite() || (next - self.at) * direction <= 0.0 {
                    break;
                }
                y = next;
            }
            y
        };
        (end(-1.0), end(1.0))
    }
}

impl Challenger {
    fn new(arm: usize, evidence: Evidence, ahead: &Leader) -> Self {
        let posterior = Posterior::of(evidence);
        Self {
            arm,
            posterior,
            bounds: posterior.bounds(),
            meeting: Meeting::of(evidence, posterior, ahead),
            range: None,
            density: Jet::ZERO,
            survival: 0.0,
            before: Jet::ONE,
            integrand: Jet::ZERO,
            mass: 0.0,
        }
    }

    /// The distribution function at the left end, with derivatives.
    fn distribution(&self) -> Jet {
        Jet { value: 1.0 - self.survival, first: self.density.value, second: self.density.first }
    }

    /// Logarithm of the density times G at `y`. `corrected` is [`Leader::log_distribution`].
    fn log_product(&self, y: f64, corrected: Jet, ahead: &Leader) -> Jet {
        let Meeting { own, leader, log_densities, .. } = &self.meeting;
        let depth = own.falls(y);
        let mut log = Jet {
            value: log_densities.0 - depth.value + corrected.value,
            first: corrected.first - depth.first,
            second: corrected.second - depth.second,
        };
        if ahead.is_above(y) {
            let depth = leader.falls(y);
            log.value += log_densities.1 - depth.value;
            log.first -= depth.first;
            log.second -= depth.second;
        }
        log
    }

    /// The left end of the widest panel that resolves this challenger. The curvature of `-ln G` is
    /// at most `bend`, but where the leader's own panels resolve it.
    fn panel_end(&self, right: f64, bend: f64) -> f64 {
        let counted = starting_at(self.bounds.1, PANEL_SCALES * self.posterior.scale(), right);
        let Some((low, high)) = self.range else { return counted };
        if right <= low {
            return counted;
        }
        let own = &self.meeting.own;
        let steepest = own.falls(right.min(high)).second.max(own.falls(self.meeting.at).second);
        let width = PANEL_SCALES / libm::sqrt(bend + steepest);
        counted.max(starting_at(high, width, right)).max(low)
    }
}

/// The left end of a panel of at most this width, for a function that starts at `highest`: exactly
/// there, if it starts far ahead. Even a negligible tail is steep on the scale of a wider panel.
fn starting_at(highest: f64, width: f64, right: f64) -> f64 {
    if right - highest > width { highest } else { right.min(highest) - width }
}

/// Integrates from right to left. All are scaled by the exponential of `-largest`.
fn run(race: &mut Vec<Challenger>, ahead: &Leader, largest: f64) {
    let lows = race.iter().filter_map(|one| one.range.map(|(low, _)| low));
    let least = lows.fold(f64::INFINITY, f64::min);
    // The largest mean of the challengers exceeds the low end of every one.
    let lowest = race.iter().fold(least, |most, one| most.max(one.bounds.0));
    race.retain(|one| one.range.is_some() || one.bounds.1 > lowest);
    let high =
        |one: &Challenger| one.range.map_or(one.bounds.1, |(_, high)| high.max(one.bounds.1));
    let mut right = race.iter().map(high).fold(lowest, f64::max);
    while right > lowest {
        let bend = if ahead.is_above(right) { ahead.posterior.falls(right).second } else { 0.0 };
        let ends = race.iter().map(|one| one.panel_end(right, bend));
        let left = ends.fold(ahead.panel_end(right), f64::max).max(lowest);
        step(race, (left, right - left), ahead, largest);
        right = left;
    }
}

/// Moves all challengers to `left`, across a panel of the given width.
fn step(race: &mut [Challenger], (left, width): (f64, f64), ahead: &Leader, largest: f64) {
    let mut before = Jet::ONE;
    for one in race.iter_mut() {
        if left < one.bounds.1 {
            let density = one.posterior.density(left);
            one.survival += Jet::integral(density, one.density, width);
            one.density = density;
        }
        one.before = before;
        before = before.times(one.distribution());
    }
    let corrected = ahead.log_distribution(left);
    let corrected = Jet { value: corrected.value - largest, ..corrected };
    let mut after = Jet::ONE;
    for one in race.iter_mut().rev() {
        let (low, high) = one.range.unwrap_or((f64::INFINITY, f64::INFINITY));
        if (low..high).contains(&left) {
            let product = one.log_product(left, corrected, ahead).exp();
            let integrand = product.times(one.before.times(after));
            one.mass += Jet::integral(integrand, one.integrand, width);
            // A panel ends exactly at the low end.
            one.integrand = if left > low { integrand } else { Jet::ZERO };
        }
        after = after.times(one.distribution());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares given that the first arm is not the best.
    fn behind_the_first(counts: &[(f64, f64)]) -> Vec<f64> {
        let arms: Vec<Evidence> =
            counts.iter().map(|(ones, zeros)| Evidence::new(*ones, *zeros)).collect();
        shares(&arms, 0)
    }

    #[test]
    fn shares_agree_with_quadrature_of_forty_digits() {
        // By mpmath, in steps of a quarter of the narrowest scale, for the products of densities
        // and incomplete beta functions themselves.
        // In turn: rivals that differ by factors of 10^4, 10^30 against one at equal distances from
        // three sides, and a wide leader over narrow rivals, of which two are alike.
        for (counts, expected) in [
            (
                [(300.0, 100.0), (200.0, 200.0), (50.0, 60.0), (190.0, 205.0)],
                [2.355_81e-5, 0.999_975_956_64, 4.852_5e-7],
            ),
            (
                [(3000.0, 1000.0), (1147.0, 764.0), (272.0, 271.0), (106.0, 159.0)],
                [0.266_192_957_45, 0.407_370_025_09, 0.326_437_017_46],
            ),
            (
                [(40.0, 0.0), (500.0, 500.0), (500.0, 500.0), (485.0, 515.0)],
                [0.461_805_758_74, 0.461_805_758_74, 0.076_388_482_51],
            ),
        ] {
            for (share, expected) in behind_the_first(&counts)[1..].iter().zip(expected) {
                assert!((share - expected).abs() < 1e-7, "{counts:?}: {share} {expected}");
            }
        }
    }

    #[test]
    fn the_integral_of_a_tail_is_that_of_a_power_law() {
        // Beta(a, 1) has the distribution function x^a, and in log-odds the density a (1 - x) x^a.
        for (ones, y) in [(0.0, -30.0), (5.0, -2.0), (1e6, 1.0), (1e12, 3.0)] {
            let here = Posterior::of(Evidence::new(ones, 0.0)).seen_from(y);
            let (ratio, bend) = tail(&here, -1.0);
            let x = 1.0 / (1.0 + libm::exp(-y));
            let expected = 1.0 / ((1.0 + ones) * (1.0 - x));
            assert!((ratio / expected - 1.0).abs() < 1e-9, "{ones} {y}: {ratio} {expected}");
            let slope = -here.falls(y).first;
            assert!((1.0 / ratio - slope - bend).abs() < 1e-9 / ratio, "{ones} {y}: {bend}");
        }
    }
}
