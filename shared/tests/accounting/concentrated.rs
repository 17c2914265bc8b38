//! Zero-concentrated privacy, and the Gaussian mechanism.

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::gaussian::{GaussianError, GaussianMechanism};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::renyi::Order;
use proptest::prelude::*;

use crate::accounting::cases::{SINGLES, SLACKS, delta, loss, scales, seeded};
use crate::accounting::exact::{Real, delta_of_equal, log_reciprocal, power_of_two, real, whole};

fn rho(rho: f64) -> Rho {
    Rho::new(rho).unwrap()
}

/// ln δ of one order, without rounding: corollary 13 of Canonne, Kamath and
/// Steinke.
fn log_delta(rho: f64, alpha: f64, loss: f64) -> Real {
    let (alpha, one) = (real(alpha), whole(1));
    let t = &alpha - &one;
    &t * (real(rho) * &alpha - real(loss)) + &alpha * (&t / &alpha).ln() - t.ln()
}

/// The δ of the Gaussian mechanism with Δ/σ = `ratio` against `loss`: theorem 8
/// of Balle and Wang, "Improving the Gaussian mechanism for differential
/// privacy", 2018. The two terms cancel by less than 2^20 here, and `erfc` errs
/// by some 2^-50.
pub(crate) fn gaussian_delta(ratio: f64, loss: f64) -> f64 {
    let normal = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    normal(ratio / 2.0 - loss / ratio) - loss.exp() * normal(-ratio / 2.0 - loss / ratio)
}

#[test]
fn what_is_out_of_range_is_refused() {
    for value in [-1.0, f64::NAN, f64::NEG_INFINITY] {
        assert!(Rho::new(value).unwrap_err().to_string().starts_with("rho is"));
    }
    for sensitivity in [-1.0, f64::NAN, f64::INFINITY] {
        let refused = GaussianMechanism::new(sensitivity, 1.0);
        assert!(matches!(refused, Err(GaussianError::Sensitivity { .. })), "{sensitivity}");
    }
    for deviation in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = GaussianMechanism::new(1.0, deviation);
        assert!(matches!(refused, Err(GaussianError::Deviation { .. })), "{deviation}");
    }
}

#[test]
fn composition_groups_and_disjoint_data() {
    let (a, b) = (rho(0.25), rho(1.5));
    assert_eq!(a.plus(b), rho(1.75));
    assert_eq!(a.alongside(b), b);
    assert_eq!(a.times(6), b);
    assert_eq!(a.for_group(3), rho(2.25));
    assert_eq!(a.for_group(0), Rho::ZERO);
    assert_eq!(a.times(0), Rho::ZERO);
    assert_eq!(rho(f64::MAX).times(2), rho(f64::INFINITY));
    assert_eq!(a.renyi(Order::new(4.0).unwrap()), loss(1.0));
}

#[test]
fn pure_mechanisms_are_concentrated_no_more_than_their_bounds() {
    for single in SINGLES {
        let (tight, quadratic) = (Rho::of_pure(loss(single)), Rho::of_pure_quadratic(loss(single)));
        assert!(tight < quadratic.plus(rho(quadratic.get() * 1e-15)), "{single}");
        assert!(tight.get() <= single);
        // The divergence of randomized response, ρ α or less at every order.
        let growth = real(single).exp();
        for alpha in [1.0 + 1e-6, 1.5, 2.0, 3.7, 40.0, 1e4] {
            let t = real(alpha) - whole(1);
            let up = (real(alpha) * real(single)).exp();
            let moment = (&up + &growth / &up) / (whole(1) + &growth);
            let divergence = moment.ln() / t;
            assert!(real(tight.get()) * real(alpha) >= divergence, "{single} {alpha}");
        }
    }
    assert_eq!(Rho::of_pure(PrivacyLoss::ZERO), Rho::ZERO);
    assert_eq!(Rho::of_pure(PrivacyLoss::UNBOUNDED), rho(f64::INFINITY));
}

#[test]
fn the_simple_conversion_is_just_above_its_formula() {
    for value in [1e-12, 0.001, 0.5, 3.0, 1e6] {
        for slack in SLACKS {
            let bound = real(rho(value).loss_simple(delta(slack)).get());
            let square = whole(4) * real(value) * log_reciprocal(slack);
            let above =
                |x: &Real| *x >= real(value) && (x - real(value)) * (x - real(value)) >= square;
            assert!(above(&bound), "{value} {slack}");
            assert!(!above(&(&bound - &bound * power_of_two(-48))), "{value} {slack}");
        }
    }
}

#[test]
fn known_conversions() {
    // The minimum over the orders, computed with 60 digits by mpmath.
    for (value, slack, expected) in [
        (0.5, 2.0_f64.powi(-20), 5.231_191_645_379_352),
        (0.03125, 2.0_f64.powi(-30), 1.472_639_437_408_391),
        (2.0, 2.0_f64.powi(-40), 16.232_402_760_676_67),
    ] {
        let found = rho(value).loss(delta(slack)).get();
        assert!(found >= expected && found <= expected * (1.0 + 1e-12), "{value} {slack}: {found}");
        // And back: δ has the same minimum.
        let back = rho(value).delta(loss(expected)).get();
        assert!((back / slack - 1.0).abs() < 1e-9, "{value} {slack}: {back:e}");
    }
}

