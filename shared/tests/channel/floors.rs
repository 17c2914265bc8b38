//! Floors: accepted when private enough, refused otherwise, and near the optimum.

use bandana_shared::alphabet::Alphabet;
use bandana_shared::channel::{Floor, FloorError, KaryChannel};
use bandana_shared::epsilon::Epsilon;
use rand::{Rng as _, RngExt as _};

use crate::channel::cases::{epsilons, patterns, random};
use crate::channel::exact::{
    Exact, ceiling, distance, exact, exp_above, exp_below, log_of_quotient, power_of_two, quotient,
    whole,
};

/// The least floor whose loss is at most ε: `ceil(2^64/(1 + e^ε))`.
fn least_floor(epsilon: Epsilon) -> u64 {
    let floor_for = |e: Exact| ceiling(&quotient(&power_of_two(64), &(whole(1) + e)));
    let floor = floor_for(exp_below(epsilon.get()));
    // The bounds of e^ε are 2^-255 apart, relatively: the ceiling is the same
    // unless the fraction is that close to a whole number.
    assert_eq!(floor, floor_for(exp_above(epsilon.get())));
    u64::try_from(floor).unwrap()
}

/// Whether `(2^64 - t0)/t0 <= e^ε`, with `e^ε` rounded down.
fn is_private(floor: u64, epsilon: Epsilon) -> bool {
    let t0 = whole(u128::from(floor));
    power_of_two(64) - &t0 <= exp_below(epsilon.get()) * &t0
}

/// How much the floor grows when `e^ε - 1` is taken `guard` too small,
/// relatively: `2^64 x guard/(2 + x)^2` to first order, with x = e^ε - 1.
fn cost_of_guard(epsilon: Epsilon, guard: &Exact) -> Exact {
    let x = exp_below(epsilon.get()) - whole(1);
    let denominator = (&x + whole(2)) * (&x + whole(2));
    quotient(&(power_of_two(64) * x * guard), &denominator)
}

/// How far `e^ε - 1` is taken too small at most, relatively: for a computed floor with room for the error of
/// `expm1` and of one rounded product, and for a verified one.
fn guards() -> (Exact, Exact) {
    (power_of_two(-48) + power_of_two(-51), power_of_two(-58))
}

/// The least share of a channel with k symbols whose loss is at most ε: `ceil(2^64/(k - 1 + e^ε))`.
fn least_share(symbols: u32, epsilon: Epsilon) -> u64 {
    let others = whole(u128::from(symbols) - 1);
    u64::try_from(ceiling(&quotient(&power_of_two(64), &(others + exp_below(epsilon.get())))))
        .unwrap()
}

/// The share that a server computes, as servers have always done.
fn computed_share(symbols: u32, epsilon: Epsilon) -> u64 {
    let x = libm::expm1(epsilon.get()) * (1.0 - 2.0_f64.powi(-48));
    let scaled = u128::try_from((exact(x) * power_of_two(62)).floor()).unwrap();
    let quotient = (1_u128 << 126).div_ceil((u128::from(symbols) << 62) + scaled);
    u64::try_from(quotient).unwrap().min(u64::MAX / u64::from(symbols))
}

#[test]
fn computed_floors_are_private_accepted_and_near_the_least() {
    let (wide, _) = guards();
    for epsilon in epsilons(150) {
        let floor = Floor::for_epsilon(epsilon);
        assert!(is_private(floor.get(), epsilon), "{epsilon:?}");
        assert_eq!(Floor::verify(floor.get(), epsilon), Ok(floor), "{epsilon:?}");
        // Above the least floor by no more than the guard costs, plus one for
        // the rounding of x to 2^-62 and one for the ceiling. The second-order
        // term is below 2^-48 of the first.
        let excess = floor.get() - least_floor(epsilon);
        let allowed = ceiling(&cost_of_guard(epsilon, &wide)) + 2;
        assert!(u128::from(excess) <= allowed, "{epsilon:?}: {excess} > {allowed}");
    }
}

