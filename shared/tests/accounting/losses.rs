//! Losses, δ, pairs of them, and basic composition.

use bandana_shared::accounting::basic;
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::accounting::cases::{SINGLES, delta, loss, scales, seeded};
use crate::accounting::exact::{Real, power_of_two, real, tanh_of_half, whole};

#[test]
fn what_is_not_a_loss_or_a_probability_is_refused() {
    for nats in [-1.0, -f64::from_bits(1), f64::NEG_INFINITY, f64::NAN] {
        assert!(PrivacyLoss::new(nats).is_err(), "{nats}");
    }
    for probability in [-0.1, 1.0_f64.next_up(), f64::INFINITY, f64::NAN] {
        assert!(Delta::new(probability).is_err(), "{probability}");
    }
    assert_eq!(PrivacyLoss::new(-2.0).unwrap_err().to_string().split(';').count(), 2);
    assert!(Delta::new(2.0).unwrap_err().to_string().contains("delta is 2"));
    // A zero of either sign is the same loss.
    assert!(loss(-0.0).get().is_sign_positive());
    assert!(delta(-0.0).get().is_sign_positive());
}

#[test]
fn sums_are_exact_where_they_can_be() {
    assert_eq!(basic::compose([]), PrivacyLoss::ZERO);
    assert_eq!(basic::repeat(loss(0.3), 0), PrivacyLoss::ZERO);
    assert_eq!(basic::repeat(loss(0.3), 1), loss(0.3));
    assert_eq!(basic::repeat(PrivacyLoss::UNBOUNDED, 0), PrivacyLoss::ZERO);
    assert_eq!(basic::repeat(loss(0.5), 1 << 40), loss((1_u64 << 39) as f64));
    assert_eq!(basic::repeat(loss(f64::MAX), 2), PrivacyLoss::UNBOUNDED);
    assert_eq!(loss(f64::MAX).plus(loss(f64::MAX)), PrivacyLoss::UNBOUNDED);
    assert_eq!(delta(0.75).plus(delta(0.5)), Delta::VACUOUS);
}

#[test]
fn disjoint_parts_cost_the_larger() {
    let (a, b) = (Guarantee::new(loss(1.0), delta(1e-9)), Guarantee::new(loss(2.0), delta(1e-12)));
    let both = Guarantee::new(loss(2.0), delta(1e-9));
    assert_eq!((a.alongside(b), b.alongside(a)), (both, both));
    assert_eq!(a.alongside(a), a);
    assert_eq!((both.loss(), both.delta()), (loss(2.0), delta(1e-9)));
    assert_eq!(Guarantee::pure(loss(1.0)).delta(), Delta::ZERO);
}

#[test]
fn the_largest_mean_is_just_above_its_formula() {
    for nats in SINGLES.into_iter().chain([1e-12, 50.0, 700.0]) {
        let exact = real(nats) * tanh_of_half(nats);
        let found = real(loss(nats).largest_mean());
        assert!(found >= exact, "{nats}");
        assert!(found <= &exact + &exact * power_of_two(-48), "{nats}");
    }
    assert_eq!(loss(0.0).largest_mean(), 0.0);
    assert_eq!(PrivacyLoss::UNBOUNDED.largest_mean(), f64::INFINITY);
    // Below ε and ε²/2, and never 0 for a loss.
    assert!(loss(1e-300).largest_mean() > 0.0);
    assert_eq!(loss(800.0).largest_mean(), 800.0);
}

proptest! {
    #![proptest_config(seeded(500, 72))]

    #[test]
    fn basic_composition_is_never_below_the_sum(losses in vec(scales(-1074.0, 900.0), 0..40)) {
        let bound = basic::compose(losses.iter().map(|&nats| loss(nats))).get();
        // 256 bits don't hold sums over this range: those are rounded down.
        let exact = losses.iter().fold(whole(0), |sum: Real, &nats| sum + real(nats));
        prop_assert!(real(bound) >= exact);
        prop_assert!(real(bound) <= &exact + &exact * power_of_two(-46));
    }

    #[test]
    fn repeated_losses_are_the_least_float_above(
        nats in scales(-300.0, 300.0), rounds in any::<u64>(), shift in 0..64_u32
    ) {
        let rounds = rounds >> shift;
        let bound = basic::repeat(loss(nats), rounds).get();
        let exact = real(nats) * whole(rounds);
        prop_assert!(real(bound) >= exact);
        // One rounding, or two when the number of rounds is no float.
        prop_assert!(rounds == 0 || real(bound.next_down().next_down().next_down()) < exact);
        prop_assert!(rounds >> 53 != 0 || bound == 0.0 || real(bound.next_down()) < exact);
    }
}
