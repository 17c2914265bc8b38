//! Exact sampling by inversion: candidates are drawn with probabilities proportional to w exp(-γ).
//!
//! Let s(i) be the sum of the weights of candidates up to i, s their whole sum, and U uniform in
//! [0, 1). The first i with U s < s(i) has exactly the required probability (inversion of the
//! distribution function). Weights are irrational, and U has infinitely many digits, so both are
//! represented by lower and upper bounds, integers in units of 2^-b. The chosen candidate is the
//! first i whose sum is certainly above U s, if the sum before it certainly is not. If the bounds
//! leave this open, b is doubled, further digits of the same U are drawn, and the search is
//! repeated. The choice is therefore a function of U alone, and its distribution is exact. The
//! search ends with probability 1, since the bounds converge, and U s equals a sum with probability
//! 0.
//!
//! The bounds are those of `bounds.rs`; exp(-γ) for γ = g c, with an integer g, is the product over
//! the digits of g.
//!
//! The best candidate has γ = 0, so s >= 1, and a repetition is needed with probability below 2^-40
//! for 2^26 candidates of weights up to 2^32 and 128 digits, or up to 2^63 and 192. The time is
//! that of one pass over the candidates, with one product per digit of g.

use num_bigint::BigUint;
use rand::Rng;

use super::bounds::{Bounds, GUARD, Uniform, exp};

/// Number of candidates between two stored partial sums.
const BLOCK: usize = 1024;

/// Base of the digits of a gap.
const DIGITS: u64 = 16;
const DIGIT_BITS: usize = 4;
const DIGITS_MAX: u64 = 64 / DIGIT_BITS as u64;

/// A candidate of weight `weight` exp(-`gap` c).
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) weight: u64,
    pub(super) gap: u64,
}

/// The index of one of `count` candidates, at least one of which has a weight above 0 and a gap of
/// 0. `step` is c as a fraction above 0. `precision` affects the time only.
pub(super) fn draw<R: Rng + ?Sized>(
    count: usize,
    candidate: impl Fn(usize) -> Candidate,
    step: (u128, u128),
    mut precision: u64,
    rng: &mut R,
) -> usize {
    let mut uniform = Uniform::default();
    loop {
        let powers = Powers::new(step, precision);
        uniform.extend(powers.bits + GUARD, rng);
        if let Some(place) = decide(count, |place| powers.weight(candidate(place)), &uniform) {
            return place;
        }
        precision *= 2;
    }
}

/// The candidate chosen by a uniform number, if the bounds on weights and number decide.
fn decide(count: usize, weight: impl Fn(usize) -> Bounds, uniform: &Uniform) -> Option<usize> {
    let mut sum = Bounds::default();
    let mut before_blocks = Vec::with_capacity(count.div_ceil(BLOCK));
    for place in 0..count {
        if place % BLOCK == 0 {
            before_blocks.push(sum.clone());
        }
        sum.add(&weight(place));
    }
    let point = uniform.times(&sum);
    // The block in which the lower bounds of the partial sums reach the point.
    let block = before_blocks.partition_point(|before| before.low < point.high).checked_sub(1)?;
    let mut sum = before_blocks.swap_remove(block);
    for place in (block * BLOCK..count).take(BLOCK) {
        let before = sum.high.clone();
        sum.add(&weight(place));
        if sum.low >= point.high {
            return (before <= point.low).then_some(place);
        }
    }
    None
}

/// exp(-g c) for all gaps g.
struct Powers {
    /// Number of fractional bits.
    bits: u64,
    /// For each digit of g, the lowest first, the powers for its nonzero values.
    digits: Vec<Vec<Bounds>>,
}

impl Powers {
    fn new(step: (u128, u128), precision: u64) -> Self {
        let with = |digits: u64| precision + digits * DIGIT_BITS as u64 + GUARD;
        // For g with more digits than this, exp(-g c) is less than a unit.
        let is_enough = |digits: &u64| {
            let largest = BigUint::from(step.0) << (digits * DIGIT_BITS as u64);
            largest >= BigUint::from(step.1) * with(*digits)
        };
        let count = (1..DIGITS_MAX).find(is_enough).unwrap_or(DIGITS_MAX);
        let bits = with(count);
        let mut first = exp(step, bits);
        let mut digits = Vec::new();
        for _ in 0..count {
            let next = |power: &Bounds| Some(power.times(&first, bits));
            let mut powers: Vec<Bounds> = std::iter::successors(Some(first.clone()), next)
                .take(usize::try_from(DIGITS).unwrap_or(usize::MAX))
                .collect();
            first = powers.pop().unwrap_or_default();
            digits.push(powers);
        }
        Self { bits, digits }
    }

    fn weight(&self, Candidate { weight, gap }: Candidate) -> Bounds {
        let power = self.power(gap);
        Bounds { low: power.low * weight, high: power.high * weight }
    }