#[test]
fn known_floors() {
    // e^ε = 3: a quarter, and the guard costs 2^64 2/16 2^-48 = 2^13.
    let ln_3 = Epsilon::new(3.0_f64.ln()).unwrap();
    assert!(least_floor(ln_3).abs_diff(1 << 62) <= 1 << 11);
    let excess = Floor::for_epsilon(ln_3).get() - least_floor(ln_3);
    assert!((1 << 13..(1 << 13) + 1500).contains(&excess), "{excess}");
    // 2^64/(1 + e^32) = 233 612.6...
    assert_eq!(Floor::for_epsilon(Epsilon::new(32.0).unwrap()).get(), 233_613);
    // 2^64/(1 + e^(2^-20)) = 2^63 - 2^42 + 0.33...
    let smallest = Epsilon::new(Epsilon::MIN).unwrap();
    assert_eq!(Floor::for_epsilon(smallest).get(), (1 << 63) - (1 << 42) + 1);
}

#[test]
fn no_accepted_floor_loses_more_than_epsilon() {
    let (_, narrow) = guards();
    for epsilon in epsilons(80) {
        let least = least_floor(epsilon);
        for step in [0, 1, 2, 3, 10, 100, 1000, 10_000, 1 << 20, 1 << 40] {
            let Some(low) = least.checked_sub(step) else {
                continue;
            };
            if is_private(low, epsilon) {
                assert_eq!(low, least, "the least floor is the least");
                continue;
            }
            let refused = Floor::verify(low, epsilon);
            let named = match refused {
                Err(FloorError::OutOfRange { floor, symbols: 2 }) => floor == 0,
                Err(FloorError::LossTooLarge { floor, epsilon: e, .. }) => {
                    floor == low && e == epsilon.get()
                }
                _ => false,
            };
            assert!(named, "{epsilon:?} {step}");
        }
        // Floors are accepted from the end of the narrow guard on.
        let cost = u64::try_from(ceiling(&cost_of_guard(epsilon, &narrow))).unwrap();
        let high = least + cost + 2;
        assert!(Floor::verify(high.min((1 << 63) - 1), epsilon).is_ok(), "{epsilon:?}");
    }
}

#[test]
fn floors_a_step_beyond_the_guards_are_refused() {
    let (wide, _) = guards();
    for epsilon in epsilons(80) {
        // One less than the least floor, relative to the computed floor.
        let cost = u64::try_from(ceiling(&cost_of_guard(epsilon, &wide))).unwrap();
        let low = Floor::for_epsilon(epsilon).get().saturating_sub(cost + 3);
        assert!(Floor::verify(low, epsilon).is_err(), "{epsilon:?}");
        for floor in [0, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX] {
            assert_eq!(
                Floor::verify(floor, epsilon),
                Err(FloorError::OutOfRange { floor, symbols: 2 })
            );
        }
        assert!(Floor::verify((1 << 63) - 1, epsilon).is_ok());
    }
}

#[test]
fn shares_of_k_symbols_are_those_of_every_server_and_accepted_from_the_least_on() {
    for symbols in Alphabet::MIN..=Alphabet::MAX {
        let alphabet = Alphabet::new(symbols).unwrap();
        for epsilon in epsilons(100).into_iter().chain(patterns(6)) {
            let computed = KaryChannel::for_epsilon(alphabet, epsilon);
            assert_eq!(computed.share(), computed_share(symbols, epsilon), "{epsilon:?}");
            assert_eq!(KaryChannel::verify(alphabet, computed.share(), epsilon), Ok(computed));
            let least = least_share(symbols, epsilon);
            let refused = |share| KaryChannel::verify(alphabet, share, epsilon).is_err();
            for step in [1, 2, 3, 100, 1 << 20, 1 << 40] {
                assert!(refused(least.saturating_sub(step)), "{epsilon:?} {symbols} {step}");
            }
            // 2^64/(k + x) grows by 2^64 x/(k + x)^2 2^-58 at most, which is below 2^6.
            let accepted = (least + 65).min(u64::MAX / u64::from(symbols));
            assert!(!refused(accepted), "{epsilon:?} {symbols}");
            if symbols == 2 {
                assert_eq!(Floor::for_epsilon(epsilon).get(), computed.share());
                assert_eq!(Floor::verify(accepted, epsilon).unwrap().get(), accepted);
                assert!(Floor::verify(least - 1, epsilon).is_err());
            }
        }
    }
}

