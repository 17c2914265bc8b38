//! Rényi differential privacy.

use thiserror::Error;

use crate::accounting::concentrated::Rho;
use crate::accounting::conversion::{log_delta_bound, loss_bound};
use crate::accounting::delta::Delta;
use crate::accounting::gaussian::GaussianMechanism;
use crate::accounting::loss::PrivacyLoss;
pub use crate::accounting::order::{Order, OrderError};
use crate::accounting::rounding::{GuardedSum, exp_up};

/// A non-empty set of orders.
#[derive(Clone, Debug, PartialEq)]
pub struct Orders(Vec<Order>);

impl Orders {
    /// The set of these orders, in any arrangement.
    ///
    /// # Errors
    /// [`RenyiError::Order`] for an α out of range, [`RenyiError::NoOrders`] for an empty set.
    pub fn new(alphas: &[f64]) -> Result<Self, RenyiError> {
        if alphas.is_empty() {
            return Err(RenyiError::NoOrders);
        }
        let orders = alphas.iter().map(|&alpha| Order::new(alpha));
        Ok(Self(orders.collect::<Result<_, _>>()?))
    }

    /// Orders for losses from about 0.01 to 30 and any usual δ: a geometric
    /// grid of 1 + 2^(i/4) from 1 + 2^-6 to 1 + 2^14.
    #[must_use]
    pub fn standard() -> Self {
        let excesses = (-24..=56).map(|i| libm::exp2(f64::from(i) / 4.0));
        Self(excesses.filter_map(Order::one_plus).collect())
    }

    /// The orders, as given.
    pub fn iter(&self) -> impl Iterator<Item = Order> + '_ {
        self.0.iter().copied()
    }
}

/// A bound on the Rényi divergence at every order of a set.
///
/// A mechanism is (α, r)-Rényi differentially private if the divergence of
/// order α between its outputs for neighbouring inputs is at most r nats
/// (Mironov, "Rényi differential privacy", 2017, definition 4).
///
/// ```
/// use bandana_shared::accounting::{delta::Delta, gaussian::GaussianMechanism};
/// use bandana_shared::accounting::{loss::PrivacyLoss, renyi::{Orders, RenyiCurve}};
/// let orders = Orders::standard();
/// let noise = RenyiCurve::gaussian(&orders, GaussianMechanism::new(1.0, 20.0)?).times(100);
/// let flip = RenyiCurve::pure(&orders, PrivacyLoss::new(0.5)?);
/// let both = noise.plus(&flip)?;
/// assert!(both.loss(Delta::new(1e-6)?).get() < 3.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RenyiCurve {
    points: Vec<(Order, PrivacyLoss)>,
}

impl RenyiCurve {
    fn new(orders: &Orders, divergence: impl Fn(Order) -> PrivacyLoss) -> Self {
        Self { points: orders.iter().map(|order| (order, divergence(order))).collect() }
    }

    /// The curve of a mechanism that reveals nothing.
    pub fn zero(orders: &Orders) -> Self {
        Self::new(orders, |_| PrivacyLoss::ZERO)
    }

    /// The curve of the Gaussian mechanism (Mironov 2017, proposition 7).
    pub fn gaussian(orders: &Orders, mechanism: GaussianMechanism) -> Self {
        Self::new(orders, |order| mechanism.renyi(order))
    }

    /// The curve of a ρ-zero-concentrated differentially private mechanism: ρ α.
    pub fn concentrated(orders: &Orders, rho: Rho) -> Self {
        Self::new(orders, |order| rho.renyi(order))
    }

    /// The curve of an ε-differentially private mechanism, rounded up: ε - ln((1 + e^-ε)/(1 +
    /// e^-(2α - 1)ε))/(α - 1), which randomized response attains (Steinke 2024, theorem 4). For
    /// small ε, where rounding would cost more, the curve is the ρ α of [`Rho::of_pure`].
    pub fn pure(orders: &Orders, loss: PrivacyLoss) -> Self {
        let rho = Rho::of_pure(loss);
        Self::new(orders, |order| {
            let (x, t) = (loss.get(), order.excess());
            let exact = GuardedSum::default()
                .plus(x)
                .plus(-libm::log1p(libm::exp(-x)) / t)
                .plus(libm::log1p(libm::exp(-x) * libm::exp(-2.0 * t * x)) / t)
                .upper();
            PrivacyLoss::at_most(rho.renyi(order).get().min(exact).min(x))
        })
    }

    /// The curve of two mechanisms on the same data, chosen adaptively: the sums, rounded up
    /// (Mironov 2017, proposition 1).
    ///
    /// # Errors
    /// [`RenyiError::OrdersDiffer`] when the two have different orders.
    pub fn plus(&self, other: &Self) -> Result<Self, RenyiError> {
        let same = self.points.len() == other.points.len()
            && self.points.iter().zip(&other.points).all(|(a, b)| a.0 == b.0);
        if !same {
            return Err(RenyiError::OrdersDiffer);
        }
        let pairs = self.points.iter().zip(&other.points);
        Ok(Self { points: pairs.map(|(a, b)| (a.0, a.1.plus(b.1))).collect() })
    }

    /// The curve of `count` mechanisms on the same data, rounded up.
    #[must_use]
    pub fn times(&self, count: u64) -> Self {
        let points = self.points.iter().map(|&(order, loss)| (order, loss.times(count)));
        Self { points: points.collect() }
    }

    /// The bound at every order.
    pub fn iter(&self) -> impl Iterator<Item = (Order, PrivacyLoss)> + '_ {
        self.points.iter().copied()
    }

    /// An ε for `delta`, rounded up: the least over the orders (Canonne, Kamath and Steinke 2020,
    /// proposition 12, which is below Mironov's proposition 3). Unbounded for a δ of 0, unless a
    /// divergence is 0.
    pub fn loss(&self, delta: Delta) -> PrivacyLoss {
        let at = |(order, loss): (Order, PrivacyLoss)| match loss {
            PrivacyLoss::ZERO => 0.0,
            _ => loss_bound(order, loss.get(), delta),
        };
        PrivacyLoss::at_most(self.iter().map(at).fold(f64::INFINITY, f64::min))
    }

    /// A δ for `loss`, rounded up: the least over the orders.
    pub fn delta(&self, loss: PrivacyLoss) -> Delta {
        let at = |(order, divergence): (Order, PrivacyLoss)| match divergence {
            PrivacyLoss::ZERO => f64::NEG_INFINITY,
            _ => log_delta_bound(order, divergence.get(), loss.get()),
        };
        Delta::at_most(exp_up(self.iter().map(at).fold(0.0, f64::min)))
    }
}

/// Orders that can't be used.
#[derive(Clone, Copy, Error, PartialEq)]
#[non_exhaustive]
pub enum RenyiError {
    /// An order out of range.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The set is empty.
    #[error("a Rényi bound needs at least one order")]
    NoOrders,
    /// The bounds have different orders, so they can't be added.
    #[error("the two bounds are about different orders; build both from the same set")]
    OrdersDiffer,
}

crate::debug_says!(RenyiError);
