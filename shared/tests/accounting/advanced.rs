//! Advanced composition.

use bandana_shared::accounting::advanced::{self, LECTURE_LOSS_MAX};
use bandana_shared::accounting::loss::PrivacyLoss;
use proptest::prelude::*;

use crate::accounting::cases::{SINGLES, SLACKS, delta, epsilon, loss, scales, seeded};
use crate::accounting::exact::{Real, log_reciprocal, power_of_two, real, tanh_of_half, whole};

/// Whether `bound` is above `drift` + sqrt(`square`) by at most a relative
/// 2^-48.
fn just_above(bound: PrivacyLoss, drift: &Real, square: &Real) -> bool {
    let (bound, rounding) = (real(bound.get()), power_of_two(-48));
    let above = |bound: &Real| bound >= drift && (bound - drift) * (bound - drift) >= *square;
    let below = &bound - &bound * &rounding;
    above(&bound) && !above(&below)
}

#[test]
fn the_sharp_form_is_just_above_its_formula() {
    for single in SINGLES {
        for rounds in [1, 2, 1000, 1_000_000, 1 << 60] {
            for slack in SLACKS {
                let bound = advanced::sharp(loss(single), rounds, delta(slack));
                let drift = whole(rounds) * real(single) * tanh_of_half(single);
                let square =
                    whole(2 * rounds) * real(single) * real(single) * log_reciprocal(slack);
                assert!(just_above(bound, &drift, &square), "{single} {rounds} {slack}");
            }
        }
    }
}

#[test]
fn the_lecture_form_is_just_above_its_formula_and_above_the_sharp_one() {
    for single in SINGLES.into_iter().chain([LECTURE_LOSS_MAX]).filter(|&e| e <= LECTURE_LOSS_MAX) {
        for rounds in [1, 7, 1000, 1 << 40] {
            for slack in SLACKS {
                let bound = advanced::lecture(epsilon(single), rounds, delta(slack)).unwrap();
                let drift = whole(2 * rounds) * real(single) * real(single);
                let square = &drift * log_reciprocal(slack);
                assert!(just_above(bound, &drift, &square), "{single} {rounds} {slack}");
                assert!(advanced::sharp(loss(single), rounds, delta(slack)) < bound);
            }
        }
    }
}

#[test]
fn the_lecture_form_is_refused_where_its_lemma_fails() {
    // e^x <= 1 + 2x holds at the limit and not one float later.
    let holds = |x: f64| real(x).exp() <= whole(1) + whole(2) * real(x);
    assert!(holds(LECTURE_LOSS_MAX) && !holds(LECTURE_LOSS_MAX.next_up()));
    assert!(advanced::lecture(epsilon(LECTURE_LOSS_MAX), 1, delta(0.1)).is_ok());
    for single in [LECTURE_LOSS_MAX.next_up(), 2.0, 32.0] {
        let refused = advanced::lecture(epsilon(single), 1, delta(0.1)).unwrap_err();
        assert!(refused.to_string().contains("use the sharp form"));
    }
}

#[test]
fn edges() {
    let slack = delta(1e-6);
    assert_eq!(advanced::sharp(loss(1.0), 0, slack), PrivacyLoss::ZERO);
    assert_eq!(advanced::sharp(loss(0.0), 10, slack), PrivacyLoss::ZERO);
    assert_eq!(advanced::lecture(epsilon(1.0), 0, delta(0.0)), Ok(PrivacyLoss::ZERO));
    assert_eq!(advanced::heterogeneous(&[], slack), PrivacyLoss::ZERO);
    // Without slack there is no bound; with a slack of 1 only the mean is left.
    assert_eq!(advanced::sharp(loss(1.0), 10, delta(0.0)), PrivacyLoss::UNBOUNDED);
    let mean = advanced::sharp(loss(1.0), 1, delta(1.0)).get();
    assert_eq!(mean, loss(1.0).largest_mean());
    assert_eq!(advanced::sharp(loss(1e200), 10, slack), PrivacyLoss::UNBOUNDED);
}

proptest! {
    #![proptest_config(seeded(300, 73))]

    #[test]
    fn bounds_grow_with_the_loss_and_the_rounds_and_fall_with_the_slack(
        single in scales(-20.0, 5.0), rounds in 1..1_u64 << 40, slack in scales(-900.0, -0.1),
        factor in 1.0..3.0_f64, sixteenths in 0..17_u64
    ) {
        let bound = advanced::sharp(loss(single), rounds, delta(slack));
        let more = rounds + rounds / 16 * sixteenths;
        prop_assert!(bound <= advanced::sharp(loss(single * factor), rounds, delta(slack)));
        prop_assert!(bound <= advanced::sharp(loss(single), more, delta(slack)));
        prop_assert!(bound <= advanced::sharp(loss(single), rounds, delta(slack / factor)));
        // Equal losses are a case of different ones, but for the roundings.
        let few = advanced::sharp(loss(single), 20, delta(slack)).get();
        let listed = advanced::heterogeneous(&[loss(single); 20], delta(slack)).get();
        prop_assert!((few - listed).abs() <= few * 1e-14);
    }
}
