//! The posterior of a private mean, written in log-odds.
//!
//! If x has the law Beta(a, b), y = ln(x/(1-x)) has the density `x^a (1-x)^b / B(a, b)`: smooth and
//! log-concave on the whole line. It has neither the corners of the density of x at 0 and 1 nor the
//! loss of digits of x near 1. Both scales order the arms in the same way.

use std::f64::consts::TAU;

use super::input::Evidence;

/// Depth below its peak, in nats, at which a density counts as 0. Both tails of a log-concave
/// density beyond that depth hold less than `1e-11`.
const DEPTH: f64 = 28.0;

/// Newton steps towards [`DEPTH`]. The first one overshoots, because the density is log-concave,
/// and the others return without crossing. So any number of steps is safe, and more are tighter.
const NEWTON_STEPS: usize = 12;

/// Smallest argument at which Stirling's series with four terms errs by less than `1e-14`.
const STIRLING_MIN: f64 = 16.0;

/// A value with its first and second derivative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jet {
    pub(super) value: f64,
    pub(super) first: f64,
    pub(super) second: f64,
}

impl Jet {
    pub(super) const ZERO: Self = Self { value: 0.0, first: 0.0, second: 0.0 };

    pub(super) const ONE: Self = Self { value: 1.0, ..Self::ZERO };

    /// The jet of the product.
    pub(super) fn times(self, other: Self) -> Self {
        Self {
            value: self.value * other.value,
            first: self.first * other.value + self.value * other.first,
            second: self.second * other.value
                + 2.0 * self.first * other.first
                + self.value * other.second,
        }
    }

    /// The jet of the exponential function of this one.
    pub(super) fn exp(self) -> Self {
        let value = libm::exp(self.value);
        Self {
            value,
            first: value * self.first,
            second: value * (self.second + self.first * self.first),
        }
    }

    /// The integral of a function over an interval of the given width, from its
    /// jets at both ends: exact for polynomials of degree 5, the integral of the
    /// quintic Hermite interpolant.
    pub(super) fn integral(left: Self, right: Self, width: f64) -> f64 {
        let curvatures = (left.second + right.second) * (width / 12.0);
        let slopes = left.first - right.first + curvatures;
        width * (f64::midpoint(left.value, right.value) + slopes * (width / 10.0))
    }
}

/// Width of a panel of the integrals in this module, in units of the density's scale.
const PANEL_SCALES: f64 = 0.25;

/// The density of the log-odds of a Beta(a, b) variable, a and b at least 1, or its truncation to
/// an interval of log-odds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Posterior {
    /// The smaller of a and b. If that is b, the density is mirrored.
    minor: f64,
    /// a + b.
    sum: f64,
    /// 1, or -1 for a mirrored density.
    sign: f64,
    /// Position of the peak: ln(a/b), unless that is cut off.
    centre: f64,
    /// x at the centre; 1 - x for a mirrored density.
    share: f64,
    /// Slope of the fall at the centre, in nats: 0 unless the peak of the whole density is cut off.
    tilt: f64,
    /// The density at the centre.
    peak: f64,
    /// The length scale of the density: the standard deviation of the normal law with the same
    /// peak, or the mean of the exponential law if that is shorter.
    scale: f64,
    /// The interval of log-odds that supports the density.
    window: (f64, f64),
}

impl Posterior {
    /// The posterior under the uniform prior: Beta(1 + ones, 1 + zeros).
    pub(super) fn of(arm: Evidence) -> Self {
        let a = 1.0 + arm.ones();
        let b = 1.0 + arm.zeros();
        let sum = a + b;
        let scale = libm::sqrt(1.0 / a + 1.0 / b);
        // a^a b^b / (sum^sum B(a, b)), each factorial by Stirling's formula with its remainder. The
        // powers cancel analytically, which they would not do in f64.
        let remainders = stirling_remainder(sum) - stirling_remainder(a) - stirling_remainder(b);
        Self {
            minor: a.min(b),
            sum,
            sign: if a <= b { 1.0 } else { -1.0 },
            centre: libm::log(a / b),
            share: a.min(b) / sum,
            tilt: 0.0,
            peak: libm::exp(remainders) / (scale * libm::sqrt(TAU)),
            scale,
            window: (f64::NEG_INFINITY, f64::INFINITY),
        }
    }