#[test]
fn edges() {
    assert_eq!(Rho::ZERO.loss(Delta::ZERO), PrivacyLoss::ZERO);
    assert_eq!(Rho::ZERO.delta(PrivacyLoss::ZERO), Delta::ZERO);
    assert_eq!(rho(1.0).loss(Delta::ZERO), PrivacyLoss::UNBOUNDED);
    assert_eq!(rho(1.0).loss(Delta::VACUOUS), PrivacyLoss::ZERO);
    assert_eq!(rho(1.0).delta(PrivacyLoss::UNBOUNDED), Delta::ZERO);
    assert_eq!(rho(f64::INFINITY).loss(delta(0.1)), PrivacyLoss::UNBOUNDED);
    assert_eq!(rho(f64::INFINITY).delta(loss(1.0)), Delta::VACUOUS);
    assert_eq!(rho(1e300).delta(loss(1.0)), Delta::VACUOUS);
    // Small, but not 0.
    assert_eq!(rho(1e-9).delta(loss(1e300)).get(), f64::MIN_POSITIVE);
    // A total variation of some 1e-150 fits the one δ and not the other.
    assert_eq!(rho(1e-300).loss(delta(1e-9)), PrivacyLoss::ZERO);
    assert!(rho(1e-300).loss(delta(1e-200)) > PrivacyLoss::ZERO);
    assert_eq!(GaussianMechanism::new(0.0, 1.0).unwrap().rho(), Rho::ZERO);
}

#[test]
fn conversions_of_the_gaussian_mechanism_are_above_the_exact_delta() {
    let mut compared = 0;
    for ratio in [0.01, 0.1, 0.5, 1.0, 2.0, 4.0] {
        let mechanism = GaussianMechanism::new(ratio, 1.0).unwrap();
        for widths in [0.0, 0.5, 1.0, 2.0, 4.0] {
            // ε at which the privacy loss is so many deviations above its mean.
            let nats = ratio * ratio / 2.0 + widths * ratio;
            let exact = gaussian_delta(ratio, nats);
            assert!(exact > 1e-9, "{ratio} {nats}");
            let found = mechanism.rho().delta(loss(nats)).get();
            assert!(found >= exact, "{ratio} {nats}: {found:e} {exact:e}");
            // The conversion loses less than a factor of 8 here.
            assert!(
                found < 8.0 * exact + 1e-9 || widths == 0.0,
                "{ratio} {nats}: {found:e} {exact:e}"
            );
            for slack in [0.1, 1e-3, 1e-6] {
                let needed = mechanism.rho().loss(delta(slack)).get();
                assert!(gaussian_delta(ratio, needed) <= slack, "{ratio} {slack}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 90);
}

proptest! {
    #![proptest_config(seeded(150, 76))]

    #[test]
    fn the_optimised_conversion_is_smaller_and_never_below_the_minimum(
        value in scales(-20.0, 8.0), slack in scales(-400.0, -0.2)
    ) {
        let found = rho(value).loss(delta(slack));
        prop_assert!(found <= rho(value).loss_simple(delta(slack)));
        // No order may promise a smaller ε: at every one, δ for a smaller ε is
        // above the slack.
        let less = found.get() * (1.0 - 1e-9) - 1e-12;
        prop_assume!(less > 0.0);
        for exponent in -30..=30 {
            let alpha = 1.0 + (f64::from(exponent) / 2.0).exp2();
            prop_assert!(log_delta(value, alpha, less) >= -log_reciprocal(slack));
        }
        // And the δ of what was found is the slack, up to the search.
        let back = rho(value).delta(found).get();
        prop_assert!(found == PrivacyLoss::ZERO || back <= slack * (1.0 + 1e-6));
    }

    #[test]
    fn delta_is_never_below_the_minimum(value in scales(-20.0, 8.0), widths in 0.0..30.0_f64) {
        let nats = value + widths * value.sqrt();
        let found = rho(value).delta(loss(nats)).get();
        // The minimum is where (2α - 1) ρ - ε + ln(1 - 1/α) = 0: by bisection.
        let (mut low, mut high) = (-40.0_f64, 40.0_f64);
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            let t = middle.exp();
            let slope = (2.0 * t + 1.0) * value - nats - (1.0 / t).ln_1p();
            if slope < 0.0 { low = middle } else { high = middle }
        }
        let least = log_delta(value, 1.0 + low.exp(), nats).exp();
        prop_assert!(found == 1.0 || real(found) >= &least * (whole(1) - power_of_two(-40)));
        prop_assert!(real(found) <= &least * (whole(1) + power_of_two(-20)));
    }

    #[test]
    fn composing_pure_mechanisms_by_way_of_concentration_is_safe(
        single in scales(-12.0, 4.0), rounds in 1..300_u32, slack in scales(-60.0, -1.0)
    ) {
        let together = Rho::of_pure(loss(single)).times(u64::from(rounds));
        let needed = together.loss(delta(slack)).get();
        prop_assert!(delta_of_equal(single, rounds, needed) <= real(slack));
        let found = together.delta(loss(needed / 2.0)).get();
        prop_assert!(delta_of_equal(single, rounds, needed / 2.0) <= real(found));
    }

    #[test]
    fn conversions_are_monotone(
        value in scales(-20.0, 8.0), slack in scales(-200.0, -0.2), factor in 1.0..4.0_f64
    ) {
        // Up to the roundings and the search.
        let slop = |x: f64| x * (1.0 + 1e-9) + 1e-12;
        let needed = rho(value).loss(delta(slack)).get();
        prop_assert!(needed <= slop(rho(value * factor).loss(delta(slack)).get()));
        prop_assert!(needed <= slop(rho(value).loss(delta(slack / factor)).get()));
        let found = rho(value).delta(loss(needed / 2.0)).get();
        prop_assert!(found <= slop(rho(value * factor).delta(loss(needed / 2.0)).get()));
        prop_assert!(rho(value).delta(loss(needed / 2.0 * factor)).get() <= slop(found));
    }
}
