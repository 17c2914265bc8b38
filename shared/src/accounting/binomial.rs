//! The distribution of the number of flips in rounds of randomized response, with probabilities
//! relative to one of them.

use std::f64::consts::PI;

use crate::accounting::rounding::GuardedSum;

/// Smallest number whose factorial is computed by the asymptotic series.
const SERIES_FROM: f64 = 24.0;

/// Terms are left out when their sum is below this fraction of the total.
const NEGLIGIBLE: f64 = 1.0 / (1_u64 << 62) as f64;

/// k trials, each a flip with probability 1/(1 + e^ε).
///
/// Requires `1 <= trials < 2^31` and `0 < loss <= 32`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binomial {
    trials: u32,
    loss: f64,
    growth: f64,
}

/// A sum of weighted probabilities in units of one of them, and how many
/// terms it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct RelativeSum {
    pub(super) value: f64,
    pub(super) terms: u32,
}

impl Binomial {
    /// `trials` trials that flip with probability 1/(1 + e^`loss`).
    pub(super) fn new(trials: u32, loss: f64) -> Self {
        Self { trials, loss, growth: libm::exp(loss) }
    }

    /// The likeliest number of flips, at most one off, and at most half of the
    /// trials.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number between 0 and half of the trials"
    )]
    pub(super) fn mode(self) -> u32 {
        ((f64::from(self.trials) / (1.0 + self.growth)) as u32).min(self.trials / 2)
    }

    /// ln P(`flips`), for `flips` up to half of the trials.
    ///
    /// Stirling's formula with its remainder s(n), in an arrangement without
    /// large numbers that cancel: with n trials, a flips and b = n - a,
    ///
    /// ```text
    /// a ln(n/a) + b ln(n/b) + ln(n/(2π a b))/2 + s(n) - s(a) - s(b)
    ///     - a ε - n ln(1 + e^-ε)
    /// ```
    ///
    /// The products are within 5 units of 2^-53, relatively: in the worst one,
    /// a ln(n/a), the quotient is at least 2, so its rounding moves the
    /// logarithm by 1/ln 2 units. The half logarithm errs by at most 4 units
    /// more than that absolutely, and the remainders by 3 times 2^-46: together
    /// below 2^-44.
    pub(super) fn log_probability(self, flips: u32) -> GuardedSum {
        let (n, a) = (f64::from(self.trials), f64::from(flips));
        let b = n - a;
        let none = GuardedSum::default().plus(-n * libm::log1p(libm::exp(-self.loss)));
        if flips == 0 {
            return none;
        }
        none.plus(-a * self.loss)
            .plus(a * libm::log(n / a))
            .plus(-b * libm::log1p(-a / n))
            .plus(0.5 * libm::log(n / (2.0 * PI * a * b)))
            .plus(stirling_remainder(n) - stirling_remainder(a) - stirling_remainder(b))
    }

    /// Σ P(l) w(l)/P(`from`) over l from `from` down to 0, for weights in
    /// (0, 1].
    pub(super) fn below(self, from: u32, weight: impl Fn(u32) -> f64) -> RelativeSum {
        // P(l - 1)/P(l) = l e^ε/(n - l + 1), which falls as l falls.
        let step = |l: u32| f64::from(l) / f64::from(self.trials - l + 1) * self.growth;
        let flips = (0..=from).rev();
        sum(flips, step, weight)
    }

    /// Σ P(l) w(l)/P(`from`) over l from `from` + 1 up to `last`, for weights in (0, 1].
    pub(super) fn above(self, from: u32, last: u32, weight: impl Fn(u32) -> f64) -> RelativeSum {
        // P(l + 1)/P(l) = (n - l) e^-ε/(l + 1), which falls as l grows.
        let step = |l: u32| f64::from(self.trials - l) / f64::from(l + 1) / self.growth;
        let skipped = |l: u32| if l == from { 0.0 } else { weight(l) };
        sum(from..=last, step, skipped)
    }
}

/// Σ r(l) w(l), where r is 1 for the first l and r(next) = r(l) `step`(l), with
/// steps that fall. The remaining terms, once negligible, are replaced by a
/// geometric series above them.
fn sum(
    flips: impl Iterator<Item = u32>,
    step: impl Fn(u32) -> f64,
    weight: impl Fn(u32) -> f64,
) -> RelativeSum {
    let (mut value, mut terms, mut ratio) = (0.0, 0, 1.0);
    for l in flips {
        value += ratio * weight(l);
        terms += 1;
        let step = step(l);
        ratio *= step;
        let rest = ratio / (1.0 - step);
        if step < 1.0 && rest <= value * NEGLIGIBLE {
            return RelativeSum { value: value + 2.0 * rest, terms };
        }
    }
    RelativeSum { value, terms }
}

/// ln n! - ((n + 1/2) ln n - n + ln(2π)/2), for `n >= 1`, to within 2^-46.
///
/// The series is alternating and errs by less than the first term left out,
/// 1/(1188 n^9) < 2^-51 (Abramowitz and Stegun 1964, 6.1.42). Below
/// [`SERIES_FROM`] it is reached by s(n) = s(n + 1) + (n + 1/2) ln(1 + 1/n) - 1,
/// each step of which adds at most 4 units of 2^-53, so 24 of them 2^-46.4.
fn stirling_remainder(mut n: f64) -> f64 {
    let mut carried = 0.0;
    while n < SERIES_FROM {
        carried += (n + 0.5) * libm::log1p(1.0 / n) - 1.0;
        n += 1.0;
    }
    let square = n * n;
    let series = 1.0 / 1260.0 - 1.0 / (1680.0 * square);
    let series = 1.0 / 12.0 - (1.0 / 360.0 - series / square) / square;
    carried + series / n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_match_exact_factorials() {
        let mut factorial = 1.0;
        for n in 1..=20 {
            let n = f64::from(n);
            factorial *= n;
            let formula = (n + 0.5) * n.ln() - n + 0.5 * (2.0 * PI).ln();
            let error = factorial.ln() - formula - stirling_remainder(n);
            assert!(error.abs() < 3e-14, "{n}: {error:e}");
        }
    }
}