    /// The density truncated to `low`..`high`, both less than 40 from 0, and renormalised.
    ///
    /// Where the peak is cut off, the density is written relative to its value at the nearer end,
    /// so no precision is lost however little mass remains.
    pub(super) fn within(self, low: f64, high: f64) -> Self {
        let centre = self.centre.clamp(low, high);
        let mut cut = Self { peak: 1.0, window: (low, high), ..self };
        if !(low..=high).contains(&self.centre) {
            cut.centre = centre;
            cut.share = 1.0 / (1.0 + libm::exp(-self.sign * centre));
            cut.tilt = self.sum * cut.share - self.minor;
            let curvature = self.sum * cut.share * (1.0 - cut.share);
            cut.scale = 1.0 / libm::sqrt(curvature + cut.tilt * cut.tilt);
        }
        let (low, high) = cut.bounds();
        let mut mass = 0.0;
        let mut right = (high, cut.density(high));
        while right.0 > low {
            let left = (right.0 - PANEL_SCALES * cut.scale).max(low);
            let density = cut.density(left);
            mass += Jet::integral(density, right.1, right.0 - left);
            right = (left, density);
        }
        Self { peak: 1.0 / mass, ..cut }
    }

    /// The whole density, written relative to its value at the log-odds `y`: near there its falls
    /// keep their digits, however deep in a tail that is.
    pub(super) fn seen_from(self, y: f64) -> Self {
        let share = 1.0 / (1.0 + libm::exp(-self.sign * y));
        let tilt = self.sum * share - self.minor;
        Self { centre: y, share, tilt, peak: 1.0, ..self }
    }

    /// The length scale of the density.
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// Position of the peak.
    pub(super) fn centre(&self) -> f64 {
        self.centre
    }

    /// Slope of the fall at the peak, in nats: nonzero where the whole density's peak is cut off.
    pub(super) fn slope(&self) -> f64 {
        self.tilt.abs()
    }

    /// Depth of the density at the log-odds `y` below its peak, in nats.
    pub(super) fn fall(&self, y: f64) -> f64 {
        self.depth(self.sign * (y - self.centre)).value
    }

    /// [`Self::fall`] with its derivatives.
    pub(super) fn falls(&self, y: f64) -> Jet {
        self.falls_beyond(y - self.centre)
    }

    /// [`Self::falls`] at this distance from the centre, which keeps the digits of small distances.
    pub(super) fn falls_beyond(&self, distance: f64) -> Jet {
        let depth = self.depth(self.sign * distance);
        Jet { first: self.sign * depth.first, ..depth }
    }

    /// The logarithm of the density at its centre.
    pub(super) fn log_peak(&self) -> f64 {
        libm::log(self.peak)
    }

    /// The interval of log-odds within [`DEPTH`] of the peak.
    pub(super) fn bounds(&self) -> (f64, f64) {
        // An offset at which a density of this scale would have fallen by DEPTH.
        let far = self.scale * if self.tilt == 0.0 { libm::sqrt(2.0 * DEPTH) } else { DEPTH };
        // Offsets are in the orientation of the mirrored density.
        let end = |direction: f64| {
            let offset = direction * self.sign * far;
            let limit = if direction < 0.0 { self.window.0 } else { self.window.1 };
            if (self.centre - limit) * direction >= 0.0 {
                return limit;
            }
            let bound = self.centre + self.sign * self.offset(offset);
            if direction < 0.0 { bound.max(limit) } else { bound.min(limit) }
        };
        (end(-1.0), end(1.0))
    }

    /// Whether the density ends at the log-odds `y` with a step.
    pub(super) fn is_cut_at(&self, y: f64) -> bool {
        y >= self.window.1
    }

    /// The density and its derivatives at the log-odds `y`, which must lie in the window.
    pub(super) fn density(&self, y: f64) -> Jet {
        let depth = self.depth(self.sign * (y - self.centre));
        let value = self.peak * libm::exp(-depth.value);
        Jet {
            value,
            first: -self.sign * value * depth.first,
            second: value * (depth.first * depth.first - depth.second),
        }
    }

    /// Depth of the density below its value at the centre, in nats, at an offset in the unmirrored
    /// orientation.
    ///
    /// With s the centre's x: `sum ln(1 + s (e^u - 1)) - minor u`.
    fn depth(&self, offset: f64) -> Jet {
        let growth = libm::expm1(offset);
        let odds = 1.0 + self.share * growth;
        let complement = self.sum * self.share * (1.0 - self.share) / odds;
        Jet {
            value: self.sum * libm::log1p(self.share * growth) - self.minor * offset,
            first: self.tilt + complement * growth,
            second: complement * (1.0 + growth) / odds,
        }
    }

    /// The upper quantile: log-odds exceeded with probability `tail`, which must be above the mass
    /// outside [`Self::bounds`].
    pub(super) fn upper_quantile(&self, tail: f64) -> f64 {
        let (low, mut right) = self.bounds();
        let mut density = self.density(right);
        let mut beyond = 0.0;
        while right > low {
            let left = right - PANEL_SCALES * self.scale;
            let next = self.density(left);
            let mass = Jet::integral(next, density, right - left);
            if beyond + mass >= tail {
                break;
            }
            beyond += mass;
            (right, density) = (left, next);
        }
        // Newton's method within the panel, where the density varies little.
        let mut width = 0.0;
        for _ in 0..8 {
            let there = self.density(right - width);
            let missing = tail - beyond - Jet::integral(there, density, width);
            width = (width + missing / there.value).clamp(0.0, PANEL_SCALES * self.scale);
        }
        right - width
    }

