//! The Kullback-Leibler divergence of Bernoulli laws, and its inverse.

/// Most Newton steps of [`upper`]; ten suffice wherever it was tried.
const NEWTON_STEPS: usize = 32;

/// Relative size of a Newton step that is small enough to be the last.
const PRECISION: f64 = 1e-13;

/// `kl(p, q)` in nats, p and q in 0..=1: infinite where q excludes what p allows.
///
/// ```
/// use bandana_aggregator::learner::divergence::kl;
/// assert!((kl(0.5, 0.75) - 0.5 * (4.0_f64 / 3.0).ln()).abs() < 1e-15);
/// assert_eq!(kl(0.5, 1.0), f64::INFINITY);
/// ```
pub fn kl(p: f64, q: f64) -> f64 {
    let gap = q - p;
    // Written in the gap, the terms of first order in it cancel and no others do.
    let ones = if p > 0.0 { -p * libm::log1p(gap / p) } else { 0.0 };
    let zeros = if p < 1.0 { -(1.0 - p) * libm::log1p(-gap / (1.0 - p)) } else { 0.0 };
    (ones + zeros).max(0.0)
}

/// The largest q in p..=1 with `kl(p, q) <= divergence`, for a divergence of at
/// least 0.
///
/// ```
/// use bandana_aggregator::learner::divergence::{kl, upper};
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
    // kl is convex in q, so Newton's method stays above the root once it is there.
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

/// A number that [`upper`] does not exceed, at a fraction of its cost: Pinsker's
/// inequality, or what is left of kl without its term in `ln q`, whichever is less.
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
                // Beyond it lie the numbers that q can't tell from 1.
                if q < 1.0 - 1e-6 {
                    let slope = (q - p) / (q * (1.0 - q));
                    let off = (kl(p, q) - divergence).abs();
                    assert!(off < 1e-11 * divergence + 2e-16 * slope, "{p} {divergence} {q} {off}");
                }
            }
        }
    }

    #[test]
    fn the_ends_have_closed_forms() {
        assert_eq!(upper(1.0, 0.5), 1.0);
        assert_eq!(upper(0.4, 0.0), 0.4);
        assert!((upper(0.0, 0.5) - (1.0 - libm::exp(-0.5))).abs() < 1e-15);
        assert_eq!((kl(0.0, 0.0), kl(1.0, 1.0), kl(0.3, 0.3)), (0.0, 0.0, 0.0));
    }
}