    fn power(&self, gap: u64) -> Bounds {
        let (mut rest, mut product) = (gap, None);
        for powers in &self.digits {
            let value = usize::try_from(rest % DIGITS).unwrap_or(0);
            rest /= DIGITS;
            if let Some(power) = value.checked_sub(1).and_then(|place| powers.get(place)) {
                product = Some(match product {
                    None => power.clone(),
                    Some(product) => power.times(&product, self.bits),
                });
            }
        }
        if rest > 0 {
            return Bounds { low: BigUint::ZERO, high: BigUint::from(1_u32) };
        }
        product.unwrap_or_else(|| Bounds::exactly(BigUint::from(1_u32) << self.bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::bernoulli_exp;
    use rand::RngExt as _;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    const CANDIDATES: [(u64, u64); 6] = [(3, 0), (1000, 17), (0, 0), (40, 9), (5, 2), (7, 300)];
    const STEP: (u128, u128) = (3, 7);

    fn candidate(place: usize) -> Candidate {
        let (weight, gap) = CANDIDATES[place];
        Candidate { weight, gap }
    }

    /// Chi-square of two samples of the same sizes.
    fn apart(one: &[f64; 6], other: &[f64; 6]) -> f64 {
        let pairs = one.iter().zip(other).filter(|(a, b)| *a + *b > 0.0);
        pairs.map(|(a, b)| (a - b).powi(2) / (a + b)).sum()
    }

    #[test]
    fn draws_have_the_exact_probabilities_however_coarse_the_first_bounds_are() {
        const DRAWS: u32 = 20_000;
        let exact = CANDIDATES.map(|(w, g)| w as f64 * (-3.0 / 7.0 * g as f64).exp());
        let total: f64 = exact.iter().sum();
        let expected = exact.map(|weight| weight / total * f64::from(DRAWS));
        let mut rng = ChaCha20Rng::seed_from_u64(5);
        // With bounds this coarse most draws need repetitions.
        for precision in [1, 128] {
            let mut found = [0.0; 6];
            for _ in 0..DRAWS {
                found[draw(6, candidate, STEP, precision, &mut rng)] += 1.0;
            }
            let pairs = found.iter().zip(&expected).filter(|(_, expected)| **expected > 1.0);
            let distance: f64 = pairs.map(|(f, e)| (f - e).powi(2) / e).sum();
            // Three degrees of freedom: above 33 with a probability of about 3e-7.
            assert!(distance < 33.0, "{found:?} is not {expected:?}");
            assert!(found[2] == 0.0 && found[5] == 0.0, "{found:?}");
        }
    }

    #[test]
    fn draws_are_those_of_rejection_from_the_base_measure() {
        const DRAWS: u32 = 4_000;
        let places: Vec<usize> =
            (0..6).flat_map(|place| (0..CANDIDATES[place].0).map(move |_| place)).collect();
        let mut rng = ChaCha20Rng::seed_from_u64(6);
        let (mut inverted, mut rejected) = ([0.0; 6], [0.0; 6]);
        for _ in 0..DRAWS {
            inverted[draw(6, candidate, STEP, 128, &mut rng)] += 1.0;
            let place = loop {
                let place = places[rng.random_range(0..places.len())];
                if bernoulli_exp(3 * u128::from(CANDIDATES[place].1), 7, &mut rng) {
                    break place;
                }
            };
            rejected[place] += 1.0;
        }
        assert!(apart(&inverted, &rejected) < 33.0, "{inverted:?} is not {rejected:?}");
    }

    #[test]
    fn bounds_are_around_the_power_and_close() {
        for step in [(1, 1), (3, 7), (1, 2_000_000_000), (256, 1), (1, 1 << 95)] {
            for precision in [1, 64, 128] {
                let powers = Powers::new(step, precision);
                for gap in [0, 1, 15, 16, 255, 1 << 20, 1 << 40, u64::MAX] {
                    let Bounds { low, high } = powers.power(gap);
                    assert!(low <= high);
                    let width = &high - &low;
                    assert!(width.bits() <= powers.bits - precision + GUARD, "{step:?} {gap}");
                    let as_float = |number: &BigUint| {
                        let kept = number.bits().saturating_sub(60);
                        let head = u64::try_from(number >> kept).unwrap() as f64;
                        head * 2.0_f64.powi(i32::try_from(kept).unwrap())
                            / 2.0_f64.powi(i32::try_from(powers.bits).unwrap())
                    };
                    let exact = (-(step.0 as f64) / step.1 as f64 * gap as f64).exp();
                    let slack = 1e-12;
                    assert!(as_float(&low) <= exact + slack, "{step:?} {gap} {precision}");
                    assert!(as_float(&high) >= exact - slack, "{step:?} {gap} {precision}");
                }
            }
        }
    }

    #[test]
    fn blocks_do_not_change_what_is_drawn() {
        let count = 3 * BLOCK + 1;
        let last = |place| Candidate { weight: 1, gap: if place + 1 == count { 0 } else { 1000 } };
        let mut rng = ChaCha20Rng::seed_from_u64(7);
        assert_eq!(draw(count, last, (1, 1), 128, &mut rng), count - 1);
        let alike = |_| Candidate { weight: 1, gap: 0 };
        let mut blocks = [0; 4];
        for _ in 0..60 {
            blocks[draw(count, alike, (1, 1), 128, &mut rng) / BLOCK] += 1;
        }
        assert!(blocks[..3].iter().all(|&drawn| drawn > 0), "{blocks:?}");
    }
}
