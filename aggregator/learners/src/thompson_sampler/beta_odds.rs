//! Exact samples of the odds of a Beta variable, as a ratio of two Gamma variables.

use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::input::Evidence;

/// The odds of a Beta variable, a ratio of two Gamma variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BetaOdds {
    ones: Gamma,
    zeros: Gamma,
}

impl BetaOdds {
    pub(crate) fn of(arm: Evidence) -> Self {
        Self { ones: Gamma::beyond(arm.ones()), zeros: Gamma::beyond(arm.zeros()) }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "each half of the word is a coin of its own"
    )]
    pub(crate) fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> (f64, f64) {
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

    const DRAWS: u32 = 200_000;

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
