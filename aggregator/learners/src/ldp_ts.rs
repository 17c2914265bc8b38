//! Thompson sampling by quadrature; see [`Learner::LdpTs`](super::Learner::LdpTs) and
//! [`Learner::TruncatedTs`](super::Learner::TruncatedTs).
//!
//! The weight of arm i is the integral of f_i times the product of all F_j, j other than i, with f
//! the posterior densities and F their distribution functions. One pass from right to left computes
//! all weights. Panels are as wide as possible while no density varies much on one. The
//! distribution functions are integrals of the densities. The products are multiplied from both
//! sides, because a division would fail where a factor is 0. Each function is carried with two
//! derivatives, so that two values per panel give an error of order seven.

use super::input::Evidence;
use super::posterior::{Jet, Posterior};
use super::shared_by_largest;

/// Width of a panel, in scales of the narrowest density on it. Halving it
/// divides the error by 64. Against panels a quarter as wide, 20,000 random sets of
/// 2 to 20 arms with up to `2^62` reports differed by at most `6e-8`.
const PANEL_SCALES: f64 = 0.25;

/// Below it, the product of all distribution functions no longer matters.
const NEGLIGIBLE: f64 = 1e-13;

/// The share of each arm; they sum to 1. There is at least one arm.
pub(super) fn shares(arms: &[Evidence]) -> Vec<f64> {
    shares_by(arms, &arms.iter().copied().map(Posterior::of).collect::<Vec<_>>())
}

/// As [`shares`], with the posterior of each arm truncated to log-odds within `limit` of 0.
pub(super) fn truncated_shares(arms: &[Evidence], limit: f64) -> Vec<f64> {
    let cut = |arm: &Evidence| Posterior::of(*arm).within(-limit, limit);
    shares_by(arms, &arms.iter().map(cut).collect::<Vec<_>>())
}

fn shares_by(arms: &[Evidence], posteriors: &[Posterior]) -> Vec<f64> {
    normalised(winning_masses(posteriors), arms)
}

/// Divides by the sum. If the sum is zero or not finite, the arms with the largest posterior mean
/// share the weight.
fn normalised(masses: Vec<f64>, arms: &[Evidence]) -> Vec<f64> {
    let total: f64 = masses.iter().sum();
    if total.is_finite() && total > 0.0 {
        return masses.into_iter().map(|mass| mass / total).collect();
    }
    let posterior_mean = |arm: &Evidence| (1.0 + arm.ones()) / (2.0 + arm.reports());
    shared_by_largest(&arms.iter().map(posterior_mean).collect::<Vec<f64>>())
}

/// A function of posteriors that is not computed again for one that is like the one before: most arms
/// of a new experiment are alike.
struct Repeated<T>(Option<(Posterior, T)>);

impl<T: Copy> Repeated<T> {
    fn new() -> Self {
        Self(None)
    }

    fn of(&mut self, posterior: &Posterior, compute: impl FnOnce(&Posterior) -> T) -> T {
        match self.0 {
            Some((last, value)) if last == *posterior => value,
            _ => {
                let value = compute(posterior);
                self.0 = Some((*posterior, value));
                value
            }
        }
    }
}

/// An arm in the pass from right to left, at the left end of the last panel.
struct Contender {
    arm: usize,
    posterior: Posterior,
    /// Upper end of the density's support; beyond it the density counts as 0.
    highest: f64,
    density: Jet,
    /// Integral of the density from here to the right.
    survival: f64,
    /// Product of the distribution functions of the contenders before this one.
    before: Jet,
    /// Density times the distribution functions of all others.
    integrand: Jet,
    /// Integral of the integrand from here to the right.
    mass: f64,
}

impl Contender {
    /// The distribution function at the left end, with derivatives.
    fn distribution(&self) -> Jet {
        Jet { value: 1.0 - self.survival, first: self.density.value, second: self.density.first }
    }
}

