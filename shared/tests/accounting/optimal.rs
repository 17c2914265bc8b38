//! The exact composition.

use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::optimal::{OptimalComposition, ROUNDS_MAX};
use bandana_shared::accounting::{advanced, basic};
use proptest::prelude::*;

use crate::accounting::cases::{SINGLES, counts, delta, epsilon, loss, scales, seeded};
use crate::accounting::exact::{
    Real, delta_by_enumeration, delta_of_equal, power_of_two, real, whole,
};

fn composed(single: f64, rounds: u32) -> OptimalComposition {
    OptimalComposition::new(epsilon(single), u64::from(rounds)).unwrap()
}

/// Whether the δ found is above the exact one, to within the 2^-200 that the
/// latter may be off, and by at most a relative 2^-`bits` or 2^-1021.
fn just_above(found: Delta, exact: &Real, bits: isize) -> bool {
    let found = real(found.get());
    &found + &found * power_of_two(-200) >= *exact
        && found <= exact + exact * power_of_two(-bits) + power_of_two(-1021)
}

#[test]
fn delta_is_just_above_the_exact_sum() {
    for single in SINGLES {
        for rounds in [1_u32, 2, 3, 10, 63, 1000] {
            let whole_loss = single * f64::from(rounds);
            for part in [0.0, 1e-9, 0.01, 0.1, 0.3, 0.5, 0.77, 0.999] {
                let nats = whole_loss * part;
                let found = composed(single, rounds).delta(loss(nats));
                let exact = delta_of_equal(single, rounds, nats);
                assert!(just_above(found, &exact, 36), "{single} {rounds} {nats}: {found:?}");
            }
        }
    }
}

#[test]
fn delta_is_just_above_the_exact_sum_at_the_points_where_a_term_starts() {
    for single in [0.1, 1.0, 3.7] {
        for flips in 0..8_u32 {
            let nats = single * f64::from(15 - 2 * flips.min(7));
            for nats in [nats.next_down(), nats, nats.next_up()] {
                let found = composed(single, 15).delta(loss(nats));
                let exact = delta_of_equal(single, 15, nats);
                assert!(just_above(found, &exact, 36), "{single} {nats}: {found:?}");
            }
        }
    }
}

#[test]
fn many_rounds_are_as_exact() {
    for (single, rounds, nats) in [
        (0.01, 100_000, 0.0),
        (0.01, 100_000, 3.0),
        (0.01, 100_000, 20.0),
        (0.5, 100_000, 13_000.0),
        (0.0005, 100_000, 0.5),
        (32.0, 100_000, 3_199_900.0),
        (0.001, ROUNDS_MAX, 4.0),
    ] {
        let found = composed(single, rounds).delta(loss(nats));
        let exact = delta_of_equal(single, rounds, nats);
        assert!(exact > power_of_two(-1000), "{single} {rounds} {nats}");
        assert!(just_above(found, &exact, 27), "{single} {rounds} {nats}: {found:?}");
    }
}

#[test]
fn delta_is_just_above_what_enumeration_gives() {
    for single in [0.05, 0.4, 1.0, 2.5] {
        for rounds in 1..=8_u32 {
            for nats in [0.0, 0.2, 1.0, 2.0, 5.0] {
                let found = composed(single, rounds).delta(loss(nats));
                let exact = delta_by_enumeration(&vec![single; rounds as usize], nats);
                assert!(just_above(found, &exact, 36), "{single} {rounds} {nats}");
            }
        }
    }
}

#[test]
fn known_values() {
    // By hand, with e^ε = 3: two rounds leave 9/16, 6/16 and 1/16.
    let ln_3 = 3.0_f64.ln();
    let near = |found: f64, expected: f64| (found - expected).abs() <= expected * 1e-11;
    assert!(near(composed(ln_3, 1).delta(loss(0.0)).get(), 0.5));
    assert!(near(composed(ln_3, 2).delta(loss(0.0)).get(), 0.5));
    assert!(near(composed(ln_3, 2).delta(loss(ln_3)).get(), 0.375));
    // Three rounds leave 27/64 each for no flip and for one, with a loss of
    // 3 ln 3 and ln 3: 27/64 (1 - 1/27) + 27/64 (1 - 1/3).
    assert!(near(composed(ln_3, 3).delta(loss(0.0)).get(), 26.0 / 64.0 + 18.0 / 64.0));
    // Computed with 60 digits by mpmath, which shares no code with this crate.
    for (rounds, single, nats, expected) in [
        (10, 0.5, 2.0, 0.145_466_446_441_117),
        (100, 0.125, 3.0, 0.012_194_742_015_145_556),
        (1000, 0.0625, 8.0, 0.000_387_430_846_671_649_75),
        (100, 1.0, 50.0, 0.287_618_458_380_512_03),
        (7, 32.0, 200.0, 0.999_999_999_962_16),
    ] {
        let found = composed(single, rounds).delta(loss(nats)).get();
        assert!(near(found, expected), "{rounds} {single} {nats}: {found:e}");
    }
}

