//! Conversion of a Rényi divergence to ε and δ.
//!
//! An (α, r)-Rényi differentially private mechanism is (ε, δ)-differentially private with δ =
//! exp((α - 1)(r - ε)) (1 - 1/α)^α/(α - 1) (Canonne, Kamath and Steinke, "The discrete Gaussian for
//! differential privacy", 2020, proposition 12). This holds for every α > 1, so an order that is
//! not optimal costs only tightness.

use crate::accounting::delta::Delta;
use crate::accounting::order::Order;
use crate::accounting::rounding::GuardedSum;

/// ε for a δ, rounded up; may be negative:
/// r + ln(1/δ)/(α - 1) - ln(1 + 1/(α - 1)) - ln(α)/(α - 1).
pub(super) fn loss_bound(order: Order, divergence: f64, delta: Delta) -> f64 {
    let t = order.excess();
    GuardedSum::default()
        .plus(divergence)
        .plus(delta.log_reciprocal() / t)
        .plus(-libm::log1p(1.0 / t))
        .plus(-libm::log(order.get()) / t)
        .upper()
}

/// ln δ for an ε, rounded up; may be positive:
/// (α - 1)(r - ε - ln(1 + 1/(α - 1))) - ln α.
pub(super) fn log_delta_bound(order: Order, divergence: f64, loss: f64) -> f64 {
    if divergence.is_infinite() {
        return f64::INFINITY;
    }
    if loss.is_infinite() {
        return f64::NEG_INFINITY;
    }
    let t = order.excess();
    GuardedSum::default()
        .plus(t * divergence)
        .plus(-t * loss)
        .plus(-t * libm::log1p(1.0 / t))
        .plus(-libm::log(order.get()))
        .upper()
}

/// The least value found of a function of the order, by golden-section search over ln(α - 1).
///
/// For α times a constant in place of r, ln δ is a convex function of α: its
/// derivative (2α - 1) ρ - ε + ln(1 - 1/α) grows. The orders at which ε for a
/// given δ stays below a bound are those at which ln δ for that bound stays
/// below ln δ, an interval; so ε has a single valley, too.
pub(super) fn least_over_orders(value: impl Fn(Order) -> f64) -> f64 {
    const SECTION: f64 = 0.618_033_988_749_894_9;
    let at = |x: f64| Order::one_plus(libm::exp(x)).map_or(f64::INFINITY, &value);
    let (mut low, mut high) = (-36.0, 36.0);
    let (mut left, mut right) = (high - SECTION * (high - low), low + SECTION * (high - low));
    let (mut at_left, mut at_right) = (at(left), at(right));
    let mut least = at_left.min(at_right);
    // 0.618^60 of the interval is below 2^-35, and the valley is flat below.
    for _ in 0..60 {
        if at_left <= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - SECTION * (high - low);
            at_left = at(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + SECTION * (high - low);
            at_right = at(right);
        }
        least = least.min(at_left).min(at_right);
    }
    least
}