/// The probability of each arm to have the largest mean, up to a common factor
/// near 1.
fn winning_masses(posteriors: &[Posterior]) -> Vec<f64> {
    let mut bounds = Repeated::new();
    let mut bounded = Vec::with_capacity(posteriors.len());
    for posterior in posteriors {
        bounded.push((*posterior, bounds.of(posterior, Posterior::bounds)));
    }
    // The largest mean exceeds the low end of every arm, so arms entirely below that never have it.
    let lowest = (bounded.iter()).fold(f64::NEG_INFINITY, |most, (_, (low, _))| most.max(*low));
    let mut contenders: Vec<Contender> = bounded
        .into_iter()
        .enumerate()
        .filter(|(_, (_, (_, high)))| *high > lowest)
        .map(|(arm, (posterior, (_, highest)))| Contender {
            arm,
            posterior,
            highest,
            density: Jet::ZERO,
            survival: 0.0,
            before: Jet::ONE,
            integrand: Jet::ZERO,
            mass: 0.0,
        })
        .collect();
    let mut right = (contenders.iter()).fold(lowest, |most, contender| most.max(contender.highest));
    begin(&mut contenders, right);
    let is_cut =
        contenders.iter().any(|contender| contender.posterior.is_cut_at(contender.highest));
    let mut below = 1.0;
    while right > lowest {
        let resolved = if is_cut && below > NEGLIGIBLE { steepness(&contenders) } else { 0.0 };
        let left = panel_end(&contenders, right).max(right - PANEL_SCALES / resolved).max(lowest);
        below = step(&mut contenders, left, right - left);
        begin(&mut contenders, left);
        right = left;
    }
    let mut masses = vec![0.0; posteriors.len()];
    for contender in &contenders {
        // Rounding can leave a mass of about -1e-12.
        masses[contender.arm] = contender.mass.max(0.0);
    }
    masses
}

/// The logarithmic derivative of the product of all distribution functions. Where densities end
/// with a step, the product of many is steeper than any factor.
fn steepness(contenders: &[Contender]) -> f64 {
    let fall = |contender: &Contender| contender.density.value / (1.0 - contender.survival);
    contenders.iter().map(fall).sum()
}

/// Adds the densities that end at `right` with a step.
#[expect(clippy::float_cmp, reason = "panels end exactly where a density does")]
fn begin(contenders: &mut [Contender], right: f64) {
    let mut began = false;
    for contender in contenders.iter_mut() {
        if contender.highest == right && contender.posterior.is_cut_at(right) {
            contender.density = contender.posterior.density(right);
            began = true;
        }
    }
    if began {
        weigh(contenders, 0.0);
    }
}

/// The left end of the widest panel that resolves all densities on it.
///
/// A density that starts far ahead must start exactly at the end of a panel: even its negligible
/// tail has derivatives that are large on the scale of a wider density's panel. The same holds for
/// a density that starts with a step.
fn panel_end(contenders: &[Contender], right: f64) -> f64 {
    contenders
        .iter()
        .map(|contender| {
            let width = PANEL_SCALES * contender.posterior.scale();
            let ahead = right - contender.highest;
            if ahead > width || (ahead > 0.0 && contender.posterior.is_cut_at(contender.highest)) {
                contender.highest
            } else {
                right.min(contender.highest) - width
            }
        })
        .fold(f64::NEG_INFINITY, f64::max)
}

/// Moves all contenders to `left`, across a panel of the given width. Returns the
/// product of all distribution functions there.
fn step(contenders: &mut [Contender], left: f64, width: f64) -> f64 {
    let mut densities = Repeated::new();
    for contender in contenders.iter_mut() {
        if left < contender.highest {
            let density = densities.of(&contender.posterior, |posterior| posterior.density(left));
            contender.survival += Jet::integral(density, contender.density, width);
            contender.density = density;
        }
    }
    weigh(contenders, width)
}

/// Recomputes the integrands, and adds their integrals over a panel of the given width to the
/// masses. Returns the product of all distribution functions.
fn weigh(contenders: &mut [Contender], width: f64) -> f64 {
    let mut before = Jet::ONE;
    for contender in contenders.iter_mut() {
        contender.before = before;
        before = before.times(contender.distribution());
    }
    let mut after = Jet::ONE;
    for contender in contenders.iter_mut().rev() {
        let others = contender.before.times(after);
        let integrand = contender.density.times(others);
        contender.mass += Jet::integral(integrand, contender.integrand, width);
        contender.integrand = integrand;
        after = after.times(contender.distribution());
    }
    after.value
}

