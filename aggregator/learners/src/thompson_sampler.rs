//! Exact draws of LDP-TS, for simulations.

use bandana_shared::identity::ArmIndex;
use bandana_shared::policy::PolicyError;
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

use super::check_arm_count;
use super::input::Evidence;

/// Draws arms as LDP-TS does: one sample of Beta(1 + ones, 1 + zeros) per arm,
/// the largest wins (Jiang, Zhao and Li, 2023, arXiv 2307.00863).
///
/// In the long run an arm is drawn as often as its weight by
/// [`Learner::LdpTs`](super::Learner::LdpTs) says. If the tallies change after every draw, as in a
/// simulation, a draw is much cheaper than weights.
///
/// A Beta variable is X/(X + Y) for two Gamma variables, whose constants are kept
/// between draws. Arms are compared by their odds X/Y, which needs no division.
///
/// ```
/// use bandana_learners::{Evidence, ThompsonSampler};
/// use bandana_shared::identity::ArmIndex;
/// use rand::SeedableRng;
///
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
/// let mut sampler = ThompsonSampler::new(&[Evidence::default(); 3])?;
/// sampler.update(ArmIndex::new(1)?, Evidence::new(999_999_999.0, 1.0));
/// assert_eq!(sampler.draw(&mut rng).get(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ThompsonSampler {
    arms: Vec<BetaOdds>,
}

impl ThompsonSampler {
    /// A sampler for 1 to 1,024 arms, all of them active.
    ///
    /// # Errors
    /// [`PolicyError::ArmCount`] for another number of arms.
    pub fn new(arms: &[Evidence]) -> Result<Self, PolicyError> {
        check_arm_count(arms.len())?;
        Ok(Self { arms: arms.iter().copied().map(BetaOdds::of).collect() })
    }

    /// Replaces the evidence of one arm.
    ///
    /// # Panics
    /// When there is no such arm.
    pub fn update(&mut self, arm: ArmIndex, evidence: Evidence) {
        self.arms[arm.get()] = BetaOdds::of(evidence);
    }

    /// Draws an arm.
    pub fn draw<R: Rng + ?Sized>(&self, rng: &mut R) -> ArmIndex {
        let mut best = 0;
        let (mut best_ones, mut best_zeros) = (0.0, 1.0);
        for (arm, odds) in self.arms.iter().enumerate() {
            let (ones, zeros) = odds.sample(rng);
            if ones * best_zeros > best_ones * zeros {
                (best, best_ones, best_zeros) = (arm, ones, zeros);
            }
        }
        ArmIndex::new(best).unwrap_or_else(|_| unreachable!("checked by `new`"))
    }
}

/// The odds of a Beta variable, a ratio of two Gamma variables.
#[derive(Clone, Copy, Debug)]
pub(super) struct BetaOdds {
    ones: Gamma,
    zeros: Gamma,
}

impl BetaOdds {
    pub(super) fn of(arm: Evidence) -> Self {
        Self { ones: Gamma::beyond(arm.ones()), zeros: Gamma::beyond(arm.zeros()) }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "each half of the word is a coin of its own"
    )]
    pub(super) fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> (f64, f64) {
        let word = rng.next_u64();
        let ones = self.ones.sample(rng, word as u32);
        let zeros = self.zeros.sample(rng, (word >> 32) as u32);
        (ones, zeros)
    }
}

/// The law Gamma(k, 1), k at least 1, sampled as Marsaglia and Tsang do ("A
/// Simple Method for Generating Gamma Variables", 2000): with d = k - 1/3 and
/// z = x / sqrt(9d) for a normal x, `d (1 + z)^3` is accepted with probability
/// `exp(x^2/2 + d - d (1 + z)^3 + 3d ln(1 + z))`.
///
/// The squeeze, the test that avoids the logarithm for most samples, differs here. Theirs holds for
/// every k and leaves a tenth of the samples to the logarithm. Expanding the logarithm up to z^4
/// cancels all but -(3d/4) z^4 and a remainder, which is positive for z > 0 and at least -(3d/4)
/// z^4 for -1/2 < z < 0; so the exponent is at least -(3d/2) z^4 = -x^4/(54 d), and the probability
/// at least 1 - x^4/(54 d). As d grows, the exponent loses digits but is needed more rarely: for d
/// = 10^9 it errs by about 1e-7, once in 10^9 samples.
#[derive(Clone, Copy, Debug)]
struct Gamma {
    d: f64,
    /// 1/sqrt(9d).
    slope: f64,
    /// 1/(54 d).
    squeeze: f64,
}

