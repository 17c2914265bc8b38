//! The privacy loss of the channel, from its integers.

use bandana_shared::channel::Floor;
use bandana_shared::curve::{Curve, Level};
use bandana_shared::epsilon::Epsilon;

use crate::channel::cases::{epsilons, levels, mechanisms, probability};
use crate::channel::exact::{Exact, exp_below, power_of_two, whole};

/// Whether the likelihood ratio of both outputs stays within `bound` when
/// `P(1)` ranges over `least..=greatest`, in units of `2^-128`.
fn within(bound: &Exact, least: u128, greatest: u128) -> bool {
    let (least, greatest) = (whole(least), whole(greatest));
    let one = power_of_two(128);
    let ones = greatest <= bound * &least;
    let zeros = &one - &least <= bound * &(&one - &greatest);
    ones && zeros
}

#[test]
fn no_reward_pair_and_no_output_exceeds_epsilon() {
    let levels = levels(12);
    for epsilon in epsilons(150) {
        let floor = Floor::for_epsilon(epsilon);
        let bound = exp_below(epsilon.get());
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, epsilon);
            let all = levels.iter().map(|&level| probability(floor, &curve, level));
            let (least, greatest) =
                all.fold((u128::MAX, 0), |(least, greatest), p| (p.min(least), p.max(greatest)));
            assert!(least > 0, "{epsilon:?} {mechanism:?}");
            assert!(
                within(&bound, least, greatest),
                "{epsilon:?} {mechanism:?}: {least:x} {greatest:x}"
            );
        }
    }
}

#[test]
fn the_extreme_rewards_use_the_whole_budget() {
    // The ends are exactly t0/2^64 and 1 - t0/2^64 for every curve, and the
    // loss is not far below epsilon: with 1.0001 epsilon less it would exceed.
    for epsilon in epsilons(40) {
        let floor = Floor::for_epsilon(epsilon);
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, epsilon);
            let least = probability(floor, &curve, Level::ZERO);
            let greatest = probability(floor, &curve, Level::ONE);
            assert_eq!(least, u128::from(floor.get()) << 64);
            assert_eq!(greatest, 0_u128.wrapping_sub(least));
            let smaller = exp_below(epsilon.get() * 0.9999);
            assert!(!within(&smaller, least, greatest), "{epsilon:?}");
        }
    }
}

#[test]
fn the_loss_of_any_verified_floor_stays_within_its_epsilon() {
    // A curve prepared for another epsilon is also bounded by the floor alone.
    let (one, eight) = (Epsilon::new(1.0).unwrap(), Epsilon::new(8.0).unwrap());
    let floor = Floor::verify(1 << 62, Epsilon::new(1.2).unwrap()).unwrap();
    for curve_epsilon in [one, eight] {
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, curve_epsilon);
            for level in levels(50) {
                let p = probability(floor, &curve, level);
                // ln 3 = 1.0986...: P is between 1/4 and 3/4.
                assert!((1_u128 << 126..=3 << 126).contains(&p));
            }
        }
    }
}
