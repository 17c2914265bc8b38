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
//! exp(-γ) for γ = g c, with an integer g, is the product over the digits of g, of powers whose bounds
//! are those of `bounds.rs`. A product is rounded down, and its upper bound is that and an excess
//! which is the same for all gaps: for factors of at most 1 that are at most e and f units too
//! small, the product is at most e + f + 2 units too small.
//!
//! # Time
//! Gaps are as secret as the rows that they follow from, so each candidate takes the same work
//! whatever its gap: as many products as there are digits, each of as many multiplications of words,
//! also for a digit of 0, a weight of 0, and a power below every unit. The number of digits follows
//! from c and b alone. What a candidate reads from the tables of powers, a few KiB, does depend
//! on its gap.
//!
//! The best candidate has γ = 0, so s >= 1, and a repetition is needed with probability below 2^-40
//! for 2^26 candidates of weights up to 2^32 and 128 digits, or up to 2^63 and 192.

use num_bigint::BigUint;
use rand::Rng;

use super::bounds::{Bounds, GUARD, Uniform, exp};

/// Number of candidates between two stored partial sums.
const BLOCK: usize = 1024;

/// Base of the digits of a gap.
const DIGITS: u64 = 16;
const DIGIT_BITS: usize = 4;
const DIGITS_MAX: u64 = 64 / DIGIT_BITS as u64;

/// The binary digits of a word.
const WORD: u64 = 64;

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
        if let Some(place) = decide(count, &candidate, &powers, &uniform) {
            return place;
        }
        precision *= 2;
    }
}

/// The candidate chosen by a uniform number, if the bounds on weights and number decide.
fn decide(
    count: usize,
    candidate: impl Fn(usize) -> Candidate,
    powers: &Powers,
    uniform: &Uniform,
) -> Option<usize> {
    let mut sum = Sum::new(powers);
    let mut before_blocks = Vec::with_capacity(count.div_ceil(BLOCK));
    for place in 0..count {
        if place % BLOCK == 0 {
            before_blocks.push(sum.clone());
        }
        sum.add(candidate(place));
    }
    let point = uniform.times(&sum.bounds());
    // The block in which the lower bounds of the partial sums reach the point.
    let block = before_blocks.partition_point(|before| before.bounds().low < point.high);
    let block = block.checked_sub(1)?;
    let mut sum = before_blocks.swap_remove(block);
    let mut chosen = None;
    for place in (block * BLOCK..count).take(BLOCK) {
        let before = sum.bounds();
        sum.add(candidate(place));
        if chosen.is_none() && sum.bounds().low >= point.high {
            chosen = Some((before.high <= point.low).then_some(place));
        }
    }
    chosen.flatten()
}

/// A sum of weights.
#[derive(Clone)]
struct Sum<'a> {
    powers: &'a Powers,
    /// The lower bound.
    words: Vec<u64>,
    /// The sum of the base measure.
    base: u128,
    /// Room for products.
    scratch: Scratch,
}

impl<'a> Sum<'a> {
    fn new(powers: &'a Powers) -> Self {
        // Two words more: for the base measure, and for the number of candidates.
        let words = vec![0; powers.words() + 2];
        Self { powers, words, base: 0, scratch: Scratch::new(powers.words()) }
    }

    fn add(&mut self, Candidate { weight, gap }: Candidate) {
        self.base += u128::from(weight);
        self.powers.power(gap, &mut self.scratch);
        let mut carry = 0_u128;
        let (power, more) = self.words.split_at_mut(self.powers.words());
        for (sum, word) in power.iter_mut().zip(&self.scratch.power) {
            let part = multiply(*word, weight) + u128::from(*sum) + carry;
            (*sum, carry) = halves(part);
        }
        for sum in more {
            let part = u128::from(*sum) + carry;
            (*sum, carry) = halves(part);
        }
    }

    fn bounds(&self) -> Bounds {
        let low = from_words(&self.words);
        Bounds { high: &low + self.base * self.powers.excess, low }
    }
}

/// The number of words of a number up to 1, in units of 2^-`bits`.
fn words_of(bits: u64) -> usize {
    usize::try_from(bits / WORD).unwrap_or(0) + 1
}

/// The product of two words; tests count them.
fn multiply(one: u64, other: u64) -> u128 {
    #[cfg(test)]
    tests::MULTIPLICATIONS.with(|count| count.set(count.get() + 1));
    u128::from(one) * u128::from(other)
}

/// The lower word of a number, and the rest.
#[expect(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
fn halves(number: u128) -> (u64, u128) {
    (number as u64, number >> WORD)
}

