//! The epsilons, mechanisms and rewards that the tests run over.

use bandana_shared::channel::Floor;
use bandana_shared::curve::{Curvature, Curve, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::rewards::RewardRange;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

pub(crate) fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// A geometric grid over the whole range, `2^(-20 + 25 i/steps)`; every point
/// with its two neighbours; and as many seeded random numbers.
pub(crate) fn epsilons(steps: u32) -> Vec<Epsilon> {
    let mut random = random(1);
    let power = |exponent: f64| (exponent * std::f64::consts::LN_2).exp();
    let grid = (0..=steps).map(|i| power(-20.0 + 25.0 * f64::from(i) / f64::from(steps)));
    let drawn: Vec<f64> = (0..steps).map(|_| power(random.random_range(-20.0..5.0))).collect();
    let special = [Epsilon::MIN, 0.5, std::f64::consts::LN_2, 1.0, 2.0, Epsilon::MAX];
    grid.chain(drawn)
        .chain(special)
        .flat_map(|x| [x.next_down(), x, x.next_up()])
        .filter_map(|x| Epsilon::new(x).ok())
        .collect()
}

/// Every power of two in the range, the numbers with few bits next to it, the largest below the next one,
/// and `drawn` random ones in between.
pub(crate) fn patterns(drawn: usize) -> Vec<Epsilon> {
    let mut random = random(6);
    let mut patterns = Vec::new();
    for power in -20..=5 {
        let bits = 2.0_f64.powi(power).to_bits();
        let ones = (1_u64 << 52) - 1;
        let mut digits = vec![0, 1, 2, 3, 1 << 26, 1 << 51, ones ^ 1, ones, ones << 26 & ones];
        digits.extend((0..drawn).map(|_| random.next_u64() & ones));
        patterns.extend(digits.into_iter().map(|digits| f64::from_bits(bits | digits)));
    }
    patterns.into_iter().filter_map(|x| Epsilon::new(x).ok()).collect()
}

/// Every curve, the bent ones with several curvatures.
pub(crate) fn mechanisms() -> Vec<Mechanism> {
    let quadratic =
        [-1.0, -0.5, 0.3, 1.0].map(|k| Mechanism::Quadratic(Curvature::new(k).unwrap()));
    let mut mechanisms =
        vec![Mechanism::Linear, Mechanism::Exponential, Mechanism::RandomizedResponse];
    mechanisms.extend(quadratic);
    mechanisms
}

/// Rewards in [0, 1] that are likely to cause errors, and `drawn` random ones.
pub(crate) fn unit_rewards(drawn: usize) -> Vec<f64> {
    let mut random = random(2);
    let mut rewards = vec![
        0.0,
        -0.0,
        f64::from_bits(1),
        f64::from_bits((1 << 52) - 1),
        f64::MIN_POSITIVE,
        f64::MIN_POSITIVE.next_up(),
        1e-300,
        f64::EPSILON / 4.0,
        (f64::EPSILON / 2.0).next_down(),
        f64::EPSILON / 2.0,
        f64::EPSILON,
        0.25_f64.next_down(),
        0.5_f64.next_down(),
        0.5,
        0.5_f64.next_up(),
        1.0 / 3.0,
        0.9,
        1.0_f64.next_down().next_down(),
        1.0_f64.next_down(),
        1.0,
    ];
    rewards.extend((0..drawn).map(|_| random.random::<f64>()));
    // Numbers of every magnitude: random bits below those of 1.
    rewards.extend((0..drawn).map(|_| f64::from_bits(random.next_u64() % 1.0_f64.to_bits())));
    rewards
}

/// Rewards in ranges other than 0..=1, with their range.
pub(crate) fn ranged_rewards(drawn: usize) -> Vec<(RewardRange, f64)> {
    let ranges = [
        (-1.0, 1.0),
        (0.0, 5.0),
        (-3.7, 1e9),
        (1e-300, 3e-300),
        (0.0, f64::from_bits(3)),
        (1.0, 1.0_f64.next_up().next_up()),
        (-8e307, 8e307),
        (-1e16, 1.0),
    ];
    let mut random = random(3);
    ranges
        .into_iter()
        .flat_map(|(low, high): (f64, f64)| {
            let mut rewards =
                vec![low, low.next_up(), f64::midpoint(low, high), high.next_down(), high];
            rewards.extend((0..drawn).map(|_| random.random_range(low..=high)));
            let range = RewardRange::new(low, high).unwrap();
            rewards.into_iter().map(move |reward| (range, reward))
        })
        .collect()
}

/// The levels of [`unit_rewards`] and [`ranged_rewards`], and random ones.
pub(crate) fn levels(drawn: usize) -> Vec<Level> {
    let unit = unit_rewards(drawn).into_iter().map(|r| Level::from_unit(r).unwrap());
    let ranged =
        ranged_rewards(drawn).into_iter().map(|(range, reward)| range.level(reward).unwrap());
    unit.chain(ranged).collect()
}

/// `2^128 P(1)` for a level.
pub(crate) fn probability(floor: Floor, curve: &Curve, level: Level) -> u128 {
    floor.threshold(curve.apply(level)).to_u128()
}
