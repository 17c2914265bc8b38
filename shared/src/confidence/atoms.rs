//! Mixtures of exponential martingales for the means of two arms, and where they are smallest.

use super::count::Count;
use super::grid::near;

/// A pair of log-odds with its weight in a mixture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Atom {
    pub(super) log_odds: (f64, f64),
    pub(super) weight: f64,
}

/// A term of a mixture, as a function of the two means.
#[derive(Clone, Copy, Debug)]
struct Term {
    /// The logarithm of its weight, plus the log-odds times the sums of the reports.
    constant: f64,
    /// `e^l - 1` for each arm.
    factors: (f64, f64),
}

/// The logarithm of a mixture as a function of the means of two arms: convex, as the logarithm of a
/// sum of exponentials of convex functions.
#[derive(Clone, Debug)]
pub(super) struct Mixture {
    reports: (f64, f64),
    terms: Vec<Term>,
    /// The means of the reports, where the search begins.
    means: (f64, f64),
}

/// A value with its first and second derivatives.
#[derive(Clone, Copy, Debug)]
struct Local {
    value: f64,
    gradient: (f64, f64),
    hessian: (f64, f64, f64),
}

/// The share of the weight that fences in the common level of both arms: without it, a level far from
/// all reports, where the largest variance is, would not be excluded.
const FENCE: f64 = 0.1;

/// The ratios of the two arms' log-odds are the powers of 4 with these exponents, for whatever traffic
/// each arm may get.
const RATIOS: std::ops::RangeInclusive<i32> = -6..=6;

/// Means are kept within this distance of 0 and 1.
const EDGE: f64 = 1e-12;

/// The weights of the ratios: half for equal log-odds, which equal traffic needs.
fn ratio_weight(exponent: i32) -> f64 {
    let sides: f64 = RATIOS.filter(|e| *e != 0).map(|e| 1.0 / f64::from(e.abs())).sum();
    if exponent == 0 { 0.5 } else { 0.5 / f64::from(exponent.abs()) / sides }
}

impl Mixture {
    fn new((a, b): (Count, Count), atoms: impl Iterator<Item = Atom>) -> Self {
        let term = |Atom { log_odds: (of_a, of_b), weight }: Atom| Term {
            constant: libm::log(weight) + of_a * a.sum + of_b * b.sum,
            factors: (libm::expm1(of_a), libm::expm1(of_b)),
        };
        let reports = (a.reports, b.reports);
        Self { reports, terms: atoms.map(term).collect(), means: (a.mean(), b.mean()) }
    }

    /// The mixture for one arm; the second mean is of no account.
    pub(super) fn of_arm(arm: Count) -> Self {
        let arm = arm.shrunk(arm.reports);
        let signed = |(log_odds, weight): (f64, f64)| {
            [log_odds, -log_odds].map(|l| Atom { log_odds: (l, 0.0), weight: weight / 2.0 })
        };
        let atoms = near(arm.reports * arm.variance()).flat_map(signed);
        Self::new((arm, Count::default()), atoms)
    }

    /// The mixture for two arms with reports: one over log-odds of opposite signs, in all ratios,
    /// instead of the product of two mixtures, which would pay for each arm. Of the ratios, those
    /// next to that of the traffic matter.
    pub(super) fn of_pair(a: Count, b: Count) -> Self {
        let most = a.reports.max(b.reports);
        let (a, b) = (a.shrunk(most), b.shrunk(most));
        let of_traffic = libm::log2(b.reports / a.reports) / 2.0;
        let ratios = RATIOS.filter(move |exponent| {
            let (first, last) = (f64::from(*RATIOS.start()), f64::from(*RATIOS.end()));
            (f64::from(*exponent) - of_traffic.clamp(first, last)).abs() < 1.6
        });
        let opposed = ratios.flat_map(move |exponent| {
            let (weight, scale) = (ratio_weight(exponent), libm::exp2(f64::from(exponent)));
            let information = a.reports * a.variance() * scale * scale
                + b.reports * b.variance() / (scale * scale);
            near(information).flat_map(move |(log_odds, share)| {
                let pair = (log_odds * scale, -log_odds / scale);
                let weight = (1.0 - FENCE) * weight * share / 2.0;
                [pair, (-pair.0, -pair.1)].map(|log_odds| Atom { log_odds, weight })
            })
        });
        let information = a.reports * a.variance() + b.reports * b.variance();
        let fence = near(information).flat_map(|(log_odds, share)| {
            let weight = FENCE * share / 2.0;
            [log_odds, -log_odds].map(|l| Atom { log_odds: (l, l), weight })
        });
        Self::new((a, b), opposed.chain(fence))
    }