#[cfg(test)]
mod tests {
    use bandana_shared::tally::{Tally, TallyError};
    use proptest::prelude::*;

    use super::*;

    fn shares_of(counts: &[(u64, u64)]) -> Result<Vec<f64>, TallyError> {
        let arms = counts.iter().map(|&(n, ones)| Tally::new(n, ones).map(Evidence::from));
        Ok(shares(&arms.collect::<Result<Vec<Evidence>, _>>()?))
    }

    /// Fails unless both have the same length and differ by at most `1e-7`.
    fn assert_near(actual: &[f64], expected: &[f64]) {
        assert_eq!(actual.len(), expected.len());
        for (arm, (a, e)) in actual.iter().zip(expected).enumerate() {
            assert!((a - e).abs() < 1e-7, "arm {arm}: {a} instead of {e}");
        }
    }

    fn ln_beta(a: f64, b: f64) -> f64 {
        libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b)
    }

    /// P(second > first) for Beta(a, b) and Beta(c, d), c an integer: the finite
    /// sum that integration by parts gives.
    fn second_wins((a, b): (u32, u32), (c, d): (u32, u32)) -> f64 {
        let (a, b, d) = (f64::from(a), f64::from(b), f64::from(d));
        let term = |i: u32| {
            let i = f64::from(i);
            libm::exp(ln_beta(a + i, b + d) - ln_beta(1.0 + i, d) - ln_beta(a, b)) / (d + i)
        };
        (0..c).map(term).sum()
    }

    #[test]
    fn identical_arms_share_equally() {
        for arm in [(0, 0), (1, 1), (50, 20), (1_000_000_000, 3), (1 << 62, 1 << 61)] {
            for arms in [1, 2, 7, 1024] {
                let expected = vec![1.0 / arms as f64; arms];
                assert_near(&shares_of(&vec![arm; arms]).unwrap(), &expected);
            }
        }
    }

    #[test]
    fn arms_that_always_succeeded_win_in_proportion() {
        // Beta(k, 1) is the law of the largest of k uniform variables, so the
        // arm with k of the K variables wins with probability k/K.
        for unit in [0, 1, 9, 1_000, 1_000_000_000, 1 << 55] {
            let ones: Vec<u64> = (0..20).map(|arm| unit * (arm % 7) + arm).collect();
            let total: f64 = ones.iter().map(|&n| 1.0 + n as f64).sum();
            let expected: Vec<f64> = ones.iter().map(|&n| (1.0 + n as f64) / total).collect();
            let counts: Vec<(u64, u64)> = ones.iter().map(|&n| (n, n)).collect();
            assert_near(&shares_of(&counts).unwrap(), &expected);
        }
    }

    #[test]
    fn two_arms_agree_with_the_finite_sum() {
        for (first, second) in [
            ((1, 2), (2, 1)),
            ((3, 5), (2, 9)),
            ((40, 60), (50, 50)),
            ((600, 400), (64, 36)),
            ((1, 900), (3, 1100)),
            ((1, 1), (999, 1)),
        ] {
            let counts = [first, second].map(|(a, b)| (u64::from(a + b - 2), u64::from(a - 1)));
            let wins = second_wins(first, second);
            assert_near(&shares_of(&counts).unwrap(), &[1.0 - wins, wins]);
        }
        // Beta(1, 2) beats Beta(2, 1) once in 6 times.
        assert_near(&shares_of(&[(1, 0), (1, 1)]).unwrap(), &[1.0 / 6.0, 5.0 / 6.0]);
    }

    #[test]
    fn one_arm_beside_uniform_ones_wins_by_its_moment() {
        // P(X > k uniform variables) = E[X^k], the product over i < k of
        // (a + i)/(a + b + i). The first case has a density 10,000 times as
        // narrow as the other.
        for (n, ones, uniforms) in [
            (235_330_701_u64, 100_984_989_u64, 1),
            (1_000_000_000, 999_999_000, 19),
            (1_000_000_000, 500_000_000, 19),
            (1_000_000_000, 1_000_000_000, 19),
            (1_000_000_000, 0, 1),
            (1 << 62, 1 << 61, 3),
            (30, 20, 5),
        ] {
            let factor = |i: u32| {
                let i = f64::from(i);
                (1.0 + ones as f64 + i) / (2.0 + n as f64 + i)
            };
            let wins: f64 = (0..uniforms).map(factor).product();
            let mut expected = vec![(1.0 - wins) / f64::from(uniforms); uniforms as usize];
            expected.push(wins);
            let mut counts = vec![(0, 0); uniforms as usize];
            counts.push((n, ones));
            assert_near(&shares_of(&counts).unwrap(), &expected);
        }
    }

    #[test]
    fn large_counts_agree_with_the_normal_law() {
        // The difference of the means is normal up to a skewness of 1e-5.
        // Arms with 1/2 and 1/2 + gap differ by z of its standard deviations.
        for (n, more) in [(1_000_000_000_u64, 20_000), (1 << 62, 1 << 30), (1 << 62, 1 << 32)] {
            let shares = shares_of(&[(n, n / 2), (n, n / 2 + more)]).unwrap();
            let z = more as f64 / libm::sqrt(n as f64 / 2.0);
            let expected = 0.5 * libm::erfc(z / std::f64::consts::SQRT_2);
            assert!((shares[0] - expected).abs() < 1e-5, "{n} {z} {shares:?}");
        }
    }

    #[test]
    fn hopeless_arms_have_no_share() {
        let counts = [(1_000_000, 500_000), (1_000_000, 600_000), (0, 0)];
        let shares = shares_of(&counts).unwrap();
        assert!(shares[0] < 1e-300, "{shares:?}");
        assert!((shares[1] - 0.6).abs() < 1e-6, "{shares:?}");
    }

    #[test]
    fn unusable_masses_fall_back_to_the_largest_posterior_mean() {
        let counts = [(3, 2), (0, 0), (8, 5), (1, 0)];
        let arms: Vec<Evidence> =
            counts.iter().map(|&(n, ones)| Tally::new(n, ones).unwrap().into()).collect();
        // The posterior means are 3/5, 1/2, 6/10 and 1/3.
        for masses in [vec![0.0; 4], vec![f64::NAN; 4], vec![f64::INFINITY; 4]] {
            assert_eq!(normalised(masses, &arms), [0.5, 0.0, 0.5, 0.0]);
        }
    }

    /// Counts of every magnitude, up to the largest.
    fn any_counts() -> impl Strategy<Value = (u64, u64)> {
        let reports = (0_u32..=62, any::<u64>()).prop_map(|(bits, word)| word % ((1 << bits) + 1));
        reports.prop_flat_map(|n| (Just(n), 0..=n))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn shares_are_a_distribution_that_follows_its_arms(
            counts in prop::collection::vec(any_counts(), 1..24),
        ) {
            let shares = shares_of(&counts)?;
            prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let reversed: Vec<(u64, u64)> = counts.into_iter().rev().collect();
            let back: Vec<f64> = shares_of(&reversed)?.into_iter().rev().collect();
            for (there, back) in shares.iter().zip(&back) {
                prop_assert!((there - back).abs() < 1e-9);
            }
        }

        #[test]
        fn more_ones_never_cost_a_share(
            others in prop::collection::vec(any_counts(), 1..6),
            n in 1_u64..100_000,
            (low, high) in (0_u64..=1000, 0_u64..=1000),
        ) {
            let share_with = |rate: u64| -> Result<f64, TallyError> {
                let mut counts = others.clone();
                counts.push((n, n * rate / 1000));
                Ok(shares_of(&counts)?[others.len()])
            };
            let (less, more) = (share_with(low.min(high))?, share_with(low.max(high))?);
            prop_assert!(less <= more + 1e-7, "{} {}", less, more);
        }
    }
}
