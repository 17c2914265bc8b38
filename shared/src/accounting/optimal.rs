//! The exact composition of pure mechanisms.
//!
//! Randomized response dominates every ε-differentially private mechanism. So k rounds of it, with
//! independent flips, are the worst case of k rounds, also when the mechanisms are chosen
//! adaptively (Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", 2015,
//! theorem 3.3). With l flips the privacy loss is (k - 2l) ε, and
//!
//! δ(ε') = Σ P(l flips) (1 - exp(ε' - (k - 2l) ε)), over l with (k - 2l) ε > ε'.
//!
//! The theorem states this at ε' = (k - 2i) ε. Between these values the sum is the same, as Murtagh
//! and Vadhan, "The complexity of computing the optimal composition of differential privacy", 2016,
//! theorem 1.5, show for losses that may differ.

use thiserror::Error;

use crate::accounting::binomial::Binomial;
use crate::accounting::delta::Delta;
use crate::accounting::loss::PrivacyLoss;
use crate::accounting::rounding::exp_up;
use crate::accounting::{advanced, basic};
use crate::epsilon::Epsilon;

/// The largest number of rounds, 2^20. The sum then has ten thousand significant terms, and
/// rounding costs a relative 2^-27 of δ.
pub const ROUNDS_MAX: u32 = 1 << 20;

/// `rounds` rounds of mechanisms with the same loss.
///
/// ```
/// use bandana_shared::accounting::{delta::Delta, loss::PrivacyLoss};
/// use bandana_shared::accounting::optimal::OptimalComposition;
/// use bandana_shared::epsilon::Epsilon;
/// // With e^ε = 3 a round flips with probability 1/4, and two rounds don't
/// // with 9/16. Against e^ε' = 3, δ is 9/16 (1 - 3/9).
/// let ln_3 = 3.0_f64.ln();
/// let twice = OptimalComposition::new(Epsilon::new(ln_3)?, 2)?;
/// assert!((twice.delta(PrivacyLoss::new(ln_3)?).get() - 0.375).abs() < 1e-12);
/// assert!((twice.loss(Delta::new(0.375)?).get() - ln_3).abs() < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimalComposition {
    loss: Epsilon,
    rounds: u32,
}

impl OptimalComposition {
    /// A composition of 0 to [`ROUNDS_MAX`] rounds of loss `loss`.
    ///
    /// # Errors
    /// [`TooManyRounds`] above [`ROUNDS_MAX`].
    pub fn new(loss: Epsilon, rounds: u64) -> Result<Self, TooManyRounds> {
        match u32::try_from(rounds) {
            Ok(rounds) if rounds <= ROUNDS_MAX => Ok(Self { loss, rounds }),
            _ => Err(TooManyRounds(rounds)),
        }
    }

    /// The least δ with which the rounds together are (`loss`, δ)-differentially private, rounded
    /// up by at most a relative 2^-27. A δ other than 0 is rounded up to at least 2^-1022.
    pub fn delta(self, loss: PrivacyLoss) -> Delta {
        let Some(last) = self.last_exceeding(loss) else {
            return Delta::ZERO;
        };
        // No terms cancel: each is positive, and the exponent of its weight is
        // one fused operation. From the largest probability on, each next one
        // is a product, which errs by at most 6 units of 2^-53 a step: two
        // quotients and two products or less, and 2 units of e^ε. With the
        // weight and the addition it stays below 8 units for every term, 2^-50.
        let flips = Binomial::new(self.rounds, self.loss.get());
        let start = last.min(flips.mode());
        let weight = |l| -libm::expm1(-self.excess(l, loss));
        let below = flips.below(start, weight);
        let above = flips.above(start, last, weight);
        let log = flips.log_probability(start).plus(libm::log(below.value + above.value));
        // The 7 terms are within 5 units of 2^-53 of their magnitude and the
        // additions within 8: together below 2^-49 of it. What errs absolutely
        // in them takes 2^-44, the constant parts of the walk the last guard.
        let steps = f64::from(below.terms + above.terms);
        let guard = steps * power(-50) + log.magnitude() * power(-49) + power(-44) + power(-46);
        Delta::at_most(exp_up(log.value() + guard))
    }

    /// The least ε' with which the rounds together are (ε', `delta`)-
    /// differentially private, rounded up; never above basic or [advanced]
    /// composition.
    ///
    /// ε' is found by bisection, and [`Self::delta`] of it is at most `delta`,
    /// unless it is the bound of advanced composition itself.
    ///
    /// [advanced]: crate::accounting::advanced::sharp
    pub fn loss(self, delta: Delta) -> PrivacyLoss {
        let single = PrivacyLoss::from(self.loss);
        let rounds = u64::from(self.rounds);
        let advanced = advanced::sharp(single, rounds, delta);
        let basic = basic::repeat(single, rounds);
        let fits = |nats| self.delta(PrivacyLoss::at_most(nats)) <= delta;
        let (mut low, mut high) = (0.0, basic.get().min(advanced.get()));
        if fits(low) {
            return PrivacyLoss::ZERO;
        }
        // Halves the interval until its length is 2^-60 of the initial one.
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if fits(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        PrivacyLoss::at_most(high)
    }

    /// The largest number of flips with which the loss exceeds `loss`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number between 0 and half of the rounds"
    )]
    fn last_exceeding(self, loss: PrivacyLoss) -> Option<u32> {
        let exceeds = |l| self.excess(l, loss) > 0.0;
        if self.rounds == 0 || !exceeds(0) {
            return None;
        }
        let most = (self.rounds - 1) / 2;
        let rounds = f64::from(self.rounds);
        let guess = (rounds - loss.get() / self.loss.get()) / 2.0;
        let mut last = (guess.max(0.0) as u32).min(most);
        while !exceeds(last) {
            last -= 1;
        }
        while last < most && exceeds(last + 1) {
            last += 1;
        }
        Some(last)
    }

    /// (k - 2l) ε - ε', with one rounding, so that its sign is right.
    fn excess(self, flips: u32, loss: PrivacyLoss) -> f64 {
        let steps = f64::from(self.rounds) - 2.0 * f64::from(flips);
        libm::fma(steps, self.loss.get(), -loss.get())
    }
}

/// 2^`exponent`.
fn power(exponent: i32) -> f64 {
    libm::ldexp(1.0, exponent)
}

/// A number of rounds too large for exact composition.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error(
    "there are {0} rounds, and the exact composition takes at most 2^20; use advanced composition, \
     which takes any number"
)]
pub struct TooManyRounds(u64);

crate::debug_says!(TooManyRounds);