#[test]
fn random_floors_are_accepted_only_if_private() {
    let mut random = random(4);
    let (mut accepted, mut refused) = (0, 0);
    for epsilon in epsilons(20) {
        for _ in 0..40 {
            let floor = random.next_u64() >> random.random_range(1..48);
            match Floor::verify(floor, epsilon) {
                Ok(_) => {
                    assert!(is_private(floor, epsilon), "{epsilon:?} {floor}");
                    accepted += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(accepted > 300 && refused > 300, "{accepted} {refused}");
}

#[test]
fn math_libraries_that_differ_by_some_units_accept_each_other() {
    // A server whose expm1 errs by some units in the last place computes the
    // floor of a neighbouring epsilon. Nudging it by d changes e^ε - 1 by
    // d/(1 - e^-ε), relatively; up to 2^-49, or 8 units, must do no harm.
    let mut nudges = 0;
    for epsilon in epsilons(80) {
        let x = epsilon.get();
        for steps in 1..=8 {
            let neighbours = [x.to_bits() + steps, x.to_bits() - steps].map(f64::from_bits);
            for nudged in neighbours.into_iter().filter_map(|x| Epsilon::new(x).ok()) {
                let change = (nudged.get() - x).abs() / -(-x).exp_m1();
                if change > 2.0_f64.powi(-49) {
                    continue;
                }
                nudges += 1;
                let floor = Floor::for_epsilon(nudged).get();
                assert!(Floor::verify(floor, epsilon).is_ok(), "{epsilon:?} {nudged:?}");
                assert!(is_private(floor, epsilon), "{epsilon:?} {nudged:?}");
            }
        }
    }
    assert!(nudges > 1000, "{nudges}");
}

#[test]
fn certified_epsilons_are_never_below_the_loss() {
    let mut random = random(5);
    let floors = epsilons(100).into_iter().map(|epsilon| Floor::for_epsilon(epsilon).get());
    let drawn: Vec<u64> =
        (0..2000).map(|_| (random.next_u64() >> random.random_range(1..48)).max(1)).collect();
    let largest = Epsilon::new(Epsilon::MAX).unwrap();
    let least = least_floor(largest) + 1;
    let ends = [least, (1 << 63) - 1, (1 << 63) - 2, 1 << 62];
    for t0 in floors.chain(drawn).chain(ends).filter(|&t0| t0 >= least) {
        let floor = Floor::verify(t0, largest).unwrap();
        let t0 = whole(u128::from(t0));
        let loss = log_of_quotient(&(power_of_two(64) - &t0), &t0);
        let certified = floor.certified_epsilon();
        assert!(exact(certified) >= loss, "{floor:?}");
        // Four units up, and at most four down before that.
        let unit = exact(certified.next_up()) - exact(certified);
        let excess = distance(&exact(certified), &loss);
        assert!(excess <= unit * whole(8), "{floor:?}");
    }
}

#[test]
fn contrast_and_lowest_private_mean_are_those_of_the_integers() {
    for epsilon in epsilons(40) {
        let floor = Floor::for_epsilon(epsilon);
        let t0 = whole(u128::from(floor.get()));
        let width = power_of_two(64) - &t0 - &t0;
        assert_eq!(whole(u128::from(floor.width())), width);
        let relative = |found: f64, integer: &Exact| {
            let scaled = exact(found) * power_of_two(64);
            distance(&scaled, integer) <= integer * power_of_two(-53)
        };
        assert!(relative(floor.contrast(), &width), "{epsilon:?}");
        assert!(relative(floor.lowest_private_mean(), &t0), "{epsilon:?}");
    }
}