    fn exponents(&self, (x, y): (f64, f64)) -> impl Iterator<Item = f64> + '_ {
        let (of_a, of_b) = self.reports;
        self.terms.iter().map(move |Term { constant, factors: (a, b) }| {
            let other = if of_b > 0.0 { of_b * libm::log1p(y * b) } else { 0.0 };
            constant - of_a * libm::log1p(x * a) - other
        })
    }

    /// The logarithm of the mixture at these means.
    pub(super) fn value(&self, means: (f64, f64)) -> f64 {
        normalized(&mut self.exponents(means).collect::<Vec<_>>())
    }

    fn local(&self, (x, y): (f64, f64)) -> Local {
        let mut weights: Vec<f64> = self.exponents((x, y)).collect();
        let value = normalized(&mut weights);
        let (n, m) = self.reports;
        let (mut gradient, mut hessian) = ((0.0, 0.0), (0.0, 0.0, 0.0));
        for (Term { factors: (a, b), .. }, weight) in self.terms.iter().zip(weights) {
            let (u, v) = (a / (1.0 + x * a), b / (1.0 + y * b));
            let (g, h) = (-n * u, -m * v);
            gradient = (gradient.0 + weight * g, gradient.1 + weight * h);
            hessian.0 += weight * (g * g + n * u * u);
            hessian.1 += weight * g * h;
            hessian.2 += weight * (h * h + m * v * v);
        }
        hessian.0 -= gradient.0 * gradient.0;
        hessian.1 -= gradient.0 * gradient.1;
        hessian.2 -= gradient.1 * gradient.1;
        Local { value, gradient, hessian }
    }

    /// The means at which the logarithm of the mixture less `tilt` times the means is smallest, by
    /// Newton's method within the unit square, and that logarithm there.
    pub(super) fn smallest(&self, tilt: (f64, f64), from: Option<(f64, f64)>) -> ((f64, f64), f64) {
        let held = |(x, y): (f64, f64)| (x.clamp(EDGE, 1.0 - EDGE), y.clamp(EDGE, 1.0 - EDGE));
        let tilted = |value: f64, (x, y): (f64, f64)| value - tilt.0 * x - tilt.1 * y;
        let mut at = held(from.unwrap_or(self.means));
        let mut local = self.local(at);
        for _ in 0..NEWTON_STEPS_MAX {
            let slope = (local.gradient.0 - tilt.0, local.gradient.1 - tilt.1);
            let step = newton_step(slope, local.hessian, at);
            let predicted = slope.0 * step.0 + slope.1 * step.1;
            if predicted > -PRECISION {
                break;
            }
            let before = tilted(local.value, at);
            let found = (0..HALVINGS_MAX).find_map(|halvings| {
                let part = libm::exp2(-f64::from(halvings));
                let next = held((at.0 + part * step.0, at.1 + part * step.1));
                let reached = self.local(next);
                let moved = slope.0 * (next.0 - at.0) + slope.1 * (next.1 - at.1);
                let is_lower = tilted(reached.value, next) <= before + 0.1 * moved.min(0.0);
                (is_lower && next != at).then_some((next, reached))
            });
            let Some(found) = found else { break };
            (at, local) = found;
        }
        (at, local.value)
    }
}

/// Most steps of Newton's method, and most halvings of a step.
const NEWTON_STEPS_MAX: usize = 60;
const HALVINGS_MAX: i32 = 40;

/// A decrease of the logarithm that is of no account.
const PRECISION: f64 = 1e-10;

/// A step of Newton's method; a mean at an edge that the slope points beyond stays.
fn newton_step(slope: (f64, f64), hessian: (f64, f64, f64), at: (f64, f64)) -> (f64, f64) {
    let is_held = |slope: f64, at: f64| {
        (slope > 0.0 && at <= EDGE) || (slope < 0.0 && at >= 1.0 - EDGE) || slope == 0.0
    };
    let (xx, xy, yy) = (hessian.0.max(1e-12), hessian.1, hessian.2.max(1e-12));
    match (is_held(slope.0, at.0), is_held(slope.1, at.1)) {
        (true, true) => (0.0, 0.0),
        (true, false) => (0.0, -slope.1 / yy),
        (false, true) => (-slope.0 / xx, 0.0),
        (false, false) => {
            let determinant = xx * yy - xy * xy;
            if determinant > 1e-12 * xx * yy {
                let x = (yy * slope.0 - xy * slope.1) / determinant;
                let y = (xx * slope.1 - xy * slope.0) / determinant;
                (-x, -y)
            } else {
                (-slope.0 / xx / 2.0, -slope.1 / yy / 2.0)
            }
        }
    }
}

/// The logarithm of a sum. Each of its terms, given by its logarithm, becomes its share of the sum.
fn normalized(terms: &mut [f64]) -> f64 {
    let largest = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    for term in &mut *terms {
        *term = libm::exp(*term - largest);
    }
    let sum: f64 = terms.iter().sum();
    for term in &mut *terms {
        *term /= sum;
    }
    largest + libm::log(sum)
}