impl Gamma {
    /// The law with k = 1 + `count`.
    fn beyond(count: f64) -> Self {
        let d = count + 2.0 / 3.0;
        Self { d, slope: 1.0 / libm::sqrt(9.0 * d), squeeze: 1.0 / (54.0 * d) }
    }

    /// A sample. `coin` is uniform: the first 32 bits of the number that decides about the first
    /// proposal.
    #[inline]
    fn sample<R: Rng + ?Sized>(&self, rng: &mut R, coin: u32) -> f64 {
        const UNIT: f64 = 1.0 / (1_u64 << 32) as f64;
        let mut coin = coin;
        loop {
            let x: f64 = StandardNormal.sample(rng);
            let square = x * x;
            let root = 1.0 + self.slope * x;
            let cube = root * root * root;
            let certain = 1.0 - self.squeeze * (square * square);
            if root > 0.5 && (f64::from(coin) + 1.0) * UNIT <= certain {
                return self.d * cube;
            }
            // The next 32 bits of the number, which is in (0, 1).
            let uniform = (f64::from(coin) + (f64::from(rng.next_u32()) + 0.5) * UNIT) * UNIT;
            let exponent = 0.5 * square + self.d * (1.0 - cube + libm::log(cube));
            if root > 0.0 && libm::log(uniform) < exponent {
                return self.d * cube;
            }
            coin = rng.next_u32();
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{Learner, LearnerInput};
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::tally::Tally;

    const DRAWS: u32 = 200_000;

    fn arms_of(counts: &[(u64, u64)]) -> Vec<Evidence> {
        let tallies = counts.iter().filter_map(|&(n, ones)| Tally::new(n, ones).ok());
        tallies.map(Evidence::from).collect()
    }

    /// Fails when the frequency of an arm deviates from its share by more than five and a half
    /// standard deviations. With up to 20 arms a correct sampler fails for one seed in a million
    /// (the smallest expected count is about 100).
    fn assert_drawn_by(shares: &[f64], sampler: &ThompsonSampler, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut counts = vec![0_u32; shares.len()];
        for _ in 0..DRAWS {
            counts[sampler.draw(&mut rng).get()] += 1;
        }
        for (arm, (&count, share)) in counts.iter().zip(shares).enumerate() {
            let expected = f64::from(DRAWS) * share;
            let deviation = libm::sqrt(expected * (1.0 - share));
            let off = (f64::from(count) - expected) / deviation;
            assert!(off.abs() < 5.5, "seed {seed}, arm {arm}: {off} deviations");
        }
    }

    #[test]
    fn arms_that_always_succeeded_are_drawn_in_proportion() {
        // Beta(k, 1) is the law of the largest of k uniform variables.
        let tallies = arms_of(&[(0, 0), (1, 1), (4, 4), (9, 9), (35, 35)]);
        let sampler = ThompsonSampler::new(&tallies).unwrap();
        let shares = [1.0, 2.0, 5.0, 10.0, 36.0].map(|k| k / 54.0);
        assert_drawn_by(&shares, &sampler, 1);
    }

    #[test]
    fn draws_agree_with_the_weights() {
        let five = [(30, 20), (0, 0), (100, 64), (7, 5), (1000, 650)];
        let twelve = [
            (50, 25),
            (50, 26),
            (50, 27),
            (50, 28),
            (50, 29),
            (50, 30),
            (9, 4),
            (20, 10),
            (300, 170),
            (1, 0),
            (2, 1),
            (4, 3),
        ];
        let mut twenty = [(0, 0); 20];
        for (arm, counts) in twenty.iter_mut().enumerate() {
            let reports = 20 + 5 * arm as u64;
            *counts = (reports, reports * (700 - 5 * arm as u64) / 1000);
        }
        for (seed, counts) in (10..).zip([&five[..], &twelve, &twenty]) {
            let arms = arms_of(counts);
            let channel = Floor::for_epsilon(Epsilon::new(1.0).unwrap()).into();
            let input = LearnerInput::of(arms.clone(), &vec![true; arms.len()], channel);
            let weights = Learner::LdpTs.weights(&input).unwrap();
            let shares: Vec<f64> = (0..arms.len()).map(|arm| weights.share(arm)).collect();
            assert!(shares.iter().all(|share| *share > 5e-4), "{shares:?}");
            assert_drawn_by(&shares, &ThompsonSampler::new(&arms).unwrap(), seed);
        }
    }

    #[test]
    fn an_updated_sampler_draws_as_a_new_one() {
        let before = arms_of(&[(30, 20), (0, 0), (100, 64)]);
        let after = arms_of(&[(30, 20), (8, 6), (100, 64)]);
        let mut updated = ThompsonSampler::new(&before).unwrap();
        updated.update(ArmIndex::new(1).unwrap(), after[1]);
        let draws = |sampler: &ThompsonSampler| -> Vec<ArmIndex> {
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            (0..200).map(|_| sampler.draw(&mut rng)).collect()
        };
        let fresh = draws(&ThompsonSampler::new(&after).unwrap());
        assert_eq!(draws(&updated), fresh);
        assert_ne!(draws(&ThompsonSampler::new(&before).unwrap()), fresh);
    }

    #[test]
    fn the_largest_counts_can_be_drawn_from() {
        let most = Tally::REPORTS_MAX;
        let sampler = ThompsonSampler::new(&arms_of(&[(most, 0), (most, most), (most, most / 2)]));
        let sampler = sampler.unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        assert!((0..100).all(|_| sampler.draw(&mut rng).get() == 1));
    }

    #[test]
    fn impossible_numbers_of_arms_are_refused() {
        for arms in [0, 1025] {
            let error = ThompsonSampler::new(&vec![Evidence::default(); arms]).unwrap_err();
            assert_eq!(error, PolicyError::ArmCount { arms });
        }
    }

    #[test]
    fn gamma_samples_have_the_tails_of_a_poisson_process() {
        // The k-th event comes after t with the probability that fewer than k
        // events come before: the sum of e^-t t^i / i! over i < k.
        for k in [1_u32, 2, 5, 26, 400] {
            let gamma = Gamma::beyond(f64::from(k) - 1.0);
            let mut rng = ChaCha8Rng::seed_from_u64(u64::from(k));
            let draw = |rng: &mut ChaCha8Rng| {
                let coin = rng.next_u32();
                gamma.sample(rng, coin)
            };
            let samples: Vec<f64> = (0..DRAWS).map(|_| draw(&mut rng)).collect();
            for deviations in [-0.9, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0] {
                let t = f64::from(k) + deviations * libm::sqrt(f64::from(k));
                let log_term = |i: f64| i * libm::log(t) - t - libm::lgamma(i + 1.0);
                let tail: f64 = (0..k).map(|i| libm::exp(log_term(f64::from(i)))).sum();
                let count = samples.iter().filter(|sample| **sample > t).count() as f64;
                let expected = f64::from(DRAWS) * tail;
                let off = (count - expected) / libm::sqrt(expected * (1.0 - tail));
                assert!(off.abs() < 5.5, "k = {k}, t = {t}: {off} deviations");
            }
        }
    }

    #[test]
    fn acceptance_lies_between_its_squeeze_and_one() {
        for count in [0.0, 1.0, 2.0, 10.0, 1000.0] {
            let gamma = Gamma::beyond(count);
            for step in -500..5000 {
                let z = f64::from(step) / 1000.0;
                let x = z / gamma.slope;
                let cancelled = 3.0 * (libm::log1p(z) - z - z * z) - z * z * z;
                let exponent = 0.5 * x * x + gamma.d * cancelled;
                let slack = exponent + gamma.squeeze * x.powi(4);
                let rounding = 1e-11 * x * x;
                assert!(slack >= -rounding, "{count} {z}: {slack}");
                assert!(exponent <= rounding, "{count} {z}: {exponent}");
            }
        }
    }
}