fn from_words(words: &[u64]) -> BigUint {
    BigUint::from_bytes_le(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
}

fn to_words(number: &BigUint, count: usize) -> Vec<u64> {
    let mut words: Vec<u64> = number.iter_u64_digits().collect();
    words.resize(count, 0);
    words
}

/// Room for the power of a gap.
#[derive(Clone)]
struct Scratch {
    power: Vec<u64>,
    product: Vec<u64>,
}

impl Scratch {
    fn new(words: usize) -> Self {
        Self { power: vec![0; words], product: vec![0; 2 * words] }
    }
}

/// exp(-g c) for all gaps g.
struct Powers {
    /// Number of fractional bits.
    bits: u64,
    /// For each digit of g, the lowest first, the lower bounds of the powers for all of its values.
    digits: Vec<Vec<Vec<u64>>>,
    /// How many units a power is above its lower bound, at most.
    excess: u128,
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
        let words = words_of(bits);
        let mut first = exp(step, bits);
        let (mut digits, mut widest) = (Vec::new(), BigUint::ZERO);
        for _ in 0..count {
            let next = |power: &Bounds| Some(power.times(&first, bits));
            let one = Bounds::exactly(BigUint::from(1_u32) << bits);
            let mut powers: Vec<Bounds> = std::iter::successors(Some(first.clone()), next)
                .take(usize::try_from(DIGITS).unwrap_or(usize::MAX))
                .collect();
            first = powers.pop().unwrap_or_default();
            powers.insert(0, one);
            let width = powers.iter().map(|power| &power.high - &power.low).max();
            widest = widest.max(width.unwrap_or_default());
            digits.push(powers.iter().map(|power| to_words(&power.low, words)).collect());
        }
        let widest = u128::try_from(widest).unwrap_or(u128::from(u64::MAX));
        Self { bits, digits, excess: u128::from(count) * (widest + 2) }
    }

    /// The number of words of a power.
    fn words(&self) -> usize {
        words_of(self.bits)
    }

    /// Leaves the lower bound of the power in `scratch`.
    fn power(&self, gap: u64, scratch: &mut Scratch) {
        let Scratch { power, product } = scratch;
        let shift = self.bits % WORD;
        power.fill(0);
        if let Some(highest) = power.last_mut() {
            *highest = 1 << shift;
        }
        let mut rest = gap;
        for powers in &self.digits {
            let value = usize::try_from(rest % DIGITS).unwrap_or(0);
            rest /= DIGITS;
            let Some(factor) = powers.get(value) else { continue };
            product.fill(0);
            for (place, one) in power.iter().enumerate() {
                let mut carry = 0;
                for (sum, other) in product[place..].iter_mut().zip(factor) {
                    let part = multiply(*one, *other) + u128::from(*sum) + carry;
                    (*sum, carry) = halves(part);
                }
                // Nothing was added here yet.
                product[place + factor.len()] = halves(carry).0;
            }
            // In units of 2^-bits again.
            let units = &product[factor.len() - 1..];
            for (word, pair) in power.iter_mut().zip(units.windows(2)) {
                let pair = u128::from(pair[0]) | u128::from(pair[1]) << WORD;
                *word = halves(pair >> shift).0;
            }
        }
        // With further digits it is less than a unit.
        let kept = u64::from(rest == 0).wrapping_neg();
        for word in power.iter_mut() {
            *word &= kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::bernoulli_exp;
    use rand::RngExt as _;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    thread_local! {
        /// The products of words since the test began.
        pub(super) static MULTIPLICATIONS: std::cell::Cell<u64> =
            const { std::cell::Cell::new(0) };
    }

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

    /// What a draw among candidates with these gaps and weights takes.
    fn work(candidates: &[(u64, u64)], step: (u128, u128)) -> u64 {
        let before = MULTIPLICATIONS.with(std::cell::Cell::get);
        let candidate = |place: usize| {
            let (weight, gap) = candidates[place];
            Candidate { weight, gap }
        };
        draw(candidates.len(), candidate, step, 128, &mut ChaCha20Rng::seed_from_u64(9));
        MULTIPLICATIONS.with(std::cell::Cell::get) - before
    }

    #[test]
    fn work_depends_on_no_row() {
        // From a price at which nothing matters but time, to one at which most weights vanish.
        for step in [(1, 2_000_000_000), (100_000, 2_000_000_000), (1, 2), (16, 1)] {
            let gaps = |gap: &dyn Fn(u64) -> u64| -> Vec<(u64, u64)> {
                (0..1024).map(|place| (1, if place == 0 { 0 } else { gap(place) })).collect()
            };
            let usual = work(&gaps(&|_| 0), step);
            assert!(usual > 1024 * 16, "{usual}");
            for others in [
                gaps(&|_| 1),
                gaps(&|_| 16_u64.pow(15)),
                gaps(&|_| u64::MAX),
                gaps(&|place| 1 << (place % 64)),
                gaps(&|place| place.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                gaps(&|place| if place < 512 { 0xffff } else { 0x1_0000 }),
                gaps(&|_| 317)
                    .into_iter()
                    .map(|(_, gap)| (0, gap))
                    .chain([(1, 0)])
                    .skip(1)
                    .collect(),
            ] {
                assert_eq!(work(&others, step), usual, "{step:?} {:?}", others.get(1));
            }
        }
    }

    #[test]
    fn bounds_are_around_the_power_and_close() {
        for step in [(1, 1), (3, 7), (1, 2_000_000_000), (256, 1), (1, 1 << 95)] {
            for precision in [1, 64, 128] {
                let powers = Powers::new(step, precision);
                for gap in [0, 1, 15, 16, 255, 1 << 20, 1 << 40, u64::MAX] {
                    let mut scratch = Scratch::new(powers.words());
                    powers.power(gap, &mut scratch);
                    let low = from_words(&scratch.power);
                    let high = &low + powers.excess;
                    let width = BigUint::from(powers.excess);
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
