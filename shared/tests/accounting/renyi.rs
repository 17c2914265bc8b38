//! Rényi differential privacy.

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::gaussian::GaussianMechanism;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::renyi::{Order, Orders, RenyiCurve, RenyiError};

use crate::accounting::cases::{SINGLES, delta, loss};
use crate::accounting::concentrated::gaussian_delta;
use crate::accounting::exact::{delta_of_equal, power_of_two, real, whole};

fn gaussian(ratio: f64) -> GaussianMechanism {
    GaussianMechanism::new(ratio, 1.0).unwrap()
}

#[test]
fn orders_out_of_range_are_refused() {
    for alpha in [1.0, 0.5, -2.0, Order::END, f64::INFINITY, f64::NAN] {
        assert!(Order::new(alpha).is_err(), "{alpha}");
        assert!(Orders::new(&[2.0, alpha]).is_err(), "{alpha}");
    }
    assert!(Order::new(1.0_f64.next_up()).is_ok());
    assert!(Order::new(Order::END.next_down()).is_ok());
    assert_eq!(Orders::new(&[]), Err(RenyiError::NoOrders));
    assert_eq!(Orders::standard().iter().count(), 81);
}

#[test]
fn curves_of_different_orders_do_not_add() {
    let (two, three) = (Orders::new(&[2.0]).unwrap(), Orders::new(&[3.0]).unwrap());
    let both = Orders::new(&[2.0, 3.0]).unwrap();
    for (a, b) in [(&two, &three), (&two, &both)] {
        let sum = RenyiCurve::zero(a).plus(&RenyiCurve::zero(b));
        assert_eq!(sum, Err(RenyiError::OrdersDiffer));
    }
}

#[test]
fn divergences_of_the_gaussian_mechanism() {
    // α Δ²/(2σ²) by hand; doubled by a second one; ρ α.
    let orders = Orders::new(&[2.0, 10.0]).unwrap();
    let one = RenyiCurve::gaussian(&orders, GaussianMechanism::new(3.0, 4.0).unwrap());
    let points: Vec<f64> = one.iter().map(|(_, loss)| loss.get()).collect();
    assert_eq!(points, [0.5625, 2.8125]);
    assert_eq!(one.plus(&one).unwrap(), one.times(2));
    assert_eq!(one, RenyiCurve::concentrated(&orders, Rho::new(0.28125).unwrap()));
    assert_eq!(one.times(0), RenyiCurve::zero(&orders));
}

#[test]
fn divergences_of_pure_mechanisms_are_just_above_those_of_randomized_response() {
    let orders = Orders::standard();
    for single in SINGLES {
        let growth = real(single).exp();
        for (order, found) in RenyiCurve::pure(&orders, loss(single)).iter() {
            let alpha = real(order.get());
            let up = (&alpha * real(single)).exp();
            let moment = (&up + &growth / &up) / (whole(1) + &growth);
            let exact = moment.ln() / (&alpha - whole(1));
            assert!(real(found.get()) >= exact, "{single} {order:?}");
            assert!(found.get() <= single, "{single} {order:?}");
            // Cancellation costs 2^-47 of ε + ln 2/(α - 1) where it is used.
            let guard = (real(single) + whole(1) / (&alpha - whole(1))) * power_of_two(-46);
            assert!(real(found.get()) <= exact + guard, "{single} {order:?}");
        }
    }
    let unbounded = RenyiCurve::pure(&orders, PrivacyLoss::UNBOUNDED);
    assert!(unbounded.iter().all(|(_, found)| found == PrivacyLoss::UNBOUNDED));
    assert_eq!(RenyiCurve::pure(&orders, PrivacyLoss::ZERO), RenyiCurve::zero(&orders));
}

#[test]
fn the_conversion_of_one_order_matches_its_formula() {
    // α = 2, r = 1: ε = 1 + ln(1/δ) - ln 2 - ln 2, and δ = e^(1 - ε)/4.
    let curve = RenyiCurve::concentrated(&Orders::new(&[2.0]).unwrap(), Rho::new(0.5).unwrap());
    let needed = curve.loss(delta(2.0_f64.powi(-10))).get();
    let expected = 1.0 + 8.0 * std::f64::consts::LN_2;
    assert!(needed >= expected && needed < expected + 1e-12);
    let found = curve.delta(loss(3.0)).get();
    let expected = (-2.0_f64).exp() / 4.0;
    assert!(found >= expected && found < expected * (1.0 + 1e-12));
}

#[test]
fn conversions_are_safe_and_the_standard_orders_cost_little() {
    let orders = Orders::standard();
    for ratio in [0.02, 0.1, 0.5, 1.0, 3.0] {
        let (curve, rho) = (RenyiCurve::gaussian(&orders, gaussian(ratio)), gaussian(ratio).rho());
        for slack in [1e-3, 1e-6, 1e-9, 1e-12] {
            let needed = curve.loss(delta(slack));
            assert!(gaussian_delta(ratio, needed.get()) <= slack, "{ratio} {slack}");
            // Every order against some.
            let best = rho.loss(delta(slack)).get();
            assert!(needed.get() >= best * (1.0 - 1e-12), "{ratio} {slack}");
            assert!(needed.get() <= best * 1.02, "{ratio} {slack}: {needed:?} {best}");
            assert!(curve.delta(needed).get() <= slack * (1.0 + 1e-9));
        }
    }
    for (single, rounds) in [(0.1, 100_u32), (1.0, 20), (5.0, 3)] {
        let curve = RenyiCurve::pure(&orders, loss(single)).times(rounds.into());
        for slack in [1e-3, 1e-9] {
            let needed = curve.loss(delta(slack)).get();
            assert!(delta_of_equal(single, rounds, needed) <= real(slack), "{single} {slack}");
            let concentrated = Rho::of_pure(loss(single)).times(rounds.into()).loss(delta(slack));
            assert!(needed <= concentrated.get() * 1.02, "{single} {slack}");
        }
    }
}

#[test]
fn edges() {
    let orders = Orders::standard();
    let zero = RenyiCurve::zero(&orders);
    assert_eq!(zero.loss(Delta::ZERO), PrivacyLoss::ZERO);
    assert_eq!(zero.delta(PrivacyLoss::ZERO), Delta::ZERO);
    let one = RenyiCurve::gaussian(&orders, gaussian(1.0));
    assert_eq!(one.loss(Delta::ZERO), PrivacyLoss::UNBOUNDED);
    assert_eq!(one.delta(PrivacyLoss::UNBOUNDED), Delta::ZERO);
    assert_eq!(one.delta(loss(1e307)).get(), f64::MIN_POSITIVE);
    let unbounded = RenyiCurve::pure(&orders, PrivacyLoss::UNBOUNDED);
    assert_eq!(unbounded.loss(delta(0.5)), PrivacyLoss::UNBOUNDED);
    assert_eq!(unbounded.delta(loss(1e300)), Delta::VACUOUS);
}
