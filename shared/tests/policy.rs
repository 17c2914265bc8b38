//! Weights over the arms.

#![cfg(test)]

use bandana_shared::limits::ARMS_MAX;
use bandana_shared::policy::{PolicyError, Weights};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Whole-numbered shares of very different sizes, some of them 0.
fn shares(random: &mut ChaCha8Rng) -> Vec<u64> {
    let arms = random.random_range(1..40);
    let mut shares: Vec<u64> =
        (0..arms).map(|_| random.next_u64() >> random.random_range(11..=64_u32).min(63)).collect();
    if shares.iter().all(|&share| share == 0) {
        shares[0] = 1;
    }
    shares
}

#[test]
fn weights_are_within_one_of_exact_shares() {
    let mut random = ChaCha8Rng::seed_from_u64(21);
    for _ in 0..2000 {
        let shares = shares(&mut random);
        // The same shares in other units, which no exact quotient depends on.
        let unit = 2.0_f64.powi(random.random_range(-400..400));
        let scaled: Vec<f64> = shares.iter().map(|&share| share as f64 * unit).collect();
        let weights = Weights::from_shares(&scaled).unwrap();
        assert_eq!(weights.iter().sum::<u64>(), Weights::TOTAL);
        let total: u128 = shares.iter().map(|&share| u128::from(share)).sum();
        for (arm, &share) in shares.iter().enumerate() {
            let exact = u128::from(share) << 32;
            let found = u128::from(weights.get(arm)) * total;
            assert!(found.abs_diff(exact) < total, "{shares:?} {arm}");
            assert!(share > 0 || weights.get(arm) == 0, "{shares:?} {arm}");
        }
    }
}

#[test]
fn every_arm_is_drawn_from_exactly_its_part_of_the_numbers() {
    let mut random = ChaCha8Rng::seed_from_u64(22);
    for _ in 0..500 {
        let shares: Vec<f64> = shares(&mut random).iter().map(|&s| s as f64).collect();
        let weights = Weights::from_shares(&shares).unwrap();
        let mut start = 0;
        for (arm, weight) in weights.iter().enumerate().filter(|&(_, weight)| weight > 0) {
            // The arm's numbers are start..start + weight: check both ends.
            for number in [start, start + weight / 2, start + weight - 1] {
                let number = u32::try_from(number).unwrap();
                assert_eq!(weights.draw(number).get(), arm, "{shares:?} {number}");
            }
            start += weight;
        }
        assert_eq!(start, Weights::TOTAL);
    }
}

#[test]
fn weights_that_are_no_distribution_are_refused() {
    let total = Weights::TOTAL;
    for (weights, expected) in [
        (vec![], PolicyError::ArmCount { arms: 0 }),
        (vec![0; ARMS_MAX + 1], PolicyError::ArmCount { arms: ARMS_MAX + 1 }),
        (vec![0], PolicyError::Sum { sum: 0 }),
        (vec![total - 1], PolicyError::Sum { sum: total - 1 }),
        (vec![total, 1], PolicyError::Sum { sum: total + 1 }),
        (vec![u64::MAX, total + 1], PolicyError::Sum { sum: u64::MAX }),
    ] {
        assert_eq!(Weights::new(&weights), Err(expected));
    }
    for shares in
        [&[0.0, 0.0][..], &[1.0, -1e-9], &[f64::NAN], &[f64::INFINITY, 1.0], &[f64::MAX, f64::MAX]]
    {
        assert_eq!(Weights::from_shares(shares), Err(PolicyError::Shares), "{shares:?}");
    }
    assert_eq!(Weights::from_shares(&[]), Err(PolicyError::ArmCount { arms: 0 }));
    assert_eq!(Weights::uniform(&[false, false]), Err(PolicyError::Shares));
}

#[test]
fn uniform_weights_leave_out_retired_arms() {
    let weights = Weights::uniform(&[false, true, true, false, true, false]).unwrap();
    let third = Weights::TOTAL / 3;
    assert_eq!((weights.get(0), weights.get(3), weights.get(5)), (0, 0, 0));
    for arm in [1, 2, 4] {
        assert!(weights.get(arm).abs_diff(third) <= 1);
    }
    assert_eq!((weights.len(), weights.get(6), weights.get(usize::MAX)), (6, 0, 0));
    assert!((weights.share(1) - 1.0 / 3.0).abs() < 1e-9);
}

#[test]
fn random_weights_never_panic() {
    let mut random = ChaCha8Rng::seed_from_u64(23);
    for _ in 0..5000 {
        let length = random.random_range(0..20);
        let mut weights: Vec<u64> =
            (0..length).map(|_| random.next_u64() >> random.random_range(0..64_u32)).collect();
        // Some of them sum to the whole.
        let sum = weights.iter().fold(0, |sum: u64, weight| sum.saturating_add(*weight));
        if let Some(rest) = Weights::TOTAL.checked_sub(sum) {
            weights.push(rest);
        }
        let valid = weights.iter().map(|&w| u128::from(w)).sum::<u128>() == 1 << 32;
        match Weights::new(&weights) {
            Ok(accepted) => {
                assert!(valid);
                assert!(accepted.iter().eq(weights.iter().copied()));
                let arm = accepted.draw(random.next_u32()).get();
                assert!(weights[arm] > 0);
            }
            Err(_) => assert!(!valid),
        }
    }
}