#[test]
fn edges() {
    let none = composed(1.0, 0);
    assert_eq!(none.delta(loss(0.0)), Delta::ZERO);
    assert_eq!(none.loss(Delta::ZERO), PrivacyLoss::ZERO);
    for single in SINGLES {
        let one = composed(single, 1);
        assert_eq!(one.delta(loss(single)), Delta::ZERO);
        assert_eq!(one.delta(PrivacyLoss::UNBOUNDED), Delta::ZERO);
        assert!(one.delta(loss(single.next_down())) > Delta::ZERO);
        // Without δ only basic composition is left; with all of it, nothing.
        for rounds in [1, 2, 1000] {
            let many = composed(single, rounds);
            assert_eq!(many.loss(Delta::ZERO), basic::repeat(loss(single), rounds.into()));
            assert_eq!(many.loss(Delta::VACUOUS), PrivacyLoss::ZERO);
        }
    }
    // Far below the least float: rounded up to 2^-1022, not to 0.
    let certain = composed(1.0, 100_000).delta(loss(99_999.5));
    assert_eq!(certain.get(), f64::MIN_POSITIVE);
    // Total variation next to 1.
    assert_eq!(composed(32.0, 100_000).delta(loss(0.0)).get(), 1.0);
}

#[test]
fn more_rounds_than_the_limit_are_refused() {
    for rounds in [u64::from(ROUNDS_MAX) + 1, 1 << 32, u64::MAX] {
        let refused = OptimalComposition::new(epsilon(1.0), rounds).unwrap_err();
        assert!(refused.to_string().contains(&format!(" {rounds} ")), "{refused}");
    }
    assert!(OptimalComposition::new(epsilon(1.0), ROUNDS_MAX.into()).is_ok());
}

#[test]
fn the_loss_for_a_delta_is_just_above_the_exact_one() {
    for (single, rounds) in [(0.1, 100), (1.0, 7), (0.02, 5000), (4.0, 30)] {
        for slack in [1e-200, 1e-12, 1e-6, 0.01, 0.5] {
            let found = composed(single, rounds).loss(delta(slack)).get();
            assert!(delta_of_equal(single, rounds, found) <= real(slack));
            let less = found * (1.0 - 1e-9) - 1e-12;
            assert!(
                less <= 0.0 || delta_of_equal(single, rounds, less) > real(slack),
                "{single} {rounds} {slack}: {found}"
            );
        }
    }
}

proptest! {
    #![proptest_config(seeded(120, 74))]

    #[test]
    fn optimal_is_at_most_basic_and_advanced(
        single in scales(-20.0, 5.0), rounds in counts(13), slack in scales(-400.0, -0.01)
    ) {
        let found = composed(single, rounds).loss(delta(slack));
        prop_assert!(found <= basic::repeat(loss(single), rounds.into()));
        prop_assert!(found <= advanced::sharp(loss(single), rounds.into(), delta(slack)));
        // And it is safe.
        prop_assert!(delta_of_equal(single, rounds, found.get()) <= real(slack));
    }

    #[test]
    fn loss_and_delta_are_monotone(
        single in scales(-20.0, 5.0), rounds in counts(12), part in 0.0..1.0_f64,
        slack in scales(-100.0, -0.01), factor in 1.0..2.0_f64, sixteenths in 0..17_u32
    ) {
        // Up to the rounding: 2^-30 of δ, and what that is in ε.
        const ROUNDING: f64 = 1.0 + 1e-9;
        let more = rounds + rounds * sixteenths / 16;
        let wider = (single * factor).min(32.0);
        let nats = single * f64::from(rounds) * part * part;
        let here = composed(single, rounds);
        let at = here.delta(loss(nats)).get();
        prop_assert!(at <= composed(single, more).delta(loss(nats)).get() * ROUNDING);
        prop_assert!(at <= composed(wider, rounds).delta(loss(nats)).get() * ROUNDING);
        prop_assert!(at * ROUNDING >= here.delta(loss(nats * factor)).get());
        let needed = here.loss(delta(slack)).get();
        let slop = needed * 1e-9 + 1e-12;
        prop_assert!(needed <= composed(single, more).loss(delta(slack)).get() + slop);
        prop_assert!(needed <= composed(wider, rounds).loss(delta(slack)).get() + slop);
        prop_assert!(needed <= here.loss(delta(slack / factor)).get() + slop);
    }

    #[test]
    fn delta_is_a_bound_at_random_places(
        single in scales(-20.0, 5.0), rounds in 1..400_u32, part in 0.0..1.2_f64
    ) {
        let nats = single * f64::from(rounds) * part * part;
        let found = composed(single, rounds).delta(loss(nats));
        prop_assert!(just_above(found, &delta_of_equal(single, rounds, nats), 36));
        prop_assert!(found > Delta::ZERO || real(nats) >= real(single) * whole(rounds.into()));
    }
}
