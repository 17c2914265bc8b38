//! The expectation of a debiased report, exactly.

use bandana_shared::channel::Floor;
use bandana_shared::curve::{Curve, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::debiased_mean;
use bandana_shared::tally::Tally;
use rand::{Rng as _, RngExt as _};

use crate::channel::cases::{
    epsilons, mechanisms, probability, random, ranged_rewards, unit_rewards,
};
use crate::channel::exact::{Exact, distance, exact, exp_m1, power_of_two, quotient, whole};

/// g(r) for a reward between 0 and 1, as the paper defines it.
fn true_curve(mechanism: Mechanism, epsilon: Epsilon, reward: &Exact) -> Exact {
    match mechanism {
        Mechanism::Linear | Mechanism::RandomizedResponse | Mechanism::Kary(_) => reward.clone(),
        Mechanism::Quadratic(curvature) => {
            let k = exact(curvature.get());
            &k * reward * reward + (whole(1) - &k) * reward
        }
        Mechanism::Exponential => {
            let epsilon = exact(epsilon.get());
            quotient(&exp_m1(&(&epsilon * reward)), &exp_m1(&epsilon))
        }
    }
}

/// Whether `(P/2^64 - t0)/(2^64 - 2 t0)` is `mean` within `tolerance`, with all
/// denominators multiplied out.
fn expects(floor: Floor, probability: u128, mean: &Exact, tolerance: &Exact) -> bool {
    let signal = whole(probability) - (whole(u128::from(floor.get())) << 64);
    let width = whole(u128::from(floor.width())) << 64;
    distance(&signal, &(mean * &width)) <= tolerance * &width
}

#[test]
fn debiased_reports_expect_the_curve_of_the_exact_reward() {
    let rewards = unit_rewards(8);
    let tolerance = power_of_two(-50);
    for epsilon in epsilons(24) {
        let floor = Floor::for_epsilon(epsilon);
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, epsilon);
            for &reward in &rewards {
                let level = bandana_shared::curve::Level::from_unit(reward).unwrap();
                let mean = true_curve(mechanism, epsilon, &exact(reward));
                assert!(
                    expects(floor, probability(floor, &curve, level), &mean, &tolerance),
                    "{epsilon:?} {mechanism:?} {reward:e}"
                );
            }
        }
    }
}

#[test]
fn so_they_do_for_other_ranges() {
    // The level is off by up to 2^-51 there, and no curve is steeper than
    // ε/(1 - e^-ε) <= 1 + ε.
    for epsilon in [Epsilon::MIN, 0.1, 1.0, 7.5, Epsilon::MAX].map(|e| Epsilon::new(e).unwrap()) {
        let floor = Floor::for_epsilon(epsilon);
        let steepness = whole(1) + exact(epsilon.get()).max(whole(1));
        let tolerance = power_of_two(-50) + power_of_two(-51) * steepness;
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, epsilon);
            for (range, reward) in ranged_rewards(6) {
                let low = exact(range.low());
                let scaled = quotient(&(exact(reward) - &low), &(exact(range.high()) - &low));
                let mean = true_curve(mechanism, epsilon, &scaled);
                let p = probability(floor, &curve, range.level(reward).unwrap());
                assert!(
                    expects(floor, p, &mean, &tolerance),
                    "{epsilon:?} {mechanism:?} {range:?} {reward:e}"
                );
            }
        }
    }
}

#[test]
fn the_mechanisms_have_the_probabilities_of_the_paper() {
    // P(1) = ((e^ε - 1) r + 1)/(e^ε + 1) for the linear and e^(ε r)/(e^ε + 1)
    // for the exponential curve, but for the guard of the floor.
    for epsilon in [0.01, 0.5, 1.0, 3.0, 10.0].map(|e| Epsilon::new(e).unwrap()) {
        let floor = Floor::for_epsilon(epsilon);
        let span = exp_m1(&exact(epsilon.get()));
        for reward in unit_rewards(20) {
            let level = bandana_shared::curve::Level::from_unit(reward).unwrap();
            let exponential = exp_m1(&(exact(epsilon.get()) * exact(reward)));
            for (mechanism, numerator) in [
                (Mechanism::Linear, &span * exact(reward) + whole(1)),
                (Mechanism::Exponential, exponential + whole(1)),
            ] {
                let curve = Curve::new(mechanism, epsilon);
                let found = whole(probability(floor, &curve, level)) * power_of_two(-128);
                let published = quotient(&numerator, &(&span + whole(2)));
                assert!(
                    distance(&found, &published) < power_of_two(-48),
                    "{epsilon:?} {mechanism:?} {reward:e}"
                );
            }
        }
    }
}

#[test]
fn debiased_means_are_the_exact_quotient() {
    let mut random = random(7);
    for epsilon in epsilons(30) {
        let floor = Floor::for_epsilon(epsilon);
        for _ in 0..10 {
            let reports = (random.next_u64() >> random.random_range(2..60)).max(1);
            let ones = random.random_range(0..=reports);
            let found = exact(debiased_mean(floor, Tally::new(reports, ones).unwrap()).unwrap());
            // (ones 2^64 - n t0)/(n width); the numerator is rounded once, and
            // so are n, width and two quotients: 5 times 2^-53.
            let n = whole(u128::from(reports));
            let numerator =
                whole(u128::from(ones)) * power_of_two(64) - &n * whole(u128::from(floor.get()));
            let denominator = n * whole(u128::from(floor.width()));
            let error = distance(&(found * &denominator), &numerator);
            let size = if numerator < whole(0) { -numerator } else { numerator };
            assert!(error <= size * power_of_two(-50), "{epsilon:?} {ones}/{reports}");
        }
    }
}