    /// An offset beyond which the density is below [`DEPTH`], on the side of `start`, which is
    /// nonzero.
    fn offset(&self, start: f64) -> f64 {
        let mut offset = start;
        for _ in 0..NEWTON_STEPS {
            let depth = self.depth(offset);
            offset -= (depth.value - DEPTH) / depth.first;
        }
        offset
    }
}

/// `ln Γ(z) - (z - 1/2) ln z + z - ln(2π)/2`, for z of at least 1.
pub(super) fn stirling_remainder(z: f64) -> f64 {
    if z < STIRLING_MIN {
        return libm::lgamma(z) - (z - 0.5) * libm::log(z) + z - 0.5 * libm::log(TAU);
    }
    let w = 1.0 / (z * z);
    (1.0 / 12.0 - w * (1.0 / 360.0 - w * (1.0 / 1260.0 - w / 1680.0))) / z
}

#[cfg(test)]
mod tests {
    use bandana_shared::tally::Tally;

    use super::*;

    fn posterior(reports: u64, ones: u64) -> Posterior {
        Posterior::of(Tally::new(reports, ones).unwrap().into())
    }

    #[test]
    fn densities_agree_with_their_formula() {
        // x^a (1-x)^b / B(a, b), with B(3, 5) = 2! 4! / 7! = 1/105 and
        // B(40, 2) = 1/(40 * 41).
        for (reports, ones, a, b, inverse) in
            [(6, 2, 3, 5, 105.0), (40, 39, 40, 2, 1640.0), (40, 1, 2, 40, 1640.0)]
        {
            let posterior = posterior(reports, ones);
            for x in [0.01_f64, 0.2, 0.5, 0.9, 0.999] {
                let y = (x / (1.0 - x)).ln();
                let expected = inverse * x.powi(a) * (1.0 - x).powi(b);
                let ratio = posterior.density(y).value / expected;
                assert!((ratio - 1.0).abs() < 1e-12, "{a} {b} {x}: {ratio}");
            }
        }
    }

    #[test]
    fn derivatives_agree_with_differences() {
        let step = 1e-4;
        for (reports, ones) in [(0, 0), (6, 2), (30, 27), (200, 0), (200, 200)] {
            let posterior = posterior(reports, ones);
            let (low, high) = posterior.bounds();
            for part in 1..10 {
                let y = low + (high - low) * f64::from(part) / 10.0;
                let at = |y| posterior.density(y);
                let first = (at(y + step).value - at(y - step).value) / (2.0 * step);
                let second = (at(y + step).first - at(y - step).first) / (2.0 * step);
                assert!((at(y).first - first).abs() < 1e-5, "{reports} {ones} {y}");
                assert!((at(y).second - second).abs() < 1e-5, "{reports} {ones} {y}");
            }
        }
    }

    #[test]
    fn densities_are_spent_at_their_bounds() {
        let most = Tally::REPORTS_MAX;
        for (reports, ones) in
            [(0, 0), (1, 1), (9, 4), (50, 0), (most, 0), (most, 1), (most, most), (most, most / 3)]
        {
            let posterior = posterior(reports, ones);
            let (low, high) = posterior.bounds();
            assert!(low < posterior.centre && posterior.centre < high);
            for bound in [low, high] {
                let depth = (posterior.peak / posterior.density(bound).value).ln();
                assert!((DEPTH - 1e-6..DEPTH + 1.0).contains(&depth), "{reports} {ones}: {depth}");
            }
        }
    }

    #[test]
    fn integrals_are_exact_up_to_degree_five() {
        // x^5 from 1 to 3: (3^6 - 1)/6.
        let jet =
            |x: f64| Jet { value: x.powi(5), first: 5.0 * x.powi(4), second: 20.0 * x.powi(3) };
        let integral = Jet::integral(jet(1.0), jet(3.0), 2.0);
        assert!((integral - 728.0 / 6.0).abs() < 1e-12, "{integral}");
    }

    #[test]
    fn products_follow_the_rule_of_leibniz() {
        // (x^2)(x^3) at x = 2.
        let square = Jet { value: 4.0, first: 4.0, second: 2.0 };
        let cube = Jet { value: 8.0, first: 12.0, second: 12.0 };
        let product = square.times(cube);
        assert_eq!((product.value, product.first, product.second), (32.0, 80.0, 160.0));
    }

    #[test]
    fn both_forms_of_the_remainder_meet() {
        // Γ(16) = 15!, and the series with its next term, 1/(1188 z^9).
        let below = stirling_remainder(16.0_f64.next_down());
        let above = stirling_remainder(16.0);
        assert!((below - above).abs() < 2e-14, "{below} {above}");
        assert!((stirling_remainder(1.0) - (1.0 - 0.918_938_533_204_672_7)).abs() < 1e-15);
    }
}
