//! The discrete Gaussian distribution.

use rand::Rng;

use super::coin::bernoulli_exp_square;
use super::{DiscreteLaplace, Ratio, clamped_sum};

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

    /// A distance in steps that the noise exceeds with probability at most `beta`, rounded
    /// up: P(|noise| >= m) is at most 2 exp(-m^2/(2 σ^2)), since the noise is subgaussian
    /// (Canonne, Kamath and Steinke 2020). Infinite for a probability that is
    /// not positive.
    ///
    /// ```
    /// use bandana_mechanisms::noise::{DiscreteGaussian, Ratio};
    /// let noise = DiscreteGaussian::new(Ratio::whole(10_000)?);
    /// assert!((noise.bound(0.05) - 271.7).abs() < 0.1);
    /// # Ok::<(), bandana_mechanisms::noise::RatioError>(())
    /// ```
    pub fn bound(self, beta: f64) -> f64 {
        if beta.is_nan() || beta <= 0.0 {
            return f64::INFINITY;
        }
        (2.0 * self.variance.to_f64() * libm::log(2.0 / beta).max(0.0)).sqrt() * (1.0 + 1e-12)
    }
}
