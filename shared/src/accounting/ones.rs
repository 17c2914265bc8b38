//! The distribution of the number of ones among private bits, with bounds of its errors.

use crate::accounting::rounding::add_up;

/// The rounding error of one operation, 2^-53, relatively.
const UNIT: f64 = f64::EPSILON / 2.0;

/// More than underflow takes from all sums together: 2^-1074 in each of fewer than 2^60 products.
const UNDERFLOW: f64 = f64::MIN_POSITIVE * (1_u64 << 40) as f64;

/// Probabilities of consecutive numbers of ones. Which numbers they are of is not kept, since no
/// divergence depends on it.
///
/// With f the exact probabilities and g those of `values`, there are numbers h >= 0 that sum to at
/// most `lost` with `f = g (1 + e) + h` everywhere, |e| at most `error` units of 2^-53, to first
/// order. So a value is below the truth by at most that and `lost`, and above it by at most `error`.
#[derive(Clone, Debug)]
pub(super) struct Ones {
    values: Vec<f64>,
    error: f64,
    lost: f64,
}

/// What an advantage is computed from: the largest over m of the sum over i of `gains[i]` P(N = m - i),
/// less `charge` P(N > m).
#[derive(Clone, Debug)]
pub(super) struct Payoff {
    /// One for each report of one's own, each at least the exact number, and at most 1.
    pub(super) gains: Vec<f64>,
    /// At most the exact number.
    pub(super) charge: f64,
}

impl Ones {
    /// No bits: no ones, for certain.
    pub(super) fn none() -> Self {
        Self { values: vec![1.0], error: 0.0, lost: 0.0 }
    }

    /// The ones among `trials` bits that are 1 with odds `odds`, below 1 and within 3 units of
    /// their exact value. Leaves out at most `cut` at either end; `cut` is at most 2^-60.
    ///
    /// From the mode outwards, each probability is the last one times a quotient, which errs by 6
    /// units: 3 of the odds, a quotient and two products. Their sum stands for the probability of
    /// the mode. With l terms it errs by 7 l units, and each quotient by 6 l more and 1; what was
    /// left out of the sum adds less than 1.
    pub(super) fn binomial(trials: u32, odds: f64, cut: f64) -> Self {
        let n = f64::from(trials);
        let mode = mode(trials, odds);
        let mut lost = 0.0;
        // P(l + 1)/P(l) falls as l grows, and P(l - 1)/P(l) as l falls: the rest is below a
        // geometric series. Twice its sum covers the rounding.
        let mut walk = |count: u32, step: &dyn Fn(f64) -> f64| {
            let (mut relative, mut values) = (1.0, Vec::new());
            for distance in 0..count {
                let step = step(f64::from(distance));
                relative *= step;
                let rest = relative / (1.0 - step);
                if step < 1.0 && rest <= cut / 2.0 {
                    lost += 2.0 * rest;
                    break;
                }
                values.push(relative);
            }
            values
        };
        let at = f64::from(mode);
        let above = walk(trials - mode, &|d| (n - at - d) / (at + d + 1.0) * odds);
        let mut values = walk(mode, &|d| (at - d) / (n - at + d + 1.0) / odds);
        values.reverse();
        values.push(1.0);
        values.extend(above);
        let total: f64 = values.iter().sum();
        for value in &mut values {
            *value /= total;
        }
        let error = 16.0 * values.len() as f64;
        Self { values, error, lost }
    }

    /// The ones among as many bits with inverse odds.
    pub(super) fn mirrored(&self) -> Self {
        Self { values: self.values.iter().rev().copied().collect(), ..*self }
    }

    /// The ones among the bits of both. Leaves out at most `cut` at either end.
    ///
    /// All terms are positive, so a sum of l products adds at most l units.
    pub(super) fn beside(&self, other: &Self, cut: f64) -> Self {
        let (long, short) =
            if self.values.len() < other.values.len() { (other, self) } else { (self, other) };
        let mut values = vec![0.0; long.values.len() + short.values.len() - 1];
        for (place, factor) in short.values.iter().enumerate() {
            for (sum, value) in values[place..].iter_mut().zip(&long.values) {
                *sum += factor * value;
            }
        }
        let below = negligible(values.iter().copied(), cut);
        let above = negligible(values[below..].iter().rev().copied(), cut);
        values.truncate(values.len() - above);
        values.drain(..below);
        let error = self.error + other.error + short.values.len() as f64 + 1.0;
        // Twice the cut at either end, for the rounding of what was added up there.
        let lost = self.lost + other.lost + 4.0 * cut + UNDERFLOW;
        Self { values, error, lost }
    }

    /// An upper bound of the largest payoff over all numbers of ones, at least 0.
    pub(super) fn advantage(&self, payoff: &Payoff) -> f64 {
        let own = payoff.gains.len();
        // The tail is a sum, which errs by as many units as it has terms, and that of the gains by as
        // many as there are. Products and difference take 4 more, and the square of all errors is
        // below one unit in 2^20.
        let error = (self.error + (self.values.len() + own) as f64 + 8.0) * UNIT * 1.001;
        let (more, less) = (1.0 + error, 1.0 - error);
        let gains: Vec<f64> =
            payoff.gains.iter().map(|gain| gain * if *gain > 0.0 { more } else { less }).collect();
        let charge = payoff.charge * less;
        let (mut tail, mut best) = (0.0, 0.0_f64);
        for number in (0..self.values.len() + own - 1).rev() {
            let terms = gains.iter().enumerate().filter_map(|(below, gain)| {
                Some(gain * self.values.get(number.checked_sub(below)?)?)
            });
            best = best.max(terms.sum::<f64>() - charge * tail);
            tail += self.values.get(number).copied().unwrap_or(0.0);
        }
        // Values err by `lost` more in all. Numbers that are not kept are no likelier than that.
        let largest = payoff.gains.iter().copied().fold(0.0, f64::max);
        let missing = largest * self.lost * 1.001 + UNDERFLOW * (own as f64 + payoff.charge);
        add_up(best.next_up(), missing)
    }
}

/// The likeliest number of ones, at most one off.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number from 0 to the number of trials"
)]
fn mode(trials: u32, odds: f64) -> u32 {
    ((f64::from(trials) * (odds / (1.0 + odds))) as u32).min(trials)
}

/// How many values from one end sum to at most `cut`.
fn negligible(values: impl Iterator<Item = f64>, cut: f64) -> usize {
    let mut sum = 0.0;
    values
        .take_while(|value| {
            sum += value;
            sum <= cut
        })
        .count()
}
