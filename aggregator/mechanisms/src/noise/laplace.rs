//! The discrete Laplace distribution.

use rand::Rng;

use super::coin::{below, bernoulli_exp};
use super::{Ratio, clamped_sum};

/// The discrete Laplace distribution of scale s: P(k) is proportional to exp(-|k|/s) on the
/// integers.
///
/// Added to an integer that one person changes by at most Δ, it is Δ/s-differentially private:
/// P(k)/P(k + Δ) is at most exp(Δ/s). For a vector of independent noise, Δ is the largest
/// change of the sum of magnitudes (Ghosh, Roughgarden and Sundararajan, "Universally
/// utility-maximizing privacy mechanisms", 2009).
///
/// ```
/// use bandana_mechanisms::noise::{DiscreteLaplace, Ratio};
/// use rand_chacha::rand_core::SeedableRng as _;
/// let mut rng = rand_chacha::ChaCha20Rng::seed_from_u64(3);
/// let noise = DiscreteLaplace::new(Ratio::new(5, 2)?);
/// let sum: i64 = (0..10_000).map(|_| noise.sample(&mut rng)).sum();
/// assert!(sum.abs() < 2_000);
/// # Ok::<(), bandana_mechanisms::noise::RatioError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscreteLaplace {
    scale: Ratio,
}

impl DiscreteLaplace {
    /// The distribution of this scale, in lattice steps.
    pub fn new(scale: Ratio) -> Self {
        Self { scale }
    }

    /// The scale.
    pub fn scale(self) -> Ratio {
        self.scale
    }

    /// A sample (Canonne, Kamath and Steinke 2020, algorithm 2), clamped to 2^63 - 1 in magnitude.
    pub fn sample<R: Rng + ?Sized>(self, rng: &mut R) -> i64 {
        let (t, s) = (u128::from(self.scale.numerator()), u128::from(self.scale.denominator()));
        loop {
            // X = U + t V is geometric with parameter 1 - exp(-1/t).
            let rest = below(t, rng);
            if !bernoulli_exp(rest, t, rng) {
                continue;
            }
            let mut x = rest;
            while bernoulli_exp(1, 1, rng) {
                x = x.saturating_add(t);
            }
            let magnitude = i64::try_from(x / s).unwrap_or(i64::MAX);
            let negative = rng.next_u64() >> 63 == 1;
            // Negative zero is rejected, so that zero is not counted twice.
            if !(negative && magnitude == 0) {
                return if negative { -magnitude } else { magnitude };
            }
        }
    }

    /// `value` plus noise, clamped to [`STEPS_MAX`](super::STEPS_MAX) in magnitude.
    pub fn release<R: Rng + ?Sized>(self, value: i64, rng: &mut R) -> i64 {
        clamped_sum(value, self.sample(rng))
    }

    /// ln P(|noise| > `steps`), up to rounding: with q = exp(-1/s), P(|k| > m) = 2 q^(m + 1)/(1 +
    /// q).
    pub fn log_tail(self, steps: u64) -> f64 {
        let step = -1.0 / self.scale.to_f64();
        std::f64::consts::LN_2 + (steps as f64 + 1.0) * step - libm::log1p(libm::exp(step))
    }

    /// The least m, in steps, with P(|noise| > m) of at most `beta`, or the next one. It is 2^63
    /// for a `beta` that is not positive.
    ///
    /// ```
    /// use bandana_mechanisms::noise::{DiscreteLaplace, Ratio};
    /// // s ln(1/beta) for a large s.
    /// let noise = DiscreteLaplace::new(Ratio::new(1_000, 1)?);
    /// assert_eq!(noise.quantile(0.05), 2_996);
    /// # Ok::<(), bandana_mechanisms::noise::RatioError>(())
    /// ```
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0..=2^63 before"
    )]
    pub fn quantile(self, beta: f64) -> u64 {
        const MOST: f64 = 9.3e18;
        if beta.is_nan() || beta <= 0.0 {
            return 1 << 63;
        }
        let wanted = (self.log_tail(0) - libm::log(beta)) * self.scale.to_f64();
        // A relative error of some units of 2^-53, in the unit of the terms above.
        let guard = (self.log_tail(0).abs() + libm::log(beta).abs()) * self.scale.to_f64() * 1e-13;
        let steps = (wanted + guard).ceil().clamp(0.0, MOST);
        if steps >= MOST { 1 << 63 } else { steps as u64 }
    }
}
