//! The discrete Gaussian distribution.

use rand::Rng;

use super::coin::bernoulli_exp_square;
use super::{DiscreteLaplace, Ratio, clamped_sum};

/// The largest standard deviation at which tails are added up.
const SUMMED_DEVIATION: f64 = 64.0;

/// The discrete Gaussian distribution: P(k) is proportional to exp(-k^2/(2 σ^2)) on the
/// integers.
///
/// Added to an integer that one person changes by at most Δ, it is
/// Δ^2/(2 σ^2)-zero-concentrated differentially private (Canonne, Kamath and Steinke 2020,
/// theorem 4), exactly as the continuous one is. For a vector of independent noise, Δ is the
/// largest change in Euclidean distance. Its variance is at most σ^2 (corollary 9), and its
/// tails are no heavier than those of N(0, σ^2) (proposition 25).
///
/// ```
/// use bandana_mechanisms::noise::{DiscreteGaussian, Ratio};
/// use rand_chacha::rand_core::SeedableRng as _;
/// let mut rng = rand_chacha::ChaCha20Rng::seed_from_u64(3);
/// let noise = DiscreteGaussian::new(Ratio::new(9, 1)?);
/// assert!((0..1_000).all(|_| noise.sample(&mut rng).abs() < 30));
/// # Ok::<(), bandana_mechanisms::noise::RatioError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscreteGaussian {
    variance: Ratio,
    /// The scale of the proposals, floor(σ) + 1.
    proposal: DiscreteLaplace,
}

impl DiscreteGaussian {
    /// The distribution with this σ^2, in squared lattice steps.
    pub fn new(variance: Ratio) -> Self {
        let deviation = (variance.numerator() / variance.denominator()).isqrt();
        // floor(σ) is below 2^31.
        let scale = Ratio::whole(deviation + 1).unwrap_or(Ratio::ONE);
        Self { variance, proposal: DiscreteLaplace::new(scale) }
    }

    /// σ^2.
    pub fn variance(self) -> Ratio {
        self.variance
    }

    /// A sample (Canonne, Kamath and Steinke 2020, algorithm 3).
    ///
    /// A proposal Y of the discrete Laplace distribution of scale t = floor(σ) + 1 is accepted with
    /// probability exp(-(|Y| - σ^2/t)^2/(2 σ^2)). With σ^2 = a/b that is exp(-(|Y| b t - a)^2/(2 a
    /// b t^2)). As a and b are below 2^62, b t is at most sqrt(a b) + b < 2^63, so |Y| b t is below
    /// 2^126; and a b t^2 is at most a (sqrt(a) + sqrt(b))^2 < 2^126.
    pub fn sample<R: Rng + ?Sized>(self, rng: &mut R) -> i64 {
        let (a, b) =
            (u128::from(self.variance.numerator()), u128::from(self.variance.denominator()));
        let t = u128::from(self.proposal.scale().numerator());
        let denominator = 2 * a * b * t * t;
        loop {
            let y = self.proposal.sample(rng);
            let distance = (u128::from(y.unsigned_abs()) * b * t).abs_diff(a);
            if bernoulli_exp_square(distance, denominator, rng) {
                return y;
            }
        }
    }

    /// `value` plus noise, clamped to [`STEPS_MAX`](super::STEPS_MAX) in magnitude.
    pub fn release<R: Rng + ?Sized>(self, value: i64, rng: &mut R) -> i64 {
        clamped_sum(value, self.sample(rng))
    }

    /// P(|noise| > `steps`), rounded up.
    ///
    /// With f(k) = exp(-k^2/(2 σ^2)), that is twice the sum of f beyond m, divided by the sum of f.
    /// For a small σ both are added up. For a larger one, the sum of f is at least sqrt(2 π σ^2)
    /// (by Poisson's formula), and f is convex beyond σ, so that f(k) is at most its integral from
    /// k - 1/2 to k + 1/2: the tail is at most erfc((m + 1/2)/(σ sqrt(2))). Before σ, where f
    /// decreases, it is at most erfc(m/(σ sqrt(2))).
    pub fn tail(self, steps: u64) -> f64 {
        let deviation = self.variance.to_f64().sqrt();
        let share = if deviation <= SUMMED_DEVIATION {
            self.summed_tail(steps)
        } else {
            let from = steps as f64 + 0.5;
            let from = if from >= deviation { from } else { steps as f64 };
            libm::erfc(from / (deviation * std::f64::consts::SQRT_2))
        };
        (share * (1.0 + 1e-9)).min(1.0)
    }

    fn summed_tail(self, steps: u64) -> f64 {
        let double = 2.0 * self.variance.to_f64();
        let weight = |k: u64| libm::exp(-(k as f64) * (k as f64) / double);
        // A term is below 10^-18 of the first one 583 terms later, or sooner.
        let sum = |from: u64| -> f64 { (from..from.saturating_add(640)).map(weight).sum() };
        2.0 * sum(steps.saturating_add(1)) / (1.0 + 2.0 * sum(1))
    }

    /// The least m, in steps, with P(|noise| > m) of at most `beta`, or the next one. It is 2^63
    /// for a `beta` that is not positive.
    ///
    /// ```
    /// use bandana_mechanisms::noise::{DiscreteGaussian, Ratio};
    /// // 1.96 standard deviations.
    /// let noise = DiscreteGaussian::new(Ratio::whole(10_000)?);
    /// assert_eq!(noise.quantile(0.05), 196);
    /// # Ok::<(), bandana_mechanisms::noise::RatioError>(())
    /// ```
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number below 2^40"
    )]
    pub fn quantile(self, beta: f64) -> u64 {
        if beta.is_nan() || beta <= 0.0 {
            return 1 << 63;
        }
        if self.tail(0) <= beta {
            return 0;
        }
        // At 39 standard deviations the tail is below every float.
        let (mut below, mut enough) = (0, (self.variance.to_f64().sqrt() * 39.0) as u64 + 39);
        while enough - below > 1 {
            let middle = below + (enough - below) / 2;
            if self.tail(middle) <= beta { enough = middle } else { below = middle }
        }
        enough
    }
}
