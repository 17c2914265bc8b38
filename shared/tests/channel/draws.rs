//! Draws of a bit from its threshold.

use std::convert::Infallible;

use bandana_shared::channel::{Floor, Threshold};
use bandana_shared::curve::{Curve, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use rand::Rng as _;

use crate::channel::cases::{epsilons, levels, mechanisms, random};

/// The upper and the lower half of a number.
fn words(number: u128) -> (u64, u64) {
    let low = number & u128::from(u64::MAX);
    (u64::try_from(number >> 64).unwrap(), u64::try_from(low).unwrap())
}

/// The bit for the given words, and how many of them were drawn.
fn drawn(threshold: Threshold, words: [u64; 2]) -> (bool, usize) {
    let mut count = 0;
    let bit = threshold.draw(|| {
        count += 1;
        Ok::<u64, Infallible>(words[count - 1])
    });
    let Ok(bit) = bit;
    (bit, count)
}

#[test]
fn the_bit_is_whether_the_number_is_below_the_threshold() {
    let mut random = random(8);
    for epsilon in epsilons(6) {
        let floor = Floor::for_epsilon(epsilon);
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, epsilon);
            for level in levels(3) {
                let threshold = floor.threshold(curve.apply(level));
                let t = threshold.to_u128();
                let anything = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
                for number in [t - 1, t, t + 1, anything, 0, u128::MAX, t ^ 1 << 64] {
                    let (high, low) = words(number);
                    assert_eq!(threshold.bit(high, low), number < t, "{t:x} {number:x}");
                    assert_eq!(drawn(threshold, [high, low]).0, number < t, "{t:x} {number:x}");
                }
            }
        }
    }
}

#[test]
fn only_a_tie_draws_a_second_word() {
    let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
    let threshold = floor.threshold(Level::from_unit(1.0 / 3.0).unwrap());
    let t = threshold.to_u128();
    let (high, low) = words(t);
    assert!(low > 0, "a tie can go either way");
    assert_eq!(drawn(threshold, [high, low - 1]), (true, 2));
    assert_eq!(drawn(threshold, [high, low]), (false, 2));
    assert_eq!(drawn(threshold, [high - 1, u64::MAX]), (true, 1));
    assert_eq!(drawn(threshold, [high + 1, 0]), (false, 1));
}

#[test]
fn without_a_word_there_is_no_bit() {
    let floor = Floor::for_epsilon(Epsilon::new(1.0).unwrap());
    let threshold = floor.threshold(Level::from_unit(1.0 / 3.0).unwrap());
    assert_eq!(threshold.draw(|| Err::<u64, _>("no entropy")), Err("no entropy"));
    // Nor when the second word fails.
    let (tie, _) = words(threshold.to_u128());
    let mut words = [Ok(tie), Err("no entropy")].into_iter();
    assert_eq!(threshold.draw(|| words.next().unwrap()), Err("no entropy"));
}

#[test]
fn frequencies_match_the_probabilities() {
    // 40 000 draws for each of 20 pairs. A deviation of more than 4.9 standard
    // deviations has probability 10^-6 each, so a correct channel fails with
    // probability 2 10^-5 over the choice of the seed, which is fixed.
    const DRAWS: u32 = 40_000;
    let mut random = random(9);
    for epsilon in [0.1, 1.0, 2.0, 8.0].map(|e| Epsilon::new(e).unwrap()) {
        let floor = Floor::for_epsilon(epsilon);
        for (mechanism, reward) in [
            (Mechanism::Linear, 0.0),
            (Mechanism::Linear, 0.3),
            (Mechanism::Exponential, 0.7),
            (Mechanism::RandomizedResponse, 1.0),
            (Mechanism::Linear, 0.999),
        ] {
            let curve = Curve::new(mechanism, epsilon);
            let threshold = floor.threshold(curve.apply(Level::from_unit(reward).unwrap()));
            let draw = |_: &u32| {
                let Ok(bit) = threshold.draw(|| Ok::<u64, Infallible>(random.next_u64()));
                bit
            };
            let ones = (0..DRAWS).filter(draw).count() as f64;
            // Published formulas, not the threshold.
            let e = epsilon.get().exp();
            let p = match mechanism {
                Mechanism::Exponential => (epsilon.get() * reward).exp() / (e + 1.0),
                _ => ((e - 1.0) * reward + 1.0) / (e + 1.0),
            };
            let n = f64::from(DRAWS);
            let deviation = (ones - n * p) / (n * p * (1.0 - p)).sqrt();
            assert!(deviation.abs() < 4.9, "{epsilon:?} {mechanism:?} {reward}: {deviation}");
        }
    }
}

#[test]
fn debug_output_does_not_show_secrets() {
    let level = Level::from_unit(0.625).unwrap();
    let threshold = Floor::for_epsilon(Epsilon::new(1.0).unwrap()).threshold(level);
    assert_eq!(format!("{level:?} {threshold:?}"), "Level(<private>) Threshold(<private>)");
}
