//! Zero-concentrated differential privacy.

use thiserror::Error;

use crate::accounting::conversion::{least_over_orders, log_delta_bound, loss_bound};
use crate::accounting::delta::Delta;
use crate::accounting::loss::PrivacyLoss;
use crate::accounting::order::Order;
use crate::accounting::rounding::{add_up, count_up, exp_up, mul_up, sqrt_up};

/// The ρ of ρ-zero-concentrated differential privacy (zCDP) in nats, from 0 to
/// infinity.
///
/// The Rényi divergence of every order α > 1 between the outputs for two
/// neighbouring inputs is at most ρ α (Bun and Steinke, "Concentrated
/// differential privacy: simplifications, extensions, and lower bounds", 2016,
/// definition 1.1). Infinity promises nothing.
///
/// ```
/// use bandana_shared::accounting::{concentrated::Rho, delta::Delta, gaussian::GaussianMechanism};
/// let noisy_sum = GaussianMechanism::new(1.0, 4.0)?.rho();
/// assert_eq!(noisy_sum, Rho::new(1.0 / 32.0)?);
/// let ten = noisy_sum.times(10);
/// let delta = Delta::new(1e-6)?;
/// assert!(ten.loss(delta) < ten.loss_simple(delta));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rho(f64);

impl Rho {
    /// No information is revealed.
    pub const ZERO: Self = Self(0.0);

    /// Checks the range.
    ///
    /// # Errors
    /// [`RhoError`] when `rho` is negative or not a number.
    pub fn new(rho: f64) -> Result<Self, RhoError> {
        if rho >= 0.0 { Ok(Self(rho.abs())) } else { Err(RhoError(rho)) }
    }

    /// ρ.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The smallest ρ of an arbitrary ε-differentially private mechanism, rounded up: ρ = ε
    /// tanh(ε/2).
    ///
    /// Randomized response has the largest divergence of every order (Steinke,
    /// "Tight RDP & zCDP bounds from pure DP", 2024, theorem 4):
    /// (ln cosh((α - 1/2) ε) - ln cosh(ε/2))/(α - 1). With c = 2α - 1, the
    /// derivative of the numerator, ε tanh(c ε/2), is at most c ε tanh(ε/2),
    /// since tanh is concave; integrated from α = 1, the numerator is at most
    /// α (α - 1) ε tanh(ε/2).
    ///
    /// ```
    /// use bandana_shared::accounting::{concentrated::Rho, loss::PrivacyLoss};
    /// let loss = PrivacyLoss::new(4.0)?;
    /// assert!(Rho::of_pure(loss).get() < 4.0);
    /// assert_eq!(Rho::of_pure_quadratic(loss).get(), 8.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_pure(loss: PrivacyLoss) -> Self {
        Self(loss.largest_mean())
    }

    /// The better known bound for an ε-differentially private mechanism, ε²/2,
    /// rounded up (Bun and Steinke 2016, proposition 1.4).
    pub fn of_pure_quadratic(loss: PrivacyLoss) -> Self {
        Self::half_square(loss.get())
    }

    /// x²/2, rounded up.
    pub(super) fn half_square(x: f64) -> Self {
        Self(mul_up(mul_up(x, x), 0.5))
    }

    /// The ρ of two mechanisms on the same data, chosen adaptively: the sum, rounded up (Bun and
    /// Steinke 2016, lemma 1.7).
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(add_up(self.0, other.0))
    }

    /// The ρ of `count` mechanisms on the same data: `count` ρ, rounded up.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(mul_up(count_up(count), self.0))
    }

    /// The ρ of two mechanisms on disjoint data: the larger one. Either the partition must not
    /// depend on the data, or neighbours must differ by adding or removing one person: otherwise a
    /// change of one person's data could move that person from one part to the other.
    #[must_use]
    pub fn alongside(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// The ρ for a group of `people` whose data all change: `people`² ρ, rounded up (Bun and
    /// Steinke 2016, proposition 1.9).
    #[must_use]
    pub fn for_group(self, people: u64) -> Self {
        self.times(people).times(people)
    }

    /// The divergence of one order: ρ α, rounded up.
    pub fn renyi(self, order: Order) -> PrivacyLoss {
        PrivacyLoss::at_most(mul_up(self.0, order.get()))
    }

    /// An ε for `delta`, rounded up: ρ + 2 sqrt(ρ ln(1/δ)) (Bun and Steinke
    /// 2016, proposition 1.3). Unbounded for a δ of 0, unless ρ is 0.
    pub fn loss_simple(self, delta: Delta) -> PrivacyLoss {
        let root = sqrt_up(mul_up(self.0, delta.log_reciprocal()));
        PrivacyLoss::at_most(add_up(self.0, mul_up(2.0, root)))
    }

    /// A smaller ε for `delta`, rounded up: the least over the orders α of
    /// ρ α + ln(1/δ)/(α - 1) + ln(1 - 1/α) - ln(α)/(α - 1) (Canonne, Kamath and
    /// Steinke 2020, corollary 13, solved for ε). Never above
    /// [`Self::loss_simple`].
    pub fn loss(self, delta: Delta) -> PrivacyLoss {
        let simple = self.loss_simple(delta);
        if simple == PrivacyLoss::ZERO || simple == PrivacyLoss::UNBOUNDED {
            return simple;
        }
        let least = least_over_orders(|order| loss_bound(order, self.renyi(order).get(), delta));
        PrivacyLoss::at_most(least.min(simple.get()))
    }

    /// A δ for `loss`, rounded up: the least over the orders α of
    /// exp((α - 1)(ρ α - ε)) (1 - 1/α)^α/(α - 1) (Canonne, Kamath and Steinke
    /// 2020, corollary 13).
    pub fn delta(self, loss: PrivacyLoss) -> Delta {
        if self == Self::ZERO {
            return Delta::ZERO;
        }
        let log =
            least_over_orders(|order| log_delta_bound(order, self.renyi(order).get(), loss.get()));
        Delta::at_most(exp_up(log.min(0.0)))
    }
}

/// A number that is not a valid ρ.
#[derive(Clone, Copy, Error, PartialEq)]
#[error("rho is {0}; it must be 0 or more, and may be infinite")]
pub struct RhoError(f64);

crate::debug_says!(RhoError);
