//! The Kullback-Leibler divergence of Bernoulli laws, and its inverse.

/// Maximum number of Newton steps in [`upper`]; ten sufficed in all trials.
const NEWTON_STEPS: usize = 32;

/// Relative size of a Newton step below which the iteration ends.
const PRECISION: f64 = 1e-13;

/// `kl(p, q)` in nats, p and q in 0..=1: infinite where q gives probability 0 to an outcome that p
/// allows.
///
/// ```
/// use bandana_learners::divergence::kl;
/// assert!((kl(0.5, 0.75) - 0.5 * (4.0_f64 / 3.0).ln()).abs() < 1e-15);
/// assert_eq!(kl(0.5, 1.0), f64::INFINITY);
/// ```
pub fn kl(p: f64, q: f64) -> f64 {
    let gap = q - p;
    // In this form the first-order terms in the gap cancel, and no others.
    let ones = if p > 0.0 { -p * libm::log1p(gap / p) } else { 0.0 };
    let zeros = if p < 1.0 { -(1.0 - p) * libm::log1p(-gap / (1.0 - p)) } else { 0.0 };
    (ones + zeros).max(0.0)
}

/// The largest q in p..=1 with `kl(p, q) <= divergence`, for a divergence of at
/// least 0.
///
/// ```
/// use bandana_learners::divergence::{kl, upper};
/// let q = upper(0.3, 0.01);
/// assert!(q > 0.3 && (kl(0.3, q) - 0.01).abs() < 1e-12);
/// ```
pub fn upper(p: f64, divergence: f64) -> f64 {
    if divergence <= 0.0 || p >= 1.0 {
        return p.min(1.0);
    }
    if p <= 0.0 {
        return -libm::expm1(-divergence);
    }
    // kl is convex in q, so Newton's method stays above the root once it is above.
    let start = ceiling(p, divergence) - p;
    let mut gap = start;
    for _ in 0..NEWTON_STEPS {
        let slope = gap / ((p + gap) * (1.0 - p - gap));
        let step = (kl(p, p + gap) - divergence) / slope;
        if !step.is_finite() {
            break;
        }
        gap = (gap - step).clamp(0.0, start);
        if step.abs() <= PRECISION * gap {
            break;
        }
    }
    p + gap
}

/// The rise of `-ln(1 - q)` over `-ln(1 - p)` at the largest q with `kl(p, q) <= divergence`. It
/// distinguishes values that [`upper`] rounds to 1 or next to it, and takes nearly twice as long.
/// `rest` is `1 - p`, which has more digits than p where p is close to 1. The rise is infinite for
/// a rest of 0.
pub(super) fn rise(p: f64, rest: f64, divergence: f64) -> f64 {
    if rest <= 0.0 {
        return f64::INFINITY;
    }
    if divergence <= 0.0 || p < f64::MIN_POSITIVE {
        return divergence.max(0.0) / rest;
    }
    // The divergence is convex in the rise, so Newton's method stays above the root if it starts
    // above. The start is from Pinsker's inequality, or from omitting the term in ln q.
    let pinsker = libm::sqrt(divergence / 2.0) / rest;
    let mut rise =
        if pinsker < 0.9 { -libm::log1p(-pinsker) } else { (divergence - p * libm::log(p)) / rest };
    for _ in 0..NEWTON_STEPS {
        let gap = -rest * libm::expm1(-rise);
        let step = (kl_at(p, rest * rise, gap) - divergence) * (p + gap) / gap;
        // Below the root only rounding errors remain.
        if !step.is_finite() || step <= 0.0 {
            break;
        }
        rise = (rise - step).max(0.0);
        if step <= PRECISION * rise {
            break;
        }
    }
    rise
}

/// `kl(p, q)` for the q at which `-ln(1 - q)` exceeds `-ln(1 - p)` by `rise`.
pub(super) fn kl_risen(p: f64, rest: f64, rise: f64) -> f64 {
    kl_at(p, rest * rise, -rest * libm::expm1(-rise))
}

/// The divergence from p to `p + gap`, given the term of the zeros.
fn kl_at(p: f64, zeros: f64, gap: f64) -> f64 {
    let ones = if p < f64::MIN_POSITIVE { 0.0 } else { p * libm::log1p(gap / p) };
    (zeros - ones).max(0.0)
}

/// An upper bound on [`upper`], at a fraction of its cost: Pinsker's inequality, or kl without its
/// term in `ln q`, whichever bound is less.
pub fn ceiling(p: f64, divergence: f64) -> f64 {
    let pinsker = p + libm::sqrt(divergence / 2.0);
    if pinsker < 0.9 || p <= 0.0 || p >= 1.0 {
        return pinsker.min(1.0);
    }
    let exponent = (divergence - p * libm::log(p)) / (1.0 - p);
    pinsker.min(1.0 - (1.0 - p) * libm::exp(-exponent)).max(p)
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact values are meant")]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_inverts() {
        for p in [1e-9, 0.01, 0.3, 0.5, 0.77, 0.99, 1.0 - 1e-9] {
            for exponent in -34..3 {
                let divergence = 3.0 * libm::exp(f64::from(exponent));
                let q = upper(p, divergence);
                assert!((p..=1.0).contains(&q), "{p} {divergence} {q}");
                assert!(q <= ceiling(p, divergence) + 1e-15, "{p} {divergence} {q}");
                // Beyond it q can't be distinguished from 1.
                if q < 1.0 - 1e-6 {
                    let slope = (q - p) / (q * (1.0 - q));
                    let off = (kl(p, q) - divergence).abs();
                    assert!(off < 1e-11 * divergence + 2e-16 * slope, "{p} {divergence} {q} {off}");
                }
            }
        }
    }

    #[test]
    fn rises_are_exact_where_numbers_are_next_to_one() {
        // The divergence is (1-p) v minus the entropy of p, v the height: q is 1 within 1e-20.
        for (p, divergence) in [(0.5_f64, 30.0), (0.75, 14.0), (0.01, 60.0), (0.999, 0.1)] {
            let entropy = -p * p.ln() - (1.0 - p) * (1.0 - p).ln();
            let height = rise(p, 1.0 - p, divergence) - (1.0 - p).ln();
            assert!((height - (divergence + entropy) / (1.0 - p)).abs() < 1e-13 * height);
        }
        assert_eq!(rise(1.0, 0.0, 0.5), f64::INFINITY);
        assert_eq!(rise(0.3, 0.7, 0.0), 0.0);
    }

    #[test]
    fn the_ends_have_closed_forms() {
        assert_eq!(upper(1.0, 0.5), 1.0);
        assert_eq!(upper(0.4, 0.0), 0.4);
        assert!((upper(0.0, 0.5) - (1.0 - libm::exp(-0.5))).abs() < 1e-15);
        assert_eq!((kl(0.0, 0.0), kl(1.0, 1.0), kl(0.3, 0.3)), (0.0, 0.0, 0.0));
    }
}
