//! Coarse weights: what a policy tells of the tallies behind it, with few different values.

use bandana_shared::policy::Weights;

/// Rounding takes at most this fraction from the arm with the largest weight, 1/32.
const TAKEN_MAX: u64 = Weights::TOTAL / 32;

/// Rounds the weights of all arms but the largest up to whole steps, and leaves the rest to that one.
/// A step is the largest power of two that takes no more than a thirty-second from it: so two tallies
/// that differ little have the same weights most of the time. Weights whose largest would then be below
/// the least of before, as equal ones, stay as they are. No arm gets less than a floor.
pub(crate) fn coarse(weights: &Weights) -> Weights {
    let arms = weights.len() as u64;
    let step = 1 << (TAKEN_MAX / arms.max(1)).max(1).ilog2();
    let Some(largest) = (0..weights.len()).rev().max_by_key(|arm| weights.get(*arm)) else {
        return weights.clone();
    };
    let mut rounded: Vec<u64> = weights.iter().map(|one| one.next_multiple_of(step)).collect();
    let others = rounded.iter().sum::<u64>() - rounded[largest];
    let least = weights.iter().filter(|weight| *weight > 0).min().unwrap_or(0);
    match Weights::TOTAL.checked_sub(others) {
        Some(rest) if rest >= least => rounded[largest] = rest,
        _ => return weights.clone(),
    }
    Weights::new(&rounded).unwrap_or_else(|_| weights.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_arm_gets_less_than_its_floor_and_nothing_is_far_away() {
        for arms in [1_usize, 2, 3, 7, 64, 1000] {
            for best in [1.0, 1.5, 40.0, 1e6] {
                let mut shares = vec![1.0; arms];
                shares[arms / 2] = best;
                if arms > 2 {
                    shares[0] = 0.0;
                }
                let before = Weights::from_shares(&shares).unwrap();
                let after = coarse(&before);
                let least = before.iter().filter(|weight| *weight > 0).min().unwrap();
                for (one, other) in before.iter().zip(after.iter()) {
                    assert_eq!(one == 0, other == 0);
                    assert!(other == 0 || other >= least, "{arms} {best}: {other}");
                    assert!(one.abs_diff(other) <= TAKEN_MAX, "{arms} {best}: {one} {other}");
                }
            }
        }
    }

    #[test]
    fn few_of_many_weights_are_different() {
        let weights = (0..1000).map(|part| {
            let shares = [f64::from(part) + 0.5, 1000.0 - f64::from(part)];
            coarse(&Weights::from_shares(&shares).unwrap()).get(0)
        });
        let different: BTreeSet<u64> = weights.collect();
        assert!((30..=70).contains(&different.len()), "{}", different.len());
    }
}
