//! Different losses, against enumeration.

use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::optimal::{OptimalComposition, ROUNDS_MAX};
use bandana_shared::accounting::{advanced, basic, heterogeneous};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::accounting::cases::{delta, epsilon, loss, scales, seeded};
use crate::accounting::exact::{delta_by_enumeration, real};

#[test]
fn equal_losses_are_composed_exactly() {
    let exact = OptimalComposition::new(epsilon(0.1), 200).unwrap().loss(delta(1e-6));
    // Losses of 0 don't count.
    let mut losses = vec![loss(0.1); 200];
    losses.extend([PrivacyLoss::ZERO; 50]);
    assert_eq!(heterogeneous::compose(&losses, delta(1e-6)), exact);
}

#[test]
fn concentrated_privacy_wins_among_very_different_losses() {
    let mut losses = vec![loss(0.01); 10_000];
    losses.push(loss(2.0));
    let bound = heterogeneous::compose(&losses, delta(1e-9));
    assert!(bound < basic::compose(losses.iter().copied()));
    assert!(bound < advanced::heterogeneous(&losses, delta(1e-9)));
    let as_if_equal = OptimalComposition::new(epsilon(2.0), 10_001).unwrap().loss(delta(1e-9));
    assert!(bound < as_if_equal);
}

#[test]
fn edges() {
    assert_eq!(heterogeneous::compose(&[], delta(0.1)), PrivacyLoss::ZERO);
    assert_eq!(heterogeneous::compose(&[], Delta::ZERO), PrivacyLoss::ZERO);
    assert_eq!(heterogeneous::compose(&[loss(0.5), loss(1.5)], Delta::ZERO), loss(2.0));
    // Beyond the ranges of the exact composition.
    assert_eq!(heterogeneous::compose(&[loss(100.0)], Delta::ZERO), loss(100.0));
    let bound = heterogeneous::compose(&[loss(1e-9), loss(1e-9)], delta(1e-6));
    assert!(bound <= loss(2.1e-9));
    let many = vec![loss(1e-6); ROUNDS_MAX as usize + 1];
    assert!(heterogeneous::compose(&many, delta(1e-9)).get() < 0.01);
    let unbounded = [loss(1.0), PrivacyLoss::UNBOUNDED];
    assert_eq!(heterogeneous::compose(&unbounded, delta(1e-9)), PrivacyLoss::UNBOUNDED);
}

proptest! {
    #![proptest_config(seeded(80, 75))]

    #[test]
    fn bounds_are_safe(losses in vec(scales(-8.0, 2.0), 1..9), slack in scales(-30.0, -0.5)) {
        let listed: Vec<PrivacyLoss> = losses.iter().map(|&nats| loss(nats)).collect();
        for bound in [
            heterogeneous::compose(&listed, delta(slack)),
            advanced::heterogeneous(&listed, delta(slack)),
        ] {
            prop_assert!(delta_by_enumeration(&losses, bound.get()) <= real(slack));
        }
        let bound = heterogeneous::compose(&listed, delta(slack));
        prop_assert!(bound <= basic::compose(listed.iter().copied()));
        prop_assert!(bound <= advanced::heterogeneous(&listed, delta(slack)));
    }
}
