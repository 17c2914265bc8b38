//! The curves, and the quantisation in front of them.

use bandana_shared::curve::{Curvature, Curve, Level, LevelError, Mechanism};
use bandana_shared::epsilon::Epsilon;
use rand::RngExt as _;

use crate::channel::cases::{epsilons, levels, mechanisms, random, ranged_rewards, unit_rewards};
use crate::channel::exact::{distance, exact, power_of_two, whole};

/// The level with this number of `2^-53`.
fn level(units: u64) -> Level {
    let level = Level::from_unit(units as f64 / (1_u64 << 53) as f64).unwrap();
    assert_eq!(level.get(), units);
    level
}

#[test]
fn levels_are_rewards_rounded_down() {
    for reward in unit_rewards(3000) {
        let level = whole(u128::from(Level::from_unit(reward).unwrap().get()));
        let scaled = exact(reward) * power_of_two(53);
        assert!(level <= scaled && scaled < &level + whole(1), "{reward:e}");
    }
    for outside in [
        -f64::from_bits(1),
        1.0_f64.next_up(),
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        f64::MAX,
    ] {
        assert_eq!(Level::from_unit(outside), Err(LevelError), "{outside}");
    }
}

#[test]
fn levels_in_other_ranges_are_near_the_exact_fraction() {
    for (range, reward) in ranged_rewards(300) {
        let level = whole(u128::from(range.level(reward).unwrap().get()));
        let (low, high) = (exact(range.low()), exact(range.high()));
        // level 2^-53 is (reward - low)/(high - low) but for three roundings of
        // 2^-53 and the rounding down: 2^-51 in all.
        let width = &high - &low;
        let scaled = (exact(reward) - &low) * power_of_two(53);
        assert!(distance(&(level * &width), &scaled) <= &width * whole(4), "{range:?} {reward:e}");
    }
}

#[test]
fn every_curve_keeps_the_ends() {
    for epsilon in epsilons(60) {
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, epsilon);
            assert_eq!(curve.apply(Level::ZERO), Level::ZERO, "{mechanism:?} {epsilon:?}");
            assert_eq!(curve.apply(Level::ONE), Level::ONE, "{mechanism:?} {epsilon:?}");
        }
    }
}

#[test]
fn linear_and_quadratic_curves_never_fall() {
    let one = Epsilon::new(1.0).unwrap();
    let mut random = random(6);
    let mut places: Vec<u64> = levels(300).into_iter().map(Level::get).collect();
    // Every level near the ends, where the slope of a curve can be 0.
    places.extend(0..2000);
    places.extend((1 << 53) - 2000..=1 << 53);
    let units = [-1.0, -0.5, 0.3, 1.0].map(|k| Curvature::new(k).unwrap());
    let drawn: Vec<Curvature> = (0..8)
        .map(|_| Curvature::from_units(random.random_range(-(1 << 20)..=1 << 20)).unwrap())
        .collect();
    let bent = units.into_iter().chain(drawn).map(Mechanism::Quadratic);
    for mechanism in bent.chain([Mechanism::Linear]) {
        let curve = Curve::new(mechanism, one);
        for &place in places.iter().filter(|&&place| place < 1 << 53) {
            let (here, next) = (curve.apply(level(place)), curve.apply(level(place + 1)));
            assert!(here <= next, "{mechanism:?} at {place}");
        }
        places.sort_unstable();
        assert!(places.is_sorted_by_key(|&place| curve.apply(level(place))), "{mechanism:?}");
    }
}

#[test]
fn exponential_curves_fall_by_no_more_than_the_last_bits() {
    // The rounding of z, of the series and of the quotient: a few units of the
    // result of 2^-53.
    const LAST_BITS: u64 = 6;
    let mut places: Vec<u64> = levels(100).into_iter().map(Level::get).collect();
    places.extend((0..400).map(|i| i << 44));
    for epsilon in epsilons(30) {
        let curve = Curve::new(Mechanism::Exponential, epsilon);
        for &place in places.iter().filter(|&&place| place < 1 << 53) {
            let (here, next) = (curve.apply(level(place)), curve.apply(level(place + 1)));
            assert!(here.get() <= next.get() + LAST_BITS, "{epsilon:?} at {place}");
        }
    }
}

#[test]
fn curves_bend_the_way_they_should() {
    let half = Level::from_unit(0.5).unwrap();
    let at_half = |mechanism| {
        let curve = Curve::new(mechanism, Epsilon::new(3.0_f64.ln() * 2.0).unwrap());
        curve.apply(half).to_unit()
    };
    let quadratic = |k| Mechanism::Quadratic(Curvature::new(k).unwrap());
    assert_eq!(at_half(Mechanism::Linear), 0.5);
    assert_eq!(at_half(quadratic(-1.0)), 0.75);
    assert_eq!(at_half(quadratic(-0.5)), 0.625);
    assert_eq!(at_half(quadratic(1.0)), 0.25);
    // e^ε = 9: (3 - 1)/(9 - 1).
    assert!((at_half(Mechanism::Exponential) - 0.25).abs() < 1e-15);
}

#[test]
fn curvatures_outside_their_range_are_refused() {
    for k in [(-1.0_f64).next_down(), 1.0_f64.next_up(), f64::NAN, f64::INFINITY] {
        assert!(Curvature::new(k).is_err(), "{k}");
    }
    assert!(Curvature::from_units(Curvature::UNITS_MAX + 1).is_err());
    assert!(Curvature::from_units(i32::MIN).is_err());
    assert_eq!(Curvature::new(-1.0).unwrap().units(), -Curvature::UNITS_MAX);
    assert_eq!(Curvature::from_units(-3).unwrap().get(), -3.0 / 1_048_576.0);
}
